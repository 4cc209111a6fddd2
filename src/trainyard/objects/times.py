"""Times: seconds since 1970 in UTC, a float, in Python; RFC 3339 with whole seconds, as Kubernetes has it, in JSON.

Durations in annotations: whole hours, minutes and seconds, such as 90s, 10m, 1h30m.

And the exponential delay of every retry of this project, also of those that a pod or a Job has by its API.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from trainyard.objects.patterns import lazy_pattern

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 and 9999 in UTC


def parse_time(text: object) -> float | None:
    """Seconds since 1970 for an RFC 3339 time, None for anything else (absent, null, malformed)."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return moment.timestamp()


def format_time(seconds: float) -> str:
    """RFC 3339, whole seconds, UTC: 2017-10-20T22:27:38Z. The fraction is cut off, never rounded up. A time that has no
    year from 1 to 9999 in UTC, as one with another offset may, is the first or the last that has."""
    return _format_second(min(max(int(seconds), _FIRST_SECOND), _LAST_SECOND))


@lru_cache(maxsize=64)  # nearly all formatted times are the present second
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exponential_delay(failures: int, initial: float, maximum: float) -> float:
    """Seconds to wait after `failures` consecutive failures: `initial`, doubled with each further failure, at most
    `maximum` (both in seconds)."""
    return min(maximum, initial * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))


_MAX_DOUBLINGS = 30  # more could overflow a float


_DURATION = lazy_pattern(r"(?:(\d{1,5})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s)?")


def parse_duration(text: str) -> int | None:
    """The seconds; None for a text that is no such duration, or one of no seconds."""
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(number or 0) for number in match.groups()) if match else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds or None
