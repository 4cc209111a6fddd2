"""OpenAPI v3: what `kubectl explain` shows, and what kubectl asks before it sends a manifest.

    /openapi/v3                      a path for each version of each group, with the hash of its document
    /openapi/v3/apis/GROUP/VERSION   paths, and the schemas of that version and of all that they refer to

Rules for this file:
- Schemas of built-in resources come from types.txt, those of custom ones are what their author wrote. Types and facts,
  and hardly a description: those of Kubernetes are others' sentences.
- Version 2 is not served: every kubectl since 1.27 asks for version 3.
- A document is made when it is asked for, and kept until a definition changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trainyard.objects import Json, encode
from trainyard.server import errors, types
from trainyard.server.requests import Request, Response, reply
from trainyard.server.resources import Registry, Resource
from trainyard.server.types import Shape

_PREFIX = "io.k8s."
_META = f"{types.META}ObjectMeta"
_REF = "#/components/schemas/"
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_WORDS: dict[str, Json] = {
    "dryRun": {"type": "string"},
    "fieldManager": {"type": "string"},
    "fieldValidation": {"type": "string"},
    "force": {"type": "boolean"},
}
_PARAMETERS = [{"name": name, "in": "query", "schema": schema} for name, schema in _WORDS.items()]
_TOLD = {
    "apiVersion": "The version of the API that this object is written in.",
    "kind": "What this object is.",
    "metadata": "Name, namespace, labels, annotations, owners.",
    "spec": "What is wanted.",
    "status": "What is, as those who work on it saw it last.",
}
_MIXED = {
    "int-or-string": "apimachinery.pkg.util.intstr.IntOrString",
    "quantity": "apimachinery.pkg.api.resource.Quantity",
}
_EMPTY = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_MIXTURES: dict[str, Json] = {
    _MIXED["int-or-string"]: {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    _MIXED["quantity"]: {"oneOf": [{"type": "string"}, {"type": "number"}]},
}


def answer(registry: Registry, request: Request) -> Response | None:
    """The answer to a path below /openapi, None when there is none. Raises Refused 404 for version 2.

    kubectl asks for version 2, in protobuf, when version 3 does not know a kind. An empty document lets it say so.
    """
    path = request.path.rstrip("/")
    if path == "/openapi/v2" and "proto-openapi.spec.v2" in request.accept:
        return Response(b"", content_type=_EMPTY, headers={"Content-Type": _EMPTY, "Vary": "Accept"})
    if path == "/openapi/v2":
        text = "OpenAPI version 2 is not served here; ask for /openapi/v3 (kubectl 1.27 and newer do)"
        raise errors.Refused(404, "NotFound", text, {})
    if path == "/openapi/v3":
        return reply({"paths": {place: {"serverRelativeURL": _url(registry, place)} for place in _places(registry)}})
    place = path.removeprefix("/openapi/v3/")
    if place == path or place not in _places(registry):
        return None
    body, etag = _document(_found(registry, place))
    if etag in request.etag:
        return Response(b"", 304, headers={"ETag": etag, "Vary": "Accept"})
    hashed = request.query.get("hash") is not None
    cached = "public, immutable" if hashed else "no-cache, private"
    return Response(body, headers={"ETag": etag, "Vary": "Accept", "Cache-Control": cached})


def _places(registry: Registry) -> list[str]:
    return sorted({_place(resource) for resource in registry.all()})


def _place(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _found(registry: Registry, place: str) -> tuple[Resource, ...]:
    return tuple(resource for resource in registry.all() if _place(resource) == place)


def _url(registry: Registry, place: str) -> str:
    return f"/openapi/v3/{place}?hash={_document(_found(registry, place))[1].strip(chr(34))}"


_kept: dict[tuple[int, ...], tuple[tuple[Resource, ...], bytes, str]] = {}


def _document(resources: tuple[Resource, ...]) -> tuple[bytes, str]:
    """The document of a version and its ETag."""
    key = tuple(map(id, resources))
    if key not in _kept:
        if len(_kept) > 200:
            _kept.clear()
        body = encode(document(resources))
        _kept[key] = resources, body, f'"{hashlib.sha256(body).hexdigest().upper()}"'
    return _kept[key][1:]


def document(resources: tuple[Resource, ...]) -> Json:
    """Paths and schemas of the resources of one version."""
    schemas: dict[str, Json] = {}
    for resource in resources:
        name = _name(resource)
        schemas[name] = _custom(resource) if resource.custom else _root(resource)
        if not resource.respond:
            schemas[f"{name}List"] = _list(resource, name)
    due = [name for schema in schemas.values() for name in _referred(schema)]
    while due:
        if (name := due.pop()) not in schemas:
            schemas[name] = _type(name.removeprefix(_PREFIX))
            due += _referred(schemas[name])
    paths = dict(item for resource in resources for item in _items(resource))
    info = {"title": "Kubernetes, as Trainyard serves it", "version": "v1.37.1+trainyard"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _name(resource: Resource) -> str:
    if resource.custom:
        return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    return _PREFIX + types.name_of(resource.group, resource.version, resource.kind)


def _gvk(resource: Resource, kind: str = "") -> Json:
    return {"group": resource.group, "version": resource.version, "kind": kind or resource.kind}


def _root(resource: Resource) -> Json:
    schema = _type(_name(resource).removeprefix(_PREFIX))
    properties = {
        name: {**part, "description": _TOLD[name]} if name in _TOLD else part
        for name, part in (schema.get("properties") or {}).items()
    }
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(resource)]}


def _custom(resource: Resource) -> Json:
    written = resource.document or {}
    properties: Json = {
        "apiVersion": {"type": "string", "description": _TOLD["apiVersion"]},
        "kind": {"type": "string", "description": _TOLD["kind"]},
        **{
            name: part for name, part in (written.get("properties") or {}).items() if name not in ("apiVersion", "kind")
        },
        "metadata": {"description": _TOLD["metadata"], **_ref(_META)},
    }
    return {**written, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(resource)]}


def _list(resource: Resource, name: str) -> Json:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "items": {"type": "array", "items": {"allOf": [{"$ref": _REF + name}]}},
            "metadata": {"type": "object"},
        },
        "x-kubernetes-group-version-kind": [_gvk(resource, f"{resource.kind}List")],
    }


def _ref(name: str) -> Json:
    return {"allOf": [{"$ref": f"{_REF}{_PREFIX}{name}"}]}


@lru_cache(maxsize=1024)
def _type(name: str) -> Json:
    """A type of types.txt as a schema."""
    fields = types.built_in(name).fields
    if not fields:
        return _MIXTURES.get(name, {"type": "object"})
    required = [field for field, shape in fields.items() if shape.required]
    schema: Json = {"type": "object", **({"required": required} if required else {})}
    schema["properties"] = {field: _schema(shape) for field, shape in fields.items()}
    if types.built_in(name).atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _schema(shape: Shape) -> Json:
    facts: Json = {}
    if shape.strategy:
        facts["x-kubernetes-patch-strategy"] = ",".join(shape.strategy)
    if shape.merge_key:
        facts["x-kubernetes-patch-merge-key"] = shape.merge_key
    if shape.list_type:
        facts["x-kubernetes-list-type"] = shape.list_type
    if shape.keys:
        facts["x-kubernetes-list-map-keys"] = list(shape.keys)
    if shape.enum:
        facts["enum"] = list(shape.enum)
    if shape.default is not None:
        facts["default"] = shape.default
    return {**_plain(shape), **facts}


def _plain(shape: Shape) -> Json:
    if shape.of:
        return _ref(shape.of)
    if shape.kind == "list":
        return {"type": "array", "items": _schema(shape.item or types.ANY)}
    if shape.kind == "map":
        return {"type": "object", "additionalProperties": _schema(shape.item or types.ANY)}
    if shape.kind in _MIXED:
        return _ref(_MIXED[shape.kind])
    kind = {"any": "object"}.get(shape.kind, shape.kind)
    told = {"micro-time": "date-time"}.get(shape.format, shape.format)
    return {"type": kind, **({"format": told} if told else {})}


def _referred(value: Any) -> Iterator[str]:
    """The names of the schemas that a schema refers to."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "$ref" and isinstance(part, str) and part.startswith(_REF):
                yield part.removeprefix(_REF)
            else:
                yield from _referred(part)
    elif isinstance(value, list):
        for one in value:
            yield from _referred(one)


