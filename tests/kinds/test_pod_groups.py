"""The PodGroups of Volcano and scheduler-plugins: whom they count, what they ask for, and how they are patched."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob
from tests.support.samples import KUBEFLOW_ROLES, kubeflow_job, pods
from trainyard import kinds
from trainyard.core import Config, Kind, parse_job
from trainyard.kinds import MPIJOB, PADDLEJOB, PYTORCHJOB
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import Json

PLUGINS, VOLCANO = "scheduler-plugins-scheduler", "volcano"
KUBEFLOW = [kind for kind in kinds.KINDS if kind.gvk.kind in KUBEFLOW_ROLES]
every_kind = pytest.mark.parametrize("kind", KUBEFLOW, ids=lambda kind: kind.gvk.kind)
both = pytest.mark.parametrize("scheduler", [PLUGINS, VOLCANO])
ALONE = {"trainyard.dev/restart-scope": "replica"}
"""Replicas restart alone: only then does one that has succeeded stay beside others that start."""


def submitted(kind: Kind, job: Json, scheduler: str) -> SimulatedJob:
    simulated = SimulatedJob(kind, job, config=Config(gang_scheduler=scheduler))
    simulated.settle()
    admit(simulated)
    return simulated


def started(kind: Kind, job: Json, scheduler: str) -> SimulatedJob:
    simulated = submitted(kind, job, scheduler)
    simulated.run()
    simulated.settle()
    return simulated


def admit(simulated: SimulatedJob) -> None:
    """As Volcano does; the group of scheduler-plugins needs it not."""
    for name in simulated.names("PodGroup"):
        simulated.get("PodGroup", name)["status"] = {"phase": "Inqueue"}
    simulated.settle()


def group(simulated: SimulatedJob) -> Json:
    (name,) = simulated.names("PodGroup")
    spec: Json = simulated.get("PodGroup", name)["spec"]
    return spec


def workers_of(kind: Kind, count: int, **fields: Any) -> Json:
    """A job with so many workers, each of which asks for one CPU."""
    container = KUBEFLOW_ROLES[kind.gvk.kind][1]
    template = pods(container)
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    others: dict[str, Any] = {role: 1 for role in KUBEFLOW_ROLES[kind.gvk.kind][2] if role != "Worker"}
    return kubeflow_job(kind.gvk.kind, Worker={"replicas": count, "template": template}, **others, **fields)


def set_policy(simulated: SimulatedJob, **policy: object) -> None:
    """The user's edit of the whole schedulingPolicy."""
    spec = {**simulated.job["spec"], "runPolicy": {"schedulingPolicy": policy}}
    simulated.job = {**simulated.job, "spec": spec}
    simulated.settle()


@every_kind
def test_coscheduling_is_asked_for_resources_only_where_the_job_states_them(kind: Kind) -> None:
    """It rejects a gang for minResources before any filter, and then sleeps until a pod is created."""
    simulated = started(kind, workers_of(kind, 3), PLUGINS)
    assert "minResources" not in group(simulated)
    stated = {"schedulingPolicy": {"minResources": {"cpu": "3"}}}
    assert group(started(kind, workers_of(kind, 3, run_policy=stated), PLUGINS))["minResources"] == {"cpu": "3"}


@every_kind
def test_coscheduling_does_not_wait_for_a_replica_that_has_succeeded(kind: Kind) -> None:
    """Its cache has no pod that has ended, so that it would wait for it for ever."""
    job = workers_of(kind, 3)
    job["metadata"]["annotations"] = ALONE
    simulated = started(kind, job, PLUGINS)
    total = len(simulated.names("Pod"))
    assert group(simulated)["minMember"] == total
    simulated.end("example-worker-2", 0)
    simulated.settle()
    assert group(simulated)["minMember"] == total - 1


def test_a_resumed_gang_does_not_wait_for_the_replica_that_has_succeeded() -> None:
    """The pod of the finished worker stays through the suspension."""
    job = workers_of(kinds.KUBEFLOW_TFJOB, 3)
    simulated = started(kinds.KUBEFLOW_TFJOB, job, PLUGINS)
    simulated.end("example-worker-2", 0)
    simulated.settle()
    simulated.edit(suspend=True)
    simulated.settle()
    assert not simulated.names("PodGroup")
    simulated.edit(suspend=False)
    simulated.settle()
    assert group(simulated)["minMember"] == 3  # PS, worker-0 and worker-1


