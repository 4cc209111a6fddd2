"""The kinds of `kubeflow.org/v1` where they differ from the Training Operator, or where a scenario of it is too rough.

`tests/drop_in` compares all else with recorded answers of that operator.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob
from tests.support.samples import KUBEFLOW_ROLES, kubeflow_job, pods, sample
from tests.support.waiting import until
from trainyard import kinds
from trainyard.core import Config, Kind, parse_job
from trainyard.kinds import JAXJOB, KUBEFLOW_TFJOB, MPIJOB, PADDLEJOB, PYTORCHJOB, XGBOOSTJOB
from trainyard.kinds.kubeflow_v1.lifecycle import ALL_REPLICAS, RESTART_SCOPE, SUCCESS_GRACE, SUCCESS_POLICY
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.objects import Json, find_condition, format_time, is_condition_true
from trainyard.objects.resources import HORIZONTAL_POD_AUTOSCALER

STORES = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
KUBEFLOW = [kind for kind in kinds.KINDS if kind.gvk.kind in KUBEFLOW_ROLES]
every_kind = pytest.mark.parametrize("kind", KUBEFLOW, ids=lambda kind: kind.gvk.kind)


def started(kind: Kind, job: Json, **config: Any) -> SimulatedJob:
    simulated = SimulatedJob(kind, {**job, "status": {}}, config=Config(**config))
    simulated.settle()
    simulated.run()
    simulated.settle()
    return simulated


def annotated(job: Json, scope: str) -> Json:
    return {**job, "metadata": {**job["metadata"], "annotations": {RESTART_SCOPE: scope}}}


def test_replicas_that_count_as_succeeded_with_their_job_are_not_ready() -> None:
    """An elastic PyTorchJob succeeds with its first worker, and its status does not change any more."""
    job = kubeflow_job("PyTorchJob", Worker={"replicas": 2, "restartPolicy": "Never"})
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 2}
    simulated = started(PYTORCHJOB, job)
    assert simulated.job["status"]["ready"] == "2/2"
    simulated.end("example-worker-0", 0)
    status = simulated.settle()
    assert is_condition_true(status["conditions"], "Succeeded")
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 2 and status["ready"] == "0/2"


@pytest.mark.parametrize("kind", [PYTORCHJOB, KUBEFLOW_TFJOB, XGBOOSTJOB], ids=lambda kind: kind.gvk.kind)
@pytest.mark.parametrize(
    ("policy", "code", "ends"), [("", 0, ""), (ALL_REPLICAS, 0, "Succeeded"), (ALL_REPLICAS, 3, "Failed")]
)
def test_a_worker_that_outlives_the_leader_decides_only_with_the_annotation(
    kind: Kind, policy: str, code: int, ends: str
) -> None:
    leader = "Chief" if kind is KUBEFLOW_TFJOB else "Master"
    roles: Any = {role: {"replicas": 1, "restartPolicy": "Never"} for role in (leader, "Worker")}
    job = kubeflow_job(kind.gvk.kind, **roles)
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "Running"}
    job["metadata"]["annotations"] = {SUCCESS_POLICY: policy}
    simulated = started(kind, job)
    simulated.end(f"example-{leader.lower()}-0", 0)
    simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded") is not bool(policy)
    assert simulated.names("Pod") == [f"example-{leader.lower()}-0", *(["example-worker-0"] if policy else [])]
    if policy:
        assert is_condition_true(simulated.job["status"]["conditions"], "Running")
        simulated.end("example-worker-0", code)
        simulated.settle()
        assert is_condition_true(simulated.job["status"]["conditions"], ends)


ELASTIC: Json = {"replicas": 3, "restartPolicy": "ExitCode"}


@pytest.mark.parametrize(("seconds", "is_stopped"), [("", True), ("x", True), ("30", False)])
def test_workers_of_an_elastic_job_may_end_after_the_first(seconds: str, is_stopped: bool) -> None:
    job = kubeflow_job("PyTorchJob", Worker=ELASTIC, elasticPolicy={"minReplicas": 1})
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "Running"}
    job["metadata"]["annotations"] = {SUCCESS_GRACE: seconds}
    simulated = started(PYTORCHJOB, job)
    simulated.end("example-worker-1", 0)
    simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded") is is_stopped
    assert (len(simulated.names("Pod")) == 1) is is_stopped
    if not is_stopped:
        simulated.end("example-worker-0", 1)  # no longer counts
        simulated.settle()
        assert is_condition_true(simulated.job["status"]["conditions"], "Running")
        simulated.now += 30
        simulated.settle()
        assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded")
        assert "example-worker-2" not in simulated.names("Pod")


def test_an_elastic_job_ends_with_the_last_worker_within_the_grace() -> None:
    job = kubeflow_job("PyTorchJob", Worker={**ELASTIC, "replicas": 2}, elasticPolicy={"minReplicas": 1})
    job["metadata"]["annotations"] = {SUCCESS_GRACE: "30"}
    simulated = started(PYTORCHJOB, job)
    for name in ("example-worker-1", "example-worker-0"):
        assert not is_condition_true(simulated.job["status"]["conditions"], "Succeeded")
        simulated.end(name, 0)
        simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded")


def uids(simulated: SimulatedJob) -> dict[str, str]:
    return {name: simulated.get("Pod", name)["metadata"]["uid"] for name in simulated.names("Pod")}


def replaced(kind: Kind, job: Json) -> int:
    """How many pods are new after one replica ended with 137, and the minute after it."""
    simulated = started(kind, job)
    before = uids(simulated)
    simulated.end(list(before)[-1], 137)
    simulated.now += 60
    simulated.settle()
    after = uids(simulated)
    assert after.keys() == before.keys()
    return sum(after[name] != before[name] for name in after)


def conditions(simulated: SimulatedJob) -> list[tuple[str, str, str]]:
    return [(item["type"], item["status"], item["reason"]) for item in simulated.job["status"]["conditions"]]


@pytest.mark.parametrize(
    ("kind", "fields", "count"),
    [
        (PYTORCHJOB, {}, 3),
        (PYTORCHJOB, {"elasticPolicy": {"minReplicas": 1}}, 1),
        (JAXJOB, {}, 2),
        (XGBOOSTJOB, {}, 3),
        (PADDLEJOB, {}, 2),
        (PADDLEJOB, {"elasticPolicy": {"minReplicas": 1}}, 1),
        (KUBEFLOW_TFJOB, {}, 1),
    ],
)
def test_the_restart_scope_follows_from_the_framework(kind: Kind, fields: Json, count: int) -> None:
    job = sample(kind.gvk.kind)
    assert replaced(kind, {**job, "spec": {**job["spec"], **fields}}) == count


@every_kind
def test_an_annotation_restarts_a_replica_alone_or_with_the_gang(kind: Kind) -> None:
    job = sample(kind.gvk.kind)
    assert replaced(kind, annotated(job, "replica")) == 1
    assert replaced(kind, annotated(job, "gang")) == sum(KUBEFLOW_ROLES[kind.gvk.kind][2].values())


@every_kind
def test_the_last_condition_is_the_state_of_the_job(kind: Kind) -> None:
    name = kind.gvk.kind
    simulated = started(kind, sample(name))
    assert conditions(simulated) == [
        ("Created", "True", f"{name}Created"),
        ("Running", "True", f"{name}Running"),
    ]
    for role in simulated.job["status"]["roles"].values():
        role["withoutProgress"] = 1  # so that the job waits for its back-off
    simulated.end(simulated.names("Pod")[-1], 137)
    simulated.settle()
    assert conditions(simulated)[-1] == ("Restarting", "True", f"{name}Restarting")
    simulated.edit(suspend=True)
    simulated.settle()
    assert conditions(simulated)[-1] == ("Suspended", "True", f"{name}Suspended")
    simulated.edit(suspend=False)
    simulated.settle()
    resumed = [("Created", "True", f"{name}Created"), ("Suspended", "False", f"{name}Resumed")]
    assert conditions(simulated) == [*resumed, ("Restarting", "True", f"{name}Restarting")]
    simulated.run()
    simulated.settle()
    assert conditions(simulated) == [*resumed, ("Running", "True", f"{name}Running")]
    simulated.end(simulated.names("Pod")[0], 3)
    simulated.settle()
    assert conditions(simulated)[-2:] == [("Running", "False", f"{name}Running"), ("Failed", "True", f"{name}Failed")]


@every_kind
def test_a_resumed_job_is_created_until_a_replica_runs(kind: Kind) -> None:
    """The last condition, which `kubectl get` shows as STATE, is true."""
    name = kind.gvk.kind
    simulated = started(kind, sample(name))
    simulated.edit(suspend=True)
    simulated.settle()
    simulated.edit(suspend=False)
    simulated.settle()
    created, suspended = ("Created", "True", f"{name}Created"), ("Suspended", "False", f"{name}Resumed")
    assert conditions(simulated)[-2:] == [suspended, created]
    simulated.run()
    simulated.settle()
    assert conditions(simulated) == [created, suspended, ("Running", "True", f"{name}Running")]


@every_kind
def test_running_is_false_while_no_replica_runs(kind: Kind) -> None:
    simulated = started(kind, sample(kind.gvk.kind))
    for name in simulated.names("Pod"):
        simulated.drop(simulated.get("Pod", name)["metadata"]["uid"])
    simulated.settle()
    conditions = simulated.job["status"]["conditions"]
    running = find_condition(conditions, "Running")
    if parse_job(kind, simulated.job, Config()).restarts_gang():
        assert running is None and is_condition_true(conditions, "Restarting")
    else:
        assert running is not None and (running["status"], running["reason"]) == ("False", "NoReplicaRunning")


@every_kind
def test_services_live_and_die_with_their_pods(kind: Kind) -> None:
    simulated = started(kind, sample(kind.gvk.kind))
    if kind is MPIJOB:
        assert not simulated.names("Service")  # its launcher reaches the workers by exec
        return
    assert simulated.names("Service") == simulated.names("Pod")
    simulated.edit(suspend=True)
    simulated.settle()
    assert simulated.names() == []


@every_kind
def test_an_edit_of_the_template_takes_effect_on_new_pods(kind: Kind) -> None:
    field, container, roles = KUBEFLOW_ROLES[kind.gvk.kind]
    simulated = started(kind, annotated(sample(kind.gvk.kind), "replica"))
    edited = {
        role: {**spec, "template": pods(container, "new:2")} for role, spec in simulated.job["spec"][field].items()
    }
    simulated.edit(**{field: edited})
    simulated.settle()
    last = simulated.names("Pod")[-1]
    assert image(simulated, last) == "example/train:1"
    simulated.lose("Pod", last)
    simulated.settle()
    assert image(simulated, last) == "new:2" and image(simulated, simulated.names("Pod")[0]) == "example/train:1"
    assert sum(roles.values()) == len(simulated.names("Pod"))


def image(simulated: SimulatedJob, pod: str) -> str:
    return str(simulated.get("Pod", pod)["spec"]["containers"][0]["image"])


def test_a_job_with_dynamic_workers_continues_without_a_failed_one() -> None:
    simulated = started(KUBEFLOW_TFJOB, kubeflow_job("TFJob", PS=1, Worker=2, enableDynamicWorker=True))
    simulated.end("example-worker-1", 1)
    simulated.settle()
    status = simulated.job["status"]
    assert status["state"] == "Running" and status["replicaStatuses"]["Worker"] == {"active": 1, "failed": 1}
    degraded = find_condition(status["conditions"], "Degraded")
    assert degraded is not None and "Worker 1" in degraded["message"]
    assert status["conditions"][-1]["type"] == "Running", "Trainyard's own conditions come first"
    simulated.end("example-worker-0", 0)
    simulated.settle()
    assert simulated.job["status"]["state"] == "Succeeded"


@pytest.mark.parametrize(
    ("backend", "own", "values"),
    [(None, None, ["1"]), ("c10d", "0", ["0"]), ("etcd-v2", None, ["1"]), ("etcd", None, [])],
)
def test_each_rendezvous_of_an_elastic_job_has_a_store_unless_the_template_says_otherwise(
    backend: str | None, own: str | None, values: list[str]
) -> None:
    """With one store for all of them, an agent of torch 2.15 that is started again never joins the others."""
    template = pods("pytorch")
    template["spec"]["containers"][0]["env"] = [{"name": STORES, "value": own}] if own else []
    policy = {"rdzvBackend": backend} if backend else {}
    job = kubeflow_job("PyTorchJob", Worker={"replicas": 2, "template": template}, elasticPolicy=policy)
    env = started(PYTORCHJOB, job).get("Pod", "example-worker-1")["spec"]["containers"][0]["env"]
    assert [variable["value"] for variable in env if variable["name"] == STORES] == values
    assert not own or env[0]["name"] == STORES
    assert own or not values or env[-1]["name"] == STORES, "after the variables of the Training Operator"


@pytest.mark.parametrize(
    ("policy", "values"),
    [
        ({}, ["is_host=1", "is_host=0"]),
        (
            {"rdzvConf": [{"key": "read_timeout", "value": "9"}]},
            ["read_timeout=9,is_host=1", "read_timeout=9,is_host=0"],
        ),
        ({"rdzvConf": [{"key": "is_host", "value": "0"}]}, ["is_host=0", "is_host=0"]),
        ({"rdzvBackend": "etcd-v2", "rdzvHost": "etcd"}, ["", ""]),
        ({"rdzvHost": "elsewhere"}, ["", ""]),
        ({"standalone": True}, ["", ""]),
    ],
)
def test_worker_0_alone_hosts_the_store_of_an_elastic_job(policy: Json, values: list[str]) -> None:
    """torch compares addresses, and all pods of one machine may have the same: the first agent would be the host."""
    simulated = started(PYTORCHJOB, kubeflow_job("PyTorchJob", Worker=2, elasticPolicy=policy))
    assert [settings_of_rendezvous(simulated, name) for name in ("example-worker-0", "example-worker-1")] == values


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"env": [{"name": "PET_RDZV_CONF", "value": "is_host=0"}]}, "is_host=0"),
        ({"command": ["torchrun", "--rdzv-endpoint=$(MY_HOST):29400", "train.py"]}, ""),
        ({"command": ["sh", "-c"], "args": ["exec torchrun --rdzv_endpoint $MY_HOST train.py"]}, ""),
    ],
)
def test_a_template_with_a_rendezvous_of_its_own_chooses_the_host(fields: Json, value: str) -> None:
    template = pods("pytorch")
    template["spec"]["containers"][0] |= fields
    job = kubeflow_job("PyTorchJob", Worker={"replicas": 2, "template": template}, elasticPolicy={})
    assert settings_of_rendezvous(started(PYTORCHJOB, job), "example-worker-0") == value


def test_beside_a_master_worker_0_alone_may_host_the_store() -> None:
    """torch decides which of the two it is: the programs may name the master as the endpoint."""
    simulated = started(PYTORCHJOB, kubeflow_job("PyTorchJob", Master=1, Worker=2, elasticPolicy={}))
    names = ("example-master-0", "example-worker-0", "example-worker-1")
    assert [settings_of_rendezvous(simulated, name) for name in names] == ["", "", "is_host=0"]


def settings_of_rendezvous(simulated: SimulatedJob, pod: str) -> str:
    """The value of PET_RDZV_CONF, "" without it."""
    env = simulated.get("Pod", pod)["spec"]["containers"][0]["env"]
    return ";".join(variable["value"] for variable in env if variable["name"] == "PET_RDZV_CONF")


def test_a_dynamic_workers_tf_config_has_itself_and_the_parameter_servers() -> None:
    simulated = started(KUBEFLOW_TFJOB, kubeflow_job("TFJob", PS=1, Worker=2, enableDynamicWorker=True))
    (variable,) = simulated.get("Pod", "example-worker-1")["spec"]["containers"][0]["env"]
    assert json.loads(variable["value"]) == {
        "cluster": {
            "worker": {"1": "example-worker-1.default.svc:2222"},
            "ps": ["example-ps-0.default.svc:2222"],
        },
        "task": {"type": "worker", "index": 1},
    }


METRICS = [{"type": "Resource", "resource": {"name": "cpu"}}]


@pytest.mark.parametrize("kind", [PYTORCHJOB, PADDLEJOB], ids=lambda kind: kind.gvk.kind)
def test_an_autoscaler_has_the_bounds_and_is_deleted_with_the_replicas(kind: Kind) -> None:
    job = kubeflow_job(kind.gvk.kind, Worker=2, elasticPolicy={"maxReplicas": 4, "metrics": METRICS})
    simulated = started(kind, job)
    spec = simulated.get("HorizontalPodAutoscaler", "example")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["metrics"]) == (4, 4, METRICS)
    simulated.edit(elasticPolicy={"minReplicas": 1, "maxReplicas": 4, "metrics": METRICS})
    simulated.settle()
    assert simulated.get("HorizontalPodAutoscaler", "example")["spec"]["minReplicas"] == 1
    simulated.edit(suspend=True)
    simulated.settle()
    assert "example" not in simulated.names("HorizontalPodAutoscaler")


def test_a_cluster_without_autoscalers_gets_none() -> None:
    job = kubeflow_job("PyTorchJob", Worker=2, elasticPolicy={"metrics": METRICS})
    simulated = started(PYTORCHJOB, job, missing_resources=frozenset({HORIZONTAL_POD_AUTOSCALER}))
    assert not simulated.names("HorizontalPodAutoscaler") and len(simulated.names("Pod")) == 2


def test_volcano_admits_a_job_before_its_pods_are_created() -> None:
    simulated = SimulatedJob(PYTORCHJOB, sample("PyTorchJob"), config=Config(gang_scheduler="volcano"))
    simulated.settle()
    assert simulated.names("Pod") == [] and simulated.names("PodGroup") == ["example"]
    assert find_condition(simulated.job["status"]["conditions"], "Blocked") is None, "Volcano looks once a second"
    simulated.now += 31
    simulated.settle()
    blocked = find_condition(simulated.job["status"]["conditions"], "Blocked")
    assert blocked is not None and blocked["reason"] == "NotAdmitted" and "PodGroup example" in blocked["message"]
    simulated.get("PodGroup", "example")["status"] = {"phase": "Inqueue"}
    simulated.settle()
    assert len(simulated.names("Pod")) == 3
    pod = simulated.get("Pod", "example-worker-1")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "example",
        "volcano.sh/task-spec": "worker",
    }


def test_the_time_in_the_queue_of_volcano_does_not_count_for_the_deadline() -> None:
    job = kubeflow_job("PyTorchJob", run_policy={"activeDeadlineSeconds": 60}, Master=1)
    simulated = SimulatedJob(PYTORCHJOB, job, config=Config(gang_scheduler="volcano"))
    simulated.settle()
    simulated.now += 100
    simulated.settle()
    assert "startTime" not in simulated.job["status"] and simulated.look().requeue_at is None
    simulated.get("PodGroup", "example")["status"] = {"phase": "Inqueue"}
    simulated.settle()
    assert simulated.job["status"]["startTime"] == format_time(simulated.now)
    simulated.get("PodGroup", "example")["status"] = {"phase": "Pending"}
    simulated.now += 59
    simulated.run("example-master-0")
    assert simulated.settle()["state"] == "Running", "a job that has started is not queued again"
    simulated.now += 1
    assert simulated.settle()["state"] == "Failed"


def test_the_pod_group_requests_the_resources_of_the_pods() -> None:
    def template(cpu: str, memory: str) -> Json:
        template = pods("pytorch")
        template["spec"]["containers"][0]["resources"] = {"limits": {"cpu": cpu, "memory": memory}}
        return template

    job = kubeflow_job(
        "PyTorchJob",
        Master={"replicas": 1, "template": template("500m", "1Gi")},
        Worker={"replicas": 3, "template": template("2", "512Mi")},
    )
    resources = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"]["nvidia.com/gpu"] = 2
    resources["requests"] = {"cpu": "250m"}  # the others count with their limits, as the scheduler counts them
    simulated = SimulatedJob(PYTORCHJOB, job, config=Config(gang_scheduler="volcano"))
    simulated.settle()
    simulated.get("PodGroup", "example")["status"] = {"phase": "Inqueue"}
    simulated.settle()
    simulated.run()
    simulated.settle()
    assert simulated.get("PodGroup", "example")["spec"] == {
        "minMember": 4,
        "minResources": {"cpu": "6250m", "memory": "2560Mi", "nvidia.com/gpu": "2"},
    }
    for name in simulated.names("Pod"):
        simulated.end(name, 0)
    simulated.settle()
    assert simulated.names("PodGroup") == [] and len(simulated.names("Pod")) == 4


@pytest.mark.parametrize("kind", [PYTORCHJOB, JAXJOB, XGBOOSTJOB, PADDLEJOB], ids=lambda kind: kind.gvk.kind)
def test_a_running_pod_that_somebody_deletes_is_lost_to_its_gang_which_restarts(kind: Kind) -> None:
    """A drain deletes the pod: the others cannot go on without it, and cannot take the next one in."""
    simulated = started(kind, sample(kind.gvk.kind))
    before = uids(simulated)
    deleted = list(before)[-1]
    pod = simulated.get("Pod", deleted)
    pod["metadata"]["deletionTimestamp"] = format_time(simulated.now + 30)
    condition = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", **condition}]
    simulated.settle()
    assert simulated.names("Pod") == [deleted]  # the others have gone; nothing new starts beside it
    message = (find_condition(simulated.job["status"]["conditions"], "Restarting") or {})["message"]
    cause = "EvictionByEvictionAPI: Eviction API: evicting"
    assert f"Pod {deleted} was deleted while it ran ({cause}): all replicas restart" in message
    simulated.lose("Pod", deleted)
    status = simulated.settle()
    after = uids(simulated)
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
    assert not status["restarts"] and not any(role["failures"] for role in status["roles"].values())


@every_kind
def test_a_pod_of_a_job_whose_replicas_restart_alone_is_replaced_alone(kind: Kind) -> None:
    simulated = started(kind, annotated(sample(kind.gvk.kind), "replica"))
    before = uids(simulated)
    deleted = list(before)[-1]
    simulated.get("Pod", deleted)["metadata"]["deletionTimestamp"] = format_time(simulated.now + 30)
    simulated.settle()
    simulated.lose("Pod", deleted)
    simulated.settle()
    after = uids(simulated)
    assert [name for name in after if after[name] != before[name]] == [deleted]


@pytest.mark.parametrize(
    ("policy", "code", "is_final"),
    [
        ("OnFailure", 137, False),
        ("Always", 137, False),
        ("ExitCode", 143, False),  # a kubelet stops it with SIGTERM, then SIGKILL
        ("ExitCode", 1, True),  # it handles SIGTERM
        ("Never", 137, True),
    ],
)
def test_a_pod_that_its_own_deadline_has_ended_is_a_failed_pod(policy: str, code: int, is_final: bool) -> None:
    """As under the Training Operator: `activeDeadlineSeconds` of a template is that of each attempt, not of the job."""
    simulated = started(PYTORCHJOB, kubeflow_job("PyTorchJob", Master={"restartPolicy": policy}))
    before = uids(simulated)
    (name,) = before
    simulated.end(name, code)
    text = "Pod was active on the node longer than the specified deadline"
    simulated.get("Pod", name)["status"] |= {"reason": "DeadlineExceeded", "message": text}
    for _ in range(2):
        simulated.settle()
        simulated.now += 60
    assert any(entry[:2] == ("Failed", "True") for entry in conditions(simulated)) is is_final
    assert (uids(simulated) == before) is is_final


def test_a_scheduler_name_without_a_value_is_that_of_the_gang() -> None:
    for value in ("", None):
        worker = {"replicas": 1, "template": pods("pytorch", schedulerName=value)}
        simulated = started(PYTORCHJOB, kubeflow_job("PyTorchJob", Worker=worker), gang_scheduler="scheduler-plugins")
        (pod,) = simulated.names("Pod")
        assert simulated.get("Pod", pod)["spec"]["schedulerName"] == "scheduler-plugins"


def test_a_policy_of_an_mpi_job_without_a_value_does_not_hide_the_older_field() -> None:
    job = kubeflow_job("MPIJob", run_policy={"cleanPodPolicy": None})
    job["spec"]["cleanPodPolicy"] = "All"
    assert parse_job(MPIJOB, job, Config()).policy.clean_pod_policy == "All"


@pytest.mark.parametrize("cause", ["BackoffLimitExceeded", "DeadlineExceeded"])
@pytest.mark.parametrize(("clean", "stays"), [(None, True), ("None", True), ("Running", False)])
def test_clean_pod_policy_alone_decides_what_a_failed_launcher_leaves_of_its_workers(
    cause: str, clean: str | None, stays: bool
) -> None:
    """Their logs say why it failed. The limits of an MPIJob of v2beta1 are those of its launcher's Job."""
    job = kubeflow_job("MPIJob", run_policy={"cleanPodPolicy": clean, "backoffLimit": 0}, Launcher=1, Worker=1)
    simulated = started(MPIJOB_V2BETA1, job)
    simulated.run()
    simulated.settle()
    simulated.end("example-launcher", 1)
    simulated.finish("example-launcher", cause)
    assert simulated.settle()["state"] == "Failed"
    assert ("example-worker-0" in simulated.names("Pod")) == stays


