"""The status of a TrainJob through its life is that of the recorded Trainer, whose pods went through the same phases.
What none of the recordings has is below."""

from __future__ import annotations

from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.kinds.trainjob.test_recorded import NAMES, recording, runtime_of, schema
from tests.model.simulated_job import SimulatedJob, merged, shipped_source, simulate
from tests.support.samples import trainjob
from trainyard.core import Config, parse_job
from trainyard.kinds import TRAINJOB
from trainyard.objects import Json, find_condition, operator_status

LIVES = [name for name in NAMES if name.startswith(("life-", "patch-and-resume"))]


def as_recorded(status: Json) -> Json:
    """Trainer's fields, without times and with the Jobs by name: their order is that of a map of Go."""
    conditions = [{**item, "lastTransitionTime": "<time>"} for item in status.get("conditions") or ()]
    jobs = {item["name"]: item for item in status.get("jobsStatus") or ()}
    return {"conditions": conditions, "jobsStatus": jobs}


def act(job: SimulatedJob, do: Json) -> None:
    """What a step of a scenario does to the pods, or to the job."""
    if "patch" in do:
        job.job = merged(job.job, do["patch"])
        job.job["metadata"]["generation"] = job.job["metadata"].get("generation", 1) + 1
    for name in job.names("Pod") if "phase" in do else ():
        pod = job.get("Pod", name)
        if not any(fnmatchcase(name, pattern) for pattern in do.get("pods", ["*"])):
            continue
        if do["phase"] == "Running":
            job.run(name)
            pod = job.get("Pod", name)
            for container in pod["status"]["containerStatuses"] if "restarts" in do else ():
                container["restartCount"] = do["restarts"]
        else:
            job.run(name)
            job.end(name, do.get("exitCode", 0))


@pytest.mark.parametrize("name", LIVES)
def test_the_status_is_as_recorded_at_each_step(name: str) -> None:
    recorded = recording(name)
    wire = schema("TrainJob").default(recorded.manifest)
    wire["metadata"] |= {"namespace": "default", "uid": "the uid of tj"}
    job = SimulatedJob(TRAINJOB, wire, template_source=runtime_of(recorded))
    listed = []
    for number, step in enumerate(recorded.steps):
        act(job, step["do"])
        status = job.settle()
        theirs = as_recorded(step["snapshot"]["job"].get("status") or {})
        if as_recorded(status) != theirs:
            listed.append((number, as_recorded(status), theirs))
    assert listed == []


@pytest.mark.parametrize("name", LIVES)
def test_the_pods_are_those_of_the_recorded_steps(name: str) -> None:
    recorded = recording(name)
    wire = schema("TrainJob").default(recorded.manifest)
    wire["metadata"] |= {"namespace": "default", "uid": "the uid of tj"}
    job = SimulatedJob(TRAINJOB, wire, template_source=runtime_of(recorded))
    for number, step in enumerate(recorded.steps):
        act(job, step["do"])
        job.settle()
        phases = step["snapshot"].get("phases") or {}
        theirs = sorted(pod.removesuffix("-<random>") for pod in phases)
        assert sorted(pod.rpartition("-")[0] for pod in job.names("Pod")) == theirs, number


def running_job(**spec: Any) -> SimulatedJob:
    job = simulate(TRAINJOB, trainjob(**spec))
    job.run()
    job.settle()
    return job


def test_the_operators_own_conditions_are_not_those_of_the_job() -> None:
    job = running_job()
    assert "conditions" not in job.job["status"]
    assert find_condition(operator_status(job.job)["conditions"], "Running")


def test_a_suspended_job_loses_its_pods_and_keeps_the_rest() -> None:
    job = running_job()
    others = [ref for ref in job.objects if ref.kind != "Pod"]
    job.edit(suspend=True)
    status = job.settle()
    assert not job.names("Pod") and list(job.objects) == others
    assert status["conditions"][0]["reason"] == "Suspended" and status["jobsStatus"][0]["suspended"] == 1
    names = [f"example-node-0-{index}" for index in range(2)]
    job.edit(suspend=False)
    status = job.settle()
    assert [name.rpartition("-")[0] for name in job.names("Pod")] == names
    assert [(item["status"], item["reason"]) for item in status["conditions"]] == [("False", "Resumed")]
    labels = job.get("Pod", job.names("Pod")[0])["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/restart-attempt"] == "0"


