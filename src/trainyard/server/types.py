"""What the server knows of the insides of objects: fields, lists that are maps or sets, merge keys.

Rules for this file:
- A `Shape` is one place in an object. Built-in resources have theirs from types.txt (facts, generated), custom ones
  from the schema of their definition; whoever walks an object does not see the difference.
- Nothing is read before somebody asks, and each type is read once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from trainyard.objects import Json
from trainyard.objects.values import replace
from trainyard.server.resources import Resource

_SHORT = {"": "core"}
_STRANGE = {"apiextensions.k8s.io": "apiextensions-apiserver.pkg.apis.apiextensions"}
META = "apimachinery.pkg.apis.meta.v1."
_FIELD = re.compile(r"(?P<name>[^!:]+)(?P<must>!?):(?P<type>[^;]+)(?:;(?P<facts>.*))?\Z")
_FORMATS = {
    "int32": "integer",
    "int64": "integer",
    "double": "number",
    "float": "number",
    "date-time": "string",
    "micro-time": "string",
    "byte": "string",
}
_TOLD = {
    ("api.rbac.v1.Role", "rules"),
    ("api.rbac.v1.ClusterRole", "rules"),
    ("api.discovery.v1.EndpointSlice", "endpoints"),
    ("api.discovery.v1.EndpointSlice", "ports"),
}
SCALARS = ("string", "integer", "number", "boolean", "int-or-string", "quantity")


@dataclass(frozen=True, eq=False)
class Shape:
    """One place in an object. `kind`: object (fields with names), map, list, any (whatever comes), or a scalar.

    `list_type` is atomic, set or map, with the fields that tell items apart in `keys`. `strategy` and `merge_key` are
    for strategic merge patches alone; the two do not always agree.
    """

    kind: str
    format: str = ""
    of: str = ""
    """The name of the type, for objects of types.txt."""
    own: Mapping[str, Shape] | None = None
    """The fields, for objects of a schema."""
    item: Shape | None = None
    required: bool = False
    told: bool = False
    """A list or a map that is there when there is nothing in it, too."""
    atomic: bool = False
    list_type: str = ""
    keys: tuple[str, ...] = ()
    strategy: tuple[str, ...] = ()
    merge_key: str = ""
    enum: tuple[str, ...] = ()
    default: Any = None
    keeps: bool = False
    """Fields that nobody has described are kept, and nobody is told of them."""

    @cached_property
    def simple(self) -> type | None:
        """The class whose values are all right here, whatever they are."""
        return None if self.format else {"string": str, "boolean": bool}.get(self.kind)

    @cached_property
    def fields(self) -> Mapping[str, Shape]:
        return self.own if self.own is not None else _fields(self.of) if self.of else _NONE

    def below(self, name: str) -> Shape | None:
        """The place of a field or of a key of a map, None when there is none of that name."""
        if self.kind == "map":
            return self.item
        return self.fields.get(name) or (ANY if self.keeps or self.kind == "any" else None)


_NONE: Mapping[str, Shape] = {}
ANY = Shape("any")
STRING = Shape("string")


@lru_cache(maxsize=256)
def shape_of(resource: Resource) -> Shape:
    """The shape of a resource's objects."""
    if resource.custom:
        return _custom(resource.document or {})
    return built_in(name_of(resource.group, resource.version, resource.kind))


def name_of(group: str, version: str, kind: str) -> str:
    """The name of a kind's type in types.txt."""
    package = _STRANGE.get(group) or f"api.{_SHORT.get(group) or group.partition('.')[0]}"
    return f"{package}.{version}.{kind}"


@cache
def built_in(name: str) -> Shape:
    """The type of that name; what nobody knows takes everything."""
    if name not in lines():
        return ANY
    return Shape("object", of=name, atomic=lines()[name][0] == "atomic")


