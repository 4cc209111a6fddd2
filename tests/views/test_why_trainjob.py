"""What `why` says of TrainJobs alone: their order, their runtime, its failurePolicy."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.drop_in.scenarios_trainjob import replicated_job, runtime
from tests.model.simulated_job import SimulatedJob
from tests.support.samples import trainjob
from tests.views.why_values import everything
from trainyard.core.diagnosis import BLOCK, NOTE, WAIT
from trainyard.kinds import TRAINJOB
from trainyard.objects import Json, format_time
from trainyard.views.diagnosis import Facts, Finding, why


def job_of(*jobs: Json, **fields: Any) -> SimulatedJob:
    wire = trainjob(runtimeRef={"kind": "TrainingRuntime", "name": "own"})
    wire["metadata"]["creationTimestamp"] = format_time(0)
    return SimulatedJob(TRAINJOB, wire, template_source=runtime({"torch": {}}, *jobs, **fields))


def pods_of(job: SimulatedJob) -> tuple[Json, ...]:
    pods = [obj for ref, obj in job.objects.items() if ref.kind == "Pod"]
    for pod in pods:
        pod["spec"]["nodeName"] = "here"
    return tuple(pods)


def findings(job: SimulatedJob, **more: Any) -> list[Finding]:
    others = tuple(obj for ref, obj in job.objects.items() if ref.kind != "Pod")
    return why(Facts(TRAINJOB, job.job, job.now + 60, pods_of(job), children=others, **more))


@pytest.mark.parametrize(("status", "text"), [("Complete", "has succeeded"), ("Ready", "runs")])
def test_nodes_that_wait_for_an_initializer(status: str, text: str) -> None:
    first = replicated_job("first", "")
    job = job_of(first, replicated_job(dependsOn=[{"name": "first", "status": status}]))
    job.settle()
    if status == "Complete":
        job.run()
        job.settle()
    assert (WAIT, f"node-0, node-1: no pod until first-0 {text}") in [
        (finding.level, finding.summary) for finding in findings(job)
    ]
    assert "none will be created" not in everything(findings(job))


def test_a_pod_that_is_missing_is_not_one_that_waits() -> None:
    job = job_of(replicated_job("first", ""), replicated_job(dependsOn=[{"name": "first", "status": "Complete"}]))
    job.settle()
    job.run()
    job.end(job.names("Pod")[0], 0)
    answer = everything(findings(job))
    assert "the operator has not created one yet" in answer and "no pod until" not in answer


def test_a_runtime_that_does_not_exist() -> None:
    job = SimulatedJob(TRAINJOB, trainjob(runtimeRef={"kind": "TrainingRuntime", "name": "own"}))
    job.job["metadata"]["creationTimestamp"] = format_time(job.now)
    (finding,) = findings(job, template_is_missing=True)
    assert (finding.level, finding.summary) == (BLOCK, "there is no TrainingRuntime own, whose pod templates it needs")
    assert "kubectl get trainingruntimes" in finding.fix
    (unread,) = findings(job)
    assert unread.summary == "no operator reconciles it"


def test_a_runtime_that_was_edited_since() -> None:
    job = job_of()
    job.settle()
    job.run()
    job.settle()
    source = deepcopy(job.template_source)
    assert source
    assert not [finding for finding in findings(job, template_source=source) if finding.level == NOTE]
    source["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 5
    source["metadata"]["resourceVersion"] = "8"
    *_, note = findings(job, template_source=source)
    assert note.level == NOTE and note.summary.startswith("TrainingRuntime own has been edited since the job began")
    assert note.evidence == ("other now: spec.template.spec.ttlSecondsAfterFinished",)
    assert not [finding for finding in findings(job, template_is_missing=True) if finding.level == NOTE]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"maxRestarts": 1}, "all had started again once, and maxRestarts of the runtime's failurePolicy is 1"),
        ({"rules": [{"name": "stop", "action": "FailJobSet"}]}, "a rule of the runtime's failurePolicy ends the job"),
        (None, "mend what its last lines say"),
    ],
)
def test_a_failure_policy_that_ends_the_job(policy: Json | None, text: str) -> None:
    job = job_of(replicated_job(job_spec={"backoffLimit": 0}), **({"failurePolicy": policy} if policy else {}))
    for _ in range(2):
        job.settle()
        job.run()
        job.now += 100
        for name in job.names("Pod"):
            job.end(name, 1)
    job.settle()
    lines = {(pod["metadata"]["uid"], "node"): ("no such file",) for pod in pods_of(job)}
    answer = everything(findings(job, logs=lines))
    assert "node-0, node-1 ended with exit code 1" in answer and text in answer
