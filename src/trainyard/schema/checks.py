"""Validation of a value against a schema: every problem, with its path and what to write instead.

Rules for this file:
- A check is a function (value, path, problems) that appends problems and returns nothing. It never raises.
- Its recursion is as deep as the schema, never as deep as the object, so an object cannot exhaust the stack.
- A text begins as the API server's (`Invalid value: ...`, `Required value`, `Unsupported value: ...`,
  `Duplicate value: ...`, `Too many: ...`, `Too long: ...`); the rest says what to write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from trainyard.objects import Json, Problem, encode
from trainyard.objects.numbers import count_text
from trainyard.objects.patterns import lazy_pattern
from trainyard.schema.formats import FORMATS
from trainyard.schema.patterns import matcher
from trainyard.schema.pruning_and_defaulting import EMBEDDED, PRESERVE

Check = Callable[[Any, str, list[Problem]], None]

MAX_DEPTH = 100  # nesting levels of an object that are validated; a pod template has about 15
MAX_PROBLEMS = 200  # problems reported for one object at most

INT_OR_STRING = "x-kubernetes-int-or-string"

TYPE_TEXTS = {
    "integer": "an integer, such as 1",
    "number": "a number, such as 0.5",
    "string": "a string; put it in quotes",
    "boolean": "true or false, without quotes",
    "object": "an object (lines of `name: value`)",
    "array": "a list (lines that start with `-`)",
}
WRONG_TYPE_PATTERN = lazy_pattern(r".*: must be (an? (integer|number|string|object|list)\b|true or false, )")
"""Matches the text of a problem that is about a value of the wrong type."""


def json_text(value: Any) -> str:
    """The value as JSON for a message, at most 100 characters."""
    if isinstance(value, str) and len(value) > 200:
        value = value[:200]
    if isinstance(value, dict | list) and len(value) > 50:
        return "{...}" if isinstance(value, dict) else "[...]"
    try:
        text = encode(value).decode()
    except (RecursionError, ValueError, TypeError, OverflowError):
        return "{...}" if isinstance(value, dict) else "[...]"
    return text if len(text) <= 100 else text[:97] + "..."


def field_path(path: str, name: object) -> str:
    """The path of the field `name` below `path`: joined with a dot even if the name has dots, as an API server does."""
    text = str(name)[:80]
    return f"{path}.{text}" if path else text


def is_type(value: Any, kind: str) -> bool:
    """Whether a JSON value is of the OpenAPI type `kind`.

    An integer has at most 64 bits; 2.0 is one, true is not. NaN and infinity are of no type.
    """
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
    """The check of a schema that is known to be valid (schema_validity.py)."""
    kind = schema.get("type")
    checks = [
        *_number_checks(schema),
        *_string_checks(schema),
        *_list_checks(schema),
        *_object_checks(schema),
        *_enum_checks(schema),
        *_logic_checks(schema),
    ]
    nullable = allows_null(schema)
    # As in Kubernetes, a list is accepted where the schema has a string with one of these formats.
    accepts_list = kind == "string" and schema.get("format") in FORMATS
    int_or_string = schema.get(INT_OR_STRING) is True

    def check(value: Any, path: str, problems: list[Problem]) -> None:
        if value is None and nullable:
            return
        if int_or_string:
            if not (is_type(value, "integer") or isinstance(value, str)):
                problems.append(_wrong_type(path, value, "an integer or a string"))
                return
        elif kind is not None and not is_type(value, kind) and not (accepts_list and isinstance(value, list)):
            problems.append(_wrong_type(path, value, TYPE_TEXTS[kind]))
            return
        for check_keyword in checks:
            if len(problems) >= MAX_PROBLEMS:
                return
            check_keyword(value, path, problems)

    return check


def allows_null(schema: Json) -> bool:
    """Whether null is valid: with nullable, and where unknown fields are preserved without a type."""
    return schema.get("nullable") is True or ("type" not in schema and schema.get(PRESERVE) is True)


def _wrong_type(path: str, value: Any, type_text: str) -> Problem:
    end = "; leave the field out for the default" if value is None else ""
    return Problem(path, f"Invalid value: {json_text(value)}: must be {type_text}{end}")


def _invalid_value(path: str, value: Any, text: str) -> Problem:
    return Problem(path, f"Invalid value: {json_text(value)}: {text}")


def _number_checks(schema: Json) -> Iterable[Check]:
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    exclusive_minimum = schema.get("exclusiveMinimum") is True
    exclusive_maximum = schema.get("exclusiveMaximum") is True
    multiple_of = schema.get("multipleOf")
    if minimum is None and schema.get("format") in ("int32", "int64"):
        minimum = -(2 ** (31 if schema["format"] == "int32" else 63))
    if maximum is None and schema.get("format") in ("int32", "int64"):
        maximum = 2 ** (31 if schema["format"] == "int32" else 63) - 1
    if minimum is None and maximum is None and multiple_of is None:
        return

    def check_number(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if minimum is not None and (value <= minimum if exclusive_minimum else value < minimum):
            text = f"must be greater than {'' if exclusive_minimum else 'or equal to '}{minimum}"
            problems.append(_invalid_value(path, value, text))
        if maximum is not None and (value >= maximum if exclusive_maximum else value > maximum):
            text = f"must be less than {'' if exclusive_maximum else 'or equal to '}{maximum}"
            problems.append(_invalid_value(path, value, text))
        if multiple_of and value % multiple_of:
            problems.append(_invalid_value(path, value, f"must be a multiple of {multiple_of}"))

    yield check_number


def _string_checks(schema: Json) -> Iterable[Check]:
    min_length, max_length, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    has_format = FORMATS.get(schema.get("format") or "")
    if min_length is None and max_length is None and pattern is None and has_format is None:
        return
    matches = matcher(pattern) if pattern else None

    def check_string(value: Any, path: str, problems: list[Problem]) -> None:
        if not isinstance(value, str):
            return
        if min_length is not None and len(value) < min_length:
            text = "must not be empty" if min_length == 1 else f"must have at least {min_length} characters"
            problems.append(_invalid_value(path, value, text))
        if max_length is not None and len(value) > max_length:
            text = f"Too long: may not be more than {max_length} characters; it has {len(value)}"
            problems.append(Problem(path, text))
        elif matches and not matches(value):
            problems.append(_invalid_value(path, value, f"must match '{pattern}'"))
        if has_format is not None and not has_format(value):
            problems.append(_invalid_value(path, value, f"must be a string of type {schema['format']}"))

    yield check_string


def _list_checks(schema: Json) -> Iterable[Check]:
    if "items" in schema:
        check_item = compile_check(schema["items"])

        def check_items(value: Any, path: str, problems: list[Problem]) -> None:
            if isinstance(value, list):
                for index, item in enumerate(value):
                    if len(problems) >= MAX_PROBLEMS:
                        return
                    check_item(item, f"{path}[{index}]", problems)

        yield check_items
    min_items, max_items = schema.get("minItems"), schema.get("maxItems")
    if min_items is not None or max_items is not None:

        def check_count(value: Any, path: str, problems: list[Problem]) -> None:
            if isinstance(value, list):
                if min_items is not None and len(value) < min_items:
                    problems.append(
                        _invalid_value(path, len(value), f"must have at least {count_text(min_items, 'item')}")
                    )
                if max_items is not None and len(value) > max_items:
                    problems.append(
                        Problem(path, f"Too many: {len(value)}: must have at most {count_text(max_items, 'item')}")
                    )

        yield check_count
    if schema.get("x-kubernetes-list-type") == "set":
        yield _unique_items(None)
    if schema.get("x-kubernetes-list-type") == "map":
        keys = list(schema.get("x-kubernetes-list-map-keys") or ())
        properties: Json = (schema.get("items") or {}).get("properties") or {}
        yield _unique_items([(key, (properties.get(key) or {}).get("default")) for key in keys])


def _unique_items(keys: list[tuple[str, Any]] | None) -> Check:
    """The check that no two items are equal: as a whole (`keys` is None), or in these (key, default) pairs."""

    def check_unique(value: Any, path: str, problems: list[Problem]) -> None:
        if not isinstance(value, list):
            return
        first_index: dict[str, int] = {}
        for index, item in enumerate(value):
            if len(problems) >= MAX_PROBLEMS:
                return
            identity: Any = item
            if keys is not None:
                if not isinstance(item, dict):
                    continue
                identity = {key: item.get(key, default) for key, default in keys}
            text_key = _hashable(identity)
            if text_key in first_index:
                first = first_index[text_key]
                text = f"Duplicate value: {json_text(identity)}: the same as item {first}; each must be different"
                problems.append(Problem(f"{path}[{index}]", text))
            else:
                first_index[text_key] = index

    return check_unique


def _hashable(value: Any) -> str:
    """A text that is the same for equal JSON values of the same type."""
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
        type_texts = [
            (name, TYPE_TEXTS.get((properties.get(name) or {}).get("type", ""), "a value")) for name in required
        ]

        def check_required(value: Any, path: str, problems: list[Problem]) -> None:
            if isinstance(value, dict):
                for name, type_text in type_texts:
                    if name not in value:
                        problems.append(Problem(field_path(path, name), f"Required value: write {type_text}"))

        yield check_required
    if schema.get(EMBEDDED) is True:
        yield _check_embedded_object
    if properties:
        yield _properties_check({name: compile_check(field) for name, field in properties.items()})
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        yield _additional_properties_check(compile_check(additional), frozenset(properties))
    if "minProperties" in schema or "maxProperties" in schema:
        yield _property_count_check(schema.get("minProperties", 0), schema.get("maxProperties", math.inf))


def _check_embedded_object(value: Any, path: str, problems: list[Problem]) -> None:
    """Check apiVersion, kind and metadata of an embedded object. Other checks report an apiVersion or kind that is
    missing or no string."""
    if not isinstance(value, dict):
        return
    if not isinstance(meta := value.get("metadata") or {}, dict):
        problems.append(_wrong_type(field_path(path, "metadata"), meta, TYPE_TEXTS["object"]))
    version, kind = value.get("apiVersion"), value.get("kind")
    problems += [
        Problem(field_path(path, name), 'Invalid value: "": must not be empty')
        for name in ("apiVersion", "kind")
        if value.get(name) == ""
    ]
    if isinstance(version, str) and version.count("/") > 1:
        text = f"Invalid value: {json_text(version)}: unexpected GroupVersion string: {version[:200]}"
        problems.append(Problem(field_path(path, "apiVersion"), text))
    if isinstance(kind, str) and kind and not _KIND.fullmatch(kind):
        text = "must be letters, digits and '-', beginning with a letter, ending with no '-', 63 at most"
        problems.append(Problem(field_path(path, "kind"), f"Invalid value: {json_text(kind)}: {text}"))


_KIND = lazy_pattern(r"(?=.{1,63}\Z)[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?")


def _properties_check(checks: dict[str, Check]) -> Check:
    def check_properties(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, dict):
            for name, check in checks.items():
                if name in value:
                    check(value[name], f"{path}.{name}" if path else name, problems)

    return check_properties


def _additional_properties_check(check: Check, properties: frozenset[str]) -> Check:
    def check_additional_properties(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, dict):
            for name, field_value in value.items():
                if len(problems) >= MAX_PROBLEMS:
                    return
                if name not in properties:
                    check(field_value, field_path(path, name), problems)

    return check_additional_properties


def _property_count_check(minimum: float, maximum: float) -> Check:
    def check_property_count(value: Any, path: str, problems: list[Problem]) -> None:
        if isinstance(value, dict) and len(value) < minimum:
            problems.append(_invalid_value(path, len(value), f"must have at least {minimum} fields"))
        if isinstance(value, dict) and len(value) > maximum:
            problems.append(Problem(path, f"Too many: {len(value)}: must have at most {maximum} fields"))

    return check_property_count


def _enum_checks(schema: Json) -> Iterable[Check]:
    allowed = schema.get("enum")
    if not isinstance(allowed, list):
        return
    supported = ", ".join(json_text(value) for value in allowed)

    def check_enum(value: Any, path: str, problems: list[Problem]) -> None:
        # In Python True == 1; in JSON they differ.
        if not any(value == member and isinstance(value, bool) == isinstance(member, bool) for member in allowed):
            problems.append(Problem(path, f"Unsupported value: {json_text(value)}: supported values: {supported}"))

    yield check_enum


def _logic_checks(schema: Json) -> Iterable[Check]:
    yield from map(compile_check, schema.get("allOf") or ())
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword) and schema.get(INT_OR_STRING) is not True:
            yield _alternatives_check(keyword, list(map(compile_check, schema[keyword])))
    if isinstance(schema.get("not"), dict):
        yield _not_check(compile_check(schema["not"]))


def _alternatives_check(keyword: str, checks: list[Check]) -> Check:
    """The check of `anyOf` or `oneOf`."""

    def check_alternatives(value: Any, path: str, problems: list[Problem]) -> None:
        valid = 0
        for check in checks:
            alternative_problems: list[Problem] = []
            check(value, path, alternative_problems)
            valid += not alternative_problems
        if valid == 0 or (keyword == "oneOf" and valid != 1):
            count = "one" if keyword == "oneOf" else "at least one"
            problems.append(_invalid_value(path, value, f"must match {count} of the {len(checks)} schemas ({keyword})"))

    return check_alternatives


def _not_check(check: Check) -> Check:
    def check_not(value: Any, path: str, problems: list[Problem]) -> None:
        negated_problems: list[Problem] = []
        check(value, path, negated_problems)
        if not negated_problems:
            problems.append(_invalid_value(path, value, "must not match the schema under `not`"))

    return check_not