@cache
def lines() -> Mapping[str, tuple[str, str]]:
    """The types as they are written: name -> (kind of map, fields)."""
    text = Path(__file__).with_name("types.txt").read_text(encoding="utf-8").replace("\n  ", " ")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            title, _, rest = line.partition(" ")
            name, _, kind = title.partition("@")
            found[name] = (kind, rest)
    return found


@cache
def _fields(name: str) -> Mapping[str, Shape]:
    return dict(_parsed(name, text) for text in lines().get(name, ("", ""))[1].split(" ") if text)


def _parsed(owner: str, text: str) -> tuple[str, Shape]:
    found = _FIELD.match(text)
    if found is None:
        raise ValueError(f"types.txt: {owner} has a field that nobody can read: {text[:80]!r}")
    facts = dict(one.split("=", 1) for one in (found["facts"] or "").split(";") if one)
    shape = _typed(owner.rpartition(".")[0], found["type"])
    return found["name"], replace(
        shape,
        required=bool(found["must"]),
        told=bool(found["must"]) or (owner, found["name"]) in _TOLD,
        atomic=shape.atomic or facts.get("t") == "atomic" or (shape.kind == "list" and facts.get("l", "") == "atomic"),
        list_type=facts.get("l", "") or ("atomic" if shape.kind == "list" else ""),
        keys=tuple(facts["m"].split(",")) if "m" in facts else (),
        strategy=tuple(facts["p"].split(",")) if "p" in facts else (),
        merge_key=facts.get("k", ""),
        enum=tuple(facts["e"].split(",")) if "e" in facts else (),
        default=json.loads(facts["d"]) if "d" in facts else None,
    )


def _typed(package: str, text: str) -> Shape:
    if text[0] == "[":
        return Shape("list", item=_typed(package, text[1:-1]))
    if text[0] == "{":
        return Shape("map", item=_typed(package, text[1:-1]))
    if text in SCALARS:
        return Shape(text)
    if text in _FORMATS:
        return Shape(_FORMATS[text], format=text)
    if text == "any":
        return ANY
    if text[0] == "*":
        return Shape("any", of=text[1:] if "." in text else f"{package}.{text[1:]}")
    return built_in(text if "." in text else f"{package}.{text}")


def _custom(document: Json) -> Shape:
    """The shape of custom resources: the schema's, with Kubernetes' own metadata."""
    shape = schema_shape(document)
    metadata = built_in(f"{META}ObjectMeta")
    named = {"apiVersion": STRING, "kind": STRING, "metadata": metadata}
    return replace(shape, kind="object", own={**(shape.own or {}), **named})


def schema_shape(schema: Json, required: bool = False) -> Shape:
    """The shape that a structural schema describes. `required`: its parent says so."""
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") is True
    must = frozenset(schema.get("required") or ())
    if schema.get("x-kubernetes-int-or-string") is True:
        return Shape("int-or-string", required=required, default=schema.get("default"))
    kind = schema.get("type", "any" if keeps else "object")
    if kind == "array":
        listed = schema.get("x-kubernetes-list-type", "atomic")
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        item = schema_shape(schema.get("items") or {})
        return Shape("list", item=item, required=required, list_type=listed, keys=keys, atomic=listed == "atomic")
    if kind != "object":
        enum = tuple(one for one in schema.get("enum") or () if isinstance(one, str))
        return Shape(kind, format=schema.get("format", ""), required=required, enum=enum, default=schema.get("default"))
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    if isinstance(more := schema.get("additionalProperties"), dict):
        return Shape("map", item=schema_shape(more), required=required, atomic=atomic)
    own = {name: schema_shape(part, name in must) for name, part in _properties(schema)}
    if schema.get("x-kubernetes-embedded-resource") is True:
        own |= {"apiVersion": STRING, "kind": STRING, "metadata": built_in(f"{META}ObjectMeta")}
    return Shape("object", own=own, required=required, atomic=atomic, keeps=keeps, default=schema.get("default"))


def _properties(schema: Json) -> Iterator[tuple[str, Json]]:
    for name, part in (schema.get("properties") or {}).items():
        if isinstance(part, dict):
            yield name, part
