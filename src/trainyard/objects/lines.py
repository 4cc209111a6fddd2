"""The line numbers of the fields of a YAML or JSON document."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

FieldLines = dict[int, dict[str, int] | list[int]]
"""id() of a mapping or list of the document -> the line of each key, or of each item."""


class Lines(msgspec.Struct):
    """The lines of the fields of one document. `root` is the document, `line` the line on which it begins.

    `load`, when set, computes the lines at the first call of `line_of`: the JSON decoder is fast, but reports no lines.
    It returns None when the text cannot be parsed as YAML.
    """

    root: Any
    line: int
    fields: FieldLines
    load: Callable[[], Lines | None] | None = None

    def line_of(self, path: str) -> int:
        """The line of the field at `path`; when it is missing, the line of its nearest existing parent."""
        if self.load is not None:
            lines, self.load = self.load(), None
            if lines is not None:
                self.root, self.fields = lines.root, lines.fields
        value, line, rest = self.root, self.line, path
        while rest and (child := self._child(value, rest)):
            value, line, rest = child
        return line

    def _child(self, value: Any, path: str) -> tuple[Any, int, str] | None:
        """The value at the first segment of the path, its line, and the rest of the path."""
        lines = self.fields.get(id(value))
        if isinstance(value, list) and isinstance(lines, list):
            index = re.match(r"\[(\d{1,9})\]\.?", path)
            if index is None or int(index[1]) >= min(len(value), len(lines)):
                return None
            return value[int(index[1])], lines[int(index[1])], path[index.end() :]
        if isinstance(value, dict) and isinstance(lines, dict):
            key = max((key for key in lines if key in value and _begins_with_key(path, key)), key=len, default=None)
            return None if key is None else (value[key], lines[key], path[len(key) :].removeprefix("."))
        return None


def _begins_with_key(path: str, key: str) -> bool:
    """Whether the first segment of the path is this key, which may contain dots."""
    return path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")
