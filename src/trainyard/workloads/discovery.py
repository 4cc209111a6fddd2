"""API discovery: the resources that the API server serves, custom resources included."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from trainyard.client import ApiClient, NotFound, Unavailable
from trainyard.objects import GVK, Json, decode, is_condition_true

REQUIRED_VERBS = frozenset({"list", "watch", "delete"})  # verbs
IGNORED_RESOURCES = frozenset({"events"})  # no event has an owner reference, and there are many events


class RESTMapper(msgspec.Struct):
    """The resources that the garbage collector handles; `namespaced` maps each to whether it is namespaced."""

    namespaced: dict[GVK, bool] = msgspec.field(default_factory=dict)

    def resource_for(self, api_version: str, kind: str) -> GVK | None:
        """The resource that an owner reference names by `apiVersion` and `kind`: in that version, else in any version
        of the same group. None when it is not served."""
        group, _, version = api_version.rpartition("/")
        candidates = [gvk for gvk in self.namespaced if gvk.group == group and gvk.kind == kind]
        return next((gvk for gvk in candidates if gvk.version == version), candidates[0] if candidates else None)


async def discover(api: ApiClient) -> RESTMapper:
    """Read every API group: each resource in the preferred version, else in the first version that has it, such as
    ChainerJob, which kubeflow.org has in v1alpha1 only. A version that is removed meanwhile (404) is left out.

    Raises Unavailable (reason BadAnswer) for an answer that is not JSON, and what `ApiClient.request` raises.
    """
    catalog = RESTMapper()
    paths = ["/api/v1"]
    group_list = await _get_document(api, "/apis")
    for group in group_list.get("groups") or []:
        versions = [group.get("preferredVersion") or {}, *(group.get("versions") or ())]
        names = (version.get("groupVersion") for version in versions)
        paths += dict.fromkeys(f"/apis/{name}" for name in names if name)
    for path in paths:
        try:
            resource_list = await _get_document(api, path)
        except NotFound:
            continue
        known = {(gvk.group, gvk.plural) for gvk in catalog.namespaced}
        served = resources_in(resource_list)
        catalog.namespaced |= {gvk: value for gvk, value in served.items() if (gvk.group, gvk.plural) not in known}
    return catalog


def awaited(crds: Iterable[Json], served: Collection[GVK]) -> list[str]:
    """The names of the CRDs whose resources discovery will have in a moment: they are established and have a served
    version. Any other CRD changes before its resources are served, and that change triggers discovery again."""
    resources = {(gvk.group, gvk.plural) for gvk in served}
    names = []
    for crd in crds:
        spec = crd.get("spec") or {}
        plural = (spec.get("names") or {}).get("plural")
        established = is_condition_true((crd.get("status") or {}).get("conditions"), "Established")
        served_version = any(version.get("served") for version in spec.get("versions") or ())
        if established and served_version and (spec.get("group"), plural) not in resources:
            names.append(f"{plural}.{spec.get('group')}")
    return names


async def _get_document(api: ApiClient, path: str) -> Json:
    try:
        document = decode(await api.request("GET", path))
    except ValueError as error:
        raise Unavailable(0, "BadAnswer", f"GET {path}: {error}") from None
    return document if isinstance(document, dict) else {}


def resources_in(resource_list: Json) -> dict[GVK, bool]:
    """The resources of an APIResourceList that can be listed, watched and deleted, mapped to whether they are
    namespaced."""
    group, _, version = str(resource_list.get("groupVersion") or "v1").rpartition("/")
    namespaced: dict[GVK, bool] = {}
    for resource in resource_list.get("resources") or []:
        name = str(resource.get("name") or "")
        if "/" in name or name in IGNORED_RESOURCES or not set(resource.get("verbs") or []) >= REQUIRED_VERBS:
            continue
        gvk = GVK(resource.get("group") or group, resource.get("version") or version, str(resource.get("kind")), name)
        namespaced[gvk] = bool(resource.get("namespaced"))
    return namespaced
