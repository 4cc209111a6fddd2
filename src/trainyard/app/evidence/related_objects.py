"""The objects that belong to a job: its pods, its other children, and the events about all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from trainyard.client import ApiClient, ApiError, Forbidden, NotFound
from trainyard.core import Kind
from trainyard.objects import GVK, Json, decode, labels_of, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import EVENT, POD
from trainyard.views.event_view import last_timestamp


class RelatedObjects(msgspec.Struct, frozen=True):
    """The objects that belong to a job, as the API server returns them. `refused`: the resources that it refuses to
    list (403)."""

    pods: list[Json] = msgspec.field(default_factory=list)
    children: list[Json] = msgspec.field(default_factory=list)  # all but pods
    events: list[Json] = msgspec.field(default_factory=list)  # about the job, its children and its pods
    refused: tuple[GVK, ...] = ()


async def get_related_objects(api: ApiClient, kind: Kind, job: Json, known_pods: Sequence[Json] = ()) -> RelatedObjects:
    """The pods, children and events of a job. Resources that the API server refuses to list (403) are left out.
    `known_pods`: its pods, if the caller watches them."""
    namespace, labels = namespace_of(job), f"{OWNER}={uid_of(job)}"
    child_gvks = [gvk for gvk in dict.fromkeys(kind.roles.child_resources) if gvk != POD]
    pod_selections = [] if known_pods else [(POD, labels)]
    selections = [*pod_selections, (EVENT, ""), *((gvk, labels) for gvk in child_gvks)]
    pages = await asyncio.gather(*(_list_if_allowed(api, gvk, namespace, labels) for gvk, labels in selections))
    objects = [page or [] for page in pages]
    pods = list(known_pods) or objects.pop(0)
    all_events, *child_pages = objects
    children = [child for page in child_pages for child in page]
    uids = {uid_of(obj) for obj in (job, *pods, *children)}
    names = {(obj["kind"], name_of(obj)) for obj in (job, *pods, *children)}
    events = [event for event in all_events if is_about(event, uids, names)]
    refused = tuple(gvk for (gvk, _), page in zip(selections, pages, strict=True) if page is None)
    return RelatedObjects(pods, children, sorted(events, key=last_timestamp), refused)


async def list_or_none(api: ApiClient, gvk: GVK, namespace: str, labels: str = "") -> list[Json] | None:
    """The objects of a resource; None if the cluster does not serve it. Raises Forbidden."""
    try:
        page = await api.list(gvk, namespace, labels)
    except NotFound:
        return None
    except Forbidden:
        if await is_served(api, gvk):
            raise
        return None
    return [{"apiVersion": gvk.api_version, "kind": gvk.kind, **item} for item in page.get("items") or []]


async def is_served(api: ApiClient, gvk: GVK) -> bool:
    """Whether the cluster serves a resource, by its discovery, which every user may read: RBAC answers 403 to who may
    not list a resource, whether it exists or not. True where discovery does not tell."""
    if not gvk.group:
        return True
    try:
        answer = decode(await api.request("GET", f"/apis/{gvk.api_version}"))
    except NotFound:
        return False
    except ApiError:
        return True
    return any(resource.get("name") == gvk.plural for resource in answer.get("resources") or [])


async def _list_if_allowed(api: ApiClient, gvk: GVK, namespace: str, labels: str) -> list[Json] | None:
    """The objects of a resource, [] if the cluster does not serve it; None if the API server refuses to list it."""
    try:
        return await list_or_none(api, gvk, namespace, labels) or []
    except Forbidden:
        return None


def is_about(event: Json, uids: set[str], names: set[tuple[str, str]]) -> bool:
    """True if the event's involvedObject has one of the uids or, without a uid, one of the (kind, name) pairs; or if a
    node of ours wrote it about a pod of the job, which may be gone."""
    involved_object = event.get("involvedObject") or {}
    uid = involved_object.get("uid")
    if labels_of(event).get(OWNER) in uids:
        return True
    return uid in uids if uid else (involved_object.get("kind"), involved_object.get("name")) in names
