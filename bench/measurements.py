"""What is measured of one operator on one control plane, as numbers: `bench.peers` runs and prints them.

    async with Probe(plane, operator) as probe:
        seconds = await probe.idle(30)

Rules:
- Times are between two events that this process sees: the moment before it sends a POST, and the arrival of a watch
  event. One clock.
- The pods have a scheduler that does not exist, so that nothing but the operator and `bench.kubelet` writes them.
- Each measurement has a namespace of its own. A ceiling is measured after it with the same objects: they are read back
  and created again, without an operator, WIDTH at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from bench.kubelet import SCHEDULER, Event
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import READS
from tests.support.control_plane_process import ControlPlaneProcess
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, name_of
from trainyard.objects.resources import NAMESPACE, POD, SERVICE, SERVICE_ACCOUNT

WIDTH = 64  # requests at one time
TICKS = os.sysconf("SC_CLK_TCK")
_numbers = itertools.count(1)


_EVENT = msgspec.json.Decoder(Event)


@dataclass(frozen=True, slots=True)
class Subject:
    """An operator, and the job that it is given: `job(name, replicas)`."""

    name: str
    agent: str  # how the User-Agent of its requests begins
    gvk: GVK
    job: Callable[[str, int], Json]
    first_pod: Callable[[str], str]  # its name, from that of the job


class Arrivals:
    """When the first watch event of each object of a resource arrived (`time.perf_counter`), and which have ended."""

    def __init__(self, api: ApiClient, gvk: GVK, ended: bytes = b'"phase":"Succeeded"') -> None:
        self.times: dict[tuple[str, str], float] = {}  # (namespace, name)
        self.counts: Counter[str] = Counter()  # by namespace
        self.over: Counter[str] = Counter()  # by namespace, those that have ended
        self._api, self._gvk, self._ended = api, gvk, ended
        self._over: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        listed = await self._api.list(self._gvk, field_selector="metadata.name=none")
        self._task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, revision: str) -> None:
        while True:
            async for line in self._api.watch(self._gvk, "", revision):
                now = time.perf_counter()
                metadata = _EVENT.decode(line).object.metadata
                revision = metadata.resourceVersion
                if metadata.name:
                    self._record((metadata.namespace, metadata.name), now, self._ended in line)
                self._changed.set()

    def _record(self, key: tuple[str, str], now: float, ended: bool) -> None:
        if key not in self.times:
            self.times[key] = now
            self.counts[key[0]] += 1
        if ended and key not in self._over:
            self._over.add(key)
            self.over[key[0]] += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, which is tested after each event."""
        while not condition():
            self._changed.clear()
            waiting = asyncio.create_task(self._changed.wait())
            assert self._task is not None
            await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                waiting.cancel()
                self._task.result()

    def within(self, namespace: str) -> list[float]:
        """The arrival times in this namespace, sorted."""
        return sorted(at for (place, _), at in self.times.items() if place == namespace)


