"""Whether JSON can be read as one of the types that the server knows. What cannot is refused before anything else.

Rules for this file:
- null is no value: a field that is null is absent, an item that is null is empty.
- It goes as deep as the type. What nobody knows (fields without a shape) is passed over: strictness.py speaks of it.
- What may stand in a field is the schema's and the strategies' matter; here only types count.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

from trainyard.objects import encode, parse_time
from trainyard.schema.checks import WORDS, shown
from trainyard.server.types import ANY, META, Shape, built_in

_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?\Z", re.ASCII)
_BITS = {"int32": 2**31, "int64": 2**63}
_EMPTY: Mapping[str, Any] = {"object": {}, "map": {}, "list": [], "string": "", "integer": 0, "boolean": False}
_SCALAR = {"string": str, "boolean": bool}


def plain(value: Any, shape: Shape) -> bool:
    """A quick look that knows only yes: every type is right, every field is known, nothing is null.

    Nearly every object is like that. Where one is not, the slower looks say what to do about it. The depth of the value
    has been checked.
    """
    if shape.kind == "any":
        written = encode(value)  # far quicker than to walk
        return b":null" not in written and b"[null" not in written and b",null" not in written and written != b"null"
    if value.__class__ is dict:
        if shape.kind == "map":
            inside = shape.item or ANY
            return all(plain(part, inside) for part in value.values())
        if shape.kind != "object":
            return False
        fields, other = shape.fields, ANY if shape.keeps else None
        for name, part in value.items():
            below = fields.get(name, other)
            if below is None:
                return False
            # A plain field of the right type is most of what there is, and costs no call.
            if (below.format or part.__class__ is not _SCALAR.get(below.kind)) and not plain(part, below):
                return False
        return True
    if value.__class__ is list:
        inside = shape.item or ANY
        return shape.kind == "list" and all(plain(item, inside) for item in value)
    return value is not None and shape.kind not in ("object", "map", "list") and not unreadable(value, shape)


def unreadable(value: Any, shape: Shape, path: str = "") -> str:
    """What is wrong with the first value of a wrong type, "" when there is none."""
    if value is None or shape.kind == "any":
        return ""
    if shape.kind in ("object", "map"):
        if not isinstance(value, dict):
            return _wrong(path, value, WORDS["object"])
        for name, part in value.items():
            if part is None or (below := shape.below(name)) is None:
                continue
            if why := unreadable(part, below, f"{path}.{name[:80]}" if path else name[:80]):
                return why
        return ""
    if shape.kind == "list":
        if not isinstance(value, list):
            return _wrong(path, value, WORDS["array"])
        for index, item in enumerate(value):
            if shape.item is not None and (why := unreadable(item, shape.item, f"{path}[{index}]")):
                return why
        return ""
    test = _TESTS.get(shape.format) or _TESTS.get(shape.kind)
    if test is None or test[0](value, shape):
        return ""
    return _wrong(path, None if shape.format == "byte" else value, test[1])


def _wrong(path: str, value: Any, wanted: str) -> str:
    """What may be a secret is not shown."""
    told = "" if value is None else f" {shown(value)}:"
    return f"{path or 'the object'}: Invalid value:{told} must be {wanted}"


def metadata_unreadable(meta: Any) -> str:
    shape = built_in(f"{META}ObjectMeta")
    return "" if plain(meta, shape) else unreadable(meta, shape, "metadata")


def without_nulls(value: Any, shape: Shape) -> Any:
    """The same value, itself where there is no null in it."""
    if isinstance(value, dict):
        made = {
            name: without_nulls(part, shape.below(name) or shape) if isinstance(part, dict | list) else part
            for name, part in value.items()
            if part is not None
        }
        if shape.kind == "map" and len(made) < len(value):  # a key says something by itself
            made |= {name: _item(None, shape.item or shape) for name, part in value.items() if part is None}
        same = len(made) == len(value) and all(made[name] is value[name] for name in made)
        return value if same else made
    if isinstance(value, list) and shape.item is not None:
        inside = shape.item
        items = [_item(one, inside) for one in value]
        return value if all(new is one for new, one in zip(items, value, strict=True)) else items
    return value


def _item(value: Any, shape: Shape) -> Any:
    if value is None:
        empty = _EMPTY.get(shape.kind)
        return type(empty)() if empty is not None else None
    return without_nulls(value, shape) if isinstance(value, dict | list) else value


def _is_number(value: Any, shape: Shape) -> bool:
    most = _BITS.get(shape.format, 2**63)
    return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most


def _is_time(value: Any, shape: Shape) -> bool:
    return isinstance(value, str) and parse_time(value) is not None


def _is_bytes(value: Any, shape: Shape) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True) or not value)
    except (ValueError, binascii.Error):
        return False


def _is_quantity(value: Any, shape: Shape) -> bool:
    if isinstance(value, str):
        return bool(_QUANTITY.match(value.strip()))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_mixed(value: Any, shape: Shape) -> bool:
    return isinstance(value, str) or _is_number(value, Shape("integer", format="int32"))


_TESTS: Mapping[str, tuple[Callable[[Any, Shape], bool], str]] = {
    "string": (lambda value, shape: isinstance(value, str), WORDS["string"]),
    "boolean": (lambda value, shape: isinstance(value, bool), WORDS["boolean"]),
    "integer": (_is_number, WORDS["integer"]),
    "number": (lambda value, shape: isinstance(value, int | float) and not isinstance(value, bool), WORDS["number"]),
    "date-time": (_is_time, "a time, such as 2026-01-02T03:04:05Z"),
    "byte": (_is_bytes, "a string in base64"),
    "quantity": (_is_quantity, "a quantity, such as 100m or 1Gi"),
    "int-or-string": (_is_mixed, "a number or a string"),
}
