"""CustomResourceDefinitions: each CRD in the log adds its resources to the registry.

The registry follows the log, so a custom resource is served when the POST of its CRD returns, and after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from trainyard.objects import Json, decode
from trainyard.objects.structs import replace
from trainyard.schema import Schema
from trainyard.server.crd import names as naming
from trainyard.server.crd.trusted_schemas import is_trusted
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import DEFINITIONS, Column, Registry, Resource, ScalePaths
from trainyard.server.model.store import LogEntry
from trainyard.server.registry import scale
from trainyard.server.registry.jsonpath import compile_path
from trainyard.server.registry.tables import age, text_of, typed_cell

log = logging.getLogger("trainyard.server")

SCOPES = ("Cluster", "Namespaced")
_ANY_OBJECT = b'{"type":"object"}'


class _StoredVersion(msgspec.Struct):
    """A version of a stored CRD."""

    name: str
    served: bool
    storage: bool
    schema: dict[str, msgspec.Raw] | None = None
    """openAPIV3Schema -> its JSON: decoding the schemas of all kinds took a tenth of the start of a cluster."""

    subresources: Json | None = None
    selectableFields: list[Json] | None = None
    additionalPrinterColumns: list[Json] | None = None


class _StoredSpec(msgspec.Struct):
    group: str
    names: Json
    versions: list[_StoredVersion]
    scope: str
    preserveUnknownFields: Any = None


class _StoredDefinition(msgspec.Struct):
    """A stored CRD, as far as serving its resources needs it."""

    spec: _StoredSpec
    status: Json | None = None


_stored_decoder = msgspec.json.Decoder(_StoredDefinition)


def decode_new(body: bytes) -> Any:
    """The JSON of a CustomResourceDefinition as plain Python values; where all of its schemas are trusted, each is a
    msgspec.Raw with its JSON. Raises ValueError when `body` is not JSON."""
    try:
        versions = _stored_decoder.decode(body).spec.versions
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode(body)
    schemas = [bytes((version.schema or {}).get("openAPIV3Schema", b"")) for version in versions]
    if not all(map(is_trusted, schemas)):
        return decode(body)
    rest = body
    for schema in schemas:
        rest = rest.replace(schema, b"null", 1)
    definition = decode(rest)
    places = [version["schema"] for version in definition["spec"]["versions"]]
    if any(place["openAPIV3Schema"] is not None for place in places):
        return decode(body)  # the same JSON stands somewhere else, too
    for place, schema in zip(places, schemas, strict=True):
        place["openAPIV3Schema"] = msgspec.Raw(schema)
    return definition


class Definitions:
    """Keeps the registry in sync with the CRDs in the log."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._since: dict[str, int] = {}  # CRD name -> revision of its creation

    def on_entry(self, entry: LogEntry) -> None:
        """Follow the log: serves the resource of a CRD that was written, and no longer that of a deleted one."""
        if entry.store != DEFINITIONS:
            return
        record = entry.record or entry.previous
        if record is None:
            return
        definition = _stored_decoder.decode(record.body)
        group, plural = definition.spec.group, definition.spec.names["plural"]
        if self._registry.built_in(group, plural):
            return  # as in kube-apiserver: the CRD is stored and has no effect
        self._registry.remove(group, plural)
        if entry.record is None:
            self._since.pop(entry.key.name, None)
            return
        since = self._since.setdefault(entry.key.name, entry.revision)
        for resource in _resources_of(definition):
            self._registry.add(replace(resource, created_revision=since))


def _resources_of(definition: _StoredDefinition) -> list[Resource]:
    """One resource for each served version; none when the names of the CRD conflict with another CRD."""
    spec = definition.spec
    if naming.is_not_established(definition.status or {}):
        return []
    stored = next(version.name for version in spec.versions if version.storage)
    return [_resource(spec, version, stored) for version in spec.versions if version.served]


def _resource(spec: _StoredSpec, version: _StoredVersion, stored: str) -> Resource:
    names, group = spec.names, spec.group
    subresources = version.subresources or {}
    fields = {field["jsonPath"].lstrip("."): field["jsonPath"] for field in version.selectableFields or ()}
    converted, schema = version.name != stored, bytes((version.schema or {}).get("openAPIV3Schema") or _ANY_OBJECT)
    return Resource(
        group=group,
        version=version.name,
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec.scope == "Namespaced",
        storage_name=f"{names['plural']}.{group}",
        status="status" in subresources,
        scale=_scaled(subresources.get("scale")),
        definition=f"{names['plural']}.{group}",
        requires_type_meta=True,
        requires_version=True,
        status_keeps_metadata=True,
        any_finalizer=True,
        strategic_merge=False,
        lists_type_meta=True,
        generation=True,
        schema=_compiled(schema),
        prune=spec.preserveUnknownFields is not True,
        fields=_field_reader(fields),
        field_names=tuple(fields),
        columns=_columns(version.additionalPrinterColumns),
        from_storage=_as_version(f"{group}/{version.name}") if converted else None,
        to_storage=_as_version(f"{group}/{stored}") if converted else None,
    )


