"""Parsing of users' YAML and JSON files to plain JSON values. As strict as Kubernetes, with limits on every size.

Rules:
- A plain scalar has the value that it has to kubectl (YAML 1.1): `yes`, `no`, `on`, `off`, `y`, `n` are booleans,
  `0777` is octal, `1e3` is 1000, a time and a number beyond the range of a float stay text. What JSON cannot represent
  (nan, tags, keys that are not text, in a JSON file a number beyond the range of a float) is a problem, with the fix.
- libyaml parses the text to events; `_Builder` builds the values from them with an explicit stack. Nothing recurses, so
  deep nesting cannot exhaust Python's stack, and every limit is checked before the memory is allocated. Each alias is
  replaced by a copy, whose size counts towards MAX_ALIAS_WEIGHT.
- Every input, however malformed, gives either values or ManifestError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from trainyard.objects.lines import FieldLines, Lines
from trainyard.objects.problems import Problem
from trainyard.objects.yaml_scalars import MAX_INTEGER, MIN_INTEGER, resolve_scalar, shorten

MAX_BYTES = 3 * 1024 * 1024  # the limit of an API server for one request
MAX_DEPTH = 100
MAX_VALUES = 200_000
MAX_ALIAS_WEIGHT = 1024 * 1024  # limit for the copies of all aliases of a file: 16 per value and 1 per character
MAX_PROBLEMS = 20

_TAB = "a tab"
# Part of libyaml's error text -> the text of the problem. The first match is used.
_ADVICE = (
    (_TAB, "a tab is used for indentation; use spaces"),
    ("mapping values are not allowed", "a ': ' stands where no key can be; check the indentation, or quote the text"),
    ("could not find expected ':'", "a key without ':'; write 'key: value', and check the indentation and the quotes"),
    ("did not find expected key", "the indentation does not fit the lines above; align keys of one mapping exactly"),
    ("did not find expected '-'", "the indentation does not fit the list above; align its '- ' exactly"),
    ("did not find expected ',' or '}'", "a '{' is not closed; write '}' or ',' here, or quote the text"),
    ("did not find expected ',' or ']'", "a '[' is not closed; write ']' or ',' here, or quote the text"),
    ("unexpected end of stream", "a quoted text is not closed; write the closing quote"),
    ("unexpected document indicator", "a quoted text is not closed before '---'; write the closing quote"),
    ("cannot start any token", "a character that cannot begin a value (such as @ ` %); put the text in quotes"),
    ("unknown escape character", "an escape unknown to YAML in \"...\"; use '...' or double the backslash"),
    ("did not find expected <document start>", "text after the end of a document; separate documents with '---'"),
    ("did not find expected node content", "a value is missing, or begins with a sign such as , ] }; quote the text"),
    ("control characters", 'a control character; remove it, or write it as an escape such as "\\t"'),
    ("nesting", f"values are nested too deeply; at most {MAX_DEPTH} levels are read"),
)


class ManifestError(Exception):
    """A file that cannot be parsed. `problems` are in the order of the file; each `path` is "file:line"."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Value:
    """The value of one document, the line on which it begins, and the lines of its fields."""

    value: Any
    line: int
    lines: Lines = field(repr=False, compare=False)


def load(text: str | bytes, source: str) -> list[Value]:
    """The documents of the text, without empty ones. Raises ManifestError."""
    decoded = _decode(text, source)
    builder = _Builder(source)
    try:
        values = _load_json(decoded)
    except _BeyondFloat:
        values, builder.is_json = None, True
    if values is not None:
        return values
    return _load_yaml(decoded, builder)


def _load_yaml(text: str, builder: _Builder) -> list[Value]:
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.YAMLError as error:
        builder.problems.append(_syntax_problem(error, text, builder.source))
    except _Stop:
        pass
    if builder.problems:
        raise ManifestError(builder.problems[:MAX_PROBLEMS])
    return builder.values


def _decode(text: str | bytes, source: str) -> str:
    def manifest_error(text: str) -> ManifestError:
        return ManifestError([Problem(source, text)])

    try:
        size = len(text) if isinstance(text, bytes) else len(text.encode())
    except UnicodeEncodeError:
        raise manifest_error("is not UTF-8 text (a lone surrogate); save it as UTF-8") from None
    if size > MAX_BYTES:
        raise manifest_error(
            f"is larger than {MAX_BYTES // 1024 // 1024} MiB, the most an API server takes; split the file"
        )
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise manifest_error("is UTF-16 text; save it as UTF-8")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ManifestError(
            [Problem(f"{source}:{line}", "is not UTF-8 text; name a YAML or JSON file saved as UTF-8")]
        ) from None


