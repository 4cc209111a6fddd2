"""What is measured of one operator on one control plane, as numbers: `bench.peers` runs and prints them.

    async with Probe(plane, subject, operator) as probe:
        seconds = await probe.idle(30)

Rules:
- Times are between two events that this process sees: the moment before it sends a POST, and the arrival of a watch
  event. One clock.
- The pods have a scheduler that does not exist, so that nothing but the operator, kube-controller-manager and
  `bench.kubelet` writes them.
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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec

from bench.jobs import SCHEDULER, managed_elsewhere
from bench.kubelet import Event
from bench.least_operator import JobWork, Work
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import READS
from tests.support.control_plane_process import ControlPlaneProcess
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, name_of
from trainyard.objects.resources import JOB, NAMESPACE, POD, SERVICE, SERVICE_ACCOUNT

WIDTH = 64  # requests at one time
REST_SECONDS, REST_SHARE = 0.5, 0.1  # a program rests that takes less than this share of a core for so long
TICKS = os.sysconf("SC_CLK_TCK")
CONTROLLERS = "kube-controller-manager"  # the program, and how the User-Agent of its requests begins
_SET_BY_JOB_CONTROLLER = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
_numbers = itertools.count(1)
_EVENT = msgspec.json.Decoder(Event)


@dataclass(frozen=True, slots=True)
class Subject:
    """An operator, and the jobs that it is given."""

    name: str
    agent: str
    """How the User-Agent of its requests begins."""
    gvk: GVK
    job: Callable[[str, int], Json]
    """From name and replicas."""
    children: Callable[[int], dict[GVK, int]]
    """What exists when a job of so many replicas is complete: so many objects of each resource, its replicas first. The
    ceiling is made of the same objects, and so the batch Job of a JobSet, which would make pods, is none of them."""
    name_parts: int
    """How many parts between dashes a pod's name has after the name of its job."""
    ended: bytes = b'"type":"Succeeded"'
    """What a job has in its JSON when it has succeeded, and not before."""
    webhook_label: str = ""
    """The label by which its webhooks select pods. Copies are without it: no operator is asked for them."""


class Arrivals:
    """When the first watch event of each object of a resource arrived (`time.perf_counter`), and which have ended."""

    def __init__(self, api: ApiClient, gvk: GVK, ended: bytes = b'"phase":"Succeeded"', name_parts: int = 0) -> None:
        self.times: dict[tuple[str, str], float] = {}  # (namespace, name)
        self.firsts: dict[tuple[str, str], float] = {}  # (namespace, the name without `name_parts`)
        self.counts: Counter[str] = Counter()  # by namespace
        self.over: Counter[str] = Counter()  # by namespace, those that have ended
        self._api, self._gvk, self._ended, self._name_parts = api, gvk, ended, name_parts
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
            self.firsts.setdefault((key[0], key[1].rsplit("-", self._name_parts)[0]), now)
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


