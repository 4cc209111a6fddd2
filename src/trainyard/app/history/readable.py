"""What can be used of a damaged record: the values of the types that the recorder writes. Others, and nulls, are left
out, so that nobody who reads a record has to doubt what it is given. Fields without a type here are kept: later
versions may write them."""

from __future__ import annotations

from typing import Any, Final

from trainyard.objects import Json

Shape = type | dict[str, Any] | list[Any]  # of a value; of each field, or of all with EACH; of each item

EACH: Final = "*"
LARGEST = 1 << 53  # of a number: what every JSON parser keeps exactly
_DAMAGED = object()

_RUN: Shape = {
    **dict.fromkeys(("reason", "message", "started", "ended"), str),
    **dict.fromkeys(("run", "exitCode", "peakMemory", "peakDeviceMemory"), int),
}
_CONTAINER: Shape = {"name": str, "init": bool, "restarts": int, "running": str, "runs": [_RUN]}
POD: Shape = {
    **dict.fromkeys(("name", "uid", "replica", "role", "index", "node", "phase", "reason", "message", "logs"), str),
    **dict.fromkeys(("created", "started", "ended", "deletionTimestamp"), str),
    **dict.fromkeys(("attempt", "restarts"), int),
    **dict.fromkeys(("stopped", "deleted", "endedBeforeDeletion"), bool),
    "containers": [_CONTAINER],
}
RESULT_FIELDS: Shape = {
    **dict.fromkeys(("apiVersion", "kind", "namespace", "name", "uid", "where", "logs"), str),
    **dict.fromkeys(("result", "reason", "message", "created", "started", "ended", "deleted"), str),
    **dict.fromkeys(("restarts", "replicas", "eventsLeftOut"), int),
    "restartCauses": {EACH: int},
    "leftOut": {EACH: {"pods": int}},
}
EVENT: Shape = {**dict.fromkeys(("time", "type", "reason", "object", "message", "source", "uid"), str), "count": int}
METADATA: Shape = {
    **dict.fromkeys(("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"), str),
    "labels": {EACH: str},
    "annotations": {EACH: str},
}


def readable(value: object, shape: Shape) -> Any:
    """The value without what is not of that shape; None if nothing of it is."""
    kept = _readable(value, shape)
    return None if kept is _DAMAGED else kept


def readable_items(values: list[Json], shape: Shape) -> list[Json]:
    """The items that are objects, each as `readable`."""
    return _readable(values, [shape])  # type: ignore[no-any-return]


def _readable(value: Any, shape: Shape) -> Any:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return _DAMAGED
        other: Shape = shape.get(EACH, object)
        fields = ((name, _readable(field, shape.get(name, other))) for name, field in value.items())
        return {name: field for name, field in fields if field is not _DAMAGED}
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _DAMAGED
        return [item for item in (_readable(item, shape[0]) for item in value) if item is not _DAMAGED]
    if shape is int:
        return value if type(value) is int and abs(value) <= LARGEST else _DAMAGED
    return value if value is not None and isinstance(value, shape) else _DAMAGED
