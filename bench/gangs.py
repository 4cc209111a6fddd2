"""How long the second of two gangs waits after the first has ended, with real Coscheduling: our PodGroup beside one
with the fields that training-operator 1.9.4 writes, on one control plane, one after the other.

    make bench-gangs              # needs the control plane; builds scheduler-plugins once
    python -m bench.gangs --rounds 3 --json FILE

A gang is two pods of 500 CPUs, on a node of 1,000. Seconds from the end of the last pod of the first gang until both
pods of the second one run. Those of 1.9.4 are made by hand, and wait up to six minutes: kube-scheduler looks again at
pods that PreFilter has rejected when a pod is created, or after five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import TIMES_CEILING, Goal, Row, print_table, write_json
from tests.control_plane.job_life import operated, path_of
from tests.gangs.cluster import JobCluster
from tests.gangs.schedulers import Coscheduling
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import MEASURED
from tests.support.samples import kubeflow_job, pods
from trainyard.kinds import JAXJOB
from trainyard.objects import Json, encode, find_condition

LIMIT = 900.0  # seconds after which a gang is given up
PAUSE = 0.05
CPUS = {"cpu": "500"}


class Gangs:
    """Two gangs in a namespace of their own: `start` makes the one of that name."""

    def __init__(self, plane: ControlPlane, namespace: str, start: Callable[[JobCluster, str], None]) -> None:
        create_namespace(plane, namespace)
        self._cluster, self._start = JobCluster(plane, namespace), start

    async def wait_of_the_second(self) -> float:
        """Seconds from the end of the first gang until the second one runs whole."""
        self._start(self._cluster, "first")
        await self._until(lambda: len(self._cluster.running("first")) == 2)
        self._start(self._cluster, "second")
        await self._until(lambda: len(self._cluster.pods("second")) == 2 and all(map(_waits, self._second())))
        for name in self._cluster.running("first"):
            await asyncio.to_thread(self._cluster.end, name)
        began = time.monotonic()
        await self._until(lambda: len(self._cluster.running("second")) == 2)
        return time.monotonic() - began

    def _second(self) -> list[Json]:
        return self._cluster.pods("second")

    def delete(self) -> None:
        """All of it, and the room is free again."""
        plane, namespace = self._cluster.plane, self._cluster.namespace
        for name in ("first", "second"):
            plane.ask("DELETE", path_of(JAXJOB, namespace, name))
        plane.ask("DELETE", f"/api/v1/namespaces/{namespace}")
        plane.wait_until(lambda: not self._cluster.pods(), "the pods were gone")

    async def _until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT
        while not await asyncio.to_thread(condition):
            if time.monotonic() > deadline:
                raise SystemExit(f"not in {LIMIT:.0f} s: {self._cluster.state()}")
            await asyncio.sleep(PAUSE)


def _waits(pod: Json) -> bool:
    return find_condition(pod["status"].get("conditions"), "PodScheduled") is not None


def _start_job(cluster: JobCluster, name: str) -> None:
    template = pods("jax")
    template["spec"]["containers"][0]["resources"] = {"requests": CPUS, "limits": CPUS}
    job = kubeflow_job("JAXJob", name=name, Worker={"replicas": 2, "template": template})
    cluster.submit(JAXJOB, {**job, "metadata": {"name": name}})


def _start_pods_of_1_9_4(cluster: JobCluster, name: str) -> None:
    """The PodGroup and the pods of a job, as training-operator 1.9.4 writes them (testdata/drop_in)."""
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {"minMember": 2, "minResources": {"cpu": "1000"}},
    }
    members = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-worker-{index}",
                "namespace": cluster.namespace,
                "labels": {"scheduling.x-k8s.io/pod-group": name},
            },
            "spec": {
                "schedulerName": Coscheduling.name,
                "containers": [{"name": "jax", "image": "example/train:1", "resources": {"requests": CPUS}}],
            },
        }
        for index in range(2)
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": [group, *members]}
    cluster.plane.kubectl("create", "-f", "-", stdin=encode(listed).decode())


async def measure(plane: ControlPlane, rounds: int) -> Row:
    """The row of this many rounds of ours, and one of 1.9.4's."""
    row = Row("the second of two gangs", "s")
    async with operated(plane, Coscheduling.name):
        for number in range(rounds):
            gangs = Gangs(plane, f"ours-{number}", _start_job)
            row.ours.append(await gangs.wait_of_the_second())
            gangs.delete()
    gangs = Gangs(plane, "peer", _start_pods_of_1_9_4)
    row.peers["PodGroup of 1.9.4"] = row.ceiling = [await gangs.wait_of_the_second()]
    row.goal = Goal(0.02, TIMES_CEILING)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often ours is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds there, too")
    options = parser.parse_args()
    scheduler = Coscheduling()
    with ControlPlane(MEASURED) as plane:
        install(plane)
        plane.add_node("played")
        scheduler.install(plane)
        with scheduler.running(plane):
            row = asyncio.run(measure(plane, options.rounds))
    print_table([row])
    write_json(options.json, {"ours": row.ours, **row.peers})


if __name__ == "__main__":
    main()
