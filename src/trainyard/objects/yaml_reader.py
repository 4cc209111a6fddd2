"""Parsing of users' YAML and JSON files to plain JSON values. As strict as Kubernetes, with limits on every size.

Rules:
- A plain scalar has the value that it has to kubectl (YAML 1.1): `yes`, `no`, `on`, `off`, `y`, `n` are booleans,
  `0777` is octal, `1e3` is 1000, a time and a number beyond the range of a float stay text. What JSON cannot represent
  (nan, tags, keys that are not text, in a JSON file a number beyond the range of a float) is a problem, with the fix.
- The text of one JSON object is parsed by the standard library, everything else as YAML (yaml_builder.py).
- Every input, however malformed, gives either values or ManifestError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import yaml

from trainyard.objects.lines import Lines
from trainyard.objects.problems import Problem
from trainyard.objects.yaml_builder import MAX_DEPTH, MAX_PROBLEMS, MAX_VALUES, ParsingStopped, Value, ValueBuilder
from trainyard.objects.yaml_scalars import MAX_INTEGER, MIN_INTEGER

MAX_BYTES = 3 * 1024 * 1024  # the limit of an API server for one request
_TAB = "a tab"
# Part of libyaml's error text -> the text of the problem. The first match is used.
_ADVICE = (
    (_TAB, "a tab is used for indentation; use spaces"),
    ("mapping values are not allowed", "a ': ' where no key is allowed; check the indentation, or quote the text"),
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
    ("nesting", f"values are nested too deeply; at most {MAX_DEPTH} levels are allowed"),
)


class ManifestError(Exception):
    """A file that cannot be parsed. `problems` are in the order of the file; each `path` is "file:line: field"."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def load(text: str | bytes, source: str) -> list[Value]:
    """The documents of the text, without empty ones. Raises ManifestError."""
    decoded = _decode(text, source)
    builder = ValueBuilder(source)
    try:
        values = _load_json(decoded)
    except _BeyondFloat:
        values, builder.is_json = None, True
    if values is not None:
        return values
    return _load_yaml(decoded, builder)


def _load_yaml(text: str, builder: ValueBuilder) -> list[Value]:
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.YAMLError as error:
        builder.problems.append(_syntax_problem(error, text, builder.source))
    except ParsingStopped:
        pass
    if builder.problems:
        raise ManifestError(builder.problems[:MAX_PROBLEMS])
    return builder.values


def _decode(text: str | bytes, source: str) -> str:
    def manifest_error(text: str) -> ManifestError:
        return ManifestError([Problem(f"{source}:1: encoding", text)])

    try:
        size = len(text) if isinstance(text, bytes) else len(text.encode())
    except UnicodeEncodeError:
        raise manifest_error("is not UTF-8 text (a lone surrogate); save it as UTF-8") from None
    if size > MAX_BYTES:
        raise manifest_error(
            f"is larger than {MAX_BYTES // 1024 // 1024} MiB, the limit of an API server; split the file"
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
            [Problem(f"{source}:{line}: encoding", "is not UTF-8 text; name a YAML or JSON file saved as UTF-8")]
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
    try:
        value = json.loads(
            text,
            object_pairs_hook=_parse_object,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_parse_constant,
        )
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate
    except (_NotPlainJson, ValueError, RecursionError):
        return None
    if _is_deeper_than(value, MAX_DEPTH):
        return None
    line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    return [Value(value, line, Lines(value, line, {}, lambda: _lines_of_json(text)))]


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):  # a key is there twice
        raise _NotPlainJson
    return mapping


def _parse_int(digits: str) -> int | float:
    number = int(digits) if len(digits) <= 20 else MAX_INTEGER + 1
    return number if MIN_INTEGER <= number <= MAX_INTEGER else _parse_float(digits)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _BeyondFloat
    return number


def _parse_constant(_: str) -> None:  # NaN, Infinity, -Infinity
    raise _NotPlainJson


def _lines_of_json(text: str) -> Lines | None:
    try:
        return _load_yaml(text, ValueBuilder(""))[0].lines
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
    line = mark.line + 1 if mark else 1
    if mark and text[mark.index : mark.index + 1] == "\t":
        error_text = _TAB
    advice = next((advice for part, advice in _ADVICE if part in error_text), f"{error_text}; check this line")
    return Problem(f"{source}:{line}: YAML", advice)
