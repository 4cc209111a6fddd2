"""OpenAPI v3, the part that kubectl asks for before it sends a manifest: may it leave the checking to the server?

It looks at the PATCH of the kind and finds the parameter `fieldValidation`. Without this answer `kubectl create -f`
refuses to send anything. Schemas are published for custom resources, so `kubectl explain` knows these and no others.
"""

from __future__ import annotations

from trainyard.objects import Json
from trainyard.server.requests import Response, reply
from trainyard.server.resources import Registry, Resource

_WORDS = ("dryRun", "fieldManager", "fieldValidation")
_PARAMETERS = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _WORDS]


def answer(registry: Registry, path: str) -> Response | None:
    """The answer to a path below /openapi/v3, None when there is none."""
    if path.rstrip("/") == "/openapi/v3":
        places = dict.fromkeys(_place(resource) for resource in registry.all())
        return reply({"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}})
    wanted = path.removeprefix("/openapi/v3/")
    found = [resource for resource in registry.all() if _place(resource) == wanted]
    if not found or wanted == path:
        return None
    return reply(
        {
            "openapi": "3.0.0",
            "info": {"title": "Trainyard", "version": "v1"},
            "paths": dict(_item(resource) for resource in found),
            "components": {"schemas": dict(_schema(resource) for resource in found if resource.document)},
        }
    )


def _schema(resource: Resource) -> tuple[str, Json]:
    document = resource.document or {}
    named = {
        "apiVersion": {"type": "string", "description": "The version of the API that this object is written in."},
        "kind": {"type": "string", "description": "What this object is."},
        "metadata": {"type": "object", "description": "Name, namespace, labels, annotations, owners."},
    }
    name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    properties = {**named, **(document.get("properties") or {})}
    return name, {**document, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(resource)]}


def _gvk(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _place(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _item(resource: Resource) -> tuple[str, Json]:
    inside = "namespaces/{namespace}/" if resource.namespaced else ""
    patch = {
        "operationId": f"patch{resource.kind}",
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    return f"/{_place(resource)}/{inside}{resource.plural}/{{name}}", {"patch": patch}