class _NotPlainJson(Exception):
    """Not JSON, or JSON that is to be rejected: the YAML path then reports the problem with its line."""


class _BeyondFloat(Exception):
    """JSON with a number beyond the range of a float: text to a YAML parser, an error to a JSON parser."""


def _load_json(text: str) -> list[Value] | None:
    """Fast path: one JSON object, as `kubectl get -o json` writes it. None when the text is anything else.

    Raises _BeyondFloat for a number beyond the range of a float, which every JSON parser rejects."""
    if not text.lstrip().startswith("{") or text.count(",") + text.count("[") > MAX_VALUES:
        return None

    def parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):  # a key is there twice
            raise _NotPlainJson
        return mapping

    def parse_int(digits: str) -> int | float:
        number = int(digits) if len(digits) <= 20 else MAX_INTEGER + 1
        return number if MIN_INTEGER <= number <= MAX_INTEGER else parse_float(digits)

    def parse_float(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise _BeyondFloat
        return number

    def parse_constant(_: str) -> None:  # NaN, Infinity, -Infinity
        raise _NotPlainJson

    try:
        value = json.loads(
            text,
            object_pairs_hook=parse_object,
            parse_int=parse_int,
            parse_float=parse_float,
            parse_constant=parse_constant,
        )
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate
    except (_NotPlainJson, ValueError, RecursionError):
        return None
    if _is_deeper_than(value, MAX_DEPTH):
        return None
    line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    return [Value(value, line, Lines(value, line, {}, lambda: _lines_of_json(text)))]


def _lines_of_json(text: str) -> Lines | None:
    try:
        return _load_yaml(text, _Builder(""))[0].lines
    except (ManifestError, yaml.YAMLError):
        return None


def _is_deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [child for parent in level if isinstance(parent, (dict, list)) for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def _syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    error_text = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"{source}:{mark.line + 1}" if mark else source
    if mark and text[mark.index : mark.index + 1] == "\t":
        error_text = _TAB
    advice = next(
        (advice for part, advice in _ADVICE if part in error_text), f"not YAML ({error_text}); check this line"
    )
    return Problem(where, f"cannot be read as YAML: {advice}")


class _Stop(Exception):
    """Ends the parsing at a problem after which the rest cannot be parsed. The problem is in `problems`."""


_ABSENT: Any = object()  # the state of a mapping whose next event is a key
_MERGE: Any = object()  # the merge key `<<`


@dataclass(slots=True)
class _Frame:
    """A list or mapping whose end event has not come yet. `weight` counts towards MAX_ALIAS_WEIGHT."""

    value: Any
    line: int
    anchor: str | None
    key: Any = _ABSENT
    key_lines: dict[str, int] = field(default_factory=dict)
    item_lines: list[int] = field(default_factory=list)
    merges: list[dict[str, Any]] = field(default_factory=list)
    weight: int = 16
    depth: int = 1


class _Anchor(msgspec.Struct, frozen=True):
    """The value of an anchor; `weight` and `depth` are what each alias of it adds to the limits."""

    value: Any
    weight: int
    depth: int


class _Builder:
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

    def _add_problem(self, line: int, text: str) -> None:
        path = self._path()
        self.problems.append(Problem(f"{self.source}:{line}", f"{path}: {text}" if path else text))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Stop

    def _fatal_problem(self, line: int, text: str) -> _Stop:
        self.problems.append(Problem(f"{self.source}:{line}", text))
        return _Stop()

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
                line, f"the tag {shorten(event.tag)} is not read; remove it, and quote the value if it is text"
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
            self._add_problem(line, f"the tag {shorten(event.tag)} is not read; remove it")
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
            raise self._fatal_problem(
                line, f"the alias *{shorten(name)} stands inside its own anchor; write the value out"
            )
        if anchor is None:
            raise self._fatal_problem(
                line, f"the alias *{shorten(name)} has no anchor before it; write &{shorten(name)} at a value"
            )
        self._aliased_weight += anchor.weight
        if self._aliased_weight > MAX_ALIAS_WEIGHT or len(self._stack) + anchor.depth > MAX_DEPTH:
            raise self._fatal_problem(
                line, "the aliases (*name) expand to far more than the file holds; write the values out"
            )
        self._add_value(_copy(anchor.value, self._lines), line, anchor.weight, anchor.depth)

    def _add_value(self, value: Any, line: int, weight: int, depth: int, scalar_text: str = "") -> None:
        self._value_count += 1
        if self._value_count > MAX_VALUES:
            raise self._fatal_problem(line, f"the file holds more than {MAX_VALUES:,} values; split it")
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
            self._add_problem(
                line, f'the key "{shorten(name)}" is written twice (first in line {first_line}); keep one of them'
            )
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