@pytest.mark.parametrize("scheduler", [PLUGINS, VOLCANO, NATIVE])
def test_a_launcher_that_waits_for_its_workers_is_no_member_before_it_is_created(scheduler: str) -> None:
    job = kubeflow_job("MPIJob", launcherCreationPolicy="WaitForWorkersReady")
    simulated = submitted(MPIJOB_V2BETA1, {**job, "apiVersion": MPIJOB_V2BETA1.gvk.api_version}, scheduler)

    def members() -> int:
        spec = group(simulated)
        return int(spec["minMember"] if scheduler != NATIVE else spec["schedulingPolicy"]["gang"]["minCount"])

    assert members() == 2 == len(simulated.names("Pod"))
    simulated.run()
    simulated.settle()
    assert members() == 3


@both
@pytest.mark.parametrize("kind", [PYTORCHJOB, PADDLEJOB], ids=lambda kind: kind.gvk.kind)
def test_an_elastic_gang_starts_with_its_fewest_workers(kind: Kind, scheduler: str) -> None:
    """With all of them a job that is scaled beyond the room starts no worker any more, not even one that it lost."""
    policy = {"minReplicas": 2, "maxReplicas": 6}
    others = len(KUBEFLOW_ROLES[kind.gvk.kind][2]) - 1
    simulated = started(kind, workers_of(kind, 6, elasticPolicy=policy), scheduler)
    assert group(simulated)["minMember"] == 2 + others
    if scheduler == VOLCANO:
        assert group(simulated)["minResources"] == {"cpu": "2"}


def test_volcano_is_asked_for_the_room_of_the_replicas_that_are_left() -> None:
    """It counts the succeeded ones as ready, and admits the job with minResources."""
    simulated = started(kinds.KUBEFLOW_TFJOB, workers_of(kinds.KUBEFLOW_TFJOB, 4), VOLCANO)
    for index in (1, 2, 3):
        simulated.end(f"example-worker-{index}", 0)
    simulated.settle()
    assert group(simulated) == {"minMember": 5, "minResources": {"cpu": "1"}}


@both
@pytest.mark.parametrize(("stated", "members"), [(2, 2), (9, 3), (0, 1), (-1, 1)])
def test_no_gang_waits_for_more_members_than_it_has_or_for_none(scheduler: str, stated: int, members: int) -> None:
    policy = {"schedulingPolicy": {"minAvailable": stated}}
    simulated = started(kinds.JAXJOB, workers_of(kinds.JAXJOB, 3, run_policy=policy), scheduler)
    assert group(simulated)["minMember"] == members


def test_the_requests_of_a_pod_are_counted_as_the_scheduler_counts_them() -> None:
    """Containers and sidecars together, or a larger init container; a limit without a request; those of the pod."""
    template = pods("pytorch", overhead={"cpu": "100m"})
    template["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "2", "nvidia.com/gpu": 2, "memory": "1Gi"},
    }
    template["spec"]["initContainers"] = [
        {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}},
        {"name": "copy", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}},
    ]
    simulated = started(PYTORCHJOB, kubeflow_job("PyTorchJob", Worker={"replicas": 2, "template": template}), VOLCANO)
    assert group(simulated)["minResources"] == {"cpu": "3200m", "memory": "9Gi", "nvidia.com/gpu": "4"}
    template["spec"]["resources"] = {"requests": {"cpu": "4"}}
    simulated = started(PYTORCHJOB, kubeflow_job("PyTorchJob", Worker={"replicas": 2, "template": template}), VOLCANO)
    assert group(simulated)["minResources"] == {"cpu": "8200m", "memory": "9Gi", "nvidia.com/gpu": "4"}


@every_kind
@pytest.mark.parametrize(("stated", "effect"), [(0, "counts as 1"), (99, "counts as"), (1, "")])
def test_lint_warns_of_a_member_count_that_no_gang_can_have(kind: Kind, stated: int, effect: str) -> None:
    job = workers_of(kind, 2, run_policy={"schedulingPolicy": {"minAvailable": stated}})
    texts = [problem.text for problem in kind.api.warnings(parse_job(kind, job, Config()))]
    assert bool(effect) == any(effect in text and "minAvailable" not in text for text in texts)


