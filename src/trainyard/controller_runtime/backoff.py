"""Exponential back-off with jitter and a maximum. This file alone decides when a watch is opened again."""

from __future__ import annotations

import random

from trainyard.objects import exponential_delay

MIN_WATCH_SECONDS = 5.0  # a watch that was open for this long was successful, even without events
MAX_REOPEN_DELAY = 0.1  # the longest pause after a successful watch


def backoff_delay(failures: int, initial: float, maximum: float) -> float:
    """The exponential delay in seconds, of which up to half is subtracted at random (jitter)."""
    return exponential_delay(failures, initial, maximum) * random.uniform(0.5, 1.0)


class Backoff:
    """Counts consecutive failures (`failures`). `initial` and `maximum` are the shortest and the longest delay in
    seconds."""

    def __init__(self, initial: float, maximum: float) -> None:
        self._first, self._longest = initial, maximum
        self.failures = 0

    def next_delay(self, retry_after: float | None = None, maximum: float | None = None) -> float:
        """Count a failure. Returns the seconds until the retry: at least `retry_after` (the Retry-After of the answer,
        in seconds); `maximum`, in seconds, replaces the maximum for this call."""
        self.failures += 1
        return max(backoff_delay(self.failures, self._first, maximum or self._longest), retry_after or 0.0)

    def reset(self) -> None:
        """Set the number of consecutive failures to 0."""
        self.failures = 0


class WatchBackoff(Backoff):
    """The back-off of one watch. A watch request was successful if an event advanced the resourceVersion, or if it was
    open for MIN_WATCH_SECONDS. Any other is a failure, even if the server sent bookmarks or repeated events."""

    def watch_closed(self, duration: float, advanced: bool) -> float | None:
        """The server has closed a watch that was open for `duration` seconds; `advanced`: an event advanced its
        resourceVersion. After a successful watch, reset the back-off and return the pause in seconds. Return None after
        a failure: the caller logs it and calls `failed`."""
        if not advanced and duration < MIN_WATCH_SECONDS:
            return None
        self.reset()
        return random.uniform(0.0, MAX_REOPEN_DELAY)
