"""Which exit of a container fails the job, and the texts about failed replicas."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.core.carriers.terminations import exit_detail
from trainyard.core.job_state import Outcome, Replica, Termination
from trainyard.core.kind import Job
from trainyard.core.model import Refusal
from trainyard.objects.numbers import times_text

MAX_NAMED_REPLICAS = 5
"""How many replicas the message of a condition names: the status must not grow with the replicas."""


def join_texts(texts: Sequence[str]) -> str:
    """The first MAX_NAMED_REPLICAS of the texts about single replicas, and how many more there are."""
    more = len(texts) - MAX_NAMED_REPLICAS
    return "; ".join([*texts[:MAX_NAMED_REPLICAS], *([f"and {more} more"] if more > 0 else [])])


def outcome(job: Job, replicas: list[Replica]) -> Outcome | None:
    """Failed once a supervised replica has ended in a way that is not retried, else None."""
    for replica in replicas:
        termination = replica.termination
        if termination and termination.fails_job and replica.slot in job.supervised_slots():
            return Outcome("Failed", termination.job_reason, failure_text(replica, termination), replica.slot.role)
    return None


def invalid_child(refusal: Refusal, name: str, has_run: bool) -> Outcome:
    """The outcome when the API server refuses a child as invalid: Failed for a job that has run, else Invalid (S15)."""
    text = f"the API server refused {name}: {refusal.message}"
    return Outcome("Failed" if has_run else "Invalid", "InvalidChild", text)


def failure_text(replica: Replica, termination: Termination) -> str:
    """Replica, container, exit code and reason of a termination that fails the job, and how to fix it."""
    if termination.reason == "OOMKilled":
        hint = "it ran out of memory: raise its memory limit or lower what it uses"
    elif "DeadlineExceeded" in (termination.job_reason, termination.reason):
        hint = "it is not tried again: raise activeDeadlineSeconds or make the program faster, and make the job again"
    elif termination.pod_is_gone:
        hint = "it is not tried again: mend the program or raise backoffLimit, and make the job again"
    else:
        hint = "it is not tried again: see the logs of the pod, mend the program and make the job again"
    return f"{termination_text(replica, termination)}; {hint}"


def crash_text(replica: Replica) -> str:
    """How often the kubelet restarted the containers of a replica, and why the last time; "" when it did not."""
    if not replica.restart_count:
        return ""
    reason = f": {replica.last_restart_reason}" if replica.last_restart_reason else ""
    return f"{replica.name} was restarted {times_text(replica.restart_count)}{reason}"


def termination_text(replica: Replica, termination: Termination) -> str:
    """Replica, container, exit code, reason and message of a termination."""
    detail = f": {termination.message}" if termination.message else ""
    if termination.exit_code < 0:
        return f"{replica.name} ended: {termination.reason}{detail}"
    container, code = termination.container, termination.exit_code
    reason = exit_detail(termination.reason, termination.memory_limit)
    return f"{replica.name}: container {container} exited with code {code} ({reason}){detail}"
