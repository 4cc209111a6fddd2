"""Diagnosis of a job: `diagnose(facts)` returns what commands and pages show, `why(facts)` the findings alone;
`app/evidence/facts.py` fetches the facts.

A rule is a function that takes `Facts` and yields `Finding`s. Requirements for every rule:
- A finding names the object and the field that are its evidence, and the fix.
- No rule depends on a kind of job: roles, exit codes and children come from the `Kind`, and so do the rules that hold
  for a kind alone (Kind.diagnosis).
- No rule guesses: a condition of an unknown type is reported with its own reason and message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from trainyard.core.diagnosis import BLOCK, END, FINE, NOTE, WAIT, Endpoint, Finding, ObservedReplicas
from trainyard.objects import Json, resource_version_of
from trainyard.views.diagnosis import children, failures, gangs, job_rules, progress, replicas, stragglers, templates
from trainyard.views.diagnosis.doubts import doubts
from trainyard.views.diagnosis.inputs import Facts
from trainyard.views.diagnosis.job_rules import FAILED_CONDITION
from trainyard.views.job_view import job_result, job_state

DiagnosisRule = Callable[[Facts], Iterable[Finding]]


def kind_rules(facts: Facts) -> Iterator[Finding]:
    """The findings of the kind's own rules."""
    observed = ObservedReplicas(tuple(replica.state for replica, _ in facts.replicas), facts.endpoint)
    for rule in facts.kind.diagnosis.rules:
        yield from rule(facts.parsed_job, observed)


# `why` evaluates EXCLUSIVE_RULES in order; the findings of the first one that yields any are the whole answer.
EXCLUSIVE_RULES: tuple[DiagnosisRule, ...] = (
    job_rules.managed_elsewhere,
    job_rules.terminating,
    templates.missing_source,
    job_rules.not_reconciled,
)
ENDED_JOB_RULES: tuple[DiagnosisRule, ...] = (
    job_rules.ended_job,
    failures.pending_at_deadline,
    progress.not_finite,
    job_rules.lost_output,
    job_rules.stopped_replicas,
    job_rules.ineffective,
)
ACTIVE_JOB_RULES: tuple[DiagnosisRule, ...] = (
    job_rules.suspended,
    job_rules.problem_conditions,
    kind_rules,
    replicas.waiting,
    stragglers.stragglers,
    progress.not_finite,
    progress.no_step,
    children.children_without_pods,
    children.slots_that_wait,
    children.slots_without_pods,
    job_rules.restarting,
    gangs.scheduler_without_groups,
    gangs.ignored_topology,
    job_rules.lost_output,
    job_rules.stopped_replicas,
    job_rules.ineffective,
    templates.edited_source,
)
LEVEL_NAMES = {END: "problem", BLOCK: "problem", WAIT: "waits", NOTE: "note", FINE: "fine"}


class JobDiagnosis(msgspec.Struct, frozen=True):
    """What is wrong with a job, where that is seen, and what to do. `state`: that of the job, in one word."""

    job: str  # KIND NAMESPACE/NAME
    resource_version: str  # of the job that was examined
    state: str
    findings: tuple[Finding, ...]  # the most important first, notes last

    def to_json(self) -> Json:
        """The object of `trainyard why -o json`: {job, resourceVersion, state, findings}. A finding is {level, what,
        where, evidence, fix}; its level is problem, waits, note or fine."""
        findings = [{**msgspec.to_builtins(finding), "level": LEVEL_NAMES[finding.level]} for finding in self.findings]
        state = {"resourceVersion": self.resource_version, "state": self.state}
        return {"job": self.job, **state, "findings": findings}


def diagnose(facts: Facts) -> JobDiagnosis:
    """The diagnosis of a job from these facts."""
    return JobDiagnosis(facts.title, resource_version_of(facts.job), job_state(facts.job), tuple(why(facts)))


def why(facts: Facts) -> list[Finding]:
    """The findings for this job, the most important first, notes last. Never empty."""
    for rule in EXCLUSIVE_RULES:
        if findings := list(rule(facts)):
            return findings
    if job_result(facts.job):
        return [finding for rule in ENDED_JOB_RULES for finding in rule(facts)]
    findings = [finding for rule in ACTIVE_JOB_RULES for finding in rule(facts)]
    if all(finding.level == NOTE for finding in findings):
        findings += job_rules.running(facts)
    return sorted(findings, key=lambda finding: (finding.level == NOTE, finding.level))


__all__ = [
    "BLOCK",
    "END",
    "FAILED_CONDITION",
    "FINE",
    "NOTE",
    "WAIT",
    "Endpoint",
    "Facts",
    "Finding",
    "JobDiagnosis",
    "diagnose",
    "doubts",
    "why",
]
