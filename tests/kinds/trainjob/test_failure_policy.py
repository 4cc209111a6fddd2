"""`failurePolicy` of the JobSet in a runtime. Its recorded lives are in test_life."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.drop_in.scenarios_trainjob import replicated_job, runtime
from tests.model.simulated_job import SimulatedJob
from tests.support.samples import trainjob
from trainyard.core.policies.restart_limit import RESTART_LIMIT
from trainyard.kinds import TRAINJOB
from trainyard.kinds.trainjob.failure_policy import JOB_MESSAGE, RULE_FAILS, after_failure, problems
from trainyard.objects import Json, operator_status

CRASH = "node 0 was restarted once: container node exited with code 1"
LABEL = "jobset.sigs.k8s.io/restart-attempt"


def rule(action: str = "FailJobSet", **fields: Any) -> Json:
    return {"name": "stop", "action": action, **fields}


@pytest.mark.parametrize(
    ("policy", "restarts", "reason", "role", "is_limited"),
    [
        (None, 0, "BackoffLimitExceeded", "a", True),
        ({}, 0, "ReachedMaxRestarts", "a", True),
        ({"maxRestarts": 2}, 1, "", "a", True),
        ({"maxRestarts": 2}, 2, "ReachedMaxRestarts", "a", True),
        ({"maxRestarts": 2, "rules": [rule()]}, 0, RULE_FAILS, "a", True),
        (
            {"maxRestarts": 2, "rules": [rule(targetReplicatedJobs=["b"])]},
            0,
            RULE_FAILS,
            "b",
            True,
        ),
        ({"maxRestarts": 2, "rules": [rule(targetReplicatedJobs=["c"])]}, 0, "", "a", True),
        ({"rules": [rule("RestartJobSet")]}, 0, "ReachedMaxRestarts", "a", True),
        ({"rules": [rule("RestartJobSetAndIgnoreMaxRestarts")]}, 5, "", "a", False),
        ({"maxRestarts": 1, "rules": [rule(onJobFailureReasons=["DeadlineExceeded"])]}, 0, "", "a", True),
        (
            {"rules": [rule(onJobFailureReasons=["PodFailurePolicy", "BackoffLimitExceeded"])]},
            0,
            RULE_FAILS,
            "a",
            True,
        ),
        (
            {"rules": [rule(onJobFailureMessagePatterns=["^x$", "backoff.limit$"])]},
            0,
            RULE_FAILS,
            "a",
            True,
        ),
        ({"maxRestarts": 1, "rules": [rule(onJobFailureMessagePatterns=["(", "^limit"])]}, 0, "", "a", True),
        (
            {"maxRestarts": 1, "rules": [rule(targetReplicatedJobs=["c"]), rule("RestartJobSet"), rule()]},
            0,
            "",
            "a",
            True,
        ),
    ],
)
def test_what_follows_the_failure_of_a_and_b(
    policy: Json | None, restarts: int, reason: str, role: str, is_limited: bool
) -> None:
    job_set = {"spec": {"failurePolicy": policy}}
    failure = after_failure(job_set, restarts, ("a", "b"))
    assert (failure.reason, failure.role, failure.is_limited) == (reason, role, is_limited)


def test_a_pattern_is_matched_in_linear_time() -> None:
    job_set = {"spec": {"failurePolicy": {"maxRestarts": 1, "rules": [rule(onJobFailureMessagePatterns=["(.*)*x$"])]}}}
    assert len(JOB_MESSAGE) > 40 and after_failure(job_set, 0, ("a",)).reason == ""


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"maxRestarts": 1, "restartStrategy": "BlockingRecreate", "rules": [rule(targetReplicatedJobs=["a"])]}, ""),
        ({"restartStrategy": "InPlaceRestart"}, "restartStrategy InPlaceRestart is behind a gate of JobSet"),
        ({"rules": [rule("RestartJob")]}, "rule 'stop': action RestartJob is behind a gate of JobSet, which is off"),
        ({"rules": [rule("RestartJobAndIgnoreMaxRestarts")]}, "write RestartJobSet"),
        ({"rules": [rule(targetReplicatedJobs=["b"])]}, "targetReplicatedJobs has 'b', and there is no such"),
        ({"rules": [rule(onJobFailureReasons=["OOMKilled"])]}, "'OOMKilled' in onJobFailureReasons is no reason"),
    ],
)
def test_what_jobset_refuses(policy: Json, text: str) -> None:
    job_set = {"spec": {"failurePolicy": policy, "replicatedJobs": [{"name": "a"}]}}
    texts = [problem.text for problem in problems(job_set)]
    assert bool(texts) == bool(text) and all(text in problem for problem in texts)


def started(policy: Json, *jobs: Json, **metadata: Any) -> SimulatedJob:
    """A job of two nodes, all of which run."""
    wire = trainjob()
    wire["metadata"] |= metadata
    source = runtime({"torch": {}}, *(jobs or (node(),)), failurePolicy=policy)
    simulated = SimulatedJob(TRAINJOB, wire, template_source=source)
    run(simulated)
    return simulated


def node(limit: int = 0, **fields: Any) -> Json:
    return replicated_job(job_spec={"backoffLimit": limit}, **fields)


def run(job: SimulatedJob) -> Json:
    job.settle()
    job.run()
    return job.settle()


def attempts(job: SimulatedJob) -> list[str]:
    return [job.get("Pod", name)["metadata"]["labels"][LABEL] for name in job.names("Pod")]


def pod_of(job: SimulatedJob, name: str) -> str:
    return next(pod for pod in job.names("Pod") if name in pod)


def failed(status: Json) -> Json:
    return next((item for item in status.get("conditions") or () if item["type"] == "Failed"), {})


def test_all_pods_start_again_when_a_replicated_job_has_failed() -> None:
    job = started({"maxRestarts": 2}, replicated_job("other", ""), node())
    first = job.names("Pod")
    uids = {job.get("Pod", name)["metadata"]["uid"] for name in first}
    job.end(pod_of(job, "node-0-1"), 1)
    run(job)
    assert job.names("Pod") == first and attempts(job) == ["1"] * 3
    assert not uids & {job.get("Pod", name)["metadata"]["uid"] for name in first}
    own = operator_status(job.job)
    assert (own["restarts"], own["restartsCountTowardsMax"]) == (1, 1)


def test_restarts_in_place_beyond_the_limit_restart_all() -> None:
    job = started({"maxRestarts": 1}, node(2))
    for _ in range(2):
        job.restart(pod_of(job, "node-0-0"), 1)
        job.settle()
    assert attempts(job) == ["1"] * 2
    own = operator_status(job.job)
    assert (own["restarts"], own["restartsCountTowardsMax"], own["roles"]["node"]["failures"]) == (3, 1, 1)
    run(job)
    job.restart(pod_of(job, "node-0-0"), 1)
    assert not failed(job.settle())
    job.restart(pod_of(job, "node-0-1"), 1)
    assert failed(job.settle())["reason"] == "ReachedMaxRestarts"


def test_the_limit_of_a_replicated_job_begins_anew_with_each_restart() -> None:
    job = started({"maxRestarts": 1}, node(1))
    reasons = []
    for _ in range(4):
        job.now += 100
        job.end(pod_of(job, "node-0-1"), 1)
        reasons.append((failed(run(job)).get("reason"), operator_status(job.job).get("restartsCountTowardsMax", 0)))
    assert reasons == [(None, 0), (None, 1), (None, 1), ("ReachedMaxRestarts", 1)]


def test_restarts_that_ignore_the_limit_are_not_counted() -> None:
    job = started({"rules": [rule("RestartJobSetAndIgnoreMaxRestarts")]})
    for number in range(3):
        job.now += 400
        job.end(pod_of(job, "node-0-0"), 1)
        assert not failed(run(job)) and attempts(job) == [str(number + 1)] * 2
    own = operator_status(job.job)
    assert own["restarts"] == 3 and "restartsCountTowardsMax" not in own


def test_a_program_that_dies_at_once_waits_between_two_restarts() -> None:
    job = started({"maxRestarts": 9})
    job.end(pod_of(job, "node-0-0"), 1)
    run(job)
    job.end(pod_of(job, "node-0-0"), 1)
    job.settle()
    assert attempts(job) == ["1"] * 2 and operator_status(job.job)["restartsCountTowardsMax"] == 1
    job.now += 10
    run(job)
    assert attempts(job) == ["2"] * 2 and operator_status(job.job)["restartsCountTowardsMax"] == 2


def test_a_program_that_dies_at_once_in_place_waits_as_well() -> None:
    job = started({"rules": [rule("RestartJobSetAndIgnoreMaxRestarts")]})
    waits = []
    for number in range(4):
        job.restart(pod_of(job, "node-0-0"), 1)
        job.settle()
        begin, due = job.now, job.look().requeue_at
        if attempts(job) == [str(number)] * 2 and due:
            job.now = due
        run(job)
        assert attempts(job) == [str(number + 1)] * 2
        waits.append(job.now - begin)
    assert waits == [0, 10, 20, 40]


def test_an_eviction_restarts_all_and_counts_towards_no_limit() -> None:
    job = started({"maxRestarts": 1})
    job.evict(pod_of(job, "node-0-1"))
    run(job)
    own = operator_status(job.job)
    assert attempts(job) == ["1"] * 2
    assert (own["restarts"], own["restartCauses"]["eviction"]) == (0, 1)
    assert "restartsCountTowardsMax" not in own


def test_the_end_of_an_older_pod_is_not_a_failure_of_the_next_attempt() -> None:
    """The operator has written the restart and dies before the deletes; the other node fails because its peer is
    gone."""
    job = started({"maxRestarts": 1})
    old = pod_of(job, "node-0-0")
    job.evict(pod_of(job, "node-0-1"))
    job.job = {**job.job, "status": job.look().status}
    job.end(old, 1)
    run(job)
    own = operator_status(job.job)
    assert attempts(job) == ["1"] * 2 and not failed(job.job["status"])
    assert "restartsCountTowardsMax" not in own


def test_an_initializer_that_has_succeeded_runs_again() -> None:
    initializer = replicated_job("prepare", "", job_spec={"backoffLimit": 0})
    depends = node(dependsOn=[{"name": "prepare", "status": "Complete"}])
    job = started({"maxRestarts": 1}, initializer, depends)
    assert [name.rpartition("-")[0] for name in job.names("Pod")] == ["example-prepare-0-0"]
    job.end(pod_of(job, "prepare"), 0)
    run(job)
    job.end(pod_of(job, "node-0-0"), 1)
    job.settle()
    assert [name.rpartition("-")[0] for name in job.names("Pod")] == ["example-prepare-0-0"]
    assert attempts(job) == ["1"]


def test_suspension_keeps_the_count() -> None:
    job = started({"maxRestarts": 1})
    job.end(pod_of(job, "node-0-0"), 1)
    run(job)
    job.edit(suspend=True)
    job.settle()
    job.edit(suspend=False)
    run(job)
    assert attempts(job) == ["1"] * 2
    job.now += 100
    job.end(pod_of(job, "node-0-0"), 1)
    assert failed(job.settle())["reason"] == "ReachedMaxRestarts"


def test_a_job_that_fails_and_is_suspended_restarts_with_its_resumption() -> None:
    job = started({"maxRestarts": 1})
    job.end(pod_of(job, "node-0-0"), 1)
    job.edit(suspend=True)
    job.settle()
    job.edit(suspend=False)
    run(job)
    own = operator_status(job.job)
    assert (own["restarts"], own["restartsCountTowardsMax"], own["roles"]["node"]["attempt"]) == (1, 1, 1)


def test_the_annotation_restart_limit_counts_these_restarts() -> None:
    job = started({"maxRestarts": 9}, node(1), annotations={RESTART_LIMIT: "1/1h"})
    job.restart(pod_of(job, "node-0-0"), 1)
    ended = job.settle()
    assert failed(ended)["reason"] == "RestartLimitExceeded"
    (own,) = (item for item in operator_status(job.job)["conditions"] if item["type"] == "Failed")
    assert own["message"].endswith("1 failed attempt of node, whose backoffLimit is 1; " + CRASH)


def test_a_policy_that_jobset_refuses_fails_the_job() -> None:
    job = started({"restartStrategy": "InPlaceRestart"})
    assert failed(job.job["status"])["reason"] == "InvalidSpec" and not job.names("Pod")


def test_all_old_pods_are_gone_before_the_first_new_one() -> None:
    """Also with the strategy Recreate: nodes of two attempts must not meet."""
    job = started({"maxRestarts": 1})
    job.end(pod_of(job, "node-0-0"), 1)
    (terminating,) = ((ref, deepcopy(pod)) for ref, pod in job.objects.items() if "node-0-1" in ref.name)
    job.step()
    assert not job.names("Pod")
    terminating[1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    job.objects[terminating[0]] = terminating[1]
    assert not [create for create in job.look().creates if create.slot]
    del job.objects[terminating[0]]
    assert len([create for create in job.look().creates if create.slot]) == 2
