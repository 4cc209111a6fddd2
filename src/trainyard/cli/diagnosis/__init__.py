"""Diagnosis of a job: `why(facts)` returns the findings for one job. Pure; `cli/evidence.py` fetches the facts.

A rule is a function that takes `Facts` and yields `Finding`s. Requirements for every rule:
- A finding names the object and the field that are its evidence, and the fix.
- No rule depends on a kind of job: roles, exit codes and children come from the `Kind`, and so do the rules that hold
  for a kind alone (Kind.diagnosis).
- No rule guesses: a condition of an unknown type is reported with its own reason and message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trainyard.cli.diagnosis import children, failures, job_rules, replicas
from trainyard.cli.diagnosis.inputs import Facts
from trainyard.cli.diagnosis.job_rules import FAILED_CONDITION
from trainyard.cli.layout import UNKNOWN_WIDTH, wrapped
from trainyard.cli.view import job_result
from trainyard.core.diagnosis import BLOCK, END, FINE, NOTE, WAIT, Endpoint, Finding, ObservedReplicas

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
    job_rules.not_reconciled,
)
ENDED_JOB_RULES: tuple[DiagnosisRule, ...] = (
    job_rules.ended_job,
    failures.pending_at_deadline,
    job_rules.lost_output,
    job_rules.ineffective,
)
ACTIVE_JOB_RULES: tuple[DiagnosisRule, ...] = (
    job_rules.suspended,
    job_rules.problem_conditions,
    kind_rules,
    replicas.waiting,
    children.children_without_pods,
    children.slots_without_pods,
    job_rules.restarting,
    job_rules.lost_output,
    job_rules.ineffective,
)
LEVEL_NAMES = {END: "problem", BLOCK: "problem", WAIT: "waits", NOTE: "note", FINE: "fine"}


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


def finding_lines(
    facts: Facts, findings: Iterable[Finding], max_evidence: int = 15, width: int = UNKNOWN_WIDTH, heading: str = ""
) -> Iterator[str]:
    """Format the findings as lines of text: a heading, then each finding with its place, evidence and fix.

    max_evidence: maximum number of evidence lines of a finding. width: width of the output in columns."""
    yield heading or job_rules.heading(facts)
    for finding in findings:
        level = LEVEL_NAMES[finding.level]
        yield from wrapped(finding.summary, width, f"  {level}: ", "    ")
        if finding.where:
            yield from wrapped(finding.where, width, "    where: ")
        lines = [line for text in finding.evidence for line in text.splitlines()]
        for index, line in enumerate(lines[-max_evidence:] if finding.level == END else lines[:max_evidence]):
            prefix = f"    {'seen: ' if index == 0 else '      '} "
            # The indented lines of a traceback lose their meaning when they are wrapped: a caret points to a column.
            is_prose = not line[:1].isspace()
            yield from wrapped(line, width, prefix, f"{' ' * len(prefix)}  ") if is_prose else [prefix + line]
        if finding.fix:
            yield from wrapped(finding.fix, width, "    do:    ")


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
    "finding_lines",
    "why",
]
