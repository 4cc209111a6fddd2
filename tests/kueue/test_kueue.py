"""Each row of docs/kueue.md for each kind that Kueue integrates, beside a real Kueue; TrainJob: test_trainjob.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from tests.control_plane.job_life import operated, succeeds
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.drop_in.operators import create
from tests.gangs.cluster import JobCluster
from tests.kueue.real_kueue import API_VERSION, RealKueue, queue_objects
from tests.stories.kueue import pod_sets
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.samples import KUBEFLOW_ROLES, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds import JAXJOB, MPIJOB, PYTORCHJOB, TFJOB
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.objects import Json, find_condition, is_condition_true, labels_of, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.peers, pytest.mark.slow]
KUBEFLOW = [*(kind for kind in kinds.KINDS if kind.gvk.kind in KUBEFLOW_ROLES), MPIJOB_V2BETA1]
of_every_kind = pytest.mark.parametrize("kind", KUBEFLOW, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.version}")
QUEUE = "team"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
FOREIGN = [
    "TfJob.v1alpha1.tensorflow.org",
    "MxJob.v1beta1.mxnet.mlkube.io",
    "MxJob.v1beta1.mlkube.io",
    "ChainerJob.v1alpha1.kubeflow.org",
    "ElasticJob.v1alpha1.elastic.pytorch.org",
]
"""What docs/kueue.md writes into externalFrameworks."""
NOT_INTEGRATED = [kind for kind in kinds.ALL if f"{kind.gvk.kind}.{kind.gvk.version}.{kind.gvk.group}" in FOREIGN]


class Queued(JobCluster):
    """A namespace with a queue of so many CPUs."""

    def workloads(self) -> list[Json]:
        items: list[Json] = self.plane.ask("GET", f"/apis/{API_VERSION}/namespaces/{self.namespace}/workloads")[1][
            "items"
        ]
        return items

    def workload(self, job: str) -> Json:
        """The Workload of a job; {} while there is none."""
        owned = (item for item in self.workloads() if item["metadata"]["ownerReferences"][0]["name"] == job)
        workload: Json = next(owned, {})
        return workload

    def workload_is(self, job: str, condition: str) -> bool:
        return is_condition_true((self.workload(job).get("status") or {}).get("conditions"), condition)

    def set_active(self, job: str, active: bool) -> None:
        """An administrator takes the job out of its queue, or puts it back."""
        path = f"/apis/{API_VERSION}/namespaces/{self.namespace}/workloads/{name_of(self.workload(job))}"
        code, answer = self.plane.ask("PATCH", path, {"spec": {"active": active}})
        assert code == 200, answer

    def used(self) -> str:
        """The CPUs of the queue that admitted jobs hold."""
        status = self.plane.ask("GET", f"/apis/{API_VERSION}/clusterqueues/{self.namespace}")[1].get("status") or {}
        usage = status.get("flavorsUsage") or [{"resources": [{"total": "0"}]}]
        return str(usage[0]["resources"][0]["total"])

    def conditions(self, kind: Kind, job: str) -> dict[str, str]:
        listed = (self.job(kind, job).get("status") or {}).get("conditions") or []
        return {entry["type"]: entry["status"] for entry in listed}

    def state(self) -> object:
        return super().state(), [(name_of(item), item.get("status")) for item in self.workloads()]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    kueue = RealKueue()
    with ControlPlane() as plane:
        install(plane)
        plane.add_node("played", rack="r1")
        kueue.install(plane)
        with kueue.running(plane):
            yield plane


@pytest.fixture
def queued(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Queued]:
    with namespace_with_queue(plane, request.node.name, QUEUE) as queued:
        yield queued


@contextlib.contextmanager
def namespace_with_queue(
    plane: ControlPlane, test: str, queue: str, cpus: int = 9, flavor: Json | None = None
) -> Iterator[Queued]:
    """The namespace exists within the block, with a queue of so many CPUs. `flavor`: the spec of its ResourceFlavor."""
    name = f"queue-{abs(hash(test)) % 10**8}"
    create_namespace(plane, name)
    create(plane, *queue_objects(name, queue, cpus, flavor or {"nodeLabels": {"rack": "r1"}}))
    yield Queued(plane, name)
    plane.ask("DELETE", f"/api/v1/namespaces/{name}")


def queued_job(kind: Kind, name: str = "example", queue: str = QUEUE, **run_policy: object) -> Json:
    """A job of three replicas or two, each of which asks for one CPU."""
    job = sample(kind.gvk.kind)
    job["metadata"] |= {"name": name, "labels": {QUEUE_LABEL: queue} if queue else {}}
    for pod_set in pod_sets(job["spec"]).values():
        pod_set["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    if run_policy:
        job["spec"]["runPolicy"] = run_policy
    if kind is MPIJOB_V2BETA1:
        job["apiVersion"] = kind.gvk.api_version
        for pod_set in pod_sets(job["spec"]).values():
            del pod_set["restartPolicy"]  # ExitCode, which is one of v1
    return wire(kind, job)


def pods_of(job: Json) -> int:
    return sum(int(pod_set.get("replicas", 1)) for pod_set in pod_sets(job["spec"]).values())


@of_every_kind
async def test_a_job_is_held_admitted_evicted_admitted_again_and_ends(queued: Queued, kind: Kind) -> None:
    """The rows: holds back and evicts, admits, counts pods, the end of an eviction, finds out that all run and that it
    has ended, topology labels, the quota that comes back."""
    job = queued_job(kind)
    original, name = pod_sets(job["spec"]), name_of(job)
    assert queued.submit(kind, job)["spec"]["runPolicy"]["suspend"] is True, "its webhook suspends it"
    async with operated(queued.plane):
        await queued.until(lambda: len(queued.running()) == pods_of(job), "the admitted job runs")
        admitted = queued.job(kind, name)
        workload = queued.workload(name)
        counts = {pod_set["name"]: pod_set["count"] for pod_set in workload["spec"]["podSets"]}
        assert counts == {role: int(pod_set.get("replicas", 1)) for role, pod_set in original.items()}
        assert admitted["spec"]["runPolicy"]["suspend"] is False
        for pod in queued.pods():
            labels = labels_of(pod)
            assert labels["kueue.x-k8s.io/local-queue-name"] == QUEUE and QUEUE_LABEL not in labels
            assert labels["kueue.x-k8s.io/cluster-queue-name"] == queued.namespace
            assert labels["kueue.x-k8s.io/podset"] in counts
            assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == name_of(workload)
            assert pod["spec"]["nodeSelector"]["rack"] == "r1"
        await queued.until(lambda: queued.workload_is(name, "PodsReady"), "Kueue sees that all pods run")
        await queued.until(lambda: queued.used() == str(pods_of(job)), "the queue counts its CPUs")

        queued.set_active(name, False)
        await queued.until(lambda: not queued.pods() and queued.used() == "0", "pods and quota are gone")
        evicted = queued.job(kind, name)
        assert queued.conditions(kind, name).get("Suspended") == "True"
        assert queued.conditions(kind, name).get("Running") == "False"
        templates = {role: pod_set["template"] for role, pod_set in pod_sets(evicted["spec"]).items()}
        assert "nodeSelector" not in str(templates) and "kueue.x-k8s.io" not in str(templates)

        queued.set_active(name, True)
        await queued.until(lambda: len(queued.running()) == pods_of(job), "it runs again")
        done = await succeeds(queued.plane, kind, queued.namespace, name)
        assert (find_condition(done["status"]["conditions"], "Succeeded") or {})["message"]
        await queued.until(lambda: queued.workload_is(name, "Finished"), "Kueue sees that it has ended")
        await queued.until(lambda: queued.used() == "0", "the quota is back")


@of_every_kind
async def test_a_job_larger_than_what_is_left_waits_whole(queued: Queued, kind: Kind) -> None:
    """Partial admission does not exist for these kinds."""
    for name in ("first", "second", "third", "fourth", "fifth"):
        queued.submit(kind, queued_job(kind, name))
    fits = 9 // pods_of(queued_job(kind))
    async with operated(queued.plane):
        size = pods_of(queued_job(kind))
        await queued.until(lambda: len(queued.running()) == fits * size, "as many as fit run")
        waiting = [name for name in ("first", "second", "third", "fourth", "fifth") if not queued.running(name)]
        assert len(waiting) == 5 - fits and not [pod for name in waiting for pod in queued.pods(name)]
        running = next(name for name in ("first", "second", "third") if queued.running(name))
        await succeeds_alone(queued, kind, running)
        await queued.until(lambda: any(queued.running(name) for name in waiting), "the next one runs")


async def succeeds_alone(queued: Queued, kind: Kind, name: str) -> None:
    """Play the pods of this job to their end."""
    for pod in sorted(queued.running(name)):
        await asyncio.to_thread(queued.end, pod)
    await queued.until(lambda: queued.conditions(kind, name).get("Succeeded") == "True", f"{name} has succeeded")


async def test_a_suspension_by_the_user_of_an_admitted_job_is_undone(queued: Queued) -> None:
    queued.submit(JAXJOB, queued_job(JAXJOB))
    async with operated(queued.plane):
        await queued.until(lambda: len(queued.running()) == 2, "the job runs")
        before = queued.job(JAXJOB, "example")["metadata"]["generation"]
        queued.edit(JAXJOB, "example", {"runPolicy": {"suspend": True}})
        await queued.until(
            lambda: queued.job(JAXJOB, "example")["metadata"]["generation"] > before + 1 and len(queued.running()) == 2,
            "Kueue resumes it, and it runs",
        )
        assert queued.job(JAXJOB, "example")["spec"]["runPolicy"]["suspend"] is False


async def test_the_priority_of_the_policy_is_that_of_the_workload(queued: Queued) -> None:
    policy = {"priorityClass": "system-cluster-critical"}
    queued.submit(PYTORCHJOB, queued_job(PYTORCHJOB, schedulingPolicy=policy))
    await queued.until(lambda: queued.workload("example"), "the Workload is there")
    assert queued.workload("example")["spec"]["priority"] == 2_000_000_000


async def test_a_job_of_higher_priority_evicts_one_that_comes_back(queued: Queued) -> None:
    for name in ("low-a", "low-b", "low-c"):
        queued.submit(PYTORCHJOB, queued_job(PYTORCHJOB, name))
    async with operated(queued.plane):
        await queued.until(lambda: len(queued.running()) == 9, "the queue is full")
        high = queued_job(PYTORCHJOB, "high", schedulingPolicy={"priorityClass": "system-cluster-critical"})
        queued.submit(PYTORCHJOB, high)
        await queued.until(lambda: len(queued.running("high")) == 3, "the important job runs")
        assert len(queued.running("low")) == 6
        await succeeds_alone(queued, PYTORCHJOB, "high")
        await queued.until(lambda: len(queued.running("low")) == 9, "the evicted job runs again")


async def test_a_change_of_the_replicas_of_an_admitted_job_queues_it_again(queued: Queued) -> None:
    queued.submit(JAXJOB, queued_job(JAXJOB))
    async with operated(queued.plane):
        await queued.until(lambda: len(queued.running()) == 2, "the job runs")
        before = {pod["metadata"]["uid"] for pod in queued.pods()}
        queued.edit(JAXJOB, "example", {"jaxReplicaSpecs": {"Worker": {"replicas": 3}}})
        await queued.until(lambda: len(queued.running()) == 3, "it runs with three workers")
        assert not before & {pod["metadata"]["uid"] for pod in queued.pods()}


@of_every_kind
async def test_a_job_that_multikueue_manages_has_no_pods_and_no_status_of_ours(queued: Queued, kind: Kind) -> None:
    queued.submit(kind, queued_job(kind, managedBy="kueue.x-k8s.io/multikueue"))
    other = queued_job(JAXJOB, "other", queue="")
    async with operated(queued.plane):
        queued.submit(JAXJOB, other)
        await queued.until(lambda: len(queued.running("other")) == 2, "the operator works")
        assert not queued.job(kind, "example").get("status") and not queued.pods("example")


async def test_an_mpijob_of_v1_stays_one_in_a_queue(queued: Queued) -> None:
    """Kueue's webhook stores the defaults of v2beta1 at its creation."""
    queued.submit(MPIJOB, queued_job(MPIJOB))
    async with operated(queued.plane):
        await queued.until(lambda: len(queued.running()) == 3, "the job runs")
        assert (queued.job(MPIJOB, "example").get("status") or {})["version"] == "v1"
        assert (
            "job-role" in str(queued.pods())
            and not queued.plane.ask("GET", f"/apis/batch/v1/namespaces/{queued.namespace}/jobs")[1]["items"]
        ), "the launcher of v1 is a Pod"


