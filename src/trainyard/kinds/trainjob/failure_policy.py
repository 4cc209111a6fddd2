"""`failurePolicy` of the JobSet in a runtime: whether a replicated job whose Job has failed fails the TrainJob, or
restarts all replicated jobs. As JobSet 0.12 with its gates RestartJob and InPlaceRestart at their default, off."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import RoleFailure
from trainyard.objects import Json, Problem
from trainyard.objects.numbers import times_text
from trainyard.schema.patterns import PatternError, compiled_pattern

FAIL, RESTART, RESTART_WITHOUT_LIMIT = "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"
JOB_ACTIONS = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
IN_PLACE = "InPlaceRestart"
JOB_REASON, JOB_MESSAGE = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
"""Reason and message of the condition of a Job that has failed. Jobs of these pods fail in no other way."""
JOB_REASONS = frozenset(
    {JOB_REASON, "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"}
)
JOB_FAILED, MAX_RESTARTS, RULE_FAILS = "FailedJobs", "ReachedMaxRestarts", "FailJobSetFailurePolicyAction"
MESSAGES = {
    JOB_FAILED: "jobset failed due to one or more job failures",
    MAX_RESTARTS: "jobset failed due to reaching max number of restarts",
    RULE_FAILS: "applying FailJobSet failure policy action",
}
"""Reason of the condition of a JobSet that has failed -> its message, before the name of the Job."""


def is_set(job_set: Json) -> bool:
    """Whether the JobSet has a failurePolicy, an empty one too."""
    return job_set["spec"].get("failurePolicy") is not None


def after_failure(job_set: Json, restarts: int, failed: tuple[str, ...]) -> RoleFailure:
    """What follows the failure of the Jobs of these replicated jobs. `restarts`: those that count so far."""
    if not is_set(job_set):
        return RoleFailure(failed[0], JOB_REASON)
    policy = job_set["spec"]["failurePolicy"]
    matches = ((rule, name) for rule in policy.get("rules") or () for name in failed if _applies(rule, name))
    rule, name = next(matches, ({"action": RESTART}, failed[0]))
    if rule["action"] == FAIL:
        return RoleFailure(name, RULE_FAILS)
    is_limited = rule["action"] != RESTART_WITHOUT_LIMIT
    has_restart = not is_limited or restarts < (policy.get("maxRestarts") or 0)
    return RoleFailure(name, "" if has_restart else MAX_RESTARTS, is_limited)


def _applies(rule: Json, name: str) -> bool:
    reasons, patterns = rule.get("onJobFailureReasons") or (), rule.get("onJobFailureMessagePatterns") or ()
    return (
        name in (rule.get("targetReplicatedJobs") or (name,))
        and JOB_REASON in (reasons or (JOB_REASON,))
        and (not patterns or any(map(_matches_message, patterns)))
    )


def _matches_message(pattern: str) -> bool:
    """No invalid pattern matches."""
    try:
        return compiled_pattern(pattern).search(JOB_MESSAGE) is not None
    except PatternError:
        return False


def problems(job_set: Json) -> Iterator[Problem]:
    """Why JobSet refuses a failurePolicy, so that Trainer never makes the JobSet."""
    policy = job_set["spec"].get("failurePolicy") or {}
    where = "failurePolicy of the runtime"
    if policy.get("restartStrategy") == IN_PLACE:
        text = f"{where}: restartStrategy {IN_PLACE} is behind a gate of JobSet, which is off; write Recreate"
        yield Problem("spec.runtimeRef", text)
    names = {replicated_job["name"] for replicated_job in job_set["spec"]["replicatedJobs"]}
    for rule in policy.get("rules") or ():
        place = f"{where}, rule {rule.get('name')!r}"
        if rule["action"] in JOB_ACTIONS:
            text = f"{place}: action {rule['action']} is behind a gate of JobSet, which is off; write RestartJobSet"
            yield Problem("spec.runtimeRef", text)
        for name in rule.get("targetReplicatedJobs") or ():
            if name not in names:
                text = f"{place}: targetReplicatedJobs has {name!r}, and there is no such replicated job"
                yield Problem("spec.runtimeRef", text)
        for reason in rule.get("onJobFailureReasons") or ():
            if reason not in JOB_REASONS:
                text = f"{place}: {reason!r} in onJobFailureReasons is no reason of a Job that has failed"
                yield Problem("spec.runtimeRef", text)


def end_note(job_set: Json, reason: str, restarts: int) -> str:
    """Why the policy has failed the job, "" if it has not. `reason`: of the job's failure."""
    if reason == MAX_RESTARTS:
        limit = (job_set["spec"].get("failurePolicy") or {}).get("maxRestarts") or 0
        return (
            f"all had started again {times_text(restarts)}, and maxRestarts of the runtime's failurePolicy is {limit}"
        )
    return "a rule of the runtime's failurePolicy ends the job then" if reason == RULE_FAILS else ""
