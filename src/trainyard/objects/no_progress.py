"""The annotation of a Pod whose program makes no progress, and those of the job that ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from trainyard.objects.labels import PREFIX
from trainyard.objects.times import parse_duration

PROGRESS_DEADLINE = PREFIX + "progress-deadline"
"""Annotation of a job, such as `10m`: it is stalled once it has made no step for so long. Its pods get it, too."""
SHORTEST_DEADLINE = 5  # seconds; a node looks every two
ON_STALL = PREFIX + "on-stall"
"""Annotation of a job: `report` a stall, which is the default, or `restart` the job."""
REPORT, RESTART = "report", "restart"
NO_PROGRESS = PREFIX + "no-progress"
"""Annotation of a Pod with PROGRESS_DEADLINE, JSON: see `NoProgress`. Written by its node when the deadline has passed,
and removed with the next step; so a program that makes steps costs no write."""


Activity = Literal["", "stopped", "disk", "sleep", "waits", "computes"]
"""What the processes of a pod do: a signal has stopped one; the main one waits for a disk, or sleeps; they wait for
something else; they use a CPU. "": not known."""
ACTIVITIES: tuple[Activity, ...] = ("stopped", "disk", "sleep", "waits", "computes")


class NoProgress(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A pod whose program has made steps and made none for the deadline, or that has shown no sign of life for that
    long. Times in Unix seconds by the clock of the node. `last_sign`: the last step, output, or write to a file;
    `silent`: that is longer ago than the deadline; `step`: None if the program has made none; `activity`: when this was
    written."""

    last_sign: float
    silent: bool = False
    step: float | None = None
    activity: Activity = ""

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped one of its processes."""
        return self.activity == "stopped"

    @property
    def text(self) -> str:
        """The value of the annotation NO_PROGRESS."""
        return msgspec.json.encode(self).decode()


def pod_activity(activities: Sequence[Activity]) -> Activity:
    """What a pod does whose containers do that: the first of ACTIVITIES that one of them does."""
    return next((activity for activity in ACTIVITIES if activity in activities), "")


def parse_no_progress(text: str) -> NoProgress | None:
    """The value of the annotation NO_PROGRESS; None if there is none, or it cannot be parsed."""
    try:
        return msgspec.json.decode(text, type=NoProgress) if text else None
    except msgspec.MsgspecError:
        return None


def progress_deadline(annotations: Mapping[str, object]) -> int | None:
    """The annotation PROGRESS_DEADLINE in seconds; None without it, and if it is not understood."""
    seconds = parse_duration(str(annotations.get(PROGRESS_DEADLINE) or ""))
    return None if seconds is None or seconds < SHORTEST_DEADLINE else seconds
