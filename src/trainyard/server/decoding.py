"""Whether JSON can be read as one of the types that the server knows. What cannot is refused before anything else.

Rules for this file:
- null is no value: a field that is null is absent, an item that is null is empty. A list or a map without anything in
  it is absent, too, where it may be. `settled` leaves them out and writes quantities in one way.
- It goes as deep as the type. What nobody knows (fields without a shape) is passed over: strictness.py speaks of it.
- What may stand in a field is the schema's and the strategies' matter; here only types count.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from trainyard.objects import encode, parse_time
from trainyard.schema.checks import WORDS, shown
from trainyard.server.quantities import canonical, is_quantity
from trainyard.server.types import ANY, META, Shape, built_in

_BITS = {"int32": 2**31, "int64": 2**63}
_SECONDS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_MICRO = re.compile(_SECONDS + r"[.,]\d{6}(Z|[-+]\d\d:\d\d)")
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


def plain(value: Any, shape: Shape) -> bool:
    """A quick look that knows only yes: every type is right, every field is known, nothing is null, `settled` would
    leave it as it is.

    Nearly every object is like that. Where one is not, the slower looks say what to do about it. The depth of the value
    has been checked.
    """
    if value.__class__ is dict and shape.kind == "object":
        fields, other = shape.fields, ANY if shape.keeps else None
        for name, part in value.items():
            below = fields.get(name, other)
            # A simple value is most of what there is, and costs no call.
            if below is None or (part.__class__ is not below.simple and not plain(part, below)):
                return False
        return True
    if shape.kind == "any":
        written = encode(value)  # far quicker than to walk
        return b":null" not in written and b"[null" not in written and b",null" not in written and written != b"null"
    if value.__class__ is dict:
        return shape.kind == "map" and bool(value or shape.told) and _all_plain(value.values(), shape.item or ANY)
    if value.__class__ is list:
        return shape.kind == "list" and bool(value or shape.told) and _all_plain(value, shape.item or ANY)
    if shape.kind == "quantity":
        return value.__class__ is str and canonical(value) == value and is_quantity(value)
    if shape.format in _STORED_TIMES and value is not None:
        return value == _stored_time(value, shape.format) and not unreadable(value, shape)
    return value is not None and shape.kind not in ("object", "map", "list") and not unreadable(value, shape)


def _all_plain(values: Iterable[Any], shape: Shape) -> bool:
    simple = shape.simple
    for value in values:  # noqa: SIM110 - a generator would take longer than what it asks
        if value.__class__ is not simple and not plain(value, shape):
            return False
    return True


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


def settled(value: Any, shape: Shape) -> Any:
    """The same value as it is stored: without what is null or empty, quantities and bytes in their one form. Itself
    where it is like that already.
    """
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        for name, part in value.items():
            below = shape.below(name) or ANY
            if part is None and shape.kind == "map":
                made[name] = _item(None, below)  # a key says something by itself
            elif part is not None and (part or below.told or below.kind not in ("list", "map")):
                made[name] = _item(part, below)
        same = len(made) == len(value) and all(made[name] is value[name] for name in made)
        return value if same else made
    if isinstance(value, list) and shape.kind == "list":
        inside = shape.item or ANY
        items = [_item(one, inside) for one in value]
        return value if all(new is one for new, one in zip(items, value, strict=True)) else items
    return value


def _item(value: Any, shape: Shape) -> Any:
    if value is None:
        return _EMPTY[shape.kind]() if shape.kind in _EMPTY else None
    if shape.kind == "quantity":
        text = value.strip() if isinstance(value, str) else str(value)
        found = canonical(text)
        return value if found == value else found
    if shape.format == "byte" and isinstance(value, list):
        return base64.b64encode(bytes(one or 0 for one in value)).decode()
    if shape.format in _STORED_TIMES:
        return _stored_time(value, shape.format)
    return settled(value, shape) if isinstance(value, dict | list) else value


def _stored_time(value: Any, form: str) -> Any:
    """The time in UTC, with as much of the second as it is stored with. What is no time stays; the first is none."""
    if isinstance(value, str) and value.startswith(_NO_TIME) and value.endswith("Z"):
        return None
    if not isinstance(value, str) or _STORED_TIMES[form].fullmatch(value) or parse_time(value) is None:
        return value
    try:
        moment = datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError:
        return value  # in UTC it is of a year that nobody can write
    return f"{moment.replace(tzinfo=None).isoformat(timespec=_PRECISION[form])}Z"


def _is_number(value: Any, shape: Shape) -> bool:
    most = _BITS.get(shape.format, 2**63)
    return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most


def _is_time(value: Any, shape: Shape) -> bool:
    return isinstance(value, str) and parse_time(value) is not None


def _is_micro(value: Any, shape: Shape) -> bool:
    return _is_time(value, shape) and _MICRO.fullmatch(value) is not None


def _is_bytes(value: Any, shape: Shape) -> bool:
    if isinstance(value, list):  # as Go reads them, too
        return all(one is None or (_is_number(one, shape) and 0 <= one < 256) for one in value)
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True) or not value)
    except (ValueError, binascii.Error):
        return False


def _is_quantity(value: Any, shape: Shape) -> bool:
    if isinstance(value, str):
        return is_quantity(value.strip())
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_mixed(value: Any, shape: Shape) -> bool:
    return isinstance(value, str) or _is_number(value, Shape("integer", format="int32"))


_TESTS: Mapping[str, tuple[Callable[[Any, Shape], bool], str]] = {
    "string": (lambda value, shape: isinstance(value, str), WORDS["string"]),
    "boolean": (lambda value, shape: isinstance(value, bool), WORDS["boolean"]),
    "integer": (_is_number, WORDS["integer"]),
    "number": (lambda value, shape: isinstance(value, int | float) and not isinstance(value, bool), WORDS["number"]),
    "date-time": (_is_time, "a time, such as 2026-01-02T03:04:05Z"),
    "micro-time": (_is_micro, "a time with six digits of a second, such as 2026-01-02T03:04:05.000000Z"),
    "byte": (_is_bytes, "a string in base64"),
    "quantity": (_is_quantity, "a quantity, such as 100m or 1Gi"),
    "int-or-string": (_is_mixed, "a number or a string"),
}
