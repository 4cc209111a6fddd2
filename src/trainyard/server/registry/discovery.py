"""API discovery (groups, versions, resources), version and health, computed from the registry at each request.

Two forms. Unaggregated: /api, /apis, /apis/GROUP and an APIResourceList for each version. Aggregated: one document at
/api and one at /apis, when the Accept header names APIGroupDiscoveryList; these have an ETag.

Rules for this file:
- Groups are in kube-apiserver's order: built-in groups, then those of CRDs by name, then metrics.
  `Registry.preferred_groups` come before other groups of CRDs: of two resources of one name kubectl takes the first.
- Versions of a group are in priority order: v2 before v1 before v1beta1 before v1alpha1.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from trainyard.objects import Json, encode
from trainyard.objects.patterns import lazy_pattern
from trainyard.server.model import errors
from trainyard.server.model.requests import Request, Response, reply
from trainyard.server.model.resources import Registry, Resource
from trainyard.server.registry import openapi

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
"""The Kubernetes version that types.txt was generated from."""
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
_LAST = ("metrics.k8s.io",)  # as with metrics-server, after the CRDs: `kubectl get pods` is not about PodMetrics
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SAME_VERSION = {"group": "", "version": ""}
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
_VERSION = lazy_pattern(r"v(\d+)(?:(alpha|beta)(\d+))?\Z")


def respond(registry: Registry, request: Request) -> Response | None:  # noqa: PLR0911  (a path, a return)
    """The response to a non-resource path; None when there is no such path. Raises StatusError 404 and 406."""
    path = request.path
    parts = path.strip("/").split("/")
    if path in ("/healthz", "/livez", "/readyz"):
        return Response(b"ok", content_type="text/plain")
    if path == "/version":
        return reply(VERSION)
    if parts[0] == "openapi":
        return openapi.respond(registry, request)
    if parts in (["api"], ["apis"]):
        return _discovery_document(registry, request, core=parts == ["api"])
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
    """All paths of the root document (GET /)."""
    versions = [_version_path(resource.group, resource.version) for resource in registry.all()]
    groups = [f"/apis/{name}" for name in _groups(registry)]
    fixed = ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
    return sorted({*versions, *groups, *fixed})


def _version_path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _discovery_document(registry: Registry, request: Request, core: bool) -> Response:
    """/api or /apis, in the first form of the Accept header that is served. Raises StatusError 406."""
    accepted = (
        [media_range.strip() for media_range in request.accept.split(",")] if request.accept else ["application/json"]
    )
    for media_range in accepted:
        media_type, *parameters = [parameter.strip() for parameter in media_range.split(";")]
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        if {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= set(parameters):
            return _aggregated(registry, request, core)
        if not any(parameter.startswith("as=") for parameter in parameters):
            return _legacy(registry, core)
    raise errors.StatusError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def _legacy(registry: Registry, core: bool) -> Response:
    if core:
        return reply({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    groups = [_group(registry, name) for name in _groups(registry)]
    return reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def _aggregated(registry: Registry, request: Request, core: bool) -> Response:
    items = []
    for name in [""] if core else _groups(registry):
        versions = [
            {"version": version, "resources": _aggregated_resources(registry, name, version), "freshness": "Current"}
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


def _aggregated_resources(registry: Registry, group: str, version: str) -> list[Json]:
    entries = []
    for resource in _resources_of(registry, group, version):
        group_version = {"group": resource.group, "version": version} if resource.definition else _SAME_VERSION
        entry: Json = {
            "resource": resource.plural,
            "responseKind": {**group_version, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": _singular(resource),
            "verbs": list(_verbs(resource)),
            **_names(resource),
        }
        if subresources := _subresources_of(resource):
            entry["subresources"] = [
                {"subresource": name, "responseKind": _response_kind(info, group_version), "verbs": info["verbs"]}
                for name, info in subresources
            ]
        entries.append(entry)
    return entries


def _response_kind(info: Json, group_version: Json) -> Json:
    return (
        {"group": info["group"], "version": info["version"], "kind": info["kind"]}
        if "group" in info
        else {
            **group_version,
            "kind": info["kind"],
        }
    )


def _groups(registry: Registry) -> list[str]:
    first = (*_FIRST, *registry.preferred_groups)
    names = {resource.group for resource in registry.all() if resource.group}
    return sorted(names, key=lambda name: (name in _LAST, first.index(name) if name in first else len(first), name))


def _versions(registry: Registry, group: str) -> list[str]:
    return sorted({resource.version for resource in registry.all() if resource.group == group}, key=_rank)


def _rank(version: str) -> tuple[int, int, int, str]:
    match = _VERSION.match(version)
    if match is None:
        return 3, 0, 0, version
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return stage, -int(match[1]), -int(match[3] or 0), version


def _group(registry: Registry, name: str) -> Json:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in _versions(registry, name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources_of(registry: Registry, group: str, version: str) -> Sequence[Resource]:
    resources = [resource for resource in registry.all() if resource.group == group and resource.version == version]
    return sorted(resources, key=lambda resource: resource.plural)


def _resources(registry: Registry, group: str, version: str) -> Response:
    resources = _resources_of(registry, group, version)
    if not resources:
        raise errors.path_not_found()
    entries = [entry for resource in resources for entry in _api_resources(resource)]
    api_version = f"{group}/{version}" if group else version
    api_version_field = {"apiVersion": "v1"} if group else {}  # kube-apiserver omits it for the core group
    return reply({"kind": "APIResourceList", **api_version_field, "groupVersion": api_version, "resources": entries})


def _verbs(resource: Resource) -> tuple[str, ...]:
    if resource.review:
        return ("create",)
    if resource.computed:
        return ("get", "list")
    return tuple(verb for verb in _VERBS if resource.deletes_collection or verb != "deletecollection")


def _singular(resource: Resource) -> str:
    return "" if resource.computed else resource.singular or resource.kind.lower()


def _names(resource: Resource) -> Json:
    short = {"shortNames": list(resource.short)} if resource.short else {}
    return {**short, **({"categories": list(resource.categories)} if resource.categories else {})}


def _subresources_of(resource: Resource) -> list[tuple[str, Json]]:
    """The subresources of a resource, sorted by name."""
    subresources = {name: _subresource_info(resource, name) for name in resource.subresources}
    if resource.status:
        subresources["status"] = {"kind": resource.kind, "verbs": ["get", "patch", "update"]}
    if resource.scale:
        subresources["scale"] = _SUBRESOURCES["scale"]
    return sorted(subresources.items())


def _subresource_info(resource: Resource, name: str) -> Json:
    if name == "proxy":
        return {"kind": f"{resource.kind}ProxyOptions", "verbs": list(_PROXY)}
    return _SUBRESOURCES[name]


def _api_resources(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": _singular(resource),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_verbs(resource)),
        **_names(resource),
    }
    if not (resource.review or resource.computed):
        entry["storageVersionHash"] = _storage_version_hash(resource)
    subresources = [
        {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced, **info}
        for name, info in _subresources_of(resource)
    ]
    return [entry, *subresources]


def _storage_version_hash(resource: Resource) -> str:
    """The storageVersionHash: it changes with the storage version; clients only compare it."""
    stored = f"{resource.storage_key.partition('.')[2]}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()
