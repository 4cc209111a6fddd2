"""Durations in annotations: whole hours, minutes and seconds, such as 90s, 10m, 1h30m."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s)?")


def parse_duration(text: str) -> int | None:
    """The seconds; None for a text that is no such duration, or one of no seconds."""
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(number or 0) for number in match.groups()) if match else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds or None
