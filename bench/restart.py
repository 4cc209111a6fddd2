"""How long a gang takes from the failed status of one Pod until all of its new Pods exist: ours, JobSet (Recreate), and
the same Pods deleted and created by hand.

    make bench-restart
    python -m bench.restart --rounds 3 --replicas 100 300 1000 --operators trainyard jobset --json FILE

The Pods are on a node whose kubelet is `bench.kubelet`: it reports them as Running, and ends a Pod as soon as it is
deleted. So a new Pod, which has the name of the old one, needs three requests: the DELETE that asks for the end, the
kubelet's DELETE that confirms it, and the POST. The floor needs them, too: after each restart the Pods of the job and
their Services are copied into another namespace, where the Pods are deleted by uid and, when all are gone, created
again, `WIDTH` at a time.

Each operator has a control plane of its own, in turn. *With controllers* adds what kube-controller-manager sends: it
makes the Pods of a JobSet, and it collects objects that are deleted in the foreground. *CPU of all* is that of the
operator and of the control plane, its kubelet left out, which says more than seconds on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec

from bench.jobs import NODE, job_set, on_node, pytorch_job
from bench.kubelet import Event
from bench.measurements import Probe, Subject, at_once, kubelet
from bench.peers import OURS, children_per_replica, children_with_one_service
from bench.report import Goal, Row, print_table, write_json, write_table
from tests.drop_in.job_set import POD_LABEL, JobSet
from tests.drop_in.operators import OperatorUnderTest, Trainyard
from tests.drop_in.snapshot import JOB_SET
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import MEASURED
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, name_of, uid_of
from trainyard.objects.resources import POD, SERVICE

RETRYABLE = 137
FAILED = {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]}
NODES = GVK("", "v1", "Node", "nodes")

Samples = dict[str, list[float]]
"""Seconds and requests by name: `1000.seconds`, `1000.floor.seconds`, `1000.requests`."""


class PodsOfNamespace:
    """The uids of the pods of a namespace, from the events of one watch, and those that are Running. Use it as an
    asynchronous context manager."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self.uids: set[str] = set()
        self.running: set[str] = set()
        self._api, self._namespace = api, namespace
        self._changed = asyncio.Event()
        self._decoder = msgspec.json.Decoder(Event)

    async def __aenter__(self) -> PodsOfNamespace:
        listed = await self._api.list(POD, self._namespace)
        self.uids = {uid_of(item) for item in listed["items"]}
        self._task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, revision: str) -> None:
        while True:  # a watch that ends resumes
            async for line in self._api.watch(POD, self._namespace, revision):
                event = self._decoder.decode(line)
                pod, revision = event.object, event.object.metadata.resourceVersion
                uid = pod.metadata.uid
                if event.type == "DELETED":
                    self.uids.discard(uid)
                    self.running.discard(uid)
                elif uid:
                    self.uids.add(uid)
                    (self.running.add if pod.status.phase == "Running" else self.running.discard)(uid)
                self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait until the condition holds, which is tested after each event. Returns when it did."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()
        return time.perf_counter()


async def restart(probe: Probe, replicas: int) -> dict[str, float]:
    """What one restart of a job of its own costs, and the floor of its Pods."""
    namespace = await probe.namespace()
    async with PodsOfNamespace(probe.api, namespace) as pods:
        await probe.create(namespace, "big", replicas)
        await probe.complete(namespace, replicas)
        await pods.until(lambda: len(pods.running) == replicas)
        await probe.rest()
        old = set(pods.uids)
        pod = (await probe.api.list(POD, namespace))["items"][-1]
        failed = {"status": {**FAILED, "containerStatuses": [_terminated(item) for item in pod["spec"]["containers"]]}}
        spent, cpu, began = probe.spent(), probe.cpu_of_all(), time.perf_counter()
        await probe.api.patch(POD, namespace, name_of(pod), failed, "status")
        gone = await pods.until(lambda: not pods.uids & old)
        seconds = await pods.until(lambda: len(pods.uids) == replicas and not pods.uids & old) - began
        costs, cpu = spent(), probe.cpu_of_all() - cpu
        await pods.until(lambda: len(pods.running) == replicas)
        floor = await by_hand(probe, namespace)
    return {"seconds": seconds, "gone": gone - began, **floor, **costs, "CPU of all": cpu}


async def by_hand(probe: Probe, original: str) -> dict[str, float]:
    """What it costs without an operator to delete the Pods of a namespace, and to create them again. They have their
    Services, of which kube-controller-manager writes the endpoints."""
    copies, services = [await probe.copies(gvk, original) for gvk in (POD, SERVICE)]
    namespace, api = await probe.namespace(), probe.api
    await at_once(partial(api.create, SERVICE, namespace, copy) for copy in services)
    async with PodsOfNamespace(api, namespace) as pods:
        await at_once(partial(api.create, POD, namespace, copy) for copy in copies)
        await pods.until(lambda: len(pods.running) == len(copies))
        old = [(name_of(item), uid_of(item)) for item in (await api.list(POD, namespace))["items"]]
        await probe.rest()
        cpu, began = probe.cpu_of_all(), time.perf_counter()
        await at_once(partial(api.delete, POD, namespace, name, uid) for name, uid in old)
        gone = await pods.until(lambda: not pods.uids)
        await at_once(partial(api.create, POD, namespace, copy) for copy in copies)
        ended = await pods.until(lambda: len(pods.uids) == len(copies))
        return {
            "floor.seconds": ended - began,
            "floor.gone": gone - began,
            "floor.CPU of all": probe.cpu_of_all() - cpu,
        }


