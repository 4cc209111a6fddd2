"""What a schema says against an object: every problem, at its path, with what to write instead.

Rules for this file:
- A check is a function (value, path, problems) that appends and returns nothing. It never raises.
- It goes as deep as the schema, never as deep as the object, so an object cannot exhaust the stack.
- The first words of a text are the API server's (`Invalid value: ...`, `Required value`, `Unsupported value: ...`,
  `Duplicate value: ...`, `Too many: ...`, `Too long: ...`); what follows says what to write.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from trainyard.objects import Json, Problem, encode
from trainyard.schema.formats import FORMATS
from trainyard.schema.patterns import matcher
from trainyard.schema.shaping import EMBEDDED, PRESERVE

Check = Callable[[Any, str, list[Problem]], None]

DEPTH = 100  # levels of an object that are looked at; a pod template has about 15
MOST = 200  # problems reported for one object; more help nobody

INT_OR_STRING = "x-kubernetes-int-or-string"

WORDS = {
    "integer": "an integer, such as 1",
    "number": "a number, such as 0.5",
    "string": "a string; put it in quotes",
    "boolean": "true or false, without quotes",
    "object": "an object (lines of `name: value`)",
    "array": "a list (lines that start with `-`)",
}
TYPE_TEXT = re.compile(r".*: must be (an? (integer|number|string|object|list)\b|true or false, )")
"""What the text of a problem looks like when the value has the wrong type."""


def shown(value: Any) -> str:
    """The value as JSON, cut to what fits in a message."""
    if isinstance(value, str) and len(value) > 200:
        value = value[:200]
    if isinstance(value, dict | list) and len(value) > 50:
        return "{...}" if isinstance(value, dict) else "[...]"
    try:
        text = encode(value).decode()
    except (RecursionError, ValueError, TypeError, OverflowError):
        return "{...}" if isinstance(value, dict) else "[...]"
    return text if len(text) <= 100 else text[:97] + "..."


def below(path: str, name: object) -> str:
    """The path of a field, dotted whatever its name is, as an API server writes it."""
    text = str(name)[:80]
    return f"{path}.{text}" if path else text


def is_type(value: Any, kind: str) -> bool:
    """Whether a JSON value is of that OpenAPI type. true is no integer; 2.0 is one; it has 64 bits; NaN is nothing."""
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind == "number":
        return isinstance(value, int) or math.isfinite(value)
    return (isinstance(value, int) or value.is_integer()) and -(2**63) <= value < 2**63


def compile_check(schema: Json) -> Check:
    """The check of a schema that has been examined."""
    kind = schema.get("type")
    parts = [
        *_number_checks(schema),
        *_string_checks(schema),
        *_list_checks(schema),
        *_object_checks(schema),
        *_enum_checks(schema),
        *_logic_checks(schema),
    ]
    nullable = takes_null(schema)
    formed = kind == "string" and schema.get("format") in FORMATS  # as in Kubernetes, a list passes for one of these
    mixed = schema.get(INT_OR_STRING) is True

    def check(value: Any, path: str, problems: list[Problem]) -> None:
        if value is None and nullable:
            return
        if mixed:
            if not (is_type(value, "integer") or isinstance(value, str)):
                problems.append(_wrong(path, value, "an integer or a string"))
                return
        elif kind is not None and not is_type(value, kind) and not (formed and isinstance(value, list)):
            problems.append(_wrong(path, value, WORDS[kind]))
            return
        for part in parts:
            if len(problems) >= MOST:
                return
            part(value, path, problems)

    return check


def takes_null(schema: Json) -> bool:
    return schema.get("nullable") is True or ("type" not in schema and schema.get(PRESERVE) is True)


def _wrong(path: str, value: Any, wanted: str) -> Problem:
    end = "; leave the field out for the default" if value is None else ""
    return Problem(path, f"Invalid value: {shown(value)}: must be {wanted}{end}")


def _invalid(path: str, value: Any, text: str) -> Problem:
    return Problem(path, f"Invalid value: {shown(value)}: {text}")


def _number_checks(schema: Json) -> Iterable[Check]:
    low, high = schema.get("minimum"), schema.get("maximum")
    open_low, open_high = schema.get("exclusiveMinimum") is True, schema.get("exclusiveMaximum") is True
    step = schema.get("multipleOf")
    if low is None and schema.get("format") in ("int32", "int64"):
        low = -(2 ** (31 if schema["format"] == "int32" else 63))
    if high is None and schema.get("format") in ("int32", "int64"):
        high = 2 ** (31 if schema["format"] == "int32" else 63) - 1
    if low is None and high is None and step is None:
        return

    def number(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if low is not None and (value <= low if open_low else value < low):
            problems.append(_invalid(path, value, f"must be greater than {'' if open_low else 'or equal to '}{low}"))
        if high is not None and (value >= high if open_high else value > high):
            problems.append(_invalid(path, value, f"must be less than {'' if open_high else 'or equal to '}{high}"))
        if step and value % step:
            problems.append(_invalid(path, value, f"must be a multiple of {step}"))

    yield number


def _string_checks(schema: Json) -> Iterable[Check]:
    shortest, longest, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    form = FORMATS.get(schema.get("format") or "")
    if shortest is None and longest is None and pattern is None and form is None:
        return
    matches = matcher(pattern) if pattern else None

    def string(value: Any, path: str, problems: list[Problem]) -> None:
        if not isinstance(value, str):
            return
        if shortest is not None and len(value) < shortest:
            text = "must not be empty" if shortest == 1 else f"must have at least {shortest} characters"
            problems.append(_invalid(path, value, text))
        if longest is not None and len(value) > longest:
            problems.append(Problem(path, f"Too long: may not be more than {longest} characters; it has {len(value)}"))
        elif matches and not matches(value):
            problems.append(_invalid(path, value, f"must match '{pattern}'"))
        if form is not None and not form(value):
            problems.append(_invalid(path, value, f"must be a string of type {schema['format']}"))

    yield string


def _list_checks(schema: Json) -> Iterable[Check]:
    if "items" in schema:
        item = compile_check(schema["items"])

        def items(value: Any, path: str, problems: list[Problem]) -> None:
            if isinstance(value, list):
                for index, part in enumerate(value):
                    if len(problems) >= MOST:
                        return
                    item(part, f"{path}[{index}]", problems)

        yield items
    fewest, most = schema.get("minItems"), schema.get("maxItems")
    if fewest is not None or most is not None:

        def count(value: Any, path: str, problems: list[Problem]) -> None:
            if isinstance(value, list):
                if fewest is not None and len(value) < fewest:
                    problems.append(_invalid(path, len(value), f"must have at least {_items(fewest)}"))
                if most is not None and len(value) > most:
                    problems.append(Problem(path, f"Too many: {len(value)}: must have at most {_items(most)}"))

        yield count
    if schema.get("x-kubernetes-list-type") == "set":
        yield _unique(None)
    if schema.get("x-kubernetes-list-type") == "map":
        keys = list(schema.get("x-kubernetes-list-map-keys") or ())
        properties: Json = (schema.get("items") or {}).get("properties") or {}
        yield _unique([(key, (properties.get(key) or {}).get("default")) for key in keys])


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _unique(keys: list[tuple[str, Any]] | None) -> Check:
    """No two items alike: as a whole (None), or in these keys; the second of a pair is a key's default."""

    def unique(value: Any, path: str, problems: list[Problem]) -> None:
        if not isinstance(value, list):
            return
        seen: dict[str, int] = {}
        for index, part in enumerate(value):
            if len(problems) >= MOST:
                return
            named: Any = part
            if keys is not None:
                if not isinstance(part, dict):
                    continue
                named = {key: part.get(key, filling) for key, filling in keys}
            same = _identity(named)
            if same in seen:
                text = f"Duplicate value: {shown(named)}: the same as item {seen[same]}; each must be different"
                problems.append(Problem(f"{path}[{index}]", text))
            else:
                seen[same] = index

    return unique


