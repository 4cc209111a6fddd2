"""The status of a TrainJob: the fields of Trainer's definition, with the reasons and messages of Trainer and JobSet,
which clients compare. A job that runs has no condition: the SDK takes any condition for a state of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainyard.core import Job, Outcome
from trainyard.core.job_state import JobResult, Phase, Replica
from trainyard.kinds.trainjob.children import first_failed_job
from trainyard.kinds.trainjob.failure_policy import JOB_FAILED, MESSAGES
from trainyard.kinds.trainjob.progress import trainer_status
from trainyard.objects import Json, find_condition, is_condition_true
from trainyard.objects.meta import OWN_FIELDS

Counts = Mapping[str, Mapping[str, int]]
_STATES: Mapping[Phase, str] = {
    "Created": "Pending",
    "Starting": "Pending",
    "Running": "Running",
    "Suspended": "Suspended",
    "Succeeded": "Complete",
    "Failed": "Failed",
    "Invalid": "Failed",
}


def render(job: Job, outcome: Outcome, counts: Counts) -> Json:
    """The state in one word, which is the column State, and the numbers of pods by role."""
    return {"state": _STATES[outcome.phase], "replicas": {role: dict(states) for role, states in counts.items()}}


def public(job: Job, outcome: Outcome, counts: Counts, replicas: Sequence[Replica]) -> Json:
    """The fields of Trainer's definition."""
    fields = {
        "conditions": _conditions(job, outcome),
        "jobsStatus": [_job_status(job, outcome, role, states) for role, states in counts.items()],
        "trainerStatus": trainer_status(job, outcome, replicas),
    }
    return {name: value for name, value in fields.items() if value}


def begun_elsewhere(status: Json) -> str:
    """Why the operator leaves a job alone that has a status and not its own: Kubeflow Trainer has begun it, so that its
    JobSet may have pods, or Trainer's definition has dropped the operator's field."""
    if OWN_FIELDS in status or not (status.get("jobsStatus") or status.get("conditions")):
        return ""
    return (
        f"Kubeflow Trainer has begun this job, or its definition of TrainJobs has dropped status.{OWN_FIELDS}: "
        "apply the definitions of `trainyard manifests --kinds trainjob`, delete the job and create it again"
    )


def legacy_outcome(status: Json) -> JobResult:
    """How a job has ended that Trainer has reconciled."""
    conditions = status.get("conditions")
    if is_condition_true(conditions, "Complete"):
        return "Succeeded"
    return "Failed" if is_condition_true(conditions, "Failed") else ""


def _conditions(job: Job, outcome: Outcome) -> list[Json]:
    """Suspended, Complete and Failed: those that stand stay in their place, with the times of the operator's own."""
    own = list(job.status.conditions)
    suspended = find_condition(own, "Suspended")
    present: dict[str, Json] = {item["type"]: item for item in job.status.whole.get("conditions") or ()}
    if suspended is not None:
        holds = suspended["status"] == "True"
        reason = "Suspended" if holds else "Resumed"
        present["Suspended"] = _condition(suspended, "Suspended", holds, reason, f"TrainJob is {reason.lower()}")
    if outcome.is_finished:
        name = "Complete" if outcome.phase == "Succeeded" else "Failed"
        end = find_condition(own, "Succeeded" if name == "Complete" else "Failed") or {}
        present[name] = _condition(end, name, True, *_end(job, outcome))
    return list(present.values())


def _condition(own: Json, name: str, holds: bool, reason: str, message: str) -> Json:
    time = own.get("lastTransitionTime")
    return {
        "type": name,
        "status": str(holds),
        "reason": reason,
        "message": message,
        "lastTransitionTime": time,
    }


def _end(job: Job, outcome: Outcome) -> tuple[str, str]:
    """Reason and message of the condition about the end."""
    if outcome.phase == "Succeeded":
        return "AllJobsCompleted", "jobset completed successfully"
    if outcome.reason == "DeadlineExceeded" and not outcome.role:
        return "DeadlineExceeded", "TrainJob exceeded its active deadline"
    if not outcome.role:
        return outcome.reason, outcome.message
    reason = outcome.reason if outcome.reason in MESSAGES else JOB_FAILED
    return reason, f"{MESSAGES[reason]} (first failed job: {first_failed_job(job, outcome.role)})"


def _job_status(job: Job, outcome: Outcome, role: str, states: Mapping[str, int]) -> Json:
    """Numbers of Jobs, of which each replicated job has one."""
    replicas = next((item.replicas for item in job.roles if item.name == role), 0)
    succeeded, running = states.get("Succeeded", 0), states.get("Running", 0)
    has_succeeded = replicas > 0 and succeeded >= replicas
    has_failed = outcome.is_finished and outcome.role == role
    is_active = not (outcome.is_finished or has_succeeded) and running + states.get("Starting", 0) > 0
    return {
        "name": role,
        "ready": int(is_active and succeeded + running >= replicas),
        "succeeded": int(has_succeeded),
        "failed": int(has_failed),
        "active": int(is_active),
        "suspended": int(outcome.phase == "Suspended" and not has_succeeded),
    }
