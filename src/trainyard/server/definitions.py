"""CustomResourceDefinitions: a definition in the log is a resource in the table.

The table follows the log, so a definition serves from the moment its POST is answered, and after a restart, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from trainyard.objects import Json, Problem, condition, decode, encode, with_condition
from trainyard.schema import Schema
from trainyard.schema.checks import shown
from trainyard.server import scale
from trainyard.server.jsonpath import compile_path
from trainyard.server.log import Entry
from trainyard.server.resources import Column, Registry, Resource, Scaled
from trainyard.server.site import Site
from trainyard.server.tables import age, since, text_of

STORE = "customresourcedefinitions.apiextensions.k8s.io"
SCOPES = ("Namespaced", "Cluster")


class Definitions:
    """Keeps the table in step with the log."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def saw(self, entry: Entry) -> None:
        if entry.store != STORE:
            return
        record = entry.now or entry.before
        if record is None:
            return
        crd = decode(record.body)
        self._registry.remove(crd["spec"]["group"], crd["spec"]["names"]["plural"])
        if entry.now is not None:
            for resource in resources_of(crd):
                self._registry.add(resource)


def resources_of(crd: Json) -> list[Resource]:
    """One resource for each served version."""
    spec = crd["spec"]
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return [_resource(spec, version, stored) for version in spec["versions"] if version.get("served")]


def _resource(spec: Json, version: Json, stored: str) -> Resource:
    names, group = spec["names"], spec["group"]
    subresources = version.get("subresources") or {}
    fields = {one["jsonPath"].lstrip("."): one["jsonPath"] for one in version.get("selectableFields") or ()}
    other = version["name"] != stored
    return Resource(
        group=group,
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec.get("scope") == "Namespaced",
        store=f"{names['plural']}.{group}",
        status="status" in subresources,
        scale=_scaled(subresources.get("scale")),
        custom=True,
        generation=True,
        schema=_compiled(encode(_open(version))),
        document=_open(version),
        prune=spec.get("preserveUnknownFields") is not True,
        fields=_field_reader(fields),
        field_names=tuple(fields),
        columns=_columns(version),
        read=_as_version(f"{group}/{version['name']}") if other else None,
        write=_as_version(f"{group}/{stored}") if other else None,
    )


def _scaled(paths: Json | None) -> Scaled | None:
    """Where custom resources have their number of replicas."""
    if not isinstance(paths, dict):
        return None
    selector = _steps(paths.get("labelSelectorPath") or "")
    return Scaled(
        _steps(paths["specReplicasPath"]),
        _steps(paths["statusReplicasPath"]),
        lambda obj: text_of(scale.at(obj, selector)) if selector else "",
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split(".") if step)


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> Schema:
    return Schema(decode(schema), empties=True)


def _open(version: Json) -> Json:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    return schema


def _as_version(api_version: str) -> Callable[[Json], Json]:
    return lambda obj: {**obj, "apiVersion": api_version}


def _field_reader(paths: Mapping[str, str]) -> Callable[[Json], Mapping[str, str]]:
    compiled = {name: compile_path(path) for name, path in paths.items()}
    return lambda obj: {name: text_of(next(iter(find(obj)), None)) for name, find in compiled.items()}


def _columns(version: Json) -> tuple[Column, ...]:
    wanted = version.get("additionalPrinterColumns")
    name = Column("Name", lambda obj, now: obj["metadata"]["name"], format="name", description="The name.")
    if wanted is None:
        return (name, Column("Age", age))
    return (name, *(_column(one) for one in wanted))


def _column(wanted: Json) -> Column:
    find = compile_path(wanted["jsonPath"])
    dated = wanted.get("type") == "date"

    def cell(obj: Json, now: float) -> Any:
        found = find(obj)
        if not found:
            return None
        if dated:
            return since(found[0], now)
        if wanted.get("type") in ("integer", "number", "boolean") and len(found) == 1:
            return found[0]
        return ",".join(text_of(one) for one in found)

    return Column(
        wanted["name"],
        cell,
        type=wanted.get("type", "string"),
        priority=wanted.get("priority", 0),
        description=wanted.get("description", ""),
        format=wanted.get("format", ""),
    )


