"""The schemas of objects: field types, list types (map, set, atomic), merge keys.

Rules for this file:
- A `TypeSchema` is the schema of one node of an object. Those of built-in resources come from types.txt (generated),
  those of custom resources from their CRD; code that walks objects treats both the same.
- Types are parsed at their first use, each once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from trainyard.objects import Json
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.structs import replace

_GROUP_NAMES = {"": "core"}
_PACKAGES = {"apiextensions.k8s.io": "apiextensions-apiserver.pkg.apis.apiextensions"}
META = "apimachinery.pkg.apis.meta.v1."
_FIELD = lazy_pattern(r"(?P<name>[^!:]+)(?P<must>!?):(?P<type>[^;]+)(?:;(?P<facts>.*))?\Z")
_FORMATS = {
    "int32": "integer",
    "int64": "integer",
    "double": "number",
    "float": "number",
    "date-time": "string",
    "micro-time": "string",
    "byte": "string",
}
_NEVER_OMITTED = {
    ("api.rbac.v1.Role", "rules"),
    ("api.rbac.v1.ClusterRole", "rules"),
    ("api.discovery.v1.EndpointSlice", "endpoints"),
    ("api.discovery.v1.EndpointSlice", "ports"),
}
_MAY_BE_EMPTY = {
    "api.core.v1.HTTPHeader": frozenset({"value"}),
    "api.core.v1.Sysctl": frozenset({"value"}),
    "api.batch.v1.PodFailurePolicy": frozenset({"rules"}),
}
"""Required fields whose empty value kube-apiserver accepts."""
_FILLED_IN = {
    "api.core.v1.Pod": frozenset({"spec"}),
    "api.core.v1.PodTemplateSpec": frozenset({"spec"}),
    "api.batch.v1.Job": frozenset({"spec"}),
    "api.apps.v1.ReplicaSetSpec": frozenset({"template"}),
}
"""Objects that the server makes when they are missing, and that have required fields themselves."""
_NOT_VALIDATED = ("Status", "Condition")
SCALARS = ("string", "integer", "number", "boolean", "int-or-string", "quantity")


class TypeSchema(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The schema of one node. `kind`: object (declared fields), map, list, any (no schema), or a scalar type.

    `list_type` is atomic, set or map, with the key fields of the items in `keys`. `strategy` and `merge_key` are
    for strategic merge patches alone; the two do not always agree.
    """

    kind: str
    format: str = ""
    type_name: str = ""
    """The name of the type, for types of types.txt."""
    own_fields: Mapping[str, TypeSchema] | None = None
    """The fields, for objects of a CRD schema."""
    item: TypeSchema | None = None
    required: bool = False
    keeps_empty: bool = False
    """A list or map that is stored even when it is empty (no omitempty)."""
    atomic: bool = False
    list_type: str = ""
    keys: tuple[str, ...] = ()
    strategy: tuple[str, ...] = ()
    merge_key: str = ""
    enum: tuple[str, ...] = ()
    default: Any = None
    preserves_unknown_fields: bool = False
    """Unknown fields are preserved, without warnings."""

    @cached_property
    def simple_class(self) -> type | None:
        """The Python class whose values are all valid here; None when further checks are needed."""
        return None if self.format or self.enum else {"string": str, "boolean": bool}.get(self.kind)

    @cached_property
    def fields(self) -> Mapping[str, TypeSchema]:
        """The fields of the object by name; {} for other types."""
        return (
            self.own_fields
            if self.own_fields is not None
            else _fields(self.type_name)
            if self.type_name
            else _NO_FIELDS
        )

    @cached_property
    def required_names(self) -> frozenset[str]:
        """The fields that a client must set, and not to an empty value. None in statuses, which controllers write, and
        none in custom types, which their schema validates."""
        if not self.type_name or self.type_name.endswith(_NOT_VALIDATED):
            return frozenset()
        kinds = ("object", "list", "string")
        required = {name for name, field in self.fields.items() if field.required and field.kind in kinds}
        nothing: frozenset[str] = frozenset()
        return frozenset(
            required - _MAY_BE_EMPTY.get(self.type_name, nothing) | _FILLED_IN.get(self.type_name, nothing)
        )

    def child(self, name: str) -> TypeSchema | None:
        """The schema of a field or of a map value; None for an unknown field."""
        if self.kind == "map":
            return self.item
        return self.fields.get(name) or (ANY if self.preserves_unknown_fields or self.kind == "any" else None)


_NO_FIELDS: Mapping[str, TypeSchema] = {}
ANY = TypeSchema("any")
STRING = TypeSchema("string")


