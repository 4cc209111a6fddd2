"""`suspend` and `managedBy` are what Kueue's job integration expects of them, for each kind and on both back ends."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.stories.harness import POD, Harness, looked, replicas, tf_job
from tests.stories.job_fixtures import PLAYS, JobFixture
from tests.stories.kueue import QUEUE, Flavor, Kueue, is_active, pod_sets, priority_class, replica_specs, set_suspended
from trainyard.client import Invalid
from trainyard.objects import Json, find_condition, is_condition_true, labels_of, name_of

pytestmark = pytest.mark.slow
of_every_kind = pytest.mark.parametrize("job_fixture", PLAYS.values(), ids=PLAYS)
PRIORITY = "system-cluster-critical"


def queued(job_fixture: JobFixture, **spec: Any) -> Json:
    """A job as its user sends it to a queue."""
    job = job_fixture.make(suspend=True, **spec)
    job["metadata"]["labels"] = dict(QUEUE)
    for worker_set in pod_sets(job["spec"]).values():
        worker_set["template"]["spec"]["priorityClassName"] = PRIORITY
    return job


async def wait_in_line(harness: Harness, job_fixture: JobFixture, **spec: Any) -> Kueue:
    await harness.submit(queued(job_fixture, **spec))
    await harness.condition("Suspended")
    return Kueue(harness)


def counts(job: Json) -> str:
    """The counts of running replicas in the status."""
    status_fields = {name: job["status"].get(name) for name in ("active", "replicaStatuses")}
    return str(status_fields)


def lives(job: Json) -> bool:
    if replica_specs(job["spec"]):
        return is_active(job)
    return "Running" in counts(job) or "'active': " in counts(job).replace("'active': None", "")


def assert_has_exactly(pod: Json, flavor: Flavor) -> None:
    """The values of one admission, once, and nothing of another one."""
    spec, meta = pod["spec"], pod["metadata"]
    assert labels_of(pod)["kueue.x-k8s.io/podset"] == flavor.name
    assert meta["annotations"]["kueue.x-k8s.io/workload"] == f"admitted-{flavor.name}"
    assert spec["nodeSelector"] == flavor.selector
    assert [toleration for toleration in spec["tolerations"] if toleration["key"] == "example.com/flavor"] == [
        flavor.toleration
    ]
    assert spec["priorityClassName"] == PRIORITY
    assert not QUEUE.keys() & labels_of(pod).keys()  # the job stands in the queue, and not each of its parts


def partial(job_fixture: JobFixture) -> dict[str, int]:
    """One worker for two, where there are two. Kueue's integration of kubeflow.org/v1 kinds changes no counts."""
    if replica_specs(job_fixture.make()["spec"]):
        return {}
    return {role: 1 for role, count in job_fixture.cast.items() if count == 2}


def cast(job_fixture: JobFixture, flavor: Flavor) -> dict[str, int]:
    return {**job_fixture.cast, **flavor.counts}


@of_every_kind
async def test_a_queued_job_is_admitted_evicted_and_admitted_again_each_time_by_one_update(
    harness: Harness, job_fixture: JobFixture
) -> None:
    operator, _ = await harness.operator()
    kueue = await wait_in_line(harness, job_fixture)
    await looked(operator)
    await harness.nothing_left()
    assert not lives(await harness.job())

    spot = Flavor("spot", counts=partial(job_fixture))
    await kueue.admit(spot)
    await harness.every_replica_runs(**cast(job_fixture, spot))
    await harness.until(lives)
    pods = await kueue.pods()
    assert len(pods) == sum(cast(job_fixture, spot).values())
    for pod in pods:
        assert_has_exactly(pod, spot)
    for gvk in harness.child_resources:
        assert [
            name for name, child in (await harness.children(gvk)).items() if QUEUE.keys() & labels_of(child).keys()
        ] == []

    await kueue.evict()
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    evicted = await harness.until(
        lambda job: not lives(job) and not is_condition_true(job["status"]["conditions"], "Running")
    )
    for pod in pods:
        await harness.gone(POD, name_of(pod), pod["metadata"]["uid"])
    assert pod_sets(evicted["spec"]) == kueue.original and labels_of(evicted).items() >= QUEUE.items()
    assert find_condition(evicted["status"]["conditions"], "SpecChangeIgnored") is None
    assert not evicted["status"]["restarts"]

    standard = Flavor("standard")
    await kueue.admit(standard)
    await harness.every_replica_runs(**job_fixture.cast)
    await harness.until(lives)
    for pod in await kueue.pods():
        assert_has_exactly(pod, standard)
    job = await harness.job()
    assert (job["status"]["resumes"], job["status"].get("restarts", 0)) == (1, 0)
    await job_fixture.succeed(harness)
    done = await harness.condition("Succeeded")
    assert done["reason"] and done["message"]


@of_every_kind
async def test_a_failed_job_has_the_condition_with_reason_and_message(
    harness: Harness, job_fixture: JobFixture
) -> None:
    kueue = await wait_in_line(harness, job_fixture, backoffLimit=0)
    await kueue.admit(Flavor("spot"))
    await harness.every_replica_runs(**job_fixture.cast)
    await (await harness.controlled_pod(*job_fixture.last[0])).exit(1)
    failed = await harness.condition("Failed")
    assert failed["reason"] and failed["message"]


