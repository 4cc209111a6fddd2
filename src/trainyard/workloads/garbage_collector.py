"""The garbage collector's reads: owners and dependents from the stores, and from the API server where a store may lag.

gc.py decides on what is read here.
"""

from __future__ import annotations

import contextlib

from trainyard.client import ApiClient, NotFound
from trainyard.objects import GVK, Json, is_deleting, key_of, namespace_of, uid_of
from trainyard.workloads import gc
from trainyard.workloads.discovery import RESTMapper
from trainyard.workloads.graph import Graph
from trainyard.workloads.work_items import WorkItem
from trainyard.workloads.writes import Decision


class GarbageCollector:
    """The controller that deletes dependents of absent owners and removes finalizers."""

    def __init__(self, api: ApiClient, graph: Graph, mapper: RESTMapper) -> None:
        self._api, self._graph, self._mapper = api, graph, mapper
        self._unknown_owner_kind: set[WorkItem] = set()

    def take_unknown_owner_kinds(self) -> set[WorkItem]:
        """The items of the objects with an owner of a kind that was not served, once: to be queued again at a new
        resource."""
        items, self._unknown_owner_kind = self._unknown_owner_kind, set()
        return items

    async def decide(self, gvk: GVK, obj: Json) -> Decision:
        """The decision about one object. Raises ApiError."""
        owners = {}
        for ref in gc.owner_references(obj):
            owners[str(ref.get("uid"))] = await self._owner_state(obj, ref)
        decision = gc.decide(gvk, obj, owners, await self._dependents(obj))
        if gc.OwnerState.NOT_SERVED in owners.values():
            self._unknown_owner_kind.add(WorkItem("garbage collector", gvk, key_of(obj)))
        return decision

    async def _dependents(self, obj: Json) -> list[gc.Dependent]:
        """The dependents of `obj`, from the stores; from the API server before a finalizer is removed.

        The reflector of another resource may lag. An owner that loses its finalizer `orphan` or `foregroundDeletion`
        is removed, and a dependent that the stores do not show yet would then be deleted in the background, against
        the propagation policy of the DELETE. So all resources are listed when `obj` is orphaned, and when the stores
        show no more dependents of an owner in foreground deletion.
        """
        uid = uid_of(obj)
        dependents = self._graph.dependents(uid)
        pending_finalizers = is_deleting(obj) and {gc.FOREGROUND, gc.ORPHAN}.intersection(gc.finalizers(obj))
        if not pending_finalizers or (dependents and gc.ORPHAN not in pending_finalizers):
            return dependents
        listed_dependents = []
        namespace = namespace_of(obj)
        served = [gvk for gvk, is_namespaced in self._mapper.namespaced.items() if is_namespaced or not namespace]
        for gvk in served:
            for item in (await self._api.list(gvk, namespace))["items"]:
                if any(ref.get("uid") == uid for ref in gc.owner_references(item)):
                    listed_dependents.append(gc.Dependent(gvk, item))
        return listed_dependents

    async def _owner_state(self, obj: Json, ref: Json) -> gc.OwnerState:
        """The state of the owner that `ref` names. An owner that no store has is read from the API server before it
        counts as absent."""
        uid = str(ref.get("uid"))
        if self._graph.is_absent(uid):
            return gc.OwnerState.ABSENT
        stored = self._graph.by_uid(uid)
        if stored is not None:
            return gc.owner_state(stored[1], uid)
        gvk = self._mapper.resource_for(str(ref.get("apiVersion")), str(ref.get("kind")))
        if gvk is None:
            return gc.OwnerState.NOT_SERVED
        owner: Json | None = None
        with contextlib.suppress(NotFound):
            namespace = namespace_of(obj) if self._mapper.namespaced[gvk] else ""
            owner = await self._api.get(gvk, namespace, str(ref.get("name")))
        state = gc.owner_state(owner, uid)
        if state is gc.OwnerState.ABSENT:
            self._graph.mark_absent(uid)
        return state