def _items(resource: Resource) -> Iterator[tuple[str, Json]]:
    """The paths of a resource, with as much of each operation as clients look at."""
    inside = "namespaces/{namespace}/" if resource.namespaced else ""
    collection = f"/{_place(resource)}/{inside}{resource.plural}"
    if resource.respond:
        yield collection, {"post": _operation(resource, "post", _PARAMETERS)}
        return
    yield (
        collection,
        {
            "get": _operation(resource, "list"),
            "post": _operation(resource, "post", _PARAMETERS),
            "delete": _operation(resource, "deletecollection"),
        },
    )
    kinds = _PATCHES if resource.custom else (*_PATCHES, _STRATEGIC)
    for path in (f"{collection}/{{name}}", *([f"{collection}/{{name}}/status"] if resource.status else [])):
        patch = _operation(resource, "patch", _PARAMETERS)
        patch["requestBody"] = {"content": {kind: {"schema": {"type": "object"}} for kind in kinds}, "required": True}
        yield (
            path,
            {
                "get": _operation(resource, "get"),
                "put": _operation(resource, "put", _PARAMETERS),
                "patch": patch,
                **({} if path.endswith("/status") else {"delete": _operation(resource, "delete")}),
            },
        )


def _operation(resource: Resource, action: str, parameters: list[Json] | None = None) -> Json:
    name = _name(resource) + ("List" if action == "list" else "")
    content = {"application/json": {"schema": {"$ref": _REF + name}}}
    return {
        "operationId": f"{action}{resource.kind}",
        **({"parameters": parameters} if parameters else {}),
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