def test_the_deadline_begins_anew_when_the_job_is_resumed() -> None:
    job = running_job(activeDeadlineSeconds=30)
    job.edit(suspend=True)
    job.settle()
    job.now += 60
    job.edit(suspend=False)
    job.settle()
    job.run()
    job.now += 29
    assert "Failed" not in [item["type"] for item in job.settle()["conditions"]]
    job.now += 1
    (_, failed) = job.settle()["conditions"]
    assert (failed["reason"], failed["message"]) == ("DeadlineExceeded", "TrainJob exceeded its active deadline")
    assert not job.names("Pod")


def test_the_runtime_is_kept_in_the_config_map_of_trainer() -> None:
    job = running_job()
    assert '"name":"torch-distributed"' in job.get("ConfigMap", "example-runtime-snapshot")["data"]["runtime"]


def test_a_name_that_leaves_no_room_for_its_pods_fails_the_job() -> None:
    job = simulate(TRAINJOB, trainjob(name="a" * 60))
    (failed,) = job.job["status"]["conditions"]
    assert failed["reason"] == "InvalidSpec" and "allow 48; choose a shorter one (metadata.name)" in failed["message"]


def test_a_snapshot_that_cannot_be_rendered_is_a_problem() -> None:
    job = running_job()
    job.job["status"]["trainyard"]["snapshot"] = {"spec": {"template": {"spec": {"replicatedJobs": [{"name": 5}]}}}}
    (problem,) = parse_job(TRAINJOB, job.job, Config()).parsed.problems
    assert "cannot be rendered" in problem.text


@pytest.mark.parametrize("code", [0, 1])
def test_the_ttl_of_the_runtime_deletes_the_pods_and_does_not_run_the_job_again(code: int) -> None:
    source = deepcopy(shipped_source(TRAINJOB, trainjob()))
    assert source
    job_set = source["spec"]["template"]["spec"]
    job_set["ttlSecondsAfterFinished"] = 30
    job_set["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 0
    job = SimulatedJob(TRAINJOB, trainjob(), template_source=source)
    job.settle()
    job.run()
    for name in job.names("Pod"):
        job.end(name, code)
    ended = job.settle()
    pods = job.names("Pod")
    assert ended["conditions"] and len(pods) == 2
    assert job.look().requeue_at == job.now + 30
    job.now += 29
    job.settle()
    assert job.names("Pod") == pods
    job.now += 1
    kept = [ref for ref in job.objects if ref.kind != "Pod"]
    assert job.settle() == ended
    assert list(job.objects) == kept
    assert job.look().idle and job.look().requeue_at is None


def test_a_finished_job_of_trainer_is_left_alone() -> None:
    wire = trainjob()
    wire["status"] = {"conditions": [{"type": "Complete", "status": "True", "reason": "AllJobsCompleted"}]}
    job = SimulatedJob(TRAINJOB, wire)
    assert job.look().idle


def test_a_job_of_another_controller_is_left_alone() -> None:
    job = SimulatedJob(TRAINJOB, trainjob(managedBy="kueue.x-k8s.io/multikueue"))
    assert job.look().idle and job.look().requeue_at is None and not job.look().pod_warnings


def unchecked(source: Json | None = None, **spec: Any) -> SimulatedJob:
    """A job that an API server without Trainer's webhooks has stored."""
    wire = trainjob(**spec)
    job = SimulatedJob(TRAINJOB, wire, template_source=source or shipped_source(TRAINJOB, wire))
    job.settle()
    return job


def test_a_job_that_trainers_webhooks_would_refuse_fails_in_their_words() -> None:
    job = unchecked(trainer={"env": [{"name": "PET_NNODES", "value": "9"}]})
    (failed,) = job.job["status"]["conditions"]
    text = "must not have reserved envs, invalid envs configured: [PET_NNODES] (spec.trainer.env)"
    assert (failed["type"], failed["reason"], failed["message"]) == ("Failed", "InvalidSpec", text)
    assert not job.names("Pod")


def test_a_job_of_a_runtime_that_trainers_webhooks_would_refuse_fails_in_their_words() -> None:
    source = deepcopy(shipped_source(TRAINJOB, trainjob()))
    assert source
    source["metadata"]["labels"] = {}
    pod_template = source["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod_template["spec"]["containers"][0]["name"] = "other"
    (failed,) = unchecked(source).job["status"]["conditions"]
    assert failed["reason"] == "InvalidSpec"
    assert "must contain the required container for the ancestor: trainer" in failed["message"]


def test_an_edit_that_trainers_webhooks_would_refuse_keeps_a_running_job_running() -> None:
    job = running_job()
    unknown = {"template": {"spec": {"replicatedJobs": [{"name": "x"}]}}}
    job.edit(runtimePatches=[{"manager": "acme.io/team", "trainingRuntimeSpec": unknown}])
    status = job.settle()
    assert "conditions" not in status and len(job.names("Pod")) == 2