def prepare(new: Json, old: Json | None, site: Site) -> None:
    """Names that were left out, and the conditions that the real server's controllers would set in a moment."""
    spec = new["spec"]
    names = spec["names"]
    names.setdefault("listKind", f"{names['kind']}List")
    names.setdefault("singular", names["kind"].lower())
    spec.setdefault("conversion", {"strategy": "None"})
    status = dict(new.get("status") or {})
    conditions = [one for one in status.get("conditions") or () if isinstance(one, dict)]
    for kind, reason, message in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ):
        if condition(conditions, kind) is None:
            conditions = with_condition(conditions, kind, True, reason, message, site.now)
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    kept = [name for name in status.get("storedVersions") or () if isinstance(name, str)]
    new["status"] = {
        **status,
        "conditions": conditions,
        "acceptedNames": names,
        "storedVersions": list(dict.fromkeys([*kept, *stored])),
    }


def check(new: Json, old: Json | None) -> list[Problem]:
    """Cross-field rules of a definition, and whether its schemas can be compiled."""
    spec, names = new["spec"], new["spec"]["names"]
    found: list[Problem] = []
    expected = f"{names['plural']}.{spec['group']}"
    if new["metadata"].get("name") != expected:
        name = new["metadata"].get("name")
        text = f'Invalid value: {shown(name)}: must be spec.names.plural+"."+spec.group, that is {expected}'
        found.append(Problem("metadata.name", text))
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    if len(stored) != 1:
        found.append(Problem("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    for index, version in enumerate(spec["versions"]):
        found += _version_problems(version, f"spec.versions[{index}]")
    if old is not None:
        for path in ("scope", "group"):
            if old["spec"].get(path) != spec.get(path):
                found.append(Problem(f"spec.{path}", f"Invalid value: {shown(spec.get(path))}: field is immutable"))
    return found


def _version_problems(version: Json, path: str) -> list[Problem]:
    found: list[Problem] = []
    if "openAPIV3Schema" not in (version.get("schema") or {}):
        found.append(Problem(f"{path}.schema.openAPIV3Schema", "Required value: schemas are required"))
    try:
        _compiled(encode(_open(version)))
    except ValueError as error:
        found.append(Problem(f"{path}.schema.openAPIV3Schema", f"Invalid value: {error}"))
    found += _scale_problems(version, f"{path}.subresources.scale")
    for word in ("additionalPrinterColumns", "selectableFields"):
        for index, one in enumerate(version.get(word) or ()):
            try:
                compile_path(one["jsonPath"])
            except ValueError as error:
                found.append(Problem(f"{path}.{word}[{index}].jsonPath", f"Invalid value: {error}"))
    return found


def _scale_problems(version: Json, path: str) -> list[Problem]:
    paths = (version.get("subresources") or {}).get("scale")
    if paths is None:
        return []
    if not isinstance(paths, dict):
        return [Problem(path, f"Invalid value: {shown(paths)}: must be an object")]
    found = []
    for name, start, needed in (
        ("specReplicasPath", ".spec.", True),
        ("statusReplicasPath", ".status.", True),
        ("labelSelectorPath", "", False),
    ):
        given = paths.get(name)
        if not given and needed:
            found.append(Problem(f"{path}.{name}", "Required value"))
        elif given and not (isinstance(given, str) and given.startswith(start or (".spec.", ".status."))):
            text = f"should be a json path under {start.rstrip('.') or '.status or .spec'}"
            found.append(Problem(f"{path}.{name}", f"Invalid value: {shown(given)}: {text}"))
    return found


def fields(obj: Json) -> Mapping[str, str]:
    return {"status.phase": "Terminating" if "deletionTimestamp" in obj["metadata"] else ""}


_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_LABEL = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
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
                "scope": {"type": "string", "enum": list(SCOPES)},
                "names": {
                    "type": "object",
                    "required": ["plural", "kind"],
                    "properties": {
                        "plural": _LABEL,
                        "singular": _LABEL,
                        "kind": {"type": "string", "pattern": "^[A-Z][A-Za-z0-9]*$", "maxLength": 63},
                        "listKind": _STRING,
                        "shortNames": _STRINGS,
                        "categories": _STRINGS,
                    },
                },
                "versions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 50,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name", "served", "storage"],
                        "properties": {
                            "name": _LABEL,
                            "served": {"type": "boolean"},
                            "storage": {"type": "boolean"},
                            "schema": {**_FREE, "properties": {"openAPIV3Schema": _FREE}},
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