@of_every_kind
async def test_gated_pods_wait_until_the_gates_are_removed(harness: Harness, job_fixture: JobFixture) -> None:
    kueue = await wait_in_line(harness, job_fixture)
    await kueue.admit(Flavor("spot", gates=("kueue.x-k8s.io/topology",)))
    await harness.until(lambda pods: True, POD, await first_pod(harness, job_fixture))
    for role, count in job_fixture.cast.items():
        for index in range(count):
            pod = await harness.pod(role, index)
            assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert not harness.running() and not is_condition_true((await harness.job())["status"]["conditions"], "Running")
    await kueue.ungate()
    await job_fixture.runs(harness)


async def first_pod(harness: Harness, job_fixture: JobFixture) -> str:
    role, index = job_fixture.slots[0]
    return name_of(await harness.pod(role, index))


@of_every_kind
async def test_the_template_of_a_running_job_changes_only_together_with_its_suspension(
    harness: Harness, job_fixture: JobFixture
) -> None:
    kueue = await wait_in_line(harness, job_fixture)
    await kueue.admit(Flavor("spot"))
    await job_fixture.runs(harness)
    if harness.kind.gvk.kind == "ElasticJob" or replica_specs((await harness.job())["spec"]):
        # Its edits hold for replicas that are made later (S11).
        return
    job = await harness.job()
    sets = pod_sets(job["spec"])
    Flavor("other").put_into(sets[job_fixture.last[0][0]]["template"])
    with pytest.raises(Invalid, match="suspend it and edit it then"):
        await harness.edit(job["spec"])
    await looked((await harness.operator())[0])
    assert harness.running() == job_fixture.cast


@of_every_kind
async def test_a_job_of_another_manager_is_not_touched_until_managed_by_changes(
    harness: Harness, job_fixture: JobFixture
) -> None:
    operator, api = await harness.operator()
    sent = len(api.sent)
    await harness.submit(job_fixture.make(managedBy="kueue.x-k8s.io/multikueue"))
    await looked(operator)
    assert [request.path for request in api.sent[sent:] if "watch" not in dict(request.query)] == []
    assert "status" not in await harness.job()
    if replica_specs((await harness.job())["spec"]):  # as in the Training Operator
        with pytest.raises(Invalid, match=r"runPolicy.managedBy is immutable"):
            await harness.edit({"managedBy": "trainyard.dev/operator"})
        return
    await harness.edit({"managedBy": "trainyard.dev/operator"})
    await job_fixture.runs(harness)
    await looked(operator)
    sent = len(api.sent)
    await harness.edit({"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True})
    await looked(operator)
    assert [request.path for request in api.sent[sent:] if request.method != "GET"] == []
    assert harness.running() == job_fixture.cast


@pytest.mark.parametrize("within", ["runPolicy", "RunPolicy"])
async def test_an_elastic_job_may_have_suspend_and_managed_by_in_its_run_policy(harness: Harness, within: str) -> None:
    job_fixture = PLAYS["ElasticJob"]
    operator, api = await harness.operator()
    await harness.submit(job_fixture.make(**{within: {"suspend": True}}))
    await harness.condition("Suspended")
    await harness.edit({within: {"suspend": False}})
    await job_fixture.runs(harness)
    await looked(operator)
    sent = len(api.sent)
    await harness.edit({within: {"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True}})
    await looked(operator)
    assert [request.path for request in api.sent[sent:] if request.method != "GET"] == []
    assert harness.running() == job_fixture.cast


async def test_kueue_sees_the_pods_of_default_parameter_servers_before_it_admits_them(harness: Harness) -> None:
    """Their template is ours, and is stored while the job is still held back."""
    await harness.submit(tf_job(replicas("MASTER"), {"replicas": 2, "tfReplicaType": "PS"}, suspend=True))
    job = await harness.until(lambda job: is_condition_true(job.get("status", {}).get("conditions"), "Suspended"))
    servers = pod_sets(job["spec"])["ps"]
    assert servers["replicas"] == 2 and servers["template"]["spec"]["containers"][0]["name"] == "tensorflow"


TFJOB_V1: Json = {
    "spec": {
        "runPolicy": {"cleanPodPolicy": "None"},
        "tfReplicaSpecs": {
            "Worker": {"replicas": 2, "template": {"spec": {"priorityClassName": "low"}}},
            "PS": {"template": {"spec": {}}},
        },
    }
}


def test_the_played_controller_reads_kinds_of_kubeflow_as_kueue_does() -> None:
    """Against kubeflowjob_controller.go and mpijob_controller.go of Kueue: suspend, pod sets, priority, activity."""
    job = copy.deepcopy(TFJOB_V1)
    assert list(pod_sets(job["spec"])) == ["worker", "ps"] and priority_class(job["spec"]) == "low"
    set_suspended(job["spec"], True)
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "suspend": True} and "suspend" not in job["spec"]
    job["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "high"}
    assert priority_class(job["spec"]) == "high"
    assert not is_active(job)
    assert is_active({**job, "status": {"replicaStatuses": {"Worker": {"active": 1}, "PS": {}}}})
    assert not is_active({**job, "status": {"replicaStatuses": {"Worker": {"active": 0, "succeeded": 2}}}})
