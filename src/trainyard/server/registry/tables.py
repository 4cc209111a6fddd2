"""Server-side printing: the Table representation for `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainyard.objects import Json, decode, encode, parse_time
from trainyard.server.model.resources import Column, Resource

INCLUDES = ("None", "Metadata", "Object")
TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


def short_duration(seconds: float) -> str:
    """A duration in kubectl's short form: 90s, 5m30s, 3d4h."""
    remaining = int(seconds)
    if remaining < 0:
        return "0s"
    for limit, unit, size, second_unit, second_size in (
        (120, "s", 1, "", 0),
        (600, "m", 60, "s", 1),
        (3 * 3600, "m", 60, "", 0),
        (8 * 3600, "h", 3600, "m", 60),
        (48 * 3600, "h", 3600, "", 0),
        (8 * 86400, "d", 86400, "h", 3600),
        (2 * 365 * 86400, "d", 86400, "", 0),
        (8 * 365 * 86400, "y", 365 * 86400, "d", 86400),
    ):
        if remaining < limit:
            second_value = remaining % size // second_size if second_size else 0
            return (
                f"{remaining // size}{unit}{second_value}{second_unit}"
                if second_value
                else f"{remaining // size}{unit}"
            )
    return f"{remaining // (365 * 86400)}y"


def age_of_timestamp(stamp: object, now: float) -> str:
    """The time since an RFC 3339 timestamp as kubectl shows it, `<unknown>` for another value."""
    moment = parse_time(stamp)
    return "<unknown>" if moment is None else short_duration(now - moment)


def age(obj: Json, now: float) -> str:
    """The cell AGE of an object."""
    return age_of_timestamp(obj["metadata"].get("creationTimestamp"), now)


def text_of(value: Any) -> str:
    """A cell value as text. Booleans and numbers in their JSON form."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()


def typed_cell(value: Any, kind: Any, now: float) -> Any:
    """The cell value of a CRD printer column of type `kind`; None when the value has another type."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return int(value) if number else None
    if kind == "number":
        return value if number else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date":
        if not isinstance(value, str):
            return None
        return "<invalid>" if parse_time(value) is None else age_of_timestamp(value, now)
    return "<no value>" if value is None else text_of(value)


NAME = Column(
    "Name", lambda obj, now: obj["metadata"].get("name", ""), format="name", description="The name of the object."
)
AGE = Column("Age", age, description="The time since it was created.")


class Table:
    """A Table representation of a resource. `include` is the object in each row: None, Metadata or Object."""

    def __init__(self, resource: Resource, include: str, clock: Callable[[], float]) -> None:
        self._columns = tuple(resource.columns) or (NAME, AGE)
        self._include, self._clock, self._read = include, clock, resource.from_storage
        self._conditions = resource.row_conditions
        self._definitions = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in self._columns
        ]

    def encode_object(self, body: bytes) -> bytes:
        """A Table with one row: for a get, and for the first event of a watch."""
        obj = self._decoded(body)
        meta = {name: obj["metadata"][name] for name in ("resourceVersion",) if name in obj["metadata"]}
        return encode({**TABLE, "metadata": meta, "columnDefinitions": self._definitions, "rows": [self._row(obj)]})

    def encode_later(self, body: bytes) -> bytes:
        """A Table for later events of a watch, without column definitions."""
        obj = self._decoded(body)
        meta = {name: obj["metadata"][name] for name in ("resourceVersion",) if name in obj["metadata"]}
        return encode({**TABLE, "metadata": meta, "columnDefinitions": None, "rows": [self._row(obj)]})

    def encode_list(self, bodies: Sequence[bytes], meta: Json) -> bytes:
        """A Table with one row for each object. `meta`: the metadata of the list."""
        rows = [self._row(self._decoded(body)) for body in bodies]
        return encode({**TABLE, "metadata": meta, "columnDefinitions": self._definitions, "rows": rows})

    def _decoded(self, body: bytes) -> Json:
        obj: Json = decode(body)
        return self._read(obj) if self._read else obj

    def _row(self, obj: Json) -> Json:
        now = self._clock()  # read per row: the ages in a long watch must be current
        row: Json = {"cells": [_cell(column, obj, now) for column in self._columns]}
        if self._conditions is not None and (conditions := self._conditions(obj)):
            row["conditions"] = conditions
        if self._include == "None":
            row["object"] = None
        elif self._include == "Object":
            row["object"] = obj
        else:
            kinds = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**kinds, "metadata": obj["metadata"]}
        return row


def _cell(column: Column, obj: Json, now: float) -> Any:
    """The cell of a row. An exception becomes <unknown>, because stored objects may have fields of unexpected types."""
    try:
        return column.cell(obj, now)
    except (AttributeError, TypeError, KeyError, IndexError, ValueError):
        return "<unknown>"
