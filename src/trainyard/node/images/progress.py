"""The progress of an installation (step, received bytes, seconds), and its reports.

A live display is updated every second; without one, a line is written every ten seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import msgspec

from trainyard.node.images.received_bytes import ReceivedBytes
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.structs import replace

# Called with the image and a text about its installation; None when the installation has ended.
Report = Callable[[str, str | None], object]

_REPORT_INTERVAL, _LINE_INTERVAL = 1.0, 10.0  # seconds between two reports: of a live display, of lines
# The output of uv and pip at the begin of a step.
_STEPS = (
    (lazy_pattern(r"\s*(Collecting|Resolved|Downloading|Using cached|Looking in)\b"), "downloading"),
    (re.compile(r"\s*(Building|Running setup\.py)\b"), "building"),
    (re.compile(r"\s*(Prepared|Installing collected)\b"), "unpacking"),
)


class Progress(msgspec.Struct, frozen=True):
    """The progress of an installation. `received`: bytes from the network so far, None if they cannot be counted;
    `expected`: the bytes of `download` in the entry, 0 without it."""

    name: str
    step: str = "preparing"
    received: int | None = 0
    expected: float = 0
    seconds: float = 0

    def __str__(self) -> str:
        clock = f"{int(self.seconds) // 60}:{int(self.seconds) % 60:02d}"
        return ", ".join(filter(None, [f"installing {self.name}: {self.step}", self._received_text(), clock]))

    def _received_text(self) -> str:
        if not self.received:
            return ""
        so_far = format_bytes(self.received)
        return f"{so_far} of about {format_bytes(self.expected)}" if self.expected else f"{so_far} so far"


class Meter:
    """Measures one installation and reports its progress; if `report` is None, as lines to `say`."""

    def __init__(
        self, image: str, name: str, expected: float, report: Report | None, say: Callable[[str], object]
    ) -> None:
        self._image, self._report, self._say = image, report, say
        self._started = time.monotonic()
        self._received = ReceivedBytes()
        self._pid = 0
        self.progress = Progress(name, expected=expected)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the installation."""
        return time.monotonic() - self._started

    def step(self, name: str) -> None:
        """Show `name` as the current step."""
        self.progress = replace(self.progress, step=name)

    def watch_process(self, pid: int) -> None:
        """Measure the process with this id, and its children, from now on."""
        self._pid = pid

    def read_output(self, text: str) -> None:
        """Update the step from the installer's output."""
        for line in text.splitlines():
            for pattern, step in _STEPS:
                if pattern.match(line):
                    self.step(step)

    async def run(self) -> None:
        """Measure and report until it is cancelled."""
        reported = self.seconds
        try:
            while True:
                await asyncio.sleep(_REPORT_INTERVAL)
                received = await asyncio.to_thread(self._received.measure, self._pid) if self._pid else 0
                measured = received if self._received.is_countable else None
                self.progress = replace(self.progress, received=measured, seconds=self.seconds)
                if self._report is not None:
                    self._report(self._image, str(self.progress))
                elif self.seconds - reported >= _LINE_INTERVAL:
                    reported = self.seconds
                    self._say(f"images: {self.progress}")
        finally:
            if self._report is not None:
                self._report(self._image, None)


def format_bytes(count: float) -> str:
    """A number of bytes as text, with the units of an entry: 512 kB, 12 MB, 1.7 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if unit == "GB" else f"{count / size:.0f} {unit}"
    return f"{count:.0f} bytes"