def _terminated(container: Json) -> Json:
    state = {"terminated": {"exitCode": RETRYABLE, "reason": "Error"}}
    name = container["name"]
    return {"name": name, "state": state, "restartCount": 0, "ready": False, "image": "none", "imageID": ""}


def _pytorch_job(name: str, replicas: int) -> Json:
    job = on_node(pytorch_job(name, replicas))
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = "ExitCode"
    return job


def _job_set(name: str, replicas: int) -> Json:
    job = on_node(job_set(name, replicas))
    job["spec"]["failurePolicy"] = {"maxRestarts": 3}
    return job


@dataclass(frozen=True, slots=True)
class Contender:
    """An operator under test."""

    subject: Subject
    operator: Callable[[], OperatorUnderTest]


def contenders() -> dict[str, Contender]:
    children = children_per_replica(POD, SERVICE)
    ours = Subject(OURS, "trainyard-operator", kinds.PYTORCHJOB.gvk, _pytorch_job, children, 2)
    peer = Subject("jobset", "jobset/", JOB_SET, _job_set, children_with_one_service(POD), 4, webhook_label=POD_LABEL)
    return {OURS: Contender(ours, lambda: Trainyard(module="trainyard")), "jobset": Contender(peer, JobSet)}


async def measure(plane: ControlPlane, contender: Contender, sizes: list[int]) -> Samples:
    """The values of one round of an operator."""
    values: Samples = {}
    operator = contender.operator()
    operator.install(plane)
    with operator.running(plane) as process, kubelet(plane, "--until-deleted"):
        async with Probe(plane, contender.subject, process) as probe:
            await probe.api.create(NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            for size in sizes:
                for name, value in (await restart(probe, size)).items():
                    values[f"{size}.{name}"] = [value]
    return values


def table(results: dict[str, Samples], sizes: list[int]) -> list[Row]:
    return [row for size in sizes for row in _rows(results, size)]


def _rows(results: dict[str, Samples], size: int) -> Iterator[Row]:
    def row(title: str, unit: str, values: Callable[[Samples], list[float]], floor: str = "") -> Row:
        by_operator = {operator: values(samples) for operator, samples in results.items()}
        ours = by_operator.pop(OURS, [])
        return Row(title, unit, None, results.get(OURS, {}).get(f"{size}.floor.{floor}", []), by_operator, ours)

    def sample(name: str, scale: float = 1.0) -> Callable[[Samples], list[float]]:
        return lambda samples: [value * scale for value in samples[f"{size}.{name}"]]

    def over_floor(name: str) -> Callable[[Samples], list[float]]:
        return lambda samples: [
            value / floor
            for value, floor in zip(samples[f"{size}.{name}"], samples[f"{size}.floor.{name}"], strict=True)
        ]

    yield row(f"a gang of {size}: one failed, to all new Pods", "s", sample("seconds"), "seconds")
    ratio = row("  over the floor of the same Pods", "x", over_floor("seconds"))
    ratio.goal = Goal(1.2)
    yield ratio
    yield row("  to the end of all old Pods", "s", sample("gone"), "gone")
    yield row("  CPU of all", "s", sample("CPU of all"), "CPU of all")
    yield row("  CPU of all over the floor", "x", over_floor("CPU of all"))
    yield row("  CPU", "s", sample("CPU"))
    yield row("  requests, each replica", "", sample("requests", 1 / size))
    yield row("  requests with controllers, each replica", "", sample("requests with controllers", 1 / size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", type=int, nargs="*", default=[100, 300, 1000])
    parser.add_argument("--operators", nargs="*", default=list(contenders()), choices=list(contenders()))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there, too")
    parser.add_argument("--page", type=Path, help="the Markdown page that has the table")
    options = parser.parse_args()
    results: dict[str, Samples] = defaultdict(lambda: defaultdict(list))
    for number in range(options.rounds):
        for name in options.operators if number % 2 == 0 else reversed(options.operators):
            with ControlPlane(MEASURED) as plane:
                for key, values in asyncio.run(measure(plane, contenders()[name], options.replicas)).items():
                    results[name][key] += values
            print(f"round {number + 1} of {options.rounds}: {name}", flush=True)
            write_json(options.json, results)
    print_table(table(results, options.replicas))
    if options.page:
        write_table(options.page, "restart", table(results, options.replicas))


if __name__ == "__main__":
    main()