async def at_once(calls: Iterable[Callable[[], Awaitable[object]]], width: int = WIDTH) -> None:
    """Await what the calls return, `width` of them at a time."""
    gate = asyncio.Semaphore(width)

    async def run(call: Callable[[], Awaitable[object]]) -> None:
        async with gate:
            await call()

    await asyncio.gather(*map(run, calls))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Probe:
    """Measures the operator of a `Subject` that runs beside this control plane."""

    def __init__(self, plane: ControlPlane, subject: Subject, operator: ControlPlaneProcess) -> None:
        self.plane, self.subject, self.operator = plane, subject, operator
        self.api = plane.api()
        self.pods = Arrivals(self.api, POD)
        self.services = Arrivals(self.api, SERVICE)
        self.accounts = Arrivals(self.api, SERVICE_ACCOUNT)
        self.jobs = Arrivals(self.api, subject.gvk, b'"type":"Succeeded"')

    async def __aenter__(self) -> Probe:
        for arrivals in (self.pods, self.services, self.accounts, self.jobs):
            await arrivals.start()
        await self.idle(3)  # connections are open, and every code path has run once
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for arrivals in (self.pods, self.services, self.accounts, self.jobs):
            await arrivals.stop()
        await self.api.close()

    async def namespace(self) -> str:
        """A new namespace, from when it has the ServiceAccount without which the API server delays pods by 100 ms."""
        name = f"bench-{next(_numbers)}"
        await self.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self.accounts.until(lambda: self.accounts.counts[name] > 0)
        return name

    async def create(self, namespace: str, name: str, replicas: int) -> float:
        """Create a job. Returns the time before the POST."""
        began = time.perf_counter()
        await self.api.create(self.subject.gvk, namespace, self.subject.job(name, replicas))
        return began

    async def first_pod(self, namespace: str, name: str) -> float:
        """Seconds from the POST of a one-pod job to its pod."""
        began = await self.create(namespace, name, 1)
        key = (namespace, self.subject.first_pod(name))
        await self.pods.until(lambda: key in self.pods.times)
        return self.pods.times[key] - began

    async def idle(self, count: int) -> list[float]:
        """Seconds from the POST of a one-pod job to its pod, one job after the other."""
        namespace = await self.namespace()
        return [await self.first_pod(namespace, f"one-{number}") for number in range(count)]

    async def bare(self, count: int) -> list[float]:
        """Seconds from the POST of a pod to its watch event: what `idle` cannot be faster than."""
        namespace, seconds = await self.namespace(), []
        for number in range(count):
            key = (namespace, f"one-{number}")
            spec = {"containers": [{"name": "pytorch", "image": "none"}], "schedulerName": SCHEDULER}
            began = time.perf_counter()
            await self.api.create(POD, namespace, {"metadata": {"name": key[1]}, "spec": spec})
            await self.pods.until(lambda key=key: key in self.pods.times)
            seconds.append(self.pods.times[key] - began)
        return seconds

    async def big(self, replicas: int) -> dict[str, float]:
        """One job: seconds to its first pod, to all of its pods and to all of its children; and the ceiling of the
        latter two, with the same objects."""
        namespace, before = await self.namespace(), cpu_seconds(self.operator.pid)
        began = await self.create(namespace, "big", replicas)
        await self._complete(namespace, replicas)
        pods, services = self.pods.within(namespace), self.services.within(namespace)
        seconds = {
            "first pod": pods[0] - began,
            "all pods": pods[-1] - began,
            "all children": max(pods[-1], services[-1]) - began,
            "operator CPU": cpu_seconds(self.operator.pid) - before,
        }
        return {**seconds, **await self._ceiling(namespace, replicas)}

    async def _complete(self, namespace: str, replicas: int) -> None:
        await self.pods.until(lambda: self.pods.counts[namespace] == replicas)
        await self.services.until(lambda: self.services.counts[namespace] == replicas)

    async def _ceiling(self, namespace: str, replicas: int) -> dict[str, float]:
        pods, services = [await self._copies(gvk, namespace) for gvk in (POD, SERVICE)]
        copy = await self.namespace()
        began = time.perf_counter()
        await at_once(lambda pod=pod: self.api.create(POD, copy, pod) for pod in pods)
        await self.pods.until(lambda: self.pods.counts[copy] == replicas)
        middle = time.perf_counter()
        await at_once(lambda service=service: self.api.create(SERVICE, copy, service) for service in services)
        await self.services.until(lambda: self.services.counts[copy] == len(services))
        return {"ceiling of all pods": middle - began, "ceiling of all children": time.perf_counter() - began}

    async def _copies(self, gvk: GVK, namespace: str) -> list[Json]:
        """The objects of a namespace as they can be created again."""
        items = (await self.api.list(gvk, namespace))["items"]
        return [copy_of(item) for item in items]

    async def beside(self, replicas: int, count: int, same_namespace: bool) -> list[float]:
        """As `idle`, while a job of `replicas` is created; at most `count`, and only those that came before its end."""
        namespace = await self.namespace()
        place = namespace if same_namespace else await self.namespace()
        await self.create(namespace, "big", replicas)
        await self.pods.until(lambda: self.pods.counts[namespace] > 0)
        seconds: list[float] = []
        while len(seconds) < count and self.services.counts[namespace] < replicas:
            seconds.append(await self.first_pod(place, f"one-{len(seconds)}"))
        await self._complete(namespace, replicas + (len(seconds) if same_namespace else 0))
        return seconds

    async def many(self, jobs: int, replicas: int) -> dict[str, float]:
        """Many small jobs, until each has succeeded: jobs per second, and per job the operator's CPU, requests and
        events."""
        with kubelet(self.plane):
            namespace, mark = await self.namespace(), self.plane.audit.mark()
            before, began = cpu_seconds(self.operator.pid), time.perf_counter()
            await at_once(
                (lambda number=number: self.create(namespace, f"job-{number}", replicas)) for number in range(jobs)
            )
            await self.jobs.until(lambda: self.jobs.over[namespace] == jobs)
            seconds = time.perf_counter() - began
            cpu = cpu_seconds(self.operator.pid) - before
            sent = [each for each in self.plane.audit.since(mark) if each.agent.startswith(self.subject.agent)]
            floor = await self._floor(namespace, jobs, replicas)
        events = sum(each.resource.startswith("events") for each in sent)
        return {
            "jobs per second": jobs / seconds,
            "jobs per second without an operator": jobs / floor,
            "operator CPU-s per 1,000 jobs": 1000 * cpu / jobs,
            "requests per job": (len(sent) - sum(each.resource == "leases" for each in sent)) / jobs,
            "events per job": events / jobs,
            "reads per job": sum(each.verb in READS for each in sent) / jobs,
        }

    async def _floor(self, namespace: str, jobs: int, replicas: int) -> float:
        """Seconds that the same children take from the first POST to the end of the last pod, without an operator."""
        copies = [(gvk, copy) for gvk in (SERVICE, POD) for copy in await self._copies(gvk, namespace)]
        place = await self.namespace()
        copies.sort(key=lambda each: name_of(each[1]))
        began = time.perf_counter()
        await at_once(lambda gvk=gvk, copy=copy: self.api.create(gvk, place, copy) for gvk, copy in copies)
        await self.pods.until(lambda: self.pods.over[place] == jobs * replicas)
        return time.perf_counter() - began


def copy_of(item: Json) -> Json:
    """The object without what a server or a controller has set, and without its owner."""
    metadata = {key: value for key, value in item["metadata"].items() if key in ("name", "labels", "annotations")}
    spec = {key: value for key, value in item["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    if spec.get("clusterIP") is None and item["spec"].get("clusterIP") == "None":
        spec["clusterIP"] = "None"
    return {"metadata": metadata, "spec": spec}


@contextlib.contextmanager
def kubelet(plane: ControlPlane) -> Iterator[None]:
    """`bench.kubelet`, from when it watches."""
    command = [sys.executable, "-m", "bench.kubelet", "--kubeconfig", str(plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the kubelet of the benchmark did not start")
        try:
            yield
        finally:
            process.kill()
