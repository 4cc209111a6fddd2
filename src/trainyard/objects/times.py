"""Times: seconds since 1970 in UTC, a float, in Python; RFC 3339 with whole seconds, as Kubernetes has it, in JSON.

And the exponential delay of every retry of this project, also of those that a pod or a Job has by its API.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def parse_time(text: object) -> float | None:
    """Seconds since 1970 for an RFC 3339 time, None for anything else (absent, null, malformed)."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return None if moment.tzinfo is None else moment.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):  # in UTC it may be before the year 1, or after 9999
        return None


def format_time(seconds: float) -> str:
    """RFC 3339, whole seconds, UTC: 2017-10-20T22:27:38Z. The fraction is cut off, never rounded up."""
    return _format_second(int(seconds))


@lru_cache(maxsize=64)  # nearly all formatted times are the present second
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exponential_delay(failures: int, initial: float, maximum: float) -> float:
    """Seconds to wait after `failures` consecutive failures: `initial`, doubled with each further failure, at most
    `maximum` (both in seconds)."""
    return min(maximum, initial * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))


_MAX_DOUBLINGS = 30  # more could overflow a float
