"""OpenAPI v3: the schemas for `kubectl explain` and for the client-side validation of kubectl.

    /openapi/v3                      the path of each group version, with the hash of its document
    /openapi/v3/apis/GROUP/VERSION   paths and schemas of that version, with all referenced schemas

Rules for this file:
- Schemas of built-in resources come from types.txt, those of custom resources from their CRD. types.txt has no
  descriptions: the texts of Kubernetes are not copied.
- Version 2 is not served: every kubectl since 1.27 asks for version 3.
- A document is computed at the first request and cached until a CRD changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trainyard.api_types import schemas as types
from trainyard.api_types.schemas import TypeSchema
from trainyard.objects import Json, encode
from trainyard.server.model import errors
from trainyard.server.model.requests import Request, Response, reply
from trainyard.server.model.resources import Registry, Resource

_PREFIX = "io.k8s."
_META = f"{types.META}ObjectMeta"
_REF = "#/components/schemas/"
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_QUERY_PARAMETERS: dict[str, Json] = {
    "dryRun": {"type": "string"},
    "fieldManager": {"type": "string"},
    "fieldValidation": {"type": "string"},
    "force": {"type": "boolean"},
}
_PARAMETERS = [{"name": name, "in": "query", "schema": schema} for name, schema in _QUERY_PARAMETERS.items()]
_DESCRIPTIONS = {
    "apiVersion": "The version of the API that this object is written in.",
    "kind": "What this object is.",
    "metadata": "Name, namespace, labels, annotations, owners.",
    "spec": "What is wanted.",
    "status": "What is, as those who work on it saw it last.",
}
_UNION_TYPES = {
    "int-or-string": "apimachinery.pkg.util.intstr.IntOrString",
    "quantity": "apimachinery.pkg.api.resource.Quantity",
}
_EMPTY = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_UNION_SCHEMAS: dict[str, Json] = {
    _UNION_TYPES["int-or-string"]: {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    _UNION_TYPES["quantity"]: {"oneOf": [{"type": "string"}, {"type": "number"}]},
}


def respond(registry: Registry, request: Request) -> Response | None:
    """The response to a path below /openapi; None when there is no such path. Raises StatusError 404 for version 2.

    kubectl requests version 2, in protobuf, when version 3 lacks a kind. With an empty document it reports that the
    kind is unknown.
    """
    path = request.path.rstrip("/")
    if path == "/openapi/v2" and "proto-openapi.spec.v2" in request.accept:
        return Response(b"", content_type=_EMPTY, headers={"Content-Type": _EMPTY, "Vary": "Accept"})
    if path == "/openapi/v2":
        text = "OpenAPI version 2 is not served here; ask for /openapi/v3 (kubectl 1.27 and newer do)"
        raise errors.StatusError(404, "NotFound", text, {})
    if path == "/openapi/v3":
        return reply(
            {"paths": {path_name: {"serverRelativeURL": _url(registry, path_name)} for path_name in _paths(registry)}}
        )
    path_name = path.removeprefix("/openapi/v3/")
    if path_name == path or path_name not in _paths(registry):
        return None
    body, etag = _document(_resources_at(registry, path_name))
    if etag in request.etag:
        return Response(b"", 304, headers={"ETag": etag, "Vary": "Accept"})
    hashed = request.query.get("hash") is not None
    cached = "public, immutable" if hashed else "no-cache, private"
    return Response(body, headers={"ETag": etag, "Vary": "Accept", "Cache-Control": cached})


def _paths(registry: Registry) -> list[str]:
    return sorted({_path(resource) for resource in registry.all() if not resource.computed})


def _path(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _resources_at(registry: Registry, path_name: str) -> tuple[Resource, ...]:
    return tuple(resource for resource in registry.all() if _path(resource) == path_name)


def _url(registry: Registry, path_name: str) -> str:
    return f"/openapi/v3/{path_name}?hash={_document(_resources_at(registry, path_name))[1].strip(chr(34))}"


_documents: dict[tuple[int, ...], tuple[tuple[Resource, ...], bytes, str]] = {}


def _document(resources: tuple[Resource, ...]) -> tuple[bytes, str]:
    """The encoded document of a group version and its ETag."""
    key = tuple(map(id, resources))
    if key not in _documents:
        if len(_documents) > 200:
            _documents.clear()
        body = encode(document(resources))
        _documents[key] = resources, body, f'"{hashlib.sha256(body).hexdigest().upper()}"'
    return _documents[key][1:]


def document(resources: tuple[Resource, ...]) -> Json:
    """The OpenAPI document of the resources of one group version."""
    schemas: dict[str, Json] = {}
    for resource in resources:
        name = _name(resource)
        schemas[name] = _custom(resource) if resource.definition else _root(resource)
        if not resource.review:
            schemas[f"{name}List"] = _list(resource, name)
    pending = [name for schema in schemas.values() for name in _references(schema)]
    while pending:
        if (name := pending.pop()) not in schemas:
            schemas[name] = _built_in_schema(name.removeprefix(_PREFIX))
            pending += _references(schemas[name])
    paths = dict(item for resource in resources for item in _path_items(resource))
    info = {"title": "Kubernetes, as Trainyard serves it", "version": "v1.37.1+trainyard"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _name(resource: Resource) -> str:
    if resource.definition:
        return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    return _PREFIX + types.name_of(resource.group, resource.version, resource.kind)


def _gvk(resource: Resource, kind: str = "") -> Json:
    return {"group": resource.group, "version": resource.version, "kind": kind or resource.kind}


def _root(resource: Resource) -> Json:
    schema = _built_in_schema(_name(resource).removeprefix(_PREFIX))
    properties = {
        name: {**property_schema, "description": _DESCRIPTIONS[name]} if name in _DESCRIPTIONS else property_schema
        for name, property_schema in (schema.get("properties") or {}).items()
    }
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(resource)]}


def _custom(resource: Resource) -> Json:
    document_schema = resource.schema.document if resource.schema else {}
    properties: Json = {
        "apiVersion": {"type": "string", "description": _DESCRIPTIONS["apiVersion"]},
        "kind": {"type": "string", "description": _DESCRIPTIONS["kind"]},
        **{
            name: property_schema
            for name, property_schema in (document_schema.get("properties") or {}).items()
            if name not in ("apiVersion", "kind")
        },
        "metadata": {"description": _DESCRIPTIONS["metadata"], **_ref(_META)},
    }
    return {**document_schema, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(resource)]}


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
def _built_in_schema(name: str) -> Json:
    """A type of types.txt as an OpenAPI schema."""
    fields = types.built_in(name).fields
    if not fields:
        return _UNION_SCHEMAS.get(name, {"type": "object"})
    required = [field for field, field_node in fields.items() if field_node.required]
    schema: Json = {"type": "object", **({"required": required} if required else {})}
    schema["properties"] = {field: _schema(field_node) for field, field_node in fields.items()}
    if types.built_in(name).atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _schema(node: TypeSchema) -> Json:
    extensions: Json = {}
    if node.strategy:
        extensions["x-kubernetes-patch-strategy"] = ",".join(node.strategy)
    if node.merge_key:
        extensions["x-kubernetes-patch-merge-key"] = node.merge_key
    if node.list_type:
        extensions["x-kubernetes-list-type"] = node.list_type
    if node.keys:
        extensions["x-kubernetes-list-map-keys"] = list(node.keys)
    if node.enum:
        extensions["enum"] = list(node.enum)
    if node.default is not None:
        extensions["default"] = node.default
    return {**_base_schema(node), **extensions}


def _base_schema(node: TypeSchema) -> Json:
    if node.type_name:
        return _ref(node.type_name)
    if node.kind == "list":
        return {"type": "array", "items": _schema(node.item or types.ANY)}
    if node.kind == "map":
        return {"type": "object", "additionalProperties": _schema(node.item or types.ANY)}
    if node.kind in _UNION_TYPES:
        return _ref(_UNION_TYPES[node.kind])
    kind = {"any": "object"}.get(node.kind, node.kind)
    format_name = {"micro-time": "date-time"}.get(node.format, node.format)
    return {"type": kind, **({"format": format_name} if format_name else {})}


def _references(value: Any) -> Iterator[str]:
    """The names of the schemas that a schema references."""
    if isinstance(value, dict):
        for name, value_below in value.items():
            if name == "$ref" and isinstance(value_below, str) and value_below.startswith(_REF):
                yield value_below.removeprefix(_REF)
            else:
                yield from _references(value_below)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _path_items(resource: Resource) -> Iterator[tuple[str, Json]]:
    """The path items of a resource, with the parts of each operation that clients use."""
    namespace_part = "namespaces/{namespace}/" if resource.namespaced else ""
    collection = f"/{_path(resource)}/{namespace_part}{resource.plural}"
    if resource.review:
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
    kinds = (*_PATCHES, _STRATEGIC) if resource.strategic_merge else _PATCHES
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
