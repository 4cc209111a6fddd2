"""`metadata.managedFields`: in which API version, and with which fields of the spec, an object was first written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.objects.codec import encode
from trainyard.objects.meta import Json, as_dict


def first_write(obj: Mapping[str, Any]) -> Json:
    """The apiVersion and the field names of the spec (value None) that the first writer of an object sent, {} when
    managedFields does not tell.

    An API server works out the entries before its admission webhooks run, so what a webhook adds is in none of them.
    Writes of a subresource do not count. Only a create that is no apply adds the spec itself (`.`). Without such an
    entry an apply created the object, and is before the other writes of its second; then the entry with most fields is.
    """
    entry = _first_entry(as_dict(obj.get("metadata")))
    if entry is None:
        return {}
    names = [name.removeprefix("f:") for name in _fields_of_spec(entry) if name.startswith("f:")]
    return {"apiVersion": entry.get("apiVersion"), "spec": dict.fromkeys(names)}


def keep_first_write(meta: Json) -> None:
    """Reduce `managedFields` of a decoded object's metadata to what `first_write` reads."""
    entry = _first_entry(meta)
    meta.pop("managedFields", None)
    if entry is not None:
        fields: Json = {"f:spec": {name: {} for name in _fields_of_spec(entry)}}
        meta["managedFields"] = [{"apiVersion": entry.get("apiVersion"), "fieldsV1": fields}]


def _first_entry(meta: Json) -> Json | None:
    entries = meta.get("managedFields")
    writes = [
        entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and not entry.get("subresource") and _fields_of_spec(entry)
    ]
    return min(writes, key=_order, default=None)


def _order(entry: Json) -> tuple[bool, str, bool, int]:
    fields = _fields_of_spec(entry)
    return "." not in fields, str(entry.get("time") or ""), entry.get("operation") != "Apply", -len(encode(fields))


def _fields_of_spec(entry: Json) -> Json:
    return as_dict(as_dict(entry.get("fieldsV1")).get("f:spec"))
