"""Exponential back-off: the delay of every retry in this project, also of those that a pod or a Job has by its API."""

from __future__ import annotations

_MAX_DOUBLINGS = 30  # more would only overflow: every maximum is far below


def exponential_delay(failures: int, initial: float, maximum: float) -> float:
    """Seconds to wait after `failures` consecutive failures: `initial`, doubled with each further failure, at most
    `maximum` (both in seconds)."""
    return min(maximum, initial * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
