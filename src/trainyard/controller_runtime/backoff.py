"""Exponential back-off with jitter and a maximum. This file alone decides when a watch is opened again."""

from __future__ import annotations

import random

LASTING_SECONDS = 5.0  # a watch that was open for this long was successful, even without events
REOPEN_SECONDS = 0.1  # the longest pause after a successful watch


def pause_after(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after `failures` consecutive failures: `first`, doubled with each further failure, at most
    `longest` (both in seconds). Up to half of it is subtracted at random (jitter)."""
    return min(longest, first * 2.0 ** min(max(failures - 1, 0), 30)) * random.uniform(0.5, 1.0)


class Backoff:
    """Counts consecutive failures (`failures`). `first` and `longest` are the shortest and the longest delay in
    seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0

    def failed(self, retry_after: float | None = None, longest: float | None = None) -> float:
        """Count a failure. Returns the seconds until the retry: at least `retry_after` (the Retry-After of the answer,
        in seconds); `longest`, in seconds, replaces the maximum for this call."""
        self.failures += 1
        return max(pause_after(self.failures, self._first, longest or self._longest), retry_after or 0.0)

    def reset(self) -> None:
        """Set the number of consecutive failures to 0."""
        self.failures = 0


class StreamBackoff(Backoff):
    """The back-off of one watch. A watch request was successful if an event advanced the resourceVersion, or if it was
    open for LASTING_SECONDS. Any other is a failure, even if the server sent bookmarks or repeated events."""

    def closed(self, seconds: float, advanced: bool) -> float | None:
        """The server has closed a watch that was open for `seconds`; `advanced`: an event advanced its resourceVersion.
        After a successful watch, reset the back-off and return the pause in seconds. Return None after a failure: the
        caller logs it and calls `failed`."""
        if not advanced and seconds < LASTING_SECONDS:
            return None
        self.reset()
        return random.uniform(0.0, REOPEN_SECONDS)
