"""Which exit of a container fails the job, and the texts about failed replicas."""

from __future__ import annotations

from trainyard.core.job import Job, Outcome, Replica, Termination
from trainyard.core.model import Refusal


def outcome(job: Job, replicas: list[Replica]) -> Outcome | None:
    """Failed once a supervised replica has ended in a way that is not retried, else None."""
    for replica in replicas:
        ended = replica.termination
        if ended and ended.fails_job and replica.slot in job.kind.supervised_slots_of(job):
            return Outcome("Failed", ended.job_reason, failure_text(replica, ended))
    return None


def invalid_child(refusal: Refusal, name: str, ran: bool) -> Outcome:
    """The API server refuses a child, and always will. A job that has run fails; any other is invalid (S15)."""
    text = f"the API server refused {name}: {refusal.message}"
    return Outcome("Failed" if ran else "Invalid", "InvalidChild", text)


def failure_text(replica: Replica, termination: Termination) -> str:
    """Reason, container, exit code, and what a person can do."""
    if termination.reason == "OOMKilled":
        hint = "it ran out of memory: raise its memory limit or lower what it uses"
    elif termination.job_reason == "DeadlineExceeded":
        hint = "it is not tried again: raise activeDeadlineSeconds or make the program faster, and make the job again"
    elif termination.pod_is_gone:
        hint = "it is not tried again: mend the program or raise backoffLimit, and make the job again"
    else:
        hint = "it is not tried again: see the logs of the pod, mend the program and make the job again"
    return f"{termination_text(replica, termination)}; {hint}"


def termination_text(replica: Replica, termination: Termination) -> str:
    detail = f": {termination.message}" if termination.message else ""
    if termination.code < 0:
        return f"{replica.name} ended: {termination.reason}{detail}"
    container, code, reason = termination.container, termination.code, termination.reason
    return f"{replica.name}: container {container} exited with code {code} ({reason}){detail}"