def _identity(value: Any) -> str:
    try:
        return repr(sorted(value.items())) if isinstance(value, dict) else f"{type(value).__name__}:{value!r}"
    except (RecursionError, TypeError):
        return f"id:{id(value)}"


def _object_checks(schema: Json) -> Iterable[Check]:
    required = list(schema.get("required") or ())
    properties: Json = schema.get("properties") or {}
    if schema.get(EMBEDDED) is True:
        required = list(dict.fromkeys([*required, "apiVersion", "kind"]))
    if required:
        wanted = [(name, WORDS.get((properties.get(name) or {}).get("type", ""), "a value")) for name in required]

        def present(value: Any, path: str, problems: list[Problem]) -> None:
            if isinstance(value, dict):
                for name, words in wanted:
                    if name not in value:
                        problems.append(Problem(below(path, name), f"Required value: write {words}"))

        yield present
    if schema.get(EMBEDDED) is True:
        yield _an_object_itself
    if properties:
        yield _fields({name: compile_check(part) for name, part in properties.items()})
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        yield _values(compile_check(more), frozenset(properties))
    if "minProperties" in schema or "maxProperties" in schema:
        yield _counted(schema.get("minProperties", 0), schema.get("maxProperties", math.inf))


def _an_object_itself(value: Any, path: str, problems: list[Problem]) -> None:
    """What every object says of itself, of one inside another. That both are texts has been seen."""
    if not isinstance(value, dict):
        return
    if not isinstance(meta := value.get("metadata") or {}, dict):
        problems.append(_wrong(below(path, "metadata"), meta, WORDS["object"]))
    version, kind = value.get("apiVersion"), value.get("kind")
    problems += [
        Problem(below(path, name), 'Invalid value: "": must not be empty')
        for name in ("apiVersion", "kind")
        if value.get(name) == ""
    ]
    if isinstance(version, str) and version.count("/") > 1:
        text = f"Invalid value: {shown(version)}: unexpected GroupVersion string: {version[:200]}"
        problems.append(Problem(below(path, "apiVersion"), text))
    if isinstance(kind, str) and kind and not _KIND.fullmatch(kind):
        text = "must be letters, digits and '-', beginning with a letter, ending with no '-', 63 at most"
        problems.append(Problem(below(path, "kind"), f"Invalid value: {shown(kind)}: {text}"))


