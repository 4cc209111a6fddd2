"""Decoding: whether JSON has the field types of a built-in type. Admission refuses other JSON before any other check.

Rules for this file:
- A null field is absent, a null item is the empty value. An empty list or map is absent, too, where the type has
  omitempty. `normalize` removes these and unknown fields, and writes quantities in canonical form.
- `is_canonical` is the fast path, which nearly every object takes. `examine` finds out why an object does not.
- A wrong type is a decoding error (400). Unknown fields are reported by field_validation.py. A missing required field
  or a value outside of an enumeration is a problem of a decoded object (422).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from msgspec import Raw

from trainyard.api_types.schemas import ANY, META, TypeSchema, built_in
from trainyard.objects import Problem, encode, parse_time
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.quantities import canonical, is_quantity
from trainyard.schema.checks import TYPE_TEXTS, json_text

_BITS = {"int32": 2**31, "int64": 2**63}
_SECONDS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_MICRO_TIME = lazy_pattern(_SECONDS + r"[.,]\d{6}(Z|[-+]\d\d:\d\d)")
_STORED_TIMES = {"date-time": re.compile(_SECONDS + "Z"), "micro-time": re.compile(_SECONDS + r"\.\d{6}Z")}
_NO_TIME = "0001-01-01T00:00:00"
_PRECISION = {"date-time": "seconds", "micro-time": "microseconds"}
_EMPTY: Mapping[str, Callable[[], Any]] = {
    "object": dict,
    "map": dict,
    "list": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "quantity": lambda: "0",
}


def is_canonical(value: Any, shape: TypeSchema) -> bool:  # noqa: PLR0911  (the hot path: each kind returns at once)
    """Whether every type is right, every field is known, nothing is null, `normalize` would not change the value, and
    `type_problems` would find nothing.

    A fast path: it holds for nearly all objects. Where it returns False, the slower functions determine why. The caller
    has checked the depth of the value.
    """
    if value.__class__ is dict and shape.kind == "object":
        fields, default_shape = shape.fields, ANY if shape.preserves_unknown_fields else None
        for name, part in value.items():
            field_shape = fields.get(name, default_shape)
            # Most values are simple, and this test saves them a call.
            if field_shape is None or (
                part.__class__ is not field_shape.simple_class and not is_canonical(part, field_shape)
            ):
                return False
        required = shape.required_names
        return not required or (required <= value.keys() and "" not in value.values())
    if shape.enum:
        return value in shape.enum
    if shape.kind == "any":
        encoded = encode(value)  # much faster than a walk in Python
        return b":null" not in encoded and b"[null" not in encoded and b",null" not in encoded and encoded != b"null"
    if value.__class__ is dict:
        return (
            shape.kind == "map" and bool(value or shape.keeps_empty) and _all_plain(value.values(), shape.item or ANY)
        )
    if value.__class__ is list:
        may_be_empty = shape.keeps_empty and not shape.required
        return shape.kind == "list" and bool(value or may_be_empty) and _all_plain(value, shape.item or ANY)
    if shape.kind == "quantity":
        return value.__class__ is str and canonical(value) == value and is_quantity(value)
    if shape.format in _STORED_TIMES and value is not None:
        return value == _stored_time(value, shape.format) and not _type_error(value, shape)
    if value.__class__ is Raw:
        return True  # a trusted schema (crd/trusted_schemas.py)
    return value is not None and shape.kind not in ("object", "map", "list") and not _type_error(value, shape)


def _all_plain(values: Iterable[Any], shape: TypeSchema) -> bool:
    simple = shape.simple_class
    for value in values:  # noqa: SIM110 - a generator would be slower than the test
        if value.__class__ is not simple and not is_canonical(value, shape):
            return False
    return True


class DecodingProblem(NamedTuple):
    """What a type does not allow at one place of a value."""

    kind: Literal["type", "unknown", "duplicate", "required", "enum"]
    path: str
    text: str


class ObjectWithDuplicates(dict[str, Any]):
    """A JSON object with the names that occurred more than once."""

    duplicates: frozenset[str] = frozenset()


def examine(value: Any, shape: TypeSchema, path: str = "") -> Iterator[DecodingProblem]:
    """Everything that the type does not allow, with paths: the slow counterpart of `is_canonical`."""
    if value is None or (shape.kind == "any" and not isinstance(value, ObjectWithDuplicates | list)):
        return
    if isinstance(value, dict) and shape.kind in ("object", "map", "any"):
        yield from _examine_fields(value, shape, f"{path}." if path else "")
    elif isinstance(value, list) and shape.kind in ("list", "any"):
        for index, item in enumerate(value):
            yield from examine(item, shape.item or ANY, f"{path}[{index}]")
    elif text := _type_error(value, shape):
        yield DecodingProblem("type", path, text)
    elif shape.enum and value not in ("", *shape.enum):
        supported = ", ".join(f'"{allowed}"' for allowed in shape.enum if allowed)
        yield DecodingProblem("enum", path, f"Unsupported value: {json_text(value)}: supported values: {supported}")


def _examine_fields(value: dict[str, Any], shape: TypeSchema, prefix: str) -> Iterator[DecodingProblem]:
    for name in sorted(shape.required_names):
        if value.get(name) in (None, "", []):
            yield DecodingProblem("required", f"{prefix}{name}", "Required value")
    duplicates = value.duplicates if isinstance(value, ObjectWithDuplicates) else ()
    for name, part in value.items():
        path, field_shape = f"{prefix}{name[:80]}", shape.child(name)
        if name in duplicates:
            yield DecodingProblem("duplicate", path, f'duplicate field "{path}"')
        if field_shape is None:
            yield DecodingProblem("unknown", path, f'unknown field "{path}"')
        else:
            yield from examine(part, field_shape, path)


def _type_error(value: Any, shape: TypeSchema) -> str:
    """Why a scalar, or a value where there must be another kind of value, has the wrong type; "" when it has not."""
    check = _TYPE_CHECKS.get(shape.format) or _TYPE_CHECKS.get(shape.kind)
    if check is None or check[0](value, shape):
        return ""
    shown = "" if shape.format == "byte" else f" {json_text(value)}:"  # bytes may be a secret
    return f"Invalid value:{shown} must be {check[1]}"


def decoding_error(value: Any, shape: TypeSchema, path: str = "") -> str:
    """The message for the first value of a wrong type, "" when all types are right."""
    errors = (finding for finding in examine(value, shape, path) if finding.kind == "type")
    return next((f"{error.path or 'the object'}: {error.text}" for error in errors), "")


def type_problems(value: Any, shape: TypeSchema) -> Iterator[Problem]:
    """Required fields that are missing, and values outside of an enumeration. An empty value is a missing one."""
    for finding in examine(value, shape):
        if finding.kind in ("required", "enum"):
            yield Problem(finding.path, finding.text)


def metadata_decoding_error(meta: Any) -> str:
    """Why a metadata cannot be decoded as ObjectMeta, "" when it can."""
    shape = built_in(f"{META}ObjectMeta")
    return "" if is_canonical(meta, shape) else decoding_error(meta, shape, "metadata")


def normalize(value: Any, shape: TypeSchema) -> Any:
    """The value as it is stored: without unknown, null and empty fields, with canonical quantities, base64 and times.
    Returns the same object when nothing changes.
    """
    if isinstance(value, dict):
        normalized: dict[str, Any] = {}
        for name, part in value.items():
            field_shape = shape.child(name)
            if field_shape is None:
                continue
            if part is None and shape.kind == "map":  # a key of a map is kept even when its value is null
                normalized[name] = _normalized_item(None, field_shape)
            elif part is not None and (part or field_shape.keeps_empty or field_shape.kind not in ("list", "map")):
                normalized[name] = _normalized_item(part, field_shape)
        unchanged = len(normalized) == len(value) and all(normalized[name] is value[name] for name in normalized)
        return value if unchanged else normalized
    if isinstance(value, list) and shape.kind == "list":
        item_shape = shape.item or ANY
        items = [_normalized_item(item, item_shape) for item in value]
        return value if all(new is item for new, item in zip(items, value, strict=True)) else items
    return value


def _normalized_item(value: Any, shape: TypeSchema) -> Any:
    if value is None:
        return _EMPTY[shape.kind]() if shape.kind in _EMPTY else None
    if shape.kind == "quantity":
        text = value.strip() if isinstance(value, str) else str(value)
        quantity = canonical(text)
        return value if quantity == value else quantity
    if shape.format == "byte" and isinstance(value, list):
        return base64.b64encode(bytes(byte or 0 for byte in value)).decode()
    if shape.format in _STORED_TIMES:
        return _stored_time(value, shape.format)
    return normalize(value, shape) if isinstance(value, dict | list) else value


def _stored_time(value: Any, format: str) -> Any:
    """The time in UTC with the precision of its format (seconds or microseconds). A value that is no time is returned
    as it is; Go's zero time becomes None."""
    if isinstance(value, str) and value.startswith(_NO_TIME) and value.endswith("Z"):
        return None
    if not isinstance(value, str) or _STORED_TIMES[format].fullmatch(value) or parse_time(value) is None:
        return value
    try:
        parsed = datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError:
        return value  # in UTC its year is out of range
    return f"{parsed.replace(tzinfo=None).isoformat(timespec=_PRECISION[format])}Z"


