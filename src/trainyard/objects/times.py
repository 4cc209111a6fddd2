"""Times. Inside: seconds since 1970 in UTC, a float. On the wire: RFC 3339 with whole seconds, as Kubernetes writes."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def parse_time(text: object) -> float | None:
    """Seconds for an RFC 3339 time, None for anything else (absent, null, malformed)."""
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
    """RFC 3339, whole seconds, UTC: 2017-10-20T22:27:38Z. The fraction is cut off, never rounded up."""
    return _second(int(seconds))


@lru_cache(maxsize=64)  # nearly all times that are written are now
def _second(number: int) -> str:
    return datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
