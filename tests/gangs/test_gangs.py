"""Our gangs beside real Coscheduling and real Volcano: each starts whole, at once when there is room, and again.

The node has 1,000 CPUs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.control_plane.job_life import operated, path_of, succeeds
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.gangs.cluster import JobCluster
from tests.gangs.schedulers import VOLCANO_VARIABLE, Coscheduling, GangScheduler, Volcano, volcano_folder
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.samples import KUBEFLOW_ROLES, kubeflow_job, pods, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds import JAXJOB, KUBEFLOW_TFJOB, PYTORCHJOB
from trainyard.kinds.kubeflow_v1.gang import pod_group_of
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.objects import Json, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.peers, pytest.mark.slow]
OF_ITS_CHART = "crds/*.yaml and volcano-scheduler.conf"
KUBEFLOW = [kind for kind in kinds.KINDS if kind.gvk.kind in KUBEFLOW_ROLES]


class Cluster(JobCluster):
    """The namespace of a test, with a gang scheduler."""

    def __init__(self, plane: ControlPlane, namespace: str, scheduler: GangScheduler) -> None:
        super().__init__(plane, namespace)
        self.scheduler = scheduler

    def groups(self) -> dict[str, Json]:
        gvk = pod_group_of(self.scheduler.name)
        assert gvk is not None
        path = f"/apis/{gvk.api_version}/namespaces/{self.namespace}/podgroups"
        return {name_of(group): group for group in self.plane.ask("GET", path)[1]["items"]}

    def state(self) -> object:
        return super().state(), self.groups()


@pytest.fixture(scope="module", params=["scheduler-plugins", "volcano"])
def plane_and_scheduler(request: pytest.FixtureRequest) -> Iterator[tuple[ControlPlane, GangScheduler]]:
    folder = volcano_folder()
    if request.param == "volcano" and folder is None:
        pytest.skip(f"{VOLCANO_VARIABLE} names no folder with vc-scheduler, vc-controller-manager, {OF_ITS_CHART}")
    scheduler: GangScheduler = Volcano(folder) if request.param == "volcano" and folder else Coscheduling()
    with ControlPlane() as plane:
        install(plane)
        plane.add_node("played")
        scheduler.install(plane)
        with scheduler.running(plane):
            yield plane, scheduler


@pytest.fixture
def cluster(
    plane_and_scheduler: tuple[ControlPlane, GangScheduler], request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    plane, scheduler = plane_and_scheduler
    namespace = f"gang-{abs(hash(request.node.name)) % 10**8}"
    create_namespace(plane, namespace)
    cluster = Cluster(plane, namespace, scheduler)
    yield cluster
    plane.ask("DELETE", f"/api/v1/namespaces/{namespace}")
    plane.wait_until(lambda: not cluster.pods(), "the room was free for the next test")


def job_of(kind: Kind, name: str, cpu: int, workers: int, run_policy: Json | None = None, **fields: object) -> Json:
    """A job whose workers ask for so many CPUs each. The other replicas ask for none."""
    template = pods(KUBEFLOW_ROLES[kind.gvk.kind][1])
    amounts = {"cpu": str(cpu)}
    template["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    worker = {"replicas": workers, "restartPolicy": "ExitCode", "template": template}
    return wire(kind, kubeflow_job(kind.gvk.kind, name=name, run_policy=run_policy, Worker=worker, **fields))


@pytest.mark.parametrize("kind", KUBEFLOW, ids=lambda kind: kind.gvk.kind)
async def test_a_job_of_each_kind_runs_as_a_gang_and_leaves_no_group(cluster: Cluster, kind: Kind) -> None:
    job = wire(kind, sample(kind.gvk.kind))
    cluster.submit(kind, job)
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: cluster.running(name_of(job)), "a pod runs")
        assert {pod["spec"]["schedulerName"] for pod in cluster.pods()} == {cluster.scheduler.name}
        await succeeds(cluster.plane, kind, cluster.namespace, name_of(job))
        for pod in cluster.running():  # parameter servers, which cleanPodPolicy may leave
            await asyncio.to_thread(cluster.end, pod)
        await cluster.until(lambda: not cluster.groups(), "the group is gone")


async def test_a_launcher_starts_after_the_workers_that_it_waits_for(cluster: Cluster) -> None:
    job = {**kubeflow_job("MPIJob", launcherCreationPolicy="WaitForWorkersReady")}
    cluster.submit(MPIJOB_V2BETA1, wire(MPIJOB_V2BETA1, {**job, "apiVersion": MPIJOB_V2BETA1.gvk.api_version}))
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: len(cluster.running()) == 3, "launcher and workers run")


@pytest.mark.parametrize(("count", "cpu"), [(2, 500), (8, 250)], ids=["two", "eight"])
async def test_gangs_that_compete_run_whole_one_after_the_other(cluster: Cluster, count: int, cpu: int) -> None:
    """Two of eight gangs have room at once. Each starts as soon as another has ended."""
    names = [f"g{index}" for index in range(count)]
    for name in names:
        cluster.submit(JAXJOB, job_of(JAXJOB, name, cpu, 2))
    left = set(names)
    async with operated(cluster.plane, cluster.scheduler.name):
        for _ in names:
            await cluster.until(lambda: any(len(cluster.running(name)) == 2 for name in left), "a gang runs whole")
            name = next(name for name in sorted(left) if len(cluster.running(name)) == 2)
            left.remove(name)
            for pod in cluster.running(name):
                await asyncio.to_thread(cluster.end, pod)
            halves = {name_of(pod) for pod in cluster.pods() if pod["spec"].get("nodeName")}
            for other in left:
                assert len([pod for pod in halves if pod.startswith(other)]) in (0, 1, 2), halves
        await cluster.until(lambda: not cluster.groups(), "all groups are gone")


async def test_the_next_gang_starts_when_a_job_is_deleted(cluster: Cluster) -> None:
    cluster.submit(JAXJOB, job_of(JAXJOB, "first", 500, 2))
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: len(cluster.running("first")) == 2, "the first gang runs")
        cluster.submit(JAXJOB, job_of(JAXJOB, "second", 500, 2))
        await cluster.until(lambda: cluster.groups().keys() == {"first", "second"}, "the other gang waits")
        assert not cluster.running("second")
        cluster.plane.ask("DELETE", path_of(JAXJOB, cluster.namespace, "first"))
        await cluster.until(lambda: len(cluster.running("second")) == 2, "the other gang runs")


async def test_a_gang_whose_scheduler_sleeps_is_woken(cluster: Cluster) -> None:
    """Coscheduling rejects a gang for stated minResources before any filter, and then waits for a new pod."""
    policy: Json = {"schedulingPolicy": {"minResources": {"cpu": "1000"}}}
    async with operated(cluster.plane, cluster.scheduler.name):
        cluster.submit(JAXJOB, job_of(JAXJOB, "first", 500, 2, policy))
        await cluster.until(lambda: len(cluster.running("first")) == 2, "the first gang runs")
        cluster.submit(JAXJOB, job_of(JAXJOB, "second", 500, 2, policy))
        await cluster.until(lambda: cluster.groups().get("second"), "the other gang waits")
        for pod in cluster.running("first"):
            await asyncio.to_thread(cluster.end, pod)
        await cluster.until(lambda: len(cluster.running("second")) == 2, "the other gang runs")


async def test_a_gang_that_lost_a_rank_runs_again_whole(cluster: Cluster) -> None:
    cluster.submit(PYTORCHJOB, job_of(PYTORCHJOB, "again", 300, 3))
    path = path_of(PYTORCHJOB, cluster.namespace, "again")
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(
            lambda: (cluster.plane.ask("GET", path)[1].get("status") or {}).get("gang"), "all have run together"
        )
        before = {pod["metadata"]["uid"] for pod in cluster.pods()}
        await asyncio.to_thread(cluster.end, "again-worker-1", 137)
        await cluster.until(
            lambda: (
                len(cluster.running()) == 3 and not before & {pod["metadata"]["uid"] for pod in cluster.pods("again")}
            ),
            "the whole gang runs again",
        )


async def test_a_replica_starts_again_after_another_has_succeeded(cluster: Cluster) -> None:
    cluster.submit(KUBEFLOW_TFJOB, job_of(KUBEFLOW_TFJOB, "slots", 200, 4))
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: len(cluster.running()) == 4, "the gang runs")
        await asyncio.to_thread(cluster.end, "slots-worker-3")
        failed = next(pod["metadata"]["uid"] for pod in cluster.pods() if name_of(pod) == "slots-worker-2")
        await asyncio.to_thread(cluster.end, "slots-worker-2", 137)
        await cluster.until(
            lambda: any(
                name_of(pod) == "slots-worker-2"
                and pod["metadata"]["uid"] != failed
                and pod["status"].get("phase") == "Running"
                for pod in cluster.pods()
            ),
            "the failed worker runs again",
        )


async def test_a_job_with_a_finished_replica_runs_again_after_a_suspension(cluster: Cluster) -> None:
    cluster.submit(KUBEFLOW_TFJOB, job_of(KUBEFLOW_TFJOB, "pause", 200, 3))
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: len(cluster.running()) == 3, "the gang runs")
        await asyncio.to_thread(cluster.end, "pause-worker-1")
        cluster.edit(KUBEFLOW_TFJOB, "pause", {"runPolicy": {"suspend": True}})
        await cluster.until(lambda: not cluster.groups() and not cluster.running(), "it is suspended")
        cluster.edit(KUBEFLOW_TFJOB, "pause", {"runPolicy": {"suspend": False}})
        await cluster.until(
            lambda: set(cluster.running()) == {"pause-worker-0", "pause-worker-2"}, "the others run again"
        )


async def test_an_elastic_job_beyond_the_room_has_the_workers_that_fit(cluster: Cluster) -> None:
    policy = {"minReplicas": 2, "maxReplicas": 6}
    cluster.submit(PYTORCHJOB, job_of(PYTORCHJOB, "grow", 250, 3, elasticPolicy=policy))
    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: len(cluster.running()) == 3, "three workers run")
        cluster.edit(PYTORCHJOB, "grow", {"pytorchReplicaSpecs": {"Worker": {"replicas": 6}}})
        await cluster.until(lambda: len(cluster.running()) == 4, "a fourth one has room")
        lost = cluster.running()[0]
        await asyncio.to_thread(cluster.end, lost, 137)
        await cluster.until(
            lambda: len(cluster.running()) == 4 and len(cluster.pods("grow")) == 6, "one that failed is replaced"
        )


async def test_what_is_removed_from_the_policy_is_removed_from_the_group(cluster: Cluster) -> None:
    policy = {"priorityClass": "silver", "minResources": {"cpu": "900", "memory": "1Gi"}, "scheduleTimeoutSeconds": 20}
    cluster.submit(JAXJOB, job_of(JAXJOB, "policy", 2000, 2, {"schedulingPolicy": policy}))
    removed = {"priorityClass": None, "minResources": {"memory": None}, "scheduleTimeoutSeconds": None}

    def spec() -> Json:
        group: Json = cluster.groups()["policy"]["spec"]
        return {name: value for name, value in group.items() if name in policy or name == "priorityClassName"}

    async with operated(cluster.plane, cluster.scheduler.name):
        await cluster.until(lambda: "policy" in cluster.groups(), "the group is there")
        assert spec()["minResources"] == policy["minResources"]
        cluster.edit(JAXJOB, "policy", {"runPolicy": {"schedulingPolicy": removed}})
        await cluster.until(lambda: spec() == {"minResources": {"cpu": "900"}}, "the group has only the CPUs")