@pytest.mark.parametrize("kind", [MPIJOB, MPIJOB_V2BETA1], ids=lambda kind: kind.gvk.version)
def test_workers_that_outlive_a_successful_launcher_are_active(kind: Kind) -> None:
    """They run sshd, or sleep: none of them has succeeded."""
    simulated = started(kind, kubeflow_job("MPIJob", Launcher=1, Worker=2))
    simulated.run()
    simulated.settle()
    simulated.end("example-launcher", 0)
    if kind is MPIJOB_V2BETA1:
        simulated.finish("example-launcher")
    status = simulated.settle()
    assert (status["state"], status["replicaStatuses"]["Worker"]) == ("Succeeded", {"active": 2})


def test_the_exit_code_of_a_worker_that_the_job_goes_on_without_is_told() -> None:
    job = kubeflow_job("TFJob", Chief=1, Worker={"replicas": 2, "restartPolicy": "Never"})
    job["spec"]["enableDynamicWorker"] = True
    simulated = started(KUBEFLOW_TFJOB, job)
    simulated.run()
    simulated.settle()
    simulated.end("example-worker-1", 3)
    degraded = find_condition(simulated.settle()["conditions"], "Degraded") or {}
    expected = "Worker 1 has failed and is not restarted: container tensorflow exited with code 3 (Error)"
    assert degraded["message"] == expected


def test_a_worker_of_mpi_ends_with_sigterm() -> None:
    """It is process 1 of its container, to which the kernel delivers no signal without a handler."""
    simulated = started(MPIJOB, kubeflow_job("MPIJob", Launcher=1, Worker=1))
    worker = simulated.get("Pod", "example-worker-0")
    (container,) = worker["spec"]["containers"]
    process = subprocess.Popen([*container["command"], *container["args"]], stdout=subprocess.PIPE, process_group=0)
    try:
        status = Path(f"/proc/{process.pid}/status")
        until(
            lambda: int(re.findall(r"SigCgt:\s*(\w+)", status.read_text())[0], 16) & 1 << signal.SIGTERM - 1,
            "a handler",
        )
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
