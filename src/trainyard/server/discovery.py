"""What the server has: groups, versions, resources, health. The one place for it, read from the table each time.

Two ways to say it. Legacy: /api, /apis, /apis/GROUP and a list of resources for each version. Aggregated: everything in
one answer of /api and one of /apis, when the Accept header asks for an APIGroupDiscoveryList; it has an ETag.

Rules for this file:
- Groups come in the real server's order: those it is built with first, then those of definitions by name.
- The best version of a group comes first: v2 before v1 before v1beta1 before v1alpha1.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence

from trainyard.objects import Json, encode
from trainyard.server import errors, openapi
from trainyard.server.requests import Request, Response, reply
from trainyard.server.resources import Registry, Resource

VERSION: Json = {
    "major": "1",
    "minor": "37",
    "emulationMajor": "1",
    "emulationMinor": "37",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "36",
    "gitVersion": "v1.37.1+trainyard",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The version whose types.txt has the facts."""
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_FIRST = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
)
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_PROXY = ("create", "delete", "get", "patch", "update")
_SUBRESOURCES: dict[str, Json] = {
    "log": {"kind": "Pod", "verbs": ["get"]},
    "attach": {"kind": "PodAttachOptions", "verbs": ["create", "get"]},
    "portforward": {"kind": "PodPortForwardOptions", "verbs": ["create", "get"]},
    "exec": {"kind": "PodExecOptions", "verbs": ["create", "get"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "token": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"]},
    "finalize": {"kind": "Namespace", "verbs": ["update"]},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]},
}
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?\Z")


def answer(registry: Registry, request: Request) -> Response | None:
    """The answer to a path that is not about objects, None when there is none. Raises Refused 404 and 406."""
    path = request.path
    parts = path.strip("/").split("/")
    if path in ("/healthz", "/livez", "/readyz"):
        return Response(b"ok", content_type="text/plain")
    if path == "/version":
        return reply(VERSION)
    if parts[0] == "openapi":
        return openapi.answer(registry, request)
    if parts in (["api"], ["apis"]):
        return _everything(registry, request, core=parts == ["api"])
    groups = _groups(registry)
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in groups:
        return reply({"kind": "APIGroup", "apiVersion": "v1", **_group(registry, parts[1])})
    if parts[0] == "api" and len(parts) == 2:
        return _resources(registry, "", parts[1])
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(registry, parts[1], parts[2])
    if path == "/":
        return reply({"paths": paths(registry)})
    return None


def paths(registry: Registry) -> list[str]:
    """Every path that leads somewhere."""
    versions = [_place(one.group, one.version) for one in registry.all()]
    groups = [f"/apis/{name}" for name in _groups(registry)]
    fixed = ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
    return sorted({*versions, *groups, *fixed})


