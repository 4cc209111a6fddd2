"""Findings about a job that has failed, from its pods. Equal findings about several replicas become one."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core.diagnosis import END, Finding
from trainyard.core.policies.restart_limit import EXCEEDED
from trainyard.objects import Json, parse_time
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.labels import index_of, replica_name, role_of
from trainyard.objects.structs import replace
from trainyard.views.diagnosis.containers import last_lines, termination
from trainyard.views.diagnosis.inputs import Facts, container_context, is_sidecar, join_names
from trainyard.views.diagnosis.launchers import is_consequence
from trainyard.views.diagnosis.output import REASONS_BEFORE_OUTPUT, failed_before_stop
from trainyard.views.diagnosis.replicas import waiting
from trainyard.views.job_view import job_result

MAX_FAILURES = 3
SIGTERM_EXIT_CODE = 143
STOP_EXIT_CODES = frozenset({SIGTERM_EXIT_CODE, 137})  # of replicas that are stopped with their job: SIGTERM, SIGKILL


OTHER_CAUSES = frozenset({"", "DeadlineExceeded", "PermanentFailure", "InvalidChild", "InvalidSpec"})
"""Causes of the failure of a job that are no limit of its failures."""

Termination = tuple[float, Json, ContainerStatus, Json]
"""When a container terminated (Unix seconds), its pod, its status, and the terminated state."""


def failed(facts: Facts) -> Iterator[Finding]:
    """The containers whose failure made the job fail: how each terminated, and its last lines."""
    if job_result(facts.job) == "Failed":
        yield from failures(facts, include_stopped=facts.parsed_job.status.failure_cause != EXCEEDED)


def failures(facts: Facts, include_stopped: bool = True) -> Iterator[Finding]:
    """How containers failed: those of supervised slots (`Job.supervised_slots`) first, then by time.

    include_stopped: the first one counts even when its exit code is that of a stopped container (STOP_EXIT_CODES)."""
    terminations: list[Termination] = []
    for pod in (*facts.pods, *facts.deleted_pods):
        if _past_deadline(facts) and not _stays_failed(pod):
            continue  # the deadline deletes this pod: the findings must not depend on the progress of the deletion
        for container in container_statuses(pod.get("status")):
            run = failed_run(container, facts.parsed_job.status.failure_cause)
            terminated = run[1] if run else None
            if terminated is not None and terminated.get("exitCode") and not is_sidecar(pod, container):
                terminations.append((parse_time(terminated.get("finishedAt")) or 0.0, pod, container, terminated))
    supervised = {(slot.role, str(slot.index)) for slot in facts.parsed_job.supervised_slots()}
    terminations.sort(key=lambda entry: (not _is_supervised(entry[1], supervised), entry[0], _got_sigterm(entry[3])))
    failed_alone = [entry for entry in terminations if not _was_stopped(facts, entry[1], entry[2], entry[3])]
    if include_stopped and terminations and not _stopped_because_of(terminations[0], failed_alone):
        failed_alone = [terminations[0], *(entry for entry in failed_alone if entry is not terminations[0])]
    terminations = failed_alone
    consequences = [entry for entry in terminations if _is_consequence(facts, entry[1], entry[2], entry[3])]
    causes = [entry for entry in terminations if entry not in consequences]
    groups: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for _, pod, container, terminated in causes or consequences:
        finding = _failure_finding(facts, pod, container, terminated)
        if _got_sigterm(terminated) and any(fix == finding.fix for _, fix in groups):
            continue  # it was stopped while it failed of the same cause
        groups.setdefault((finding.summary, finding.fix), []).append((replica_name(pod), finding))
    for index, members in enumerate(list(groups.values())[:MAX_FAILURES]):
        first = members[0][1]
        summary = f"{join_names(name for name, _ in members)} {first.summary}"
        if index == 0 and causes and consequences:
            names = join_names(replica_name(entry[1]) for entry in consequences)
            summary += f"; {names} lost a peer by that, and ended, too"
        yield replace(first, summary=summary)


def failed_run(container: ContainerStatus, cause: str) -> tuple[int, Json] | None:
    """The number and the terminated state of the run by which a container that does not run now has failed; None if it
    has not ended. That is its last run, or the one before: if the failures of a job exceed a limit (`cause` of its
    failure), the kubelet may have started the container once more, and then that run is stopped with the job."""
    terminated, previous = container.ended_run, container.previous_terminated
    if terminated is None:
        return None
    last = container.last_terminated_run
    is_stop = terminated.get("exitCode") == SIGTERM_EXIT_CODE and container.state("terminated") is not None
    if is_stop and previous and previous.get("exitCode") and cause not in OTHER_CAUSES:
        return last - 1, previous
    return last, terminated


def _was_stopped(facts: Facts, pod: Json, container: ContainerStatus, terminated: Json) -> bool:
    """True when the container was stopped with its job, and neither did a kubelet stop it nor a process of it fail."""
    code = int(terminated["exitCode"])
    if code not in STOP_EXIT_CODES:
        return False
    context = container_context(facts, pod, container.name, container.status)
    if context.stop.explanation:
        return False
    return not failed_before_stop(last_lines(facts, pod, container.name, terminated), code, context)


def _is_consequence(facts: Facts, pod: Json, container: ContainerStatus, terminated: Json) -> bool:
    """True when the container ended because its peers did."""
    launcher = facts.kind.diagnosis.launcher
    if launcher is None or terminated.get("reason") in REASONS_BEFORE_OUTPUT:
        return False
    return is_consequence(last_lines(facts, pod, container.name, terminated), launcher)


def _stopped_because_of(entry: Termination, failed_alone: list[Termination]) -> bool:
    """True when the container got SIGTERM, and another one had failed before: a failed job stops its replicas."""
    return _got_sigterm(entry[3]) and any(other[0] <= entry[0] for other in failed_alone if other is not entry)


def _got_sigterm(terminated: Json) -> bool:
    """The times of ends are whole seconds: what got SIGTERM in the second of a failure was stopped because of it."""
    return bool(terminated["exitCode"] == SIGTERM_EXIT_CODE)


def _is_supervised(pod: Json, supervised: set[tuple[str, str]]) -> bool:
    return (role_of(pod), index_of(pod)) in supervised


def _failure_finding(facts: Facts, pod: Json, container: ContainerStatus, terminated: Json) -> Finding:
    summary, where, lines, fix = termination(facts, pod, container, terminated)
    if not container.init and (
        note := facts.kind.diagnosis.exit_note(facts.parsed_job, role_of(pod), int(terminated["exitCode"]))
    ):
        fix = f"{fix}; {note}"
    return Finding(END, summary, where, lines, fix)


def pending_at_deadline(facts: Facts) -> Iterator[Finding]:
    """Why pods were still Pending when the deadline made the job fail. No findings for any other reason."""
    if _past_deadline(facts):
        pending = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") == "Pending"]
        yield from waiting(replace(facts, pods=tuple(pod for pod in pending if not _is_terminating(pod))))


def _past_deadline(facts: Facts) -> bool:
    return job_result(facts.job) == "Failed" and facts.parsed_job.status.failure_cause == "DeadlineExceeded"


def _stays_failed(pod: Json) -> bool:
    """True for a failed pod that is not being deleted: its terminated containers stay readable."""
    return (pod.get("status") or {}).get("phase") == "Failed" and not _is_terminating(pod)


def _is_terminating(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
