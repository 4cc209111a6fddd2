"""YAML and JSON text as a person writes it, to plain JSON values. Strict where Kubernetes is, bounded everywhere.

Rules:
- A word means what it means to kubectl (YAML 1.1): `yes`, `no`, `on`, `off`, `y`, `n` are booleans, `0777` is octal,
  `1e3` is 1000, a time and a number beyond a float stay text. What cannot be JSON (nan, tags, keys that are not text,
  in a JSON file a number beyond a float) is refused, with the fix.
- The text becomes events (libyaml), the events become values on a stack of our own. Nothing recurses, so no depth can
  hurt, and every limit acts before the memory is spent. Aliases are copies, paid for by their size.
- Whatever comes in, values or ManifestError come out.
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
from trainyard.objects.words import LEAST, MOST, meaning, short

MAX_BYTES = 3 * 1024 * 1024  # what an API server takes in one request
MAX_DEPTH = 100
MAX_VALUES = 200_000
MAX_ALIASED = 1024 * 1024  # what all aliases of a file together may add: 16 per value and one per character
MAX_PROBLEMS = 20

_TAB = "a tab"
# What libyaml says (a part of it) -> what it means to a person. The first match counts.
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
    """A file that cannot be used. `problems` are in the order of the file; each `path` is "file:line"."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Value:
    """One document's value, the line it begins on, and the lines of its fields."""

    value: Any
    line: int
    lines: Lines = field(repr=False, compare=False)


def load(text: str | bytes, source: str) -> list[Value]:
    """All documents of the text that are not empty. Raises ManifestError."""
    plain = _decoded(text, source)
    builder = _Builder(source)
    try:
        whole = _json(plain)
    except _BeyondFloat:
        whole, builder.is_json = None, True
    if whole is not None:
        return whole
    return _built(plain, builder)


def _built(text: str, builder: _Builder) -> list[Value]:
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.YAMLError as error:
        builder.problems.append(_syntax(error, text, builder.source))
    except _Stop:
        pass
    if builder.problems:
        raise ManifestError(builder.problems[:MAX_PROBLEMS])
    return builder.values


def _decoded(text: str | bytes, source: str) -> str:
    def refuse(why: str) -> ManifestError:
        return ManifestError([Problem(source, why)])

    try:
        size = len(text) if isinstance(text, bytes) else len(text.encode())
    except UnicodeEncodeError:
        raise refuse("is not UTF-8 text (a lone surrogate); save it as UTF-8") from None
    if size > MAX_BYTES:
        raise refuse(f"is larger than {MAX_BYTES // 1024 // 1024} MiB, the most an API server takes; split the file")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise refuse("is UTF-16 text; save it as UTF-8")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ManifestError(
            [Problem(f"{source}:{line}", "is not UTF-8 text; name a YAML or JSON file saved as UTF-8")]
        ) from None


class _NotPlainJson(Exception):
    """Not JSON, or JSON that we would refuse: the other reader finds the line and the words."""


class _BeyondFloat(Exception):
    """JSON with a number that is no float: YAML takes such a word for text, a JSON reader refuses it."""


def _json(text: str) -> list[Value] | None:
    """Fast path: one JSON object, as `kubectl get -o json` writes it. None when the text is anything else.

    Raises _BeyondFloat for a number that no reader of JSON takes."""
    if not text.lstrip().startswith("{") or text.count(",") + text.count("[") > MAX_VALUES:
        return None

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            raise _NotPlainJson
        return made

    def whole(digits: str) -> int | float:
        number = int(digits) if len(digits) <= 20 else MOST + 1
        return number if LEAST <= number <= MOST else real(digits)

    def real(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise _BeyondFloat
        return number

    def word(_: str) -> None:
        raise _NotPlainJson

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=whole, parse_float=real, parse_constant=word)
        text_of_it = json.dumps(value, ensure_ascii=False)  # a lone surrogate cannot travel on
        text_of_it.encode()
    except (_NotPlainJson, ValueError, RecursionError):
        return None
    if _deeper(value, MAX_DEPTH):
        return None
    line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    return [Value(value, line, Lines(value, line, {}, lambda: _lines_of_json(text)))]


def _lines_of_json(text: str) -> Lines | None:
    try:
        return _built(text, _Builder(""))[0].lines
    except (ManifestError, yaml.YAMLError):
        return None