@both
def test_what_is_removed_from_the_scheduling_policy_is_removed_from_the_pod_group(scheduler: str) -> None:
    full = {
        "priorityClass": "silver",
        "minResources": {"cpu": "4", "memory": "1Gi"},
        "scheduleTimeoutSeconds": 30,
    }
    simulated = started(MPIJOB, workers_of(MPIJOB, 2, run_policy={"schedulingPolicy": full}), scheduler)
    set_policy(simulated, minResources={"cpu": "4"})
    spec = group(simulated)
    assert spec == {"minMember": 3, "minResources": {"cpu": "4"}}
    set_policy(simulated)
    spec = group(simulated)
    assert spec == {"minMember": 3, **({"minResources": {"cpu": "2"}} if scheduler == VOLCANO else {})}


def test_a_field_that_somebody_else_set_stays_in_the_pod_group() -> None:
    simulated = started(PYTORCHJOB, workers_of(PYTORCHJOB, 2), VOLCANO)
    group(simulated)["networkTopology"] = {"mode": "hard"}
    set_policy(simulated, priorityClass="silver")
    assert group(simulated)["networkTopology"] == {"mode": "hard"}


def test_a_job_without_a_queue_stays_in_the_queue_that_a_webhook_gave_it() -> None:
    """Volcano's webhook takes `default` for "not stated", and fills in the queue of the namespace."""
    simulated = submitted(PYTORCHJOB, workers_of(PYTORCHJOB, 2), VOLCANO)
    assert "queue" not in group(simulated)
    group(simulated)["queue"] = "team"
    job = simulated.job["spec"]["pytorchReplicaSpecs"]
    simulated.edit(pytorchReplicaSpecs={**job, "Worker": {**job["Worker"], "replicas": 3}})
    simulated.settle()
    assert group(simulated) == {"minMember": 4, "queue": "team", "minResources": {"cpu": "3"}}


def test_only_the_member_count_of_a_native_group_is_patched() -> None:
    """All else in it is immutable, so that a patch of it would be refused for ever."""
    policy = {"minReplicas": 2, "maxReplicas": 4}
    simulated = started(PYTORCHJOB, workers_of(PYTORCHJOB, 4, elasticPolicy=policy), NATIVE)
    before = group(simulated)
    assert before["disruptionMode"] == {"single": {}}
    job = simulated.job["spec"]["pytorchReplicaSpecs"]
    simulated.edit(pytorchReplicaSpecs={**job, "Worker": {**job["Worker"], "replicas": 2}})
    set_policy(simulated, priorityClass="silver")
    assert group(simulated) == before


def test_a_gang_that_coscheduling_has_put_to_sleep_is_woken() -> None:
    """A pod that the plugin itself has rejected is looked at again when its PodGroup changes, not when room is free."""
    simulated = submitted(PYTORCHJOB, workers_of(PYTORCHJOB, 2), PLUGINS)
    quiet = simulated.look()
    assert quiet.idle and quiet.requeue_at is None
    rejected = "0/1 nodes are available: 1 rejection in Unreserve."
    unschedule(simulated, rejected, rejected, "0/1 nodes are available: 1 Insufficient cpu.")
    assert simulated.look().idle, "the end of a pod wakes the one that had no room, and it wakes the others"
    unschedule(simulated, rejected, rejected, rejected)
    before = copy.deepcopy(group(simulated))
    patches = 0
    for _ in range(6):
        patches += len(simulated.step(later=10).patches)
    due = simulated.look().requeue_at
    assert patches == 3 and due is not None and simulated.now < due <= simulated.now + 20
    assert group(simulated) == before
    simulated.run()
    simulated.settle()
    assert simulated.step(later=100).idle


def test_a_gang_of_volcano_is_not_woken() -> None:
    simulated = submitted(PYTORCHJOB, workers_of(PYTORCHJOB, 2), VOLCANO)
    unschedule(simulated, *["pod group is not ready, 3 Pending, 3 minAvailable"] * 3)
    assert simulated.look().idle


def unschedule(simulated: SimulatedJob, *messages: str) -> None:
    """The scheduler writes these messages into the pods."""
    for name, message in zip(simulated.names("Pod"), messages, strict=True):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        simulated.get("Pod", name)["status"] = {"phase": "Pending", "conditions": [condition]}
    simulated.step()