class Probe:
    """Measures the operator of a `Subject` that runs beside this control plane."""

    def __init__(self, plane: ControlPlane, subject: Subject, operator: ControlPlaneProcess) -> None:
        self.plane, self.subject = plane, subject
        self.pids = {process.name: process.pid for process in (*plane.processes, operator)}
        self.operator = operator.name
        self.api = plane.api()
        self.accounts = Arrivals(self.api, SERVICE_ACCOUNT)
        self.jobs = Arrivals(self.api, subject.gvk, subject.ended)
        self.pods = Arrivals(self.api, POD, name_parts=subject.name_parts)
        self.children = {POD: self.pods, **{gvk: Arrivals(self.api, gvk) for gvk in subject.children(1) if gvk != POD}}

    async def __aenter__(self) -> Probe:
        for arrivals in (self.accounts, self.jobs, *self.children.values()):
            await arrivals.start()
        for _ in range(3):  # connections are open then, and every code path has run once
            namespace = await self.namespace()
            await self.create(namespace, "warm", 1)
            await self.complete(namespace, 1)
            await self._pods_follow(namespace, 1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for arrivals in (self.accounts, self.jobs, *self.children.values()):
            await arrivals.stop()
        await self.api.close()

    async def namespace(self) -> str:
        """A new namespace, from when it has the ServiceAccount without which the API server delays pods by 100 ms, and
        the controllers rest."""
        await self.rest()
        name = f"bench-{next(_numbers)}"
        await self.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self.accounts.until(lambda: self.accounts.counts[name] > 0)
        return name

    async def rest(self) -> None:
        """Wait until nothing is left of the measurement before: kube-controller-manager makes the endpoints of a
        thousand Services for seconds."""
        used = sum(self._cpu().values())
        while True:
            await asyncio.sleep(REST_SECONDS)
            before, used = used, sum(self._cpu().values())
            if used - before < REST_SHARE * REST_SECONDS:
                return

    async def create(self, namespace: str, name: str, replicas: int) -> float:
        """Create a job. Returns the time before the POST."""
        began = time.perf_counter()
        await self.api.create(self.subject.gvk, namespace, self.subject.job(name, replicas))
        return began

    # --- one-pod jobs

    async def first_pod(self, namespace: str, name: str) -> float:
        """Seconds from the POST of a one-pod job to its pod."""
        began = await self.create(namespace, name, 1)
        key = (namespace, name)
        await self.pods.until(lambda: key in self.pods.firsts)
        return self.pods.firsts[key] - began

    async def idle(self, count: int) -> list[float]:
        """Seconds from the POST of a one-pod job to its pod, one job after the other."""
        namespace = await self.namespace()
        return [await self.first_pod(namespace, f"one-{number}") for number in range(count)]

    async def bare(self, count: int) -> list[float]:
        """Seconds from the POST of a pod to its watch event: what `idle` cannot be faster than."""
        namespace, seconds = await self.namespace(), []
        for number in range(count):
            began = time.perf_counter()
            seconds.append(await self._bare_pod(namespace, f"one-{number}") - began)
        return seconds

    async def by_hand(self, count: int) -> list[float]:
        """Seconds of the two writes of `idle` without an operator: from the POST of a one-pod job, which another
        controller manages, to its watch event, and on from the POST of a pod to its watch event."""
        namespace, gvk, seconds = await self.namespace(), self.subject.gvk, []
        for number in range(count):
            key = (namespace, f"one-{number}")
            job = managed_elsewhere(gvk, self.subject.job(key[1], 1))
            began = time.perf_counter()
            post = asyncio.create_task(self.api.create(gvk, namespace, job))
            await self.jobs.until(lambda key=key: key in self.jobs.times)
            seconds.append(await self._bare_pod(*key) - began)
            await post
        return seconds

    async def _bare_pod(self, namespace: str, name: str) -> float:
        """Create a pod. Returns the time of its watch event."""
        spec = {"containers": [{"name": "pytorch", "image": "none"}], "schedulerName": SCHEDULER}
        await self.api.create(POD, namespace, {"metadata": {"name": name}, "spec": spec})
        await self.pods.until(lambda: (namespace, name) in self.pods.times)
        return self.pods.times[namespace, name]

    async def beside(self, replicas: int, count: int) -> dict[str, list[float]]:
        """As `idle`, while a job of `replicas` is created, in another namespace and in its own in turn; at most `count`
        of each, and only those that came before its end."""
        namespace, other = await self.namespace(), await self.namespace()
        # The first pod of a namespace waits for admission's lookup of limits: 0.1 s, if another namespace is newer.
        await self.first_pod(other, "first")
        await self.create(namespace, "big", replicas)
        await self.pods.until(lambda: self.pods.counts[namespace] > 0)
        seconds: dict[str, list[float]] = {"another": [], "same": []}
        for number in range(count):
            for place, values in seconds.items():
                if self._is_complete(namespace, replicas, *(1 for _ in seconds["same"])):
                    break
                values.append(await self.first_pod(namespace if place == "same" else other, f"one-{number}"))
        await self.complete(namespace, replicas, *(1 for _ in seconds["same"]))
        return seconds

    # --- one big job

    async def big(self, replicas: int) -> tuple[str, dict[str, float]]:
        """One job: seconds to its first replica, to all of them and to all of its children; CPU seconds and requests of
        the operator and of kube-controller-manager until then. Returns its namespace, too."""
        namespace, spent = await self.namespace(), self.spent()
        began = await self.create(namespace, "big", replicas)
        await self.complete(namespace, replicas)
        costs = spent()
        children, *_ = self.subject.children(replicas)
        times = self.children[children].within(namespace)
        last = max(self.children[gvk].within(namespace)[-1] for gvk in self.subject.children(replicas))
        await self._pods_follow(namespace, replicas)
        seconds = {"first": times[0] - began, "replicas": times[-1] - began, "seconds": last - began}
        return namespace, {**seconds, **costs}

    async def ceiling(self, namespace: str, replicas: int) -> dict[str, float]:
        """Seconds that the replicas of `big`, and all of its children, take without an operator."""
        copies = {gvk: await self.copies(gvk, namespace) for gvk in self.subject.children(replicas)}
        copy = await self.namespace()
        began = time.perf_counter()
        ends = []
        for gvk, objects in copies.items():
            await at_once(lambda obj=obj, gvk=gvk: self.api.create(gvk, copy, obj) for obj in objects)
            arrivals, count = self.children[gvk], len(objects)
            await arrivals.until(lambda arrivals=arrivals, count=count: arrivals.counts[copy] == count)
            ends.append(time.perf_counter() - began)
        await self._pods_follow(copy, replicas)
        return {"replicas": ends[0], "seconds": ends[-1]}

    def _is_complete(self, namespace: str, *jobs: int) -> bool:
        """Whether all children of jobs with so many replicas have come."""
        expected = self._expected(*jobs)
        return all(self.children[gvk].counts[namespace] >= count for gvk, count in expected.items())

    def _expected(self, *jobs: int) -> Counter[GVK]:
        expected: Counter[GVK] = Counter()
        for replicas in jobs:
            expected.update(self.subject.children(replicas))
        return expected

    async def complete(self, namespace: str, *jobs: int) -> None:
        """Wait until all children of jobs with so many replicas have come."""
        expected = self._expected(*jobs)
        for gvk, count in expected.items():
            arrivals = self.children[gvk]
            await arrivals.until(lambda arrivals=arrivals, count=count: arrivals.counts[namespace] >= count)

    async def _pods_follow(self, namespace: str, replicas: int) -> None:
        """Until batch Jobs have their pods, too: what comes next is not measured beside kube-controller-manager."""
        await self.pods.until(lambda: self.pods.counts[namespace] == replicas)

    async def copies(self, gvk: GVK, namespace: str) -> list[Json]:
        """The objects of a namespace as they can be created again."""
        items = (await self.api.list(gvk, namespace))["items"]
        return [copy_of(gvk, item, self.subject.webhook_label) for item in items]

    # --- many small jobs

    async def many(self, jobs: int, replicas: int) -> tuple[str, dict[str, float]]:
        """Many small jobs: seconds until each has succeeded; CPU seconds and requests of the operator and of
        kube-controller-manager until then. Returns their namespace, too."""
        namespace = await self.namespace()
        with kubelet(self.plane):
            spent, began = self.spent(), time.perf_counter()
            await at_once(
                (lambda number=number: self.create(namespace, f"job-{number}", replicas)) for number in range(jobs)
            )
            await self.jobs.until(lambda: self.jobs.over[namespace] == jobs)
            seconds = time.perf_counter() - began
            return namespace, {"seconds": seconds, **spent()}

    async def floor(self, namespace: str, jobs: int, replicas: int, *, with_jobs: bool) -> float:
        """Seconds that the objects of `many` take without an operator, from the first POST to the end of the last pod:
        its Pods and Services; `with_jobs`: also the jobs, which another controller manages, with two writes of the
        status of each (it runs, it has ended)."""
        resources = [gvk for gvk in self.subject.children(replicas) if gvk != JOB]
        copies = [(gvk, copy) for gvk in reversed(resources) for copy in await self.copies(gvk, namespace)]
        place = await self.namespace()
        calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            (name_of(copy), partial(self.api.create, gvk, place, copy)) for gvk, copy in copies
        ]
        if with_jobs:
            listed = (await self.api.list(self.subject.gvk, namespace))["items"]
            calls += [(name_of(job), partial(self._create_with_status, place, job)) for job in listed]
        calls.sort(key=lambda call: call[0])
        with kubelet(self.plane):
            began = time.perf_counter()
            await at_once(call for _, call in calls)
            await self.pods.until(lambda: self.pods.over[place] == jobs * replicas)
            return time.perf_counter() - began

    async def least(self, namespace: str, jobs: int, replicas: int) -> float:
        """CPU seconds of `bench.least_operator` for the jobs of `many`, which another controller manages."""
        place, gvk = await self.namespace(), self.subject.gvk
        listed = (await self.api.list(gvk, namespace))["items"]
        work = {name_of(job): JobWork([], [], job["status"]) for job in listed}
        for resource in (POD, SERVICE):
            for item in (await self.api.list(resource, namespace))["items"]:
                job = work[item["metadata"]["ownerReferences"][0]["name"]]
                (job.pods if resource == POD else job.services).append(copy_of(resource, item))
        with kubelet(self.plane), least_operator(self.plane, Work(gvk, place, work)) as cpu:
            copies = [managed_elsewhere(gvk, job) for job in listed]
            await at_once(partial(self.api.create, gvk, place, copy) for copy in copies)
            await self.jobs.until(lambda: self.jobs.over[place] == jobs)
            return cpu()

    async def _create_with_status(self, namespace: str, job: Json) -> None:
        """Create a copy of a job that has ended, which no operator serves, and write its status in two steps."""
        gvk, name, status = self.subject.gvk, name_of(job), job["status"]
        await self.api.create(gvk, namespace, managed_elsewhere(gvk, job))
        for part in ({"conditions": status["conditions"][:-1]}, status):
            await self.api.patch(gvk, namespace, name, {"status": part}, "status")

    def spent(self) -> Callable[[], dict[str, float]]:
        """What it returns gives the costs from now to its call: CPU seconds and requests of the operator; `... with
        controllers`: of the operator and kube-controller-manager together. Leases do not count."""
        mark, before = self.plane.audit.mark(), self._cpu()

        def spent() -> dict[str, float]:
            cpu = {name: seconds - before[name] for name, seconds in self._cpu().items()}
            sent = [request for request in self.plane.audit.since(mark) if request.resource != "leases"]
            own = [request for request in sent if request.agent.startswith(self.subject.agent)]
            controllers = sum(request.agent.startswith(CONTROLLERS) for request in sent)
            return {
                "CPU": cpu[self.operator],
                "CPU with controllers": cpu[self.operator] + cpu[CONTROLLERS],
                "requests": len(own),
                "requests with controllers": len(own) + controllers,
                "events": sum(request.resource.startswith("events") for request in own),
                "reads": sum(request.verb in READS for request in own),
            }

        return spent

    def cpu_of_all(self) -> float:
        """CPU seconds so far of the operator and the whole control plane."""
        return sum(self._cpu(self.pids).values())

    def _cpu(self, names: Iterable[str] = ()) -> dict[str, float]:
        """User and system time of these programs so far, all their threads included; without names, of the operator
        and kube-controller-manager."""
        seconds = {}
        for name in names or (self.operator, CONTROLLERS):
            fields = Path(f"/proc/{self.pids[name]}/stat").read_text().rpartition(")")[2].split()
            seconds[name] = (int(fields[11]) + int(fields[12])) / TICKS
        return seconds


