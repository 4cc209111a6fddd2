"""The verdict: one word about the job from what its replicas do. The first rule that fits wins."""

from __future__ import annotations

from trainyard.core.job import Job, Outcome, Replica, Termination
from trainyard.core.model import Refusal
from trainyard.core.policy import backoff_limit_exceeded, deadline_at

STOP_REASONS = frozenset({"BackoffLimitExceeded", "DeadlineExceeded", "InvalidChild"})
"""Ends after which whatever still runs is stopped, whatever cleanPodPolicy says."""


MOST_NAMED = 5
"""How many replicas the message names when backoffLimit ends a job."""


def compute_phase(job: Job, replicas: list[Replica], failures: dict[str, int], in_place: int, now: float) -> Outcome:
    """What holds now, unless the job has ended before. `failures` counts failed attempts by role, new ones included;
    the job's memory says already whether it is suspended in this pass."""
    deciding = [replica for replica in replicas if replica.slot in job.kind.success_slots_of(job)]
    if deciding and all(replica.state == "Succeeded" for replica in deciding):
        return Outcome("Succeeded", "JobSucceeded", f"{_names(deciding)} ended with exit code 0")
    judged = [replica for replica in replicas if replica.slot in job.kind.supervised_slots_of(job)]
    for replica in judged:
        if replica.termination and replica.termination.fails_job:
            return Outcome("Failed", replica.termination.job_reason, failure_text(replica, replica.termination))
    if text := backoff_limit_exceeded(job, failures, in_place):
        counted = judged if job.policy.backoff_limit is None else replicas
        culprits = [said for replica in counted if (said := _failures(replica))]
        return Outcome("Failed", "BackoffLimitExceeded", "; ".join([text, *culprits[:MOST_NAMED]]))
    due = deadline_at(job, job.status.start_time)
    if due is not None and now >= due:
        text = f"still running after activeDeadlineSeconds ({job.policy.deadline} s)"
        return Outcome("Failed", "DeadlineExceeded", text)
    if job.status.suspended:
        return Outcome("Suspended", "JobSuspended", "no replica runs while spec.suspend is true")
    if any(replica.state == "Running" for replica in replicas):
        return Outcome("Running", "JobRunning", "at least one replica runs")
    if job.status.ran:
        return Outcome("Starting", "NoReplicaRunning", "no replica runs at the moment")
    return Outcome("Created", "JobCreated", "waiting for the first replica to run")


def invalid_child(refusal: Refusal, name: str, ran: bool) -> Outcome:
    """The API server does not take a child as it is, and never will. A job that has run has failed, any other could
    not be set up (S15)."""
    text = f"the API server refused {name}: {refusal.message}"
    return Outcome("Failed" if ran else "Invalid", "InvalidChild", text)


def failure_text(replica: Replica, end: Termination) -> str:
    """Reason, container and code, and what a person can do."""
    if end.reason == "OOMKilled":
        hint = "it ran out of memory: raise its memory limit or lower what it uses"
    elif end.job_reason == "DeadlineExceeded":
        hint = "it is not tried again: raise activeDeadlineSeconds or make the program faster, and make the job again"
    elif end.pod_is_gone:
        hint = "it is not tried again: mend the program or raise backoffLimit, and make the job again"
    else:
        hint = "it is not tried again: see the logs of the pod, mend the program and make the job again"
    return f"{termination_text(replica, end)}; {hint}"


def termination_text(replica: Replica, end: Termination) -> str:
    said = f": {end.message}" if end.message else ""
    if end.code < 0:
        return f"{_name(replica)} ended: {end.reason}{said}"
    return f"{_name(replica)}: container {end.container} exited with code {end.code} ({end.reason}){said}"


def _failures(replica: Replica) -> str:
    """What failed of one replica, as far as it can still be seen."""
    if replica.termination and not replica.termination.disrupted:
        return termination_text(replica, replica.termination)
    if replica.restarts:
        crash = f": {replica.last_crash}" if replica.last_crash else ""
        return f"{_name(replica)} was restarted {replica.restarts} times{crash}"
    return f"a pod of {_name(replica)} failed: see its logs" if replica.failed_attempts else ""


def _names(replicas: list[Replica]) -> str:
    return ", ".join(_name(replica) for replica in replicas)


def _name(replica: Replica) -> str:
    return f"{replica.slot.role} {replica.slot.index}"
