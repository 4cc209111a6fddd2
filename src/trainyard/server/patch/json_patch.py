"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902). Neither modifies its input.

Both limit the nesting depth to DEPTH, so that a patch cannot exhaust the stack.
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json, decode, encode
from trainyard.objects.json_equal import json_equal
from trainyard.schema import MAX_DEPTH
from trainyard.server.model.errors import StatusError, printable

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Total bytes that the copy operations of a patch may copy: each copy of a value into itself doubles it, so forty
operations would fill any memory."""


class MalformedPatch(StatusError):
    """400: the patch is malformed."""

    def __init__(self, text: str) -> None:
        super().__init__(400, "BadRequest", printable(text))


class PatchFailed(StatusError):
    """422: the patch is well formed, but cannot be applied to this object: a missing path, a failed test."""

    def __init__(self, text: str) -> None:
        super().__init__(422, "Invalid", printable(text), {})


def merge_patch(target: Any, patch: Any, level: int = 0) -> Any:
    """`target` merged with the patch: objects are merged, null removes a field, any other value replaces. Raises
    MalformedPatch."""
    if level > MAX_DEPTH:
        raise MalformedPatch(f"the patch is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(patch, dict):
        return _without_nulls(patch) if isinstance(patch, list) else patch
    merged: Json = dict(target) if isinstance(target, dict) else {}
    for name, part in patch.items():
        if part is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), part, level + 1)
    return merged


def _without_nulls(value: Any) -> Any:
    """A list of a merge patch without null fields in its objects, as in kube-apiserver."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return value


def apply_json_patch(target: Any, operations: Any) -> Any:
    """`target` after all operations in order. Raises MalformedPatch or PatchFailed when one fails."""
    if not isinstance(operations, list):
        raise MalformedPatch("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise MalformedPatch(f"a JSON patch may have at most {MAX_OPERATIONS} operations")
    target, copied = _copied(target), 0
    for index, operation in enumerate(operations):
        try:
            if isinstance(operation, dict) and operation.get("op") == "copy":
                encoded = encode(_value_or_none(target, _origin(operation)))
                copied += len(encoded)
                if copied > MAX_COPIED_BYTES:
                    raise PatchFailed(f"the copies come to {copied} bytes, and at most {MAX_COPIED_BYTES} are made")
                operation = {**operation, "op": "add", "value": decode(encoded)}
            target = _apply_operation(target, operation)
        except (MalformedPatch, PatchFailed) as error:
            raise type(error)(f"operation {index}: {error}") from None
    return target


def _copied(value: Any) -> Any:
    """A copy to edit in place: a copy per operation would take minutes for many operations on a large object."""
    return decode(encode(value)) if isinstance(value, dict | list) else value


def _apply_operation(target: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("op"), str):
        if not isinstance(operation, dict):
            raise MalformedPatch('an operation is an object with "op" and "path"')
        raise PatchFailed('an operation has an "op"; write add, remove, replace, move, copy or test')
    kind, path = operation["op"], _steps(operation.get("path"))
    # As in kube-apiserver, a missing "value" is null, and a missing key of an object reads as null.
    value = operation.get("value")
    if not path and kind in ("add", "move"):
        raise PatchFailed("the whole object can only be replaced")
    if kind in ("add", "replace"):
        return _edit_in_place(target, path, kind, _copied(value))
    if kind == "remove":
        _find(target, path)
        return _edit_in_place(target, path, "remove", None)
    if kind == "test":
        if not json_equal(_value_or_none(target, path), value):
            raise PatchFailed(f"testing path {operation['path']} value failed")
        return target
    if kind == "move":
        origin = _origin(operation)
        value = _find(target, origin)
        if path[: len(origin)] == origin and len(path) > len(origin):
            raise PatchFailed("a value cannot be moved into itself")
        return _edit_in_place(_edit_in_place(target, origin, "remove", None), path, "add", value)
    raise PatchFailed(f"unknown op {kind[:20]!r}; write add, remove, replace, move, copy or test")


def _origin(operation: Json) -> list[str]:
    """The steps of "from" of a move or a copy. Raises PatchFailed."""
    origin = _steps(operation.get("from"))
    if not origin:
        raise PatchFailed("the whole object can be neither moved nor copied")
    return origin


def _value_or_none(target: Any, path: list[str]) -> Any:
    """The value at a path; None for a missing key of an object. Raises PatchFailed."""
    if not path:
        return target
    parent = _find(target, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else _find(parent, path[-1:])


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise PatchFailed(f"a path is empty or starts with /, got {str(pointer)[:80]!r}")
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    if len(steps) > MAX_DEPTH:
        raise MalformedPatch(f"a path may have at most {MAX_DEPTH} steps")
    return steps


def _index(step: str, length: int, end: bool) -> int:
    if end and step == "-":
        return length
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0") or len(step) > 9:
        raise PatchFailed(f"{step[:40]!r} is no index of a list")
    if int(step) >= length + end:
        raise PatchFailed(f"index {step} is beyond the list's end")
    return int(step)


def _find(value: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list):
            value = value[_index(step, len(value), end=False)]
        else:
            raise PatchFailed(f"there is nothing at {step[:80]!r}")
    return value


def _edit_in_place(value: Any, path: list[str], kind: str, new: Any) -> Any:
    """Adds, replaces or removes the value at a path, in place."""
    if not path:
        if kind == "remove":
            raise PatchFailed("the whole object cannot be removed")
        return new
    parent, step = _find(value, path[:-1]), path[-1]
    if isinstance(parent, dict) and kind == "remove":
        del parent[step]
    elif isinstance(parent, dict):
        parent[step] = new
    elif isinstance(parent, list):
        index = _index(step, len(parent), end=kind == "add")
        parent[index : index + (kind != "add")] = [] if kind == "remove" else [new]
    else:
        raise PatchFailed(f"there is nothing at {step[:80]!r}")
    return value
