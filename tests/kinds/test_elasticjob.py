"""The children of an ElasticJob, and its messages exactly as documented (README, rules.md, ElasticJob)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import elasticjob, pods
from trainyard import kinds
from trainyard.core import Plan
from trainyard.objects import Json

RENDEZVOUS = ["--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379", "--rdzv_id=imagenet"]


def job(count: int | None = 2, worker: Json | None = None, **spec: Any) -> Json:
    return elasticjob(count, name="imagenet", worker=worker, **spec)


def args(simulated: SimulatedJob, container: int = 0, name: str = "imagenet-worker-0") -> list[str]:
    obj: list[str] = simulated.get("Pod", name)["spec"]["containers"][container].get("args", [])
    return obj


def containers(*listed: Json) -> Json:
    return {"template": {"spec": {"containers": list(listed)}}}


@pytest.mark.parametrize(
    ("count", "least", "most", "nodes"),
    [(2, 1, 3, "1:3"), (2, None, None, "2:2"), (2, 1, None, "1:2"), (2, None, 4, "2:4"), (None, None, None, "1:1")],
)
def test_the_rendezvous_arguments_precede_the_users_in_the_old_order(
    count: int | None, least: int | None, most: int | None, nodes: str
) -> None:
    bounds = {"minReplicas": least, "maxReplicas": most}
    set_bounds = {key: value for key, value in bounds.items() if value is not None}
    container = {"name": "elasticjob-worker", "image": "i", "args": ["--nproc_per_node=1", "main.py"], "command": ["x"]}
    simulated = simulate(kinds.ELASTICJOB, job(count, containers(container), **set_bounds))
    assert args(simulated) == [*RENDEZVOUS, f"--nnodes={nodes}", "--nproc_per_node=1", "main.py"]
    assert simulated.get("Pod", "imagenet-worker-0")["spec"]["containers"][0]["command"] == ["x"]


@pytest.mark.parametrize("index", [0, 1])
def test_with_c10d_worker_0_holds_the_store_and_no_endpoint_is_needed(index: int) -> None:
    c10d_job = job(rdzvBackend="c10d")
    del c10d_job["spec"]["rdzvEndpoint"]
    simulated = simulate(kinds.ELASTICJOB, c10d_job)
    assert args(simulated, name=f"imagenet-worker-{index}") == [
        "--rdzv_backend=c10d",
        "--rdzv_endpoint=imagenet-worker-0:29400",
        "--rdzv_id=imagenet",
        "--nnodes=2:2",
        f"--rdzv_conf=is_host={int(index == 0)},read_timeout=900",
    ]
    (container,) = simulated.get("Pod", f"imagenet-worker-{index}")["spec"]["containers"]
    assert container["env"] == [{"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}]


def test_with_c10d_a_users_endpoint_is_used_and_torch_decides_which_worker_hosts_the_store() -> None:
    arguments = args(simulate(kinds.ELASTICJOB, job(rdzvBackend="c10d", rdzvEndpoint="store:1")))
    assert arguments == ["--rdzv_backend=c10d", "--rdzv_endpoint=store:1", "--rdzv_id=imagenet", "--nnodes=2:2"]


def test_without_a_rendezvous_the_arguments_are_the_users_alone() -> None:
    container = {"name": "elasticjob-worker", "image": "i", "args": ["main.py"]}
    static_job = job(2, containers(container), rdzvBackend="none")
    del static_job["spec"]["rdzvEndpoint"]
    assert args(simulate(kinds.ELASTICJOB, static_job)) == ["main.py"]


@pytest.mark.parametrize(
    ("names", "speaker"), [(["elasticjob-worker"], 0), (["main"], 0), (["a", "b"], 0), (["a", "elasticjob-worker"], 1)]
)
def test_one_container_gets_the_arguments_and_determines_the_workers_state(names: list[str], speaker: int) -> None:
    simulated = simulate(kinds.ELASTICJOB, job(1, containers(*({"name": name, "image": "i"} for name in names))))
    assert [bool(args(simulated, index)) for index in range(len(names))] == [
        index == speaker for index in range(len(names))
    ]
    simulated.run()
    simulated.end("imagenet-worker-0", 137, container=names[speaker])
    assert simulated.look().status["roles"]["Worker"]["failures"] == 1


def test_init_containers_are_left_alone() -> None:
    template = {**pods("elasticjob-worker", initContainers=[{"name": "data", "image": "i", "args": ["x"]}])}
    simulated = simulate(kinds.ELASTICJOB, job(1, {"template": template}))
    assert simulated.get("Pod", "imagenet-worker-0")["spec"]["initContainers"] == template["spec"]["initContainers"]


@pytest.mark.parametrize("resumes", [0, 1, 2])
def test_a_resumed_job_meets_under_an_id_of_its_own(resumes: int) -> None:
    simulated = simulate(kinds.ELASTICJOB, job())
    for _ in range(resumes):
        for suspend in (True, False):
            simulated.edit(suspend=suspend)
            simulated.settle()
    assert args(simulated)[2] == "--rdzv_id=imagenet" + (f"-r{resumes}" if resumes else "")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("ExitCode", "Never"), ("Never", "Never"), ("OnFailure", "OnFailure"), ("Always", "Always"), (None, "Never")],
)
def test_the_restart_policy_of_a_pod(policy: str | None, expected: str) -> None:
    simulated = simulate(kinds.ELASTICJOB, job(1, {"restartPolicy": policy}))
    assert simulated.get("Pod", "imagenet-worker-0")["spec"]["restartPolicy"] == expected


@pytest.mark.parametrize("code", [1, 2, 3, 126, 127, 128, 129, 130, 134, 137, 138, 139, 143, 255])
def test_four_exit_codes_are_tried_again_and_all_else_fails_the_job(code: int) -> None:
    simulated = simulate(kinds.ELASTICJOB, job())
    simulated.run()
    simulated.settle()
    simulated.end("imagenet-worker-1", code)
    assert simulated.look().status["state"] == ("Running" if code in (130, 137, 138, 143) else "Failed")


def test_a_pod_and_a_service_for_each_worker_with_the_labels_of_the_old_operator() -> None:
    simulated = simulate(kinds.ELASTICJOB, job(3))
    for index in range(3):
        wanted = {
            "group-name": "elastic.pytorch.org",
            "job-name": "imagenet",
            "replica-type": "worker",
            "replica-index": str(index),
        }
        pod, service = (simulated.get(kind, f"imagenet-worker-{index}") for kind in ("Pod", "Service"))
        assert all(obj["metadata"]["labels"].items() >= wanted.items() for obj in (pod, service))
        assert service["spec"]["selector"] == wanted
        assert service["spec"]["clusterIP"] == "None" and "ports" not in service["spec"]


# --- Words


def event_and_condition(simulated: SimulatedJob, kind: str) -> tuple[str, str]:
    (expected,) = [condition for condition in simulated.job["status"]["conditions"] if condition["type"] == kind]
    return expected["reason"], expected["message"]


def planned_events(plan: Plan) -> list[tuple[str, str, str]]:
    return [(event.type, event.reason, event.message) for event in plan.events]


def test_the_conditions_and_events_of_a_job_are_as_documented() -> None:
    simulated = SimulatedJob(kinds.ELASTICJOB, job())
    recorded_events = planned_events(simulated.step())
    assert ("Normal", "SuccessfulCreatePod", "Created pod: imagenet-worker-0") in recorded_events
    assert ("Normal", "SuccessfulCreateService", "Created service: imagenet-worker-1") in recorded_events
    simulated.run()
    assert planned_events(simulated.step()) == []
    assert event_and_condition(simulated, "Running") == ("ElasticJobRunning", "ElasticJob imagenet is running.")
    (running,) = [condition for condition in simulated.job["status"]["conditions"] if condition["type"] == "Running"]
    assert running["lastUpdateTime"] == running["lastTransitionTime"]
    assert simulated.job["status"]["replicaStatuses"] == {"Worker": {"active": 2}}
    for index in (0, 1):
        simulated.end(f"imagenet-worker-{index}", 0)
    text = "ElasticJob imagenet is successfully completed."
    assert planned_events(simulated.step()) == [("Normal", "ElasticJobSucceeded", text)]
    assert event_and_condition(simulated, "Succeeded") == ("ElasticJobSucceeded", text)
    assert simulated.job["status"]["replicaStatuses"] == {"Worker": {"succeeded": 2}}


def test_the_message_of_a_failure_begins_with_the_old_text() -> None:
    simulated = simulate(kinds.ELASTICJOB, job())
    simulated.run()
    simulated.settle()
    simulated.end("imagenet-worker-1", 1)
    events = planned_events(simulated.step())
    reason, text = event_and_condition(simulated, "Failed")
    assert reason == "ElasticJobFailed"
    assert text.startswith("ElasticJob imagenet is failed because 1 Worker replica(s) failed. Worker 1: container")
    assert ("Warning", "ElasticJobFailed", text) in events
    assert ("Normal", "ExitedWithCode", "Pod: default.imagenet-worker-1 exited with code 1") in events


def test_the_message_of_a_restart_begins_with_the_old_text() -> None:
    simulated = simulate(kinds.ELASTICJOB, job())
    simulated.run()
    simulated.settle()
    simulated.end("imagenet-worker-1", 143)
    simulated.step()
    reason, text = event_and_condition(simulated, "Restarting")
    assert reason == "ElasticJobRestarting"
    assert text.startswith("ElasticJob imagenet is restarting because 1 Worker replica(s) failed. ")


LIMITS = [
    ({"backoffLimit": 0}, "Job imagenet has failed because it has reached the specified backoff limit"),
    ({"activeDeadlineSeconds": 5}, "Job imagenet has failed because it was active longer than specified deadline"),
]


@pytest.mark.parametrize(("policy", "old"), LIMITS)
def test_the_message_of_a_limit_begins_with_the_old_text(policy: Json, old: str) -> None:
    simulated = simulate(kinds.ELASTICJOB, job(**policy))
    simulated.run()
    simulated.settle()
    simulated.now += 10
    if "backoffLimit" in policy:
        simulated.end("imagenet-worker-1", 137)
    events = planned_events(simulated.step())
    _, text = event_and_condition(simulated, "Failed")
    assert text.startswith(f"{old}; ")
    assert ("Warning", "JobFailed", text) in events


def test_scaling_records_events_and_the_templates_restart_policy_a_warning() -> None:
    template = pods("elasticjob-worker", restartPolicy="Always")
    simulated = simulate(kinds.ELASTICJOB, job(2, {"template": template}))
    worker = copy.deepcopy(simulated.job["spec"]["replicaSpecs"]["Worker"])
    simulated.edit(replicaSpecs={"Worker": {**worker, "replicas": 3}})
    events = planned_events(simulated.step())
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    assert ("Warning", "SettedPodTemplateRestartPolicy", text) in events
    simulated.edit(replicaSpecs={"Worker": {**worker, "replicas": 1}})
    events = planned_events(simulated.step())
    assert ("Normal", "SuccessfulDeletePod", "Deleted pod: imagenet-worker-2") in events
    assert ("Normal", "SuccessfulDeleteService", "Deleted service: imagenet-worker-1") in events


PLACES = [
    ({"cleanPodPolicy": "All"}, "All"),
    ({"runPolicy": {"cleanPodPolicy": "All"}}, "All"),
    ({"RunPolicy": {"cleanPodPolicy": "All"}}, "All"),
    ({"runPolicy": {"cleanPodPolicy": "Running"}, "RunPolicy": {"cleanPodPolicy": "All"}}, "Running"),
    ({"cleanPodPolicy": "None", "runPolicy": {"cleanPodPolicy": "Running"}}, "None"),
    ({"cleanPodPolicy": None, "runPolicy": {"cleanPodPolicy": "Running"}}, "Running"),
    ({}, ""),
]


@pytest.mark.parametrize(("policies", "expected"), PLACES)
def test_policies_are_read_from_three_places(policies: Json, expected: str) -> None:
    assert kinds.ELASTICJOB.api.read(job(**policies)["spec"], "imagenet").policy.clean_pod_policy == expected
