"""Durations as people read them."""

from __future__ import annotations


def format_clock(seconds: float) -> str:
    """0:07, 12:34, 1:02:03."""
    total = max(0, int(seconds))
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def format_age(seconds: float) -> str:
    """A duration rounded down to one unit: 12s, 3m, 5h, 4d."""
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{max(0, int(seconds)) // size}{unit}"
    return f"{int(seconds) // 86400}d"
