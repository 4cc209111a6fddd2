"""Which resources the API server has: asked from its discovery documents, so that custom ones are found as well."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainyard.client import Api, NotFound, Unavailable
from trainyard.objects import GVK, Json, decode

NEEDED = frozenset({"list", "watch", "delete"})
IGNORED = frozenset({"events"})  # nothing owns events, and they are many


@dataclass(slots=True)
class Catalog:
    """The resources that can be collected, and how to find one by the words of an owner reference."""

    namespaced: dict[GVK, bool] = field(default_factory=dict)

    def find(self, api_version: str, kind: str) -> GVK | None:
        """The resource of an owner; another version of its group is as good."""
        group, _, version = api_version.rpartition("/")
        found = [gvk for gvk in self.namespaced if gvk.group == group and gvk.kind == kind]
        return next((gvk for gvk in found if gvk.version == version), found[0] if found else None)


async def discover(api: Api) -> Catalog:
    """Ask for every group's preferred version. A group that vanishes meanwhile is left out."""
    catalog = Catalog()
    versions = ["/api/v1"]
    groups = await _document(api, "/apis")
    for group in groups.get("groups") or []:
        preferred = group.get("preferredVersion") or (group.get("versions") or [{}])[0]
        if preferred.get("groupVersion"):
            versions.append(f"/apis/{preferred['groupVersion']}")
    for path in versions:
        try:
            listed = await _document(api, path)
        except NotFound:
            continue
        catalog.namespaced |= resources_in(listed)
    return catalog


async def _document(api: Api, path: str) -> Json:
    try:
        found = decode(await api.request("GET", path))
    except ValueError as error:
        raise Unavailable(0, "BadAnswer", f"GET {path}: {error}") from None
    return found if isinstance(found, dict) else {}


def resources_in(listed: Json) -> dict[GVK, bool]:
    """The collectable resources of an APIResourceList, and whether they have a namespace."""
    group, _, version = str(listed.get("groupVersion") or "v1").rpartition("/")
    found: dict[GVK, bool] = {}
    for one in listed.get("resources") or []:
        name = str(one.get("name") or "")
        if "/" in name or name in IGNORED or not set(one.get("verbs") or []) >= NEEDED:
            continue
        gvk = GVK(one.get("group") or group, one.get("version") or version, str(one.get("kind")), name)
        found[gvk] = bool(one.get("namespaced"))
    return found