def name_of(group: str, version: str, kind: str) -> str:
    """The name of a kind's type in types.txt."""
    package = _PACKAGES.get(group) or f"api.{_GROUP_NAMES.get(group) or group.partition('.')[0]}"
    return f"{package}.{version}.{kind}"


@cache
def built_in(name: str) -> TypeSchema:
    """The schema of a type of types.txt; ANY for an unknown type."""
    if name not in type_lines():
        return ANY
    return TypeSchema("object", type_name=name, atomic=type_lines()[name][0] == "atomic")


@cache
def type_lines() -> Mapping[str, tuple[str, str]]:
    """The unparsed types of types.txt: name -> (map type, fields)."""
    text = Path(__file__).with_name("types.txt").read_text(encoding="utf-8").replace("\n  ", " ")
    types = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            title, _, fields = line.partition(" ")
            name, _, kind = title.partition("@")
            types[name] = (kind, fields)
    return types


@cache
def _fields(name: str) -> Mapping[str, TypeSchema]:
    return dict(_parsed(name, text) for text in type_lines().get(name, ("", ""))[1].split(" ") if text)


def _parsed(owner: str, text: str) -> tuple[str, TypeSchema]:
    match = _FIELD.match(text)
    if match is None:
        raise ValueError(f"types.txt: {owner} has a field that nobody can read: {text[:80]!r}")
    facts = dict(fact.split("=", 1) for fact in (match["facts"] or "").split(";") if fact)
    shape = _typed(owner.rpartition(".")[0], match["type"])
    return match["name"], replace(
        shape,
        required=bool(match["must"]),
        keeps_empty=bool(match["must"]) or (owner, match["name"]) in _NEVER_OMITTED,
        atomic=shape.atomic or facts.get("t") == "atomic" or (shape.kind == "list" and facts.get("l", "") == "atomic"),
        list_type=facts.get("l", "") or ("atomic" if shape.kind == "list" else ""),
        keys=tuple(facts["m"].split(",")) if "m" in facts else (),
        strategy=tuple(facts["p"].split(",")) if "p" in facts else (),
        merge_key=facts.get("k", ""),
        enum=tuple(facts["e"].split(",")) if "e" in facts else (),
        default=json.loads(facts["d"]) if "d" in facts else None,
    )


def _typed(package: str, text: str) -> TypeSchema:
    if text[0] == "[":
        return TypeSchema("list", item=_typed(package, text[1:-1]))
    if text[0] == "{":
        return TypeSchema("map", item=_typed(package, text[1:-1]))
    if text in SCALARS:
        return TypeSchema(text)
    if text in _FORMATS:
        return TypeSchema(_FORMATS[text], format=text)
    if text == "any":
        return ANY
    if text[0] == "*":
        return TypeSchema("any", type_name=text[1:] if "." in text else f"{package}.{text[1:]}")
    return built_in(text if "." in text else f"{package}.{text}")


def from_openapi(schema: Json, required: bool = False) -> TypeSchema:
    """The Shape of a structural schema. `required`: the parent lists the field as required."""
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") is True
    required_fields = frozenset(schema.get("required") or ())
    if schema.get("x-kubernetes-int-or-string") is True:
        return TypeSchema("int-or-string", required=required, default=schema.get("default"))
    kind = schema.get("type", "any" if keeps else "object")
    if kind == "array":
        list_type = schema.get("x-kubernetes-list-type", "atomic")
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        item = from_openapi(schema.get("items") or {})
        return TypeSchema(
            "list", item=item, required=required, list_type=list_type, keys=keys, atomic=list_type == "atomic"
        )
    if kind != "object":
        enum = tuple(value for value in schema.get("enum") or () if isinstance(value, str))
        return TypeSchema(
            kind, format=schema.get("format", ""), required=required, enum=enum, default=schema.get("default")
        )
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    if isinstance(additional := schema.get("additionalProperties"), dict):
        return TypeSchema("map", item=from_openapi(additional), required=required, atomic=atomic)
    fields = {name: from_openapi(part, name in required_fields) for name, part in _properties(schema)}
    if schema.get("x-kubernetes-embedded-resource") is True:
        fields |= {"apiVersion": STRING, "kind": STRING, "metadata": built_in(f"{META}ObjectMeta")}
    return TypeSchema(
        "object",
        own_fields=fields,
        required=required,
        atomic=atomic,
        preserves_unknown_fields=keeps,
        default=schema.get("default"),
    )


def _properties(schema: Json) -> Iterator[tuple[str, Json]]:
    for name, part in (schema.get("properties") or {}).items():
        if isinstance(part, dict):
            yield name, part