_KIND = re.compile(r"(?=.{1,63}\Z)[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?")


def _fields(checks: dict[str, Check]) -> Check:
    def fields(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, dict):
            for name, check in checks.items():
                if name in value:
                    check(value[name], f"{path}.{name}" if path else name, problems)

    return fields


def _values(check: Check, known: frozenset[str]) -> Check:
    def values(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, dict):
            for name, part in value.items():
                if len(problems) >= MOST:
                    return
                if name not in known:
                    check(part, below(path, name), problems)

    return values


def _counted(fewest: float, most: float) -> Check:
    def counted(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, dict) and len(value) < fewest:
            problems.append(_invalid(path, len(value), f"must have at least {fewest} fields"))
        if isinstance(value, dict) and len(value) > most:
            problems.append(Problem(path, f"Too many: {len(value)}: must have at most {most} fields"))

    return counted


def _enum_checks(schema: Json) -> Iterable[Check]:
    allowed = schema.get("enum")
    if not isinstance(allowed, list):
        return
    words = ", ".join(shown(value) for value in allowed)

    def one_of(value: Any, path: str, problems: list[Problem]) -> None:
        if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            problems.append(Problem(path, f"Unsupported value: {shown(value)}: supported values: {words}"))

    yield one_of


def _logic_checks(schema: Json) -> Iterable[Check]:
    yield from map(compile_check, schema.get("allOf") or ())
    for word in ("anyOf", "oneOf"):
        if schema.get(word) and schema.get(INT_OR_STRING) is not True:
            yield _alternatives(word, list(map(compile_check, schema[word])))
    if isinstance(schema.get("not"), dict):
        yield _negation(compile_check(schema["not"]))


def _alternatives(word: str, parts: list[Check]) -> Check:
    def alternatives(value: Any, path: str, problems: list[Problem]) -> None:
        fits = 0
        for part in parts:
            found: list[Problem] = []
            part(value, path, found)
            fits += not found
        if fits == 0 or (word == "oneOf" and fits != 1):
            text = "one" if word == "oneOf" else "at least one"
            problems.append(_invalid(path, value, f"must fit {text} of the {len(parts)} schemas ({word})"))

    return alternatives


def _negation(part: Check) -> Check:
    def negation(value: Any, path: str, problems: list[Problem]) -> None:
        found: list[Problem] = []
        part(value, path, found)
        if not found:
            problems.append(_invalid(path, value, "must not fit the schema under `not`"))

    return negation
