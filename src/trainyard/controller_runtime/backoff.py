"""Pauses between tries: doubling, jittered, bounded. The only place that says when a watch is opened again."""

from __future__ import annotations

import random

LASTING_SECONDS = 5.0  # a stream that was open for so long was not refused
REOPEN_SECONDS = 0.1  # the longest pause after a stream that was of use


def pause_after(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row: doubling from `first` to `longest`, half of it jitter."""
    return min(longest, first * 2.0 ** min(max(failures - 1, 0), 30)) * random.uniform(0.5, 1.0)


class Backoff:
    """Counts failures in a row. `first` and `longest` are seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0

    def failed(self, retry_after: float | None = None, longest: float | None = None) -> float:
        """One more failure. Returns the seconds until the next try, never less than the server asked for."""
        self.failures += 1
        return max(pause_after(self.failures, self._first, longest or self._longest), retry_after or 0.0)

    def reset(self) -> None:
        self.failures = 0


class StreamBackoff(Backoff):
    """The back-off of one watch. A watch was successful if an event advanced its resourceVersion, or if it was open for
    LASTING_SECONDS; any other counts as a failure, even if the server sent bookmarks or repeated events."""

    def closed(self, seconds: float, advanced: bool) -> float | None:
        """The server has ended a stream that was open for `seconds`. Returns the pause, None when it was a failure:
        then the caller says so and calls `failed`."""
        if not advanced and seconds < LASTING_SECONDS:
            return None
        self.reset()
        return random.uniform(0.0, REOPEN_SECONDS)