def _is_number(value: Any, shape: TypeSchema) -> bool:
    most = _BITS.get(shape.format, 2**63)
    return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most


def _is_time(value: Any, shape: TypeSchema) -> bool:
    return isinstance(value, str) and parse_time(value) is not None


def _is_micro_time(value: Any, shape: TypeSchema) -> bool:
    return _is_time(value, shape) and _MICRO_TIME.fullmatch(value) is not None


def _is_bytes(value: Any, shape: TypeSchema) -> bool:
    if isinstance(value, list):  # Go decodes a list of numbers as bytes, too
        return all(byte is None or (_is_number(byte, shape) and 0 <= byte < 256) for byte in value)
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True) or not value)
    except (ValueError, binascii.Error):
        return False


def _is_quantity(value: Any, shape: TypeSchema) -> bool:
    if isinstance(value, str):
        return is_quantity(value.strip())
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int_or_string(value: Any, shape: TypeSchema) -> bool:
    return isinstance(value, str) or _is_number(value, TypeSchema("integer", format="int32"))


_TYPE_CHECKS: Mapping[str, tuple[Callable[[Any, TypeSchema], bool], str]] = {
    "object": (lambda value, shape: isinstance(value, dict), TYPE_TEXTS["object"]),
    "map": (lambda value, shape: isinstance(value, dict), TYPE_TEXTS["object"]),
    "list": (lambda value, shape: isinstance(value, list), TYPE_TEXTS["array"]),
    "string": (lambda value, shape: isinstance(value, str), TYPE_TEXTS["string"]),
    "boolean": (lambda value, shape: isinstance(value, bool), TYPE_TEXTS["boolean"]),
    "integer": (_is_number, TYPE_TEXTS["integer"]),
    "number": (
        lambda value, shape: isinstance(value, int | float) and not isinstance(value, bool),
        TYPE_TEXTS["number"],
    ),
    "date-time": (_is_time, "a time, such as 2026-01-02T03:04:05Z"),
    "micro-time": (_is_micro_time, "a time with six digits of a second, such as 2026-01-02T03:04:05.000000Z"),
    "byte": (_is_bytes, "a string in base64"),
    "quantity": (_is_quantity, "a quantity, such as 100m or 1Gi"),
    "int-or-string": (_is_int_or_string, "a number or a string"),
}