def _place(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _everything(registry: Registry, request: Request, core: bool) -> Response:
    """/api or /apis, in the first form that the client takes."""
    wanted = [one.strip() for one in request.accept.split(",")] if request.accept else ["application/json"]
    for one in wanted:
        media, *parameters = [part.strip() for part in one.split(";")]
        if media not in ("application/json", "application/*", "*/*"):
            continue
        if {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= set(parameters):
            return _aggregated(registry, request, core)
        if not any(part.startswith("as=") for part in parameters):
            return _legacy(registry, core)
    raise errors.Refused(406, "NotAcceptable", "only the following media types are accepted: application/json")


def _legacy(registry: Registry, core: bool) -> Response:
    if core:
        return reply({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    groups = [_group(registry, name) for name in _groups(registry)]
    return reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def _aggregated(registry: Registry, request: Request, core: bool) -> Response:
    items = []
    for name in [""] if core else _groups(registry):
        versions = [
            {"version": version, "resources": _described(registry, name, version), "freshness": "Current"}
            for version in _versions(registry, name)
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    kinds = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    body = encode({**kinds, "metadata": {}, "items": items})
    etag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
    headers = {"Cache-Control": "public", "ETag": etag, "Vary": "Accept"}
    if etag in request.etag:
        return Response(b"", 304, AGGREGATED, headers)
    return Response(body, 200, AGGREGATED, headers)


def _described(registry: Registry, group: str, version: str) -> list[Json]:
    found = []
    for resource in _of(registry, group, version):
        whose = {"group": group, "version": version} if resource.custom else {"group": "", "version": ""}
        entry: Json = {
            "resource": resource.plural,
            "responseKind": {**whose, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": _singular(resource),
            "verbs": list(_verbs(resource)),
            **_words(resource),
        }
        if below := _below(resource):
            entry["subresources"] = [
                {"subresource": name, "responseKind": _kind_of(part, whose), "verbs": part["verbs"]}
                for name, part in below
            ]
        found.append(entry)
    return found


def _kind_of(part: Json, whose: Json) -> Json:
    return (
        {"group": part["group"], "version": part["version"], "kind": part["kind"]}
        if "group" in part
        else {
            **whose,
            "kind": part["kind"],
        }
    )


def _groups(registry: Registry) -> list[str]:
    names = {resource.group for resource in registry.all() if resource.group}
    return sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))


def _versions(registry: Registry, group: str) -> list[str]:
    return sorted({one.version for one in registry.all() if one.group == group}, key=_rank)


def _rank(version: str) -> tuple[int, int, int, str]:
    found = _VERSION.match(version)
    if found is None:
        return 3, 0, 0, version
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return stage, -int(found[1]), -int(found[3] or 0), version


def _group(registry: Registry, name: str) -> Json:
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in _versions(registry, name)]
    return {"name": name, "versions": named, "preferredVersion": named[0]}


def _of(registry: Registry, group: str, version: str) -> Sequence[Resource]:
    found = [one for one in registry.all() if one.group == group and one.version == version]
    return sorted(found, key=lambda one: one.plural)


def _resources(registry: Registry, group: str, version: str) -> Response:
    found = _of(registry, group, version)
    if not found:
        raise errors.no_such_path()
    listed = [entry for resource in found for entry in _listed(resource)]
    api_version = f"{group}/{version}" if group else version
    written = {"apiVersion": "v1"} if group else {}  # the real server forgets it for the core group
    return reply({"kind": "APIResourceList", **written, "groupVersion": api_version, "resources": listed})


def _verbs(resource: Resource) -> tuple[str, ...]:
    if resource.respond:
        return ("create",)
    if resource.full_name == "namespaces":
        return tuple(verb for verb in _VERBS if verb != "deletecollection")
    return _CUSTOM_VERBS if resource.custom else _VERBS


def _singular(resource: Resource) -> str:
    return "endpoints" if resource.full_name == "endpoints" else resource.singular or resource.kind.lower()


def _words(resource: Resource) -> Json:
    short = {"shortNames": list(resource.short)} if resource.short else {}
    return {**short, **({"categories": list(resource.categories)} if resource.categories else {})}


def _below(resource: Resource) -> list[tuple[str, Json]]:
    """Its subresources, by name."""
    below = {name: _subresource(resource, name) for name in resource.subresources}
    if resource.status:
        below["status"] = {"kind": resource.kind, "verbs": ["get", "patch", "update"]}
    if resource.scale:
        below["scale"] = _SUBRESOURCES["scale"]
    return sorted(below.items())


def _subresource(resource: Resource, name: str) -> Json:
    if name == "proxy":
        return {"kind": f"{resource.kind}ProxyOptions", "verbs": list(_PROXY)}
    return _SUBRESOURCES[name]


def _listed(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": _singular(resource),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_verbs(resource)),
        **_words(resource),
    }
    if not resource.respond:
        entry["storageVersionHash"] = _stored_as(resource)
    below = [
        {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced, **part}
        for name, part in _below(resource)
    ]
    return [entry, *below]


def _stored_as(resource: Resource) -> str:
    """A word that changes when objects are stored in another form: clients compare it, nobody reads it."""
    group = "" if resource.full_name == "events.events.k8s.io" else resource.group
    kind = f"{group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(kind.encode()).digest()[:8]).decode()
