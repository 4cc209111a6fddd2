"""Why a job waits, in few words: the first finding of `why` as far as it follows from the job and its pods alone, for
lists. Nothing else is read, and the rules about children and logs are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainyard.core import Kind
from trainyard.core.diagnosis import BLOCK, FINE, NOTE, Finding, ObservedReplicas
from trainyard.kinds import kind_of
from trainyard.objects import Json, uid_of
from trainyard.objects.patterns import lazy_pattern
from trainyard.views.diagnosis import job_rules, progress, replicas, stragglers
from trainyard.views.diagnosis.inputs import Facts
from trainyard.views.job_row import JobRow
from trainyard.views.job_view import JobView
from trainyard.views.replica_view import ReplicaView
from trainyard.views.usage_view import ReplicaUsage

_WELL = ("Running", "Succeeded")


class Observer(NamedTuple):
    """`now`: Unix seconds. `are_processes`: all nodes are Trainyard's, where pods are processes of this machine."""

    now: float
    are_processes: bool


def may_wait(job: Json, row: JobRow) -> bool:
    """Whether the job has not ended, and does not run well either."""
    if row.state in ("Succeeded", "Failed", "Suspended"):
        return False
    return row.running < row.replicas or bool(row.message) or "deletionTimestamp" in job["metadata"]


# A summary up to where it tells a second thing, or a time, which a list would have to be told anew all the time.
_FIRST_WORDS = lazy_pattern(r"(.*?)(?:;|,? (?:for |at |after )?(?:\d+[smhd]\b|\d{4}-\d\d-)|$)", re.DOTALL)


def brief_why(
    view: JobView, job_uid: str, slots: list[ReplicaView], pods: Mapping[str, Json], observer: Observer
) -> str:
    """Why a job of `view` waits; "" if nothing is wrong so far. `slots`: its replicas; `pods`: those of the job that
    exist, by uid."""
    job = view.jobs[job_uid]
    facts = _facts(view, job, slots, pods, observer)
    if facts is None:
        return ""
    for rule in (job_rules.managed_elsewhere, job_rules.terminating, job_rules.not_reconciled):
        if findings := list(rule(facts)):
            return first_words(findings[0]) if findings[0].level == BLOCK else ""
    states = ObservedReplicas(tuple(slot.state for slot in slots), None)
    of_kind = (finding for rule in facts.kind.diagnosis.rules for finding in rule(facts.parsed_job, states))
    return _most_important([*job_rules.problem_conditions(facts), *of_kind, *replicas.waiting(facts)])


def brief_progress(kind: Kind, job: Json, usages: Sequence[ReplicaUsage], now: float) -> str:
    """What is wrong with the progress of a job that runs: values that are not finite, a step that does not come,
    replicas that lag behind; "" for nothing. `now`: Unix seconds."""
    facts = Facts(kind, job, now, usages=tuple(usages))
    if overdue := next(progress.no_step(facts), None):
        return overdue.summary  # with its time: it matters, and changes once a minute
    return _most_important([*progress.not_finite(facts), *stragglers.stragglers(facts)])


def _facts(
    view: JobView, job: Json, slots: list[ReplicaView], pods: Mapping[str, Json], observer: Observer
) -> Facts | None:
    """The job, and those of its pods that neither run nor have succeeded; None for a job of an unknown kind."""
    kind, parsed = kind_of(job), view.parsed(uid_of(job))
    if kind is None or parsed is None:
        return None
    unwell = [(slot, pods[slot.uid]) for slot in slots if slot.state not in _WELL and slot.uid in pods]
    nodes = frozenset(slot.node for slot, _ in unwell) if observer.are_processes else frozenset()
    facts = Facts(kind, job, observer.now, pods=tuple(pod for _, pod in unwell), process_nodes=nodes)
    facts.__dict__.update(parsed_job=parsed, replicas=tuple(unwell))  # cached properties: the view has worked them out
    return facts


def _most_important(findings: Iterable[Finding]) -> str:
    problems = [finding for finding in findings if finding.level not in (NOTE, FINE)]
    return first_words(min(problems, key=lambda finding: finding.level)) if problems else ""


def first_words(finding: Finding) -> str:
    """The summary of a finding up to the first time in it. Of a condition it is the message: it is about this job."""
    if finding.where.startswith("status.conditions[") and finding.evidence:
        return " ".join(finding.evidence[0].split())
    match = _FIRST_WORDS.match(finding.summary)
    return match[1] if match else finding.summary