def copy_of(gvk: GVK, item: Json, webhook_label: str = "") -> Json:
    """The object without what a server or a controller has set, without its owner and without that label."""
    metadata = {key: value for key, value in item["metadata"].items() if key in ("name", "labels", "annotations")}
    metadata["labels"] = {key: value for key, value in metadata.get("labels", {}).items() if key != webhook_label}
    spec = dict(item["spec"])
    if gvk == SERVICE and spec.get("clusterIP") != "None":
        del spec["clusterIP"]
    if gvk == SERVICE:
        spec.pop("clusterIPs", None)
    if gvk == JOB:
        del spec["selector"]
        template = spec["template"]
        labels = template["metadata"]["labels"]
        labels = {key: value for key, value in labels.items() if key not in _SET_BY_JOB_CONTROLLER}
        spec["template"] = {**template, "metadata": {**template["metadata"], "labels": labels}}
    return {"metadata": metadata, "spec": spec}


@contextlib.contextmanager
def kubelet(plane: ControlPlane, *arguments: str) -> Iterator[None]:
    """`bench.kubelet`, from when it watches."""
    with _program(plane, "bench.kubelet", arguments):
        yield


@contextlib.contextmanager
def least_operator(plane: ControlPlane, work: Work) -> Iterator[Callable[[], float]]:
    """`bench.least_operator`, from when it watches. Yields a function that returns its CPU seconds since then."""
    with _program(plane, "bench.least_operator", (), msgspec.json.encode(work) + b"\n") as process:

        def cpu() -> float:
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield cpu


@contextlib.contextmanager
def _program(
    plane: ControlPlane, module: str, arguments: Sequence[str] = (), content: bytes = b""
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the benchmark within the block, from when it has read `content` and printed `ready`."""
    command = [sys.executable, "-m", module, "--kubeconfig", str(plane.kubeconfig), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(content)
        process.stdin.flush()
        if process.stdout.readline() != b"ready\n":
            raise SystemExit(f"{module} did not start")
        try:
            yield process
        finally:
            process.kill()
