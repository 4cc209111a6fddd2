"""The findings of a diagnosis as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainyard.cli.output.layout import UNKNOWN_WIDTH, wrapped
from trainyard.objects.printable import printable
from trainyard.views.diagnosis import END, LEVEL_NAMES, Facts, Finding, job_rules


def format_findings(
    facts: Facts, findings: Iterable[Finding], max_evidence: int = 15, width: int = UNKNOWN_WIDTH, heading: str = ""
) -> Iterator[str]:
    """Format the findings as lines of text: a heading, then each finding with its place, evidence and fix. Control
    characters, also those of colours, are escaped: a finding cites what a job has written.

    max_evidence: maximum number of evidence lines of a finding. width: width of the output in columns."""
    yield printable(heading or job_rules.heading(facts), line=True)
    for finding in findings:
        level = LEVEL_NAMES[finding.level]
        yield from wrapped(printable(finding.summary), width, f"  {level}: ", "    ")
        if finding.where:
            yield from wrapped(printable(finding.where), width, "    where: ")
        lines = [printable(line) for text in finding.evidence for line in text.splitlines()]
        for index, line in enumerate(lines[-max_evidence:] if finding.level == END else lines[:max_evidence]):
            prefix = f"    {'seen: ' if index == 0 else '      '} "
            # The indented lines of a traceback lose their meaning when they are wrapped: a caret points to a column.
            is_prose = not line[:1].isspace()
            yield from wrapped(line, width, prefix, f"{' ' * len(prefix)}  ") if is_prose else [prefix + line]
        if finding.fix:
            yield from wrapped(printable(finding.fix), width, "    do:    ")
