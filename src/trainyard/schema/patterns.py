"""Regular expressions of untrusted schemas, matched by RE2, with the syntax of a Kubernetes API server.

Python's `re` backtracks: `^(a+)+$` takes twice as long with each further character of the text. RE2 takes time linear
in the text, and rejects patterns that it cannot match that way (backreferences, lookahead).

Rules for this file:
- RE2 is imported when a value is first matched, so that a process without patterns does not load it.
- Every pattern that is not part of Trainyard's source is matched here. Patterns in the source use `re`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any


class PatternError(ValueError):
    """The text is not a valid regular expression for RE2. The message has RE2's reason."""


class Pattern:
    """A compiled regular expression in Go's syntax; `$` matches only at the end of the text. Raises PatternError."""

    def __init__(self, pattern: str) -> None:
        import re2  # type: ignore[import-untyped]

        options = re2.Options()
        options.log_errors = False  # RE2 would write errors to stderr
        try:
            self._compiled: Any = re2.compile(_encodable(pattern), options)
        except re2.error as error:
            reason = error.args[0] if error.args else "unknown"
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise PatternError(text) from None

    def search(self, text: str) -> str | None:
        """The first match; None when there is none."""
        match = self._compiled.search(_encodable(text))
        return None if match is None else str(match[0])


def _encodable(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, as Go's decoder does: RE2 takes UTF-8, which has none."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache(maxsize=1024)
def compiled_pattern(pattern: str) -> Pattern:
    """The compiled pattern. Raises PatternError, and TypeError when `pattern` is no string."""
    if not isinstance(pattern, str):
        raise TypeError(f"a pattern is a string, not {pattern!r}")
    return Pattern(pattern)


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that returns whether a text matches. It compiles the pattern at its first call."""

    def matches(text: str) -> bool:
        return compiled_pattern(pattern).search(text) is not None

    return matches
