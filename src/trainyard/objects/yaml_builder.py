"""The values of a YAML file, built from the events of libyaml.

Rules:
- libyaml parses the text to events; `ValueBuilder` builds the values from them with an explicit stack. Nothing
  recurses, so deep nesting cannot exhaust Python's stack, and every limit is checked before the memory is allocated.
  Each alias is replaced by a copy, whose size counts towards MAX_ALIAS_WEIGHT.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import yaml

from trainyard.objects.lines import FieldLines, Lines
from trainyard.objects.problems import Problem
from trainyard.objects.yaml_scalars import resolve_scalar, shorten

MAX_DEPTH = 100
MAX_VALUES = 200_000
MAX_ALIAS_WEIGHT = 1024 * 1024  # limit for the copies of all aliases of a file: 16 per value and 1 per character
MAX_PROBLEMS = 20
DOCUMENT = "document"  # the path of a problem of a whole document


class Value(msgspec.Struct, frozen=True):
    """The value of one document, the line on which it begins, and the lines of its fields."""

    value: Any
    line: int
    lines: Lines


class ParsingStopped(Exception):
    """Ends the parsing at a problem after which the rest cannot be parsed. The problem is in `problems`."""


_ABSENT: Any = object()  # the state of a mapping whose next event is a key
_MERGE: Any = object()  # the merge key `<<`


class _Frame(msgspec.Struct):
    """A list or mapping whose end event has not come yet. `weight` counts towards MAX_ALIAS_WEIGHT."""

    value: Any
    line: int
    anchor: str | None
    key: Any = _ABSENT
    key_lines: dict[str, int] = msgspec.field(default_factory=dict)
    item_lines: list[int] = msgspec.field(default_factory=list)
    merges: list[dict[str, Any]] = msgspec.field(default_factory=list)
    weight: int = 16
    depth: int = 1


class _Anchor(msgspec.Struct, frozen=True):
    """The value of an anchor; `weight` and `depth` are what each alias of it adds to the limits."""

    value: Any
    weight: int
    depth: int


class ValueBuilder:
    """Builds values from YAML events. One instance per file."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.is_json = False  # then a plain scalar that resolves to text is a number that is too large
        self.values: list[Value] = []
        self.problems: list[Problem] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._lines: FieldLines = {}
        self._value_count = 0
        self._aliased_weight = 0

    def take(self, event: yaml.Event) -> None:
        """Add one event of the YAML parser to the value of the current document."""
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                self._add_scalar(event, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open_collection(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close_collection()
            case yaml.AliasEvent():
                self._add_alias(event.anchor or "", line)
            case yaml.DocumentStartEvent():
                self._anchors, self._lines = {}, {}

    def _add_problem(self, line: int, text: str, key: str = "") -> None:
        path = ".".join(filter(None, (self._path(), key)))
        self.problems.append(Problem(f"{self.source}:{line}: {path or DOCUMENT}", text))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ParsingStopped

    def _fatal_problem(self, line: int, text: str) -> ParsingStopped:
        self.problems.append(Problem(f"{self.source}:{line}: {self._path() or DOCUMENT}", text))
        return ParsingStopped()

    def _path(self) -> str:
        """The path of the present value, at most 200 characters."""
        path = ""
        for frame in self._stack:
            if isinstance(frame.value, list):
                path += f"[{len(frame.value)}]"
            elif isinstance(frame.key, str):
                path += f".{shorten(frame.key)}"
        return path[1:] if len(path) < 200 else f"...{path[-197:]}"

    def _add_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text = event.value
        value: Any = text
        if event.tag is not None:
            self._add_problem(
                line, f"the tag {shorten(event.tag)} is not supported; remove it, and quote the value if it is text"
            )
        elif event.implicit[0]:
            value = _MERGE if text == "<<" and self._expects_key() else self._resolve(text, line)
        weight = 16 + len(text)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor(value, weight, 0)
        self._add_value(value, line, weight, 0, text)

    def _resolve(self, text: str, line: int) -> Any:
        try:
            value = resolve_scalar(text)
        except ValueError as error:
            self._add_problem(line, str(error))
            return 0
        if self.is_json and isinstance(value, str):
            self._add_problem(line, f"the number {shorten(text)} does not fit into 64 bits; quote it if it is text")
        return value

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is _ABSENT

    def _open_collection(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if self._expects_key():
            raise self._fatal_problem(
                line, "a key is a list or a mapping; quote it if it is text; render a {{ template }} first"
            )
        if event.tag is not None:
            self._add_problem(line, f"the tag {shorten(event.tag)} is not supported; remove it")
        if len(self._stack) >= MAX_DEPTH:
            raise self._fatal_problem(
                line, f"values are nested more than {MAX_DEPTH} levels deep; make the structure flatter"
            )
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Frame(value, line, event.anchor))

    def _close_collection(self) -> None:
        frame = self._stack.pop()
        for mapping in frame.merges:
            lines = self._lines.get(id(mapping))
            for key, value in mapping.items():
                frame.value.setdefault(key, value)
                if isinstance(lines, dict) and key in lines:
                    frame.key_lines.setdefault(key, lines[key])
        self._lines[id(frame.value)] = frame.key_lines if isinstance(frame.value, dict) else frame.item_lines
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchor(frame.value, frame.weight, frame.depth)
        self._add_value(frame.value, frame.line, frame.weight, frame.depth)

    def _add_alias(self, name: str, line: int) -> None:
        anchor = self._anchors.get(name)
        if any(frame.anchor == name for frame in self._stack):
            raise self._fatal_problem(line, f"the alias *{shorten(name)} is inside its own anchor; write the value out")
        if anchor is None:
            raise self._fatal_problem(
                line, f"the alias *{shorten(name)} has no anchor before it; write &{shorten(name)} at a value"
            )
        self._aliased_weight += anchor.weight
        if self._aliased_weight > MAX_ALIAS_WEIGHT or len(self._stack) + anchor.depth > MAX_DEPTH:
            raise self._fatal_problem(
                line, "the aliases (*name) expand to far more values than the file has; write the values out"
            )
        self._add_value(_copy(anchor.value, self._lines), line, anchor.weight, anchor.depth)

    def _add_value(self, value: Any, line: int, weight: int, depth: int, scalar_text: str = "") -> None:
        self._value_count += 1
        if self._value_count > MAX_VALUES:
            raise self._fatal_problem(line, f"the file has more than {MAX_VALUES:,} values; split it")
        if not self._stack:
            if value is not None:
                self.values.append(Value(value, line, Lines(value, line, self._lines)))
            return
        frame = self._stack[-1]
        frame.weight += weight
        frame.depth = max(frame.depth, depth + 1)
        if isinstance(frame.value, list):
            frame.value.append(value)
            frame.item_lines.append(line)
        elif frame.key is _ABSENT:
            frame.key = self._key(frame, value, line, scalar_text)
        else:
            key, frame.key = frame.key, _ABSENT
            if key is _MERGE:
                self._add_merge(frame, value, line)
            else:
                frame.value[key] = value

    def _key(self, frame: _Frame, value: Any, line: int, scalar_text: str) -> Any:
        if value is not _MERGE and not isinstance(value, str):
            text = scalar_text or _scalar_text(value)
            self._add_problem(line, f'the key {shorten(text)} is not text; write "{shorten(text)}" in quotes')
            value = text
        name = "<<" if value is _MERGE else value
        first_line = frame.key_lines.setdefault(name, line)
        if first_line != line or (name in frame.value or (value is _MERGE and frame.merges)):
            self._add_problem(line, f"is written twice (first in line {first_line}); keep one of them", shorten(name))
        return value

    def _add_merge(self, frame: _Frame, value: Any, line: int) -> None:
        mappings = value if isinstance(value, list) else [value]
        if not all(isinstance(mapping, dict) for mapping in mappings):
            self._add_problem(line, "'<<' merges mappings only; write <<: *name, where &name marks a mapping")
            return
        frame.merges += mappings


def _copy(value: Any, lines: FieldLines) -> Any:
    """A deep copy for an alias, so that no two fields share a value. The value is at most MAX_DEPTH deep."""
    if not isinstance(value, dict | list):
        return value
    copied: Any = {}
    if isinstance(value, dict):
        copied = {key: _copy(child, lines) for key, child in value.items()}
    else:
        copied = [_copy(child, lines) for child in value]
    if id(value) in lines:
        lines[id(copied)] = lines[id(value)]
    return copied


def _scalar_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, int, float, type(None))) else str(value)
