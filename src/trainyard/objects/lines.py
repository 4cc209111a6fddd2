"""Where the fields of a document stand in its file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FieldLines = dict[int, dict[str, int] | list[int]]
"""By id() of a mapping or list of the document: the line of each key, or of each item."""


@dataclass(slots=True)
class Lines:
    """The lines of the fields of one document.

    `read` finds them out when somebody asks: the reader of JSON is fast, and tells no lines. It returns None when the
    text cannot be read that way.
    """

    root: Any
    line: int
    fields: FieldLines
    read: Callable[[], Lines | None] | None = None

    def of(self, path: str) -> int:
        """The line of the field, or of the deepest field on the way to it when it is not there."""
        if self.read is not None:
            found, self.read = self.read(), None
            if found is not None:
                self.root, self.fields = found.root, found.fields
        at, line, rest = self.root, self.line, path
        while rest and (step := self._step(at, rest)):
            at, line, rest = step
        return line

    def _step(self, at: Any, path: str) -> tuple[Any, int, str] | None:
        """The value that the first part of the path names, its line, and the rest of the path."""
        lines = self.fields.get(id(at))
        if isinstance(at, list) and isinstance(lines, list):
            index = re.match(r"\[(\d{1,9})\]\.?", path)
            if index is None or int(index[1]) >= min(len(at), len(lines)):
                return None
            return at[int(index[1])], lines[int(index[1])], path[index.end() :]
        if isinstance(at, dict) and isinstance(lines, dict):
            key = max((key for key in lines if key in at and _begins(path, key)), key=len, default=None)
            return None if key is None else (at[key], lines[key], path[len(key) :].removeprefix("."))
        return None


def _begins(path: str, key: str) -> bool:
    """Whether the path goes on with this key, which may have dots in it."""
    return path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")
