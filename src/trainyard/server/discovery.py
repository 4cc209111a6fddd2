"""What the server has: groups, versions, resources, health. The one place for it, read from the table each time."""

from __future__ import annotations

from trainyard.objects import Json
from trainyard.server import openapi
from trainyard.server.requests import Response, reply
from trainyard.server.resources import Registry, Resource

VERSION: Json = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0+trainyard",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCES: dict[str, Json] = {
    "log": {"kind": "Pod", "verbs": ["get"]},
    "attach": {"kind": "PodAttachOptions", "verbs": ["create", "get"]},
    "exec": {"kind": "PodExecOptions", "verbs": ["create", "get"]},
    "proxy": {"verbs": ["create", "delete", "get", "patch", "update"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "token": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"]},
    "finalize": {"kind": "Namespace", "verbs": ["update"]},
}
_SCALE: Json = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]}


def answer(registry: Registry, path: str) -> Response | None:
    """The answer to a path that is not about objects, None when there is none."""
    parts = path.strip("/").split("/")
    if path in ("/healthz", "/livez", "/readyz"):
        return Response(b"ok", content_type="text/plain")
    if path == "/version":
        return reply(VERSION)
    if parts[0] == "openapi":
        return openapi.answer(registry, path)
    if parts == ["api"]:
        return reply({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if parts == ["apis"]:
        groups = [_group(registry, name) for name in _groups(registry)]
        return reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in _groups(registry):
        return reply({"apiVersion": "v1", **_group(registry, parts[1])})
    group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else (*parts[1:3], "", "")[:2]
    if (parts[0] == "api" and len(parts) == 2) or (parts[0] == "apis" and len(parts) == 3):
        return _resources(registry, group, version)
    return None


def _groups(registry: Registry) -> list[str]:
    return list(dict.fromkeys(resource.group for resource in registry.all() if resource.group))


def _group(registry: Registry, name: str) -> Json:
    versions = list(dict.fromkeys(resource.version for resource in registry.all() if resource.group == name))
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "name": name, "versions": named, "preferredVersion": named[0]}


def _resources(registry: Registry, group: str, version: str) -> Response | None:
    found = [one for one in registry.all() if one.group == group and one.version == version]
    if not found:
        return None
    listed = [entry for resource in found for entry in _listed(resource)]
    api_version = f"{group}/{version}" if group else version
    return reply({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed})


def _listed(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource.respond else _VERBS,
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    entries = [entry]
    below = {"status": {"kind": resource.kind, "verbs": ["get", "patch", "update"]}} if resource.status else {}
    below |= {name: _SUBRESOURCES[name] for name in resource.subresources}
    if resource.scale:
        below["scale"] = _SCALE
    for name, part in below.items():
        named = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        if name == "proxy":
            named["kind"] = f"{resource.kind}ProxyOptions"
        entries.append({**named, **part})
    return entries
