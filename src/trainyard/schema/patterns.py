"""Patterns of other people's schemas and rules, matched by RE2 as a Kubernetes API server matches them.

Python's own engine backtracks: `^(a+)+$` takes twice as long with each letter of the text. RE2 takes time in proportion
to the text, and refuses what it cannot match that way (references to groups, lookahead).

Rules for this file:
- The library is loaded with the first pattern that a value is compared with: a program that meets none never pays.
- Every pattern that does not stand in our own source goes through here. Patterns of our own use `re`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any


class PatternError(ValueError):
    """The text is no regular expression that RE2 takes. The message says why."""


class Pattern:
    """A compiled regular expression in Go's syntax; `$` is the very end of the text. Raises PatternError."""

    def __init__(self, pattern: str) -> None:
        import re2  # type: ignore[import-untyped]

        options = re2.Options()
        options.log_errors = False  # RE2 would write to the standard error of the process
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

    def search_all(self, text: str) -> Iterator[str]:
        """All matches, which do not overlap."""
        return (str(match[0]) for match in self._compiled.finditer(_encodable(text)))


def _encodable(text: str) -> str:
    """RE2 reads UTF-8, which has no half of a surrogate pair; Go's decoder, too, puts U+FFFD in its place."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache(maxsize=1024)
def compiled_pattern(pattern: str) -> Pattern:
    """Raises PatternError, TypeError."""
    if not isinstance(pattern, str):
        raise TypeError(f"a pattern is a string, not {pattern!r}")
    return Pattern(pattern)


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a text matches. It compiles the pattern when it is first called."""

    def matches(text: str) -> bool:
        return compiled_pattern(pattern).search(text) is not None

    return matches
