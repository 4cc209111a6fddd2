"""The report on output of a pod's programs that could not be written to its log files, for example on a full disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.node.kubelet.api.pod_logs import PodLogs
from trainyard.node.kubelet.volumes.unsaved_files import size_text
from trainyard.objects.printable import quoted_path

OUTPUT_LOST = "OutputLost"  # the reason of the event
_LAST_LINES = 12
_ADVICE = "free some space there, or keep logs in another folder: --logs-dir of run and up"


class LostOutputReport:
    """The lost output of one pod, of all runs of its containers."""

    def __init__(self, logs: PodLogs) -> None:
        self._logs = logs
        self._bytes = 0
        self._place = self._reason = self._last = ""
        self._announced = False

    def first_message(self, container: str, run: int, report: Mapping[str, Any]) -> str:
        """Where and why output is lost from now on, and what to do; "" if an earlier loss of this pod was reported."""
        if self._announced:
            return ""
        self._announced = True
        place = quoted_path(self._logs.path(container, run))
        return f"its output is being lost: {place} cannot be written: {report['reason']}; {_ADVICE}"

    def add(self, container: str, run: int, reports: Iterable[Mapping[str, Any]]) -> None:
        """Add the reports on a run that has ended (supervisor/log_file.py)."""
        for report in reports:
            self._bytes += int(report["bytes"])
            self._place, self._reason = quoted_path(self._logs.path(container, run)), str(report["reason"])
            self._last += str(report["last"])

    def message(self) -> str:
        """How much is lost, where and why, and what to do; "" when nothing is."""
        if not self._bytes:
            return ""
        amount = size_text(self._bytes)
        verb = "is" if self._bytes == 1 else "are"
        return f"{amount} of output {verb} lost: {self._place} could not be written: {self._reason}; {_ADVICE}"

    def last_lines(self) -> str:
        """The end of the lost output as indented lines."""
        lines = self._last.splitlines()[-_LAST_LINES:]
        return "".join(f"\n  {line}" for line in ["the last lines of it:", *(f"  {line}" for line in lines)])
