"""Why a job is as it is. `why(facts)`: facts in, findings out. Pure; who fetches the facts is `cli/evidence.py`.

A rule is a function that looks at the facts and yields what it finds. Rules for rules:
- A finding names the object and the field it rests on, and what to do.
- No rule knows a kind of job: roles, exit codes and children are asked of the `Kind`.
- What is not known is not guessed: a condition that we have never heard of is told in its own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trainyard.cli.diagnosis import children, meeting, replicas, whole
from trainyard.cli.diagnosis.facts import BLOCK, END, FINE, NOTE, WAIT, Endpoint, Facts, Finding
from trainyard.cli.diagnosis.whole import ENDED
from trainyard.cli.layout import UNKNOWN_WIDTH, wrapped
from trainyard.cli.view import ended

Rule = Callable[[Facts], Iterable[Finding]]

# Each of these ends the matter: what else could be said does not count then.
FIRST: tuple[Rule, ...] = (whole.not_ours, whole.going, whole.unseen)
AFTER: tuple[Rule, ...] = (whole.over, replicas.blocked, whole.ineffective)
DURING: tuple[Rule, ...] = (
    whole.suspended,
    whole.alarms,
    meeting.unreachable,
    meeting.too_few,
    replicas.waiting,
    children.missing,
    children.empty_slots,
    whole.retrying,
    whole.ineffective,
)
LEVELS = {END: "problem", BLOCK: "problem", WAIT: "waits", NOTE: "note", FINE: "fine"}


def why(facts: Facts) -> list[Finding]:
    """What is to be said of this job, what matters most first. Never empty."""
    for rule in FIRST:
        if found := list(rule(facts)):
            return found
    if ended(facts.kind, facts.job):
        return [finding for rule in AFTER for finding in rule(facts)]
    found = [finding for rule in DURING for finding in rule(facts)]
    if all(finding.level == NOTE for finding in found):
        found += whole.fine(facts)
    return sorted(found, key=lambda one: (one.level == NOTE, one.level))


def told(
    facts: Facts, findings: Iterable[Finding], most: int = 15, width: int = UNKNOWN_WIDTH, heading: str = ""
) -> Iterator[str]:
    """The findings as lines of text: a heading, then each with where, evidence and fix."""
    yield heading or whole.heading(facts)
    for finding in findings:
        level = LEVELS[finding.level]
        yield from wrapped(finding.what, width, f"  {level}: ", "    ")
        if finding.where:
            yield from wrapped(finding.where, width, "    where: ")
        lines = [line for text in finding.evidence for line in text.splitlines()]
        for at, line in enumerate(lines[-most:] if finding.level == END else lines[:most]):
            begin = f"    {'seen: ' if at == 0 else '      '} {line[: len(line) - len(line.lstrip())]}"
            yield from wrapped(line, width, begin, f"{' ' * len(begin)}  ")
        if finding.fix:
            yield from wrapped(finding.fix, width, "    do:    ")


__all__ = ["BLOCK", "END", "ENDED", "FINE", "NOTE", "WAIT", "Endpoint", "Facts", "Finding", "told", "why"]