async def test_a_role_whose_leader_alone_runs_counts_as_ready(queued: Queued) -> None:
    """As in the Training Operator: Running follows the master; of a JAXJob all replicas."""
    job = queued_job(PYTORCHJOB)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"nowhere": "true"}
    queued.submit(PYTORCHJOB, job)
    async with operated(queued.plane):
        await queued.until(lambda: queued.workload_is("example", "PodsReady"), "Kueue takes it for ready")
        assert len(queued.running()) == 1


async def test_topology_aware_scheduling_places_the_pods_in_one_rack(
    plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    topology: Json = {
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }
    create(plane, topology)
    flavor: Json = {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "racks"}
    with namespace_with_queue(plane, request.node.name, QUEUE, flavor=flavor) as queued:
        for kind in (PYTORCHJOB, MPIJOB_V2BETA1):
            job = queued_job(kind, kind.gvk.kind.lower())
            for pod_set in pod_sets(job["spec"]).values():
                metadata = pod_set["template"].setdefault("metadata", {})
                metadata["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}
            queued.submit(kind, job)
        async with operated(plane):
            await queued.until(lambda: len(queued.running()) == 6, "all pods run")
            assert {pod["spec"]["nodeSelector"]["rack"] for pod in queued.pods()} == {"r1"}
            assert not [pod for pod in queued.pods() if pod["spec"].get("schedulingGates")]


async def test_a_default_queue_holds_parts_of_kinds_that_it_does_not_know(
    plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    """A LocalQueue named `default` takes every Job and Pod without a queue. The job says so."""
    with namespace_with_queue(plane, request.node.name, "default", 1) as queued:
        job = wire(TFJOB, sample("TfJob"))
        for role in job["spec"]["replicaSpecs"]:
            role["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        queued.submit(TFJOB, job)
        name = name_of(job)

        def blocked() -> Json:
            status = queued.job(TFJOB, name).get("status") or {}
            return find_condition(status.get("conditions"), "Blocked") or {}

        async with operated(plane):
            await queued.until(lambda: blocked().get("reason") == "QueuedAlone", "it says why")
            assert "Kueue holds this part: Job " in blocked()["message"]


@pytest.fixture(scope="module")
def outside() -> Iterator[ControlPlane]:
    """A control plane whose Kueue leaves alone what docs/kueue.md names."""
    kueue = RealKueue(
        manageJobsWithoutQueueName=True,
        integrations={
            "frameworks": ["batch/job", "pod", "statefulset", "kubeflow.org/jaxjob"],
            "externalFrameworks": FOREIGN,
        },
    )
    with ControlPlane() as plane:
        install(plane)
        plane.add_node("played", rack="r1")
        kueue.install(plane)
        with kueue.running(plane):
            yield plane


@pytest.mark.parametrize("queue", ["default", "team"])
async def test_kinds_that_are_named_as_external_run_untouched(
    outside: ControlPlane, request: pytest.FixtureRequest, queue: str
) -> None:
    with namespace_with_queue(outside, request.node.name, queue, 2) as queued:
        jobs = {f"job-{number}": kind for number, kind in enumerate(NOT_INTEGRATED)}
        for name, kind in jobs.items():
            job = wire(kind, sample(kind.gvk.kind))
            job["metadata"]["name"] = name
            queued.submit(kind, job)
        async with operated(outside):
            for name, kind in jobs.items():
                await queued.until(
                    lambda kind=kind, name=name: queued.conditions(kind, name).get("Running") == "True",
                    f"the {kind.gvk.kind} runs",
                )
            assert not queued.workloads()
