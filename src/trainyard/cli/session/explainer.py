"""The findings that `trainyard run` prints: what blocks a job, while it runs; why it failed, at its end."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from trainyard.cli.command.codes import TIMEOUT, UNAVAILABLE
from trainyard.cli.output.layout import terminal_width
from trainyard.cli.output.screen import Screen
from trainyard.objects import Json, uid_of
from trainyard.objects.structs import replace
from trainyard.views.job_view import JobView, job_result

if TYPE_CHECKING:  # imported at run time only when a finding is printed
    from trainyard.views import diagnosis

MAX_EVIDENCE_LINES = 6  # lines of a program's output in a finding; the logs are printed anyway


class Explainer:
    """Prints each finding once. `gather_facts` reads the facts about a job, None when that is not possible."""

    def __init__(self, screen: Screen, gather_facts: Callable[[Json], Awaitable[diagnosis.Facts | None]]) -> None:
        self._screen = screen
        self._gather_facts = gather_facts
        self._reported: set[tuple[str, str, str]] = set()
        self.explanation: list[str] = []  # the findings about the jobs' end, printed last

    async def explain_blocks(self, jobs: Iterable[Json]) -> None:
        """Print the findings about what blocks the jobs."""
        from trainyard.cli.output.findings import format_findings
        from trainyard.views import diagnosis

        for job in list(jobs):
            if job_result(job) or (facts := await self._gather_facts(job)) is None:
                continue
            findings = [finding for finding in diagnosis.why(facts) if finding.level <= diagnosis.BLOCK]
            if findings := self._unreported(job, findings):
                for line in format_findings(facts, findings, MAX_EVIDENCE_LINES, terminal_width(2)):
                    self._screen.note(line)

    async def explain_end(self, view: JobView, code: int) -> bool:
        """Append the findings why the jobs failed, cannot run, have not ended, or succeeded in doubt, to `explanation`.
        They are all printed together, at the end. Returns whether the success of a job is in doubt."""
        in_doubt = False
        for uid, job in list(view.jobs.items()):
            succeeded, parsed = job_result(job) == "Succeeded", view.parsed(uid)
            if succeeded and (parsed is None or not parsed.worker_slots()):
                continue
            if (facts := await self._gather_facts(job)) is None:
                continue
            from trainyard.cli.output.findings import format_findings
            from trainyard.views import diagnosis

            if succeeded and not diagnosis.doubts(facts):
                continue
            in_doubt = in_doubt or succeeded
            findings = diagnosis.why(replace(facts, cluster_ends=code == UNAVAILABLE))
            if not job_result(job) and code == TIMEOUT:
                findings = self._unreported(job, findings)
            findings = [
                replace(finding, evidence=self._without_recent_output(finding.evidence)) for finding in findings
            ]
            if findings:
                heading = _heading(facts, code)
                lines = format_findings(facts, findings, MAX_EVIDENCE_LINES, terminal_width(2), heading)
                self.explanation += lines
        if code == UNAVAILABLE and not self.explanation:
            self.explanation.append(f"cannot run here: {view.blocked_reason(time.time())}")
        return in_doubt

    def _unreported(self, job: Json, findings: list[diagnosis.Finding]) -> list[diagnosis.Finding]:
        """The findings that have not been printed before."""
        keys = {(uid_of(job), finding.where, finding.fix): finding for finding in findings}
        unreported = [finding for key, finding in keys.items() if key not in self._reported]
        self._reported.update(keys)
        return unreported

    def _without_recent_output(self, evidence: tuple[str, ...]) -> tuple[str, ...]:
        """The evidence, or a reference to the lines above if the screen has just printed the same lines."""
        lines = [line for text in evidence for line in text.splitlines()][-MAX_EVIDENCE_LINES:]
        outputs: dict[str, list[str]] = {}
        for prefix, text in self._screen.recent:
            outputs.setdefault(prefix, []).append(text)
        for shown in outputs.values():
            # A launcher may have printed a long traceback of its own after these lines.
            if lines and lines[-1] in shown[-MAX_EVIDENCE_LINES:] and set(lines) <= set(shown):
                return ("its last lines, above",)
        return evidence


def _heading(facts: diagnosis.Facts, code: int) -> str:
    if job_result(facts.job) == "Succeeded":
        return f"{facts.title} succeeded, which is in doubt:"
    if code == UNAVAILABLE:
        return f"cannot run here: {facts.title}:"
    if not facts.has_ended:
        return f"why {facts.title} has not ended:"
    reason = facts.parsed_job.status.failure_cause
    return f"why {facts.title} failed ({reason}):" if reason else f"why {facts.title} failed:"