def _scaled(paths: Json | None) -> ScalePaths | None:
    """The paths of the scale subresource of a custom resource."""
    if not isinstance(paths, dict):
        return None
    selector = _path_steps(paths.get("labelSelectorPath") or "")
    return ScalePaths(
        _path_steps(paths["specReplicasPath"]),
        _path_steps(paths["statusReplicasPath"]),
        lambda obj: text_of(scale.value_at(obj, selector)) if selector else "",
        selector,
    )


def _path_steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split(".") if step)


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> Schema:
    # Examined: an invalid schema would not have been stored.
    return Schema(schema, drop_nulls=True, is_valid=True)


def _as_version(api_version: str) -> Callable[[Json], Json]:
    return lambda obj: {**obj, "apiVersion": api_version}


def _field_reader(paths: Mapping[str, str]) -> Callable[[Json], Mapping[str, str]]:
    compiled = {name: compile_path(path) for name, path in paths.items()}
    return lambda obj: {name: text_of(next(iter(find(obj)), None)) for name, find in compiled.items()}


def _columns(columns: list[Json] | None) -> tuple[Column, ...]:
    name_column = Column("Name", lambda obj, now: obj["metadata"]["name"], format="name", description="The name.")
    if columns is None:
        return (name_column, Column("Age", age, type="date"))
    return (name_column, *(_column(column) for column in columns))


def _column(column: Json) -> Column:
    find_values, kind = compile_path(column["jsonPath"]), column.get("type")

    def cell(obj: Json, now: float) -> Any:
        values = find_values(obj)
        return typed_cell(values[0], kind, now) if values else None

    return Column(
        column["name"],
        cell,
        type=column.get("type", "string"),
        priority=column.get("priority", 0),
        description=column.get("description", ""),
        format=column.get("format", ""),
    )


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """Default the names, and set the conditions that controllers of kube-apiserver set after the create."""
    spec = new["spec"]
    names = spec["names"]
    names.setdefault("listKind", f"{names['kind']}List")
    names.setdefault("singular", names["kind"].lower())
    spec.setdefault("conversion", {"strategy": "None"})
    status = dict(new.get("status") or {})
    storage_version = [version["name"] for version in spec["versions"] if version.get("storage")]
    stored_versions = [name for name in status.get("storedVersions") or () if isinstance(name, str)]
    new["status"] = {
        **status,
        **naming.names_status(new, context),
        "storedVersions": list(dict.fromkeys([*stored_versions, *storage_version])),
    }


def fields(obj: Json) -> Mapping[str, str]:
    """The selectable fields of a CustomResourceDefinition."""
    return {"status.phase": "Terminating" if "deletionTimestamp" in obj["metadata"] else ""}


_STRING = {"type": "string"}
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_LABEL = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_KIND = {"type": "string", "pattern": "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$", "maxLength": 63}
_LABELS = {"type": "array", "items": _LABEL}
_GROUP = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$"
_PATHS: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["jsonPath"],
        "properties": {"jsonPath": _STRING, "name": _STRING, "type": _STRING, "priority": {"type": "integer"}},
    },
}
_COLUMNS: Json = {
    **_PATHS,
    "items": {
        **_PATHS["items"],
        "required": ["jsonPath", "name", "type"],
    },
}
SCHEMA = Schema({
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["group", "names", "scope", "versions"],
            "properties": {
                "group": {"type": "string", "pattern": _GROUP},
                "scope": {"type": "string", "enum": ["", *SCOPES]},
                "names": {
                    "type": "object",
                    "required": ["plural", "kind"],
                    "properties": {
                        "plural": _LABEL,
                        "singular": _LABEL,
                        "kind": _KIND,
                        "listKind": _KIND,
                        "shortNames": _LABELS,
                        "categories": _LABELS,
                    },
                },
                "versions": {
                    "type": "array",
                    "maxItems": 50,
                    "items": {
                        "type": "object",
                        "required": ["name", "served", "storage"],
                        "properties": {
                            "name": _LABEL,
                            "served": {"type": "boolean"},
                            "storage": {"type": "boolean"},
                            "schema": _FREE,  # crd/validation.py examines it
                            "subresources": _FREE,
                            "additionalPrinterColumns": _COLUMNS,
                            "selectableFields": _PATHS,
                        },
                    },
                },
            },
        },
        "status": _FREE,
    },
})  # fmt: skip
