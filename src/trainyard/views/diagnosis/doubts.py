"""Findings that put the success of a job in doubt: its launcher ended with 0, and its workers did not do the work.

The operator reads no output, and decides the same everywhere (condition SuccessInDoubt). What the logs tell beside that
is found here, where they can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.core import Job
from trainyard.core.diagnosis import END, Finding, OutputPattern
from trainyard.core.job_state import SUCCESS_IN_DOUBT, WORKER_LOST, WORKERS_UNUSED
from trainyard.objects import Json, uid_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.labels import index_of, replica_name, role_of
from trainyard.views.diagnosis.inputs import Facts, container_field, log_key
from trainyard.views.job_view import job_result

LAUNCHER_FIX = "see whether its output is complete; if it is not, make the job again, from its last checkpoint"


def may_be_doubted(job: Job) -> bool:
    """Whether `doubts` may have a finding about the job, so that its logs are worth reading."""
    return job_result(job.obj) == "Succeeded" and bool(job.worker_slots())


def doubts(facts: Facts) -> list[Finding]:
    """Why the success of a job is in doubt; [] for one that is not, and for a job that has not succeeded."""
    if not may_be_doubted(facts.parsed_job):
        return []
    findings = [*_output_of_the_launcher(facts), *_unused_workers(facts)]
    condition = facts.true_condition(SUCCESS_IN_DOUBT)
    if condition is None:
        return [finding for _, finding in findings]
    reason = str(condition.get("reason") or "")
    evidence = tuple(line for cause, finding in findings if cause == reason for line in finding.evidence)
    summary, fix = TEXTS.get(reason, ("its success is in doubt", LAUNCHER_FIX))
    where = f"status.conditions[{SUCCESS_IN_DOUBT}], {reason}"
    doubted = Finding(END, summary, where, (str(condition.get("message") or ""), *evidence), fix)
    return [doubted, *(finding for cause, finding in findings if cause != reason)]


TEXTS = {
    WORKER_LOST: ("its launcher ended with exit code 0 after the job had lost a worker", LAUNCHER_FIX),
    WORKERS_UNUSED: (
        "its launcher ended with exit code 0, and no worker was used",
        "see which MPI its image has (`mpiexec --version`), and start the processes by its mpirun or mpiexec",
    ),
}
"""Reason of the condition -> summary and fix."""


def _output_of_the_launcher(facts: Facts) -> Iterator[tuple[str, Finding]]:
    """Lines of the launcher that say that the work was not done (Diagnosis.doubts), with their reason."""
    for pod, container, lines in _logs(facts, leading=True):
        for reason, pattern in facts.parsed_job.kind.diagnosis.doubts.items():
            matching = [line for line in lines if re.search(pattern.pattern, line)]
            if matching:
                yield reason, _finding(pod, container, pattern, matching)


def _finding(pod: Json, container: str, pattern: OutputPattern, lines: list[str]) -> Finding:
    summary = f"{replica_name(pod)} ended with exit code 0: {pattern.explanation}"
    evidence = tuple(dict.fromkeys(lines))
    return Finding(END, summary, container_field(pod, container, "log"), evidence, str(pattern.fix))


def _unused_workers(facts: Facts) -> Iterator[tuple[str, Finding]]:
    """No session was opened in any worker, as the logs of all of them show (Diagnosis.session_log)."""
    job = facts.parsed_job
    marks, workers = job.kind.diagnosis.session_log(job), job.worker_slots()
    if marks is None or not workers:
        return
    logs = [lines for _, _, lines in _logs(facts, leading=False)]
    ready = [lines for lines in logs if any(re.search(marks.ready, line) for line in lines)]
    if len(ready) < len(workers) or any(re.search(marks.opened, line) for lines in logs for line in lines):
        return
    summary = "its launcher ended with exit code 0, and no worker was used: the launcher ran all processes itself"
    yield WORKERS_UNUSED, Finding(END, summary, "the logs of all workers", (marks.unused,), marks.fix)


def _logs(facts: Facts, leading: bool) -> Iterator[tuple[Json, str, tuple[str, ...]]]:
    """The logs of the launcher, or of the workers: pod, container, lines."""
    workers = {(slot.role, str(slot.index)) for slot in facts.parsed_job.worker_slots()}
    pods = {uid_of(pod): pod for pod in (*facts.pods, *facts.deleted_pods)}
    for pod in pods.values():
        if ((role_of(pod), index_of(pod)) in workers) is leading:
            continue
        for container in container_statuses(pod.get("status")):
            if lines := facts.logs.get(log_key(pod, container.name)):
                yield pod, container.name, lines