def _deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [child for one in level if isinstance(one, (dict, list)) for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def _syntax(error: yaml.YAMLError, text: str, source: str) -> Problem:
    said = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"{source}:{mark.line + 1}" if mark else source
    if mark and text[mark.index : mark.index + 1] == "\t":
        said = _TAB
    advice = next((advice for part, advice in _ADVICE if part in said), f"not YAML ({said}); check this line")
    return Problem(where, f"cannot be read as YAML: {advice}")


class _Stop(Exception):
    """No use in reading on; the problem is noted."""


_ABSENT: Any = object()  # a mapping that waits for a key
_MERGE: Any = object()  # the key `<<`


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is not finished yet."""

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
    value: Any
    weight: int
    depth: int


class _Builder:
    """Values from events. One instance per file."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.is_json = False  # then a plain word that is text is a number that is too large
        self.values: list[Value] = []
        self.problems: list[Problem] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._lines: FieldLines = {}
        self._count = 0
        self._aliased = 0

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event.anchor or "", line)
            case yaml.DocumentStartEvent():
                self._anchors, self._lines = {}, {}

    def _complain(self, line: int, text: str) -> None:
        path = self._path()
        self.problems.append(Problem(f"{self.source}:{line}", f"{path}: {text}" if path else text))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Stop

    def _stop(self, line: int, text: str) -> _Stop:
        self.problems.append(Problem(f"{self.source}:{line}", text))
        return _Stop()

    def _path(self) -> str:
        path = ""
        for frame in self._stack:
            if isinstance(frame.value, list):
                path += f"[{len(frame.value)}]"
            elif isinstance(frame.key, str):
                path += f".{short(frame.key)}"
        return path[1:] if len(path) < 200 else f"...{path[-197:]}"

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text = event.value
        value: Any = text
        if event.tag is not None:
            self._complain(
                line, f"the tag {short(event.tag)} is not read; remove it, and quote the value if it is text"
            )
        elif event.implicit[0]:
            value = _MERGE if text == "<<" and self._wants_key() else self._resolve(text, line)
        weight = 16 + len(text)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor(value, weight, 0)
        self._put(value, line, weight, 0, text)

    def _resolve(self, text: str, line: int) -> Any:
        try:
            value = meaning(text)
        except ValueError as error:
            self._complain(line, str(error))
            return 0
        if self.is_json and isinstance(value, str):
            self._complain(line, f"the number {short(text)} does not fit into 64 bits; quote it if it is text")
        return value

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is _ABSENT

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if self._wants_key():
            raise self._stop(
                line, "a key is a list or a mapping; quote it if it is text; render a {{ template }} first"
            )
        if event.tag is not None:
            self._complain(line, f"the tag {short(event.tag)} is not read; remove it")
        if len(self._stack) >= MAX_DEPTH:
            raise self._stop(line, f"values are nested more than {MAX_DEPTH} levels deep; make the structure flatter")
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Frame(value, line, event.anchor))

    def _close(self) -> None:
        frame = self._stack.pop()
        for merged in frame.merges:
            lines = self._lines.get(id(merged))
            for key, value in merged.items():
                frame.value.setdefault(key, value)
                if isinstance(lines, dict) and key in lines:
                    frame.key_lines.setdefault(key, lines[key])
        self._lines[id(frame.value)] = frame.key_lines if isinstance(frame.value, dict) else frame.item_lines
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchor(frame.value, frame.weight, frame.depth)
        self._put(frame.value, frame.line, frame.weight, frame.depth)

    def _alias(self, name: str, line: int) -> None:
        anchor = self._anchors.get(name)
        if any(frame.anchor == name for frame in self._stack):
            raise self._stop(line, f"the alias *{short(name)} stands inside its own anchor; write the value out")
        if anchor is None:
            raise self._stop(line, f"the alias *{short(name)} has no anchor before it; write &{short(name)} at a value")
        self._aliased += anchor.weight
        if self._aliased > MAX_ALIASED or len(self._stack) + anchor.depth > MAX_DEPTH:
            raise self._stop(line, "the aliases (*name) expand to far more than the file holds; write the values out")
        self._put(_copy(anchor.value, self._lines), line, anchor.weight, anchor.depth)

    def _put(self, value: Any, line: int, weight: int, depth: int, shown: str = "") -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._stop(line, f"the file holds more than {MAX_VALUES:,} values; split it")
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
            frame.key = self._key(frame, value, line, shown)
        else:
            key, frame.key = frame.key, _ABSENT
            if key is _MERGE:
                self._merge(frame, value, line)
            else:
                frame.value[key] = value

    def _key(self, frame: _Frame, value: Any, line: int, shown: str) -> Any:
        if value is not _MERGE and not isinstance(value, str):
            text = shown or _word(value)
            self._complain(line, f'the key {short(text)} is not text; write "{short(text)}" in quotes')
            value = text
        name = "<<" if value is _MERGE else value
        first = frame.key_lines.setdefault(name, line)
        if first != line or (name in frame.value or (value is _MERGE and frame.merges)):
            self._complain(line, f'the key "{short(name)}" is written twice (first in line {first}); keep one of them')
        return value

    def _merge(self, frame: _Frame, value: Any, line: int) -> None:
        merged = value if isinstance(value, list) else [value]
        if not all(isinstance(one, dict) for one in merged):
            self._complain(line, "'<<' merges mappings only; write <<: *name, where &name marks a mapping")
            return
        frame.merges += merged


def _copy(value: Any, lines: FieldLines) -> Any:
    """A copy of its own for each alias, so that nothing downstream is shared. At most MAX_DEPTH deep by then."""
    if not isinstance(value, dict | list):
        return value
    made: Any = {}
    if isinstance(value, dict):
        made = {key: _copy(child, lines) for key, child in value.items()}
    else:
        made = [_copy(child, lines) for child in value]
    if id(value) in lines:
        lines[id(made)] = lines[id(value)]
    return made


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, int, float, type(None))) else str(value)
