"""Workloads: the watches, the work queue and the reconcile function that all controllers of this package share.

Flow: one reflector per resource fills the stores of the graph. Each change of an object adds the keys of the objects
it affects to the work queue. A reconcile calls the `decide` function of one controller and sends the returned writes in
their order (executor.py). Only controller_manager.py, executor.py and discovery.py send requests to the API server.

Guarantees:
- An object is reconciled only when the stores show all of our own earlier writes for it.
- Deletes carry the uid as a precondition and status updates carry the resourceVersion: the API server rejects a write
  that was decided on a stale copy, and the object is reconciled again.
- A reconcile that failed is retried with increasing back-off and does not delay other keys.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Container
from functools import partial
from typing import NamedTuple

from trainyard.client import Api, NotFound
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.controller import Controller, Latch
from trainyard.controller_runtime.reflector import ListReplaced, Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Change
from trainyard.objects import (
    GVK,
    Json,
    NamespacedName,
    controller_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from trainyard.objects.resources import (
    CRD,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    JOB,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
)
from trainyard.workloads import (
    deployments,
    endpoint_slices,
    events,
    gc,
    jobs,
    namespaces,
    replicasets,
    scheduler,
    statefulsets,
)
from trainyard.workloads.discovery import RESTMapper, awaited, discover
from trainyard.workloads.executor import CreateFailed, WriteExecutor
from trainyard.workloads.graph import Graph
from trainyard.workloads.pods import is_deleting, spec_of
from trainyard.workloads.writes import Decision

WORKERS = 4  # workers
NOT_FOUND_REQUEUE_SECONDS = 0.05  # seconds
POD_CONTROLLERS = {
    JOB: jobs.decide,
    REPLICA_SET: replicasets.decide,
    STATEFUL_SET: statefulsets.decide,
}
"""The `decide` functions of the resources whose controllers own pods directly."""
WORKLOAD_RESOURCES = (*POD_CONTROLLERS, DEPLOYMENT)


class WorkItem(NamedTuple):
    """An item of the work queue: an object, and the controller that reconciles it.

    `by` is "owner" (the controller of Job, Deployment, ReplicaSet or StatefulSet), "endpoints" (EndpointSlices of a
    Service), "furnish" (default objects of a Namespace), "place" (scheduling of a Pod), "collect" (garbage collection
    of any object) or "discover" (API discovery; the key is empty).
    """

    controller: str
    gvk: GVK
    key: NamespacedName

    @property
    def namespace(self) -> str:
        return self.key.namespace


class ControllerManager:
    """The controllers of this package. `await start()`, `await synced`, `await stop()`.

    `root_ca` (PEM) is the CA that every namespace's ConfigMap `kube-root-ca.crt` holds. `mounted` has the names of
    PersistentVolumeClaims that are folders of this machine: pods that use them are scheduled without the claim object.
    """

    def __init__(
        self,
        api: Api,
        now: Callable[[], float] = time.time,
        root_ca: str = "",
        local_claims: Container[str] = (),
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._api = api
        self._now = now
        self._root_ca = root_ca
        self._mounted = local_claims
        self._graph = Graph()
        self._catalog = RESTMapper()
        self._reflectors: dict[GVK, Reflector[Json]] = {}
        self._controller: Controller[WorkItem] = Controller(api, self._reconcile, WORKERS, report, "workloads")
        self._executor = WriteExecutor(api, self._graph.stores, now)
        self._deferred_until_synced: set[WorkItem] = set()
        self._deferred_until_visible: dict[str, set[WorkItem]] = {}  # by uid: until the stores show our writes for it
        self._unknown_owner_kind: set[WorkItem] = set()  # an owner's kind is not served: queued again at a new resource

    @property
    def tasks(self) -> TaskSupervisor:
        """The supervisor of the long-lived tasks."""
        return self._controller.tasks

    @property
    def synced(self) -> Latch:
        return self._controller.synced

    async def start(self) -> None:
        await self._discover()
        self.tasks.start("record events", self._executor.recorder.run)
        await self._controller.start()

    async def stop(self) -> None:
        """Cancel the watches and the workers. The state is in the API server: a later `start` continues from it."""
        await self._controller.stop()

    def set_root_ca(self, root_ca: str) -> None:
        """Set the CA (PEM) of the ConfigMaps `kube-root-ca.crt` and reconcile every namespace. Pods in a namespace
        without that ConfigMap wait for it."""
        self._root_ca = root_ca
        for namespace in self._graph.all(NAMESPACE):
            self._controller.queue.add(WorkItem("furnish", NAMESPACE, key_of(namespace)))

    def resync(self) -> None:
        """Enqueue every Job, Deployment, ReplicaSet and StatefulSet now: to be called after the clock was set."""
        for gvk in WORKLOAD_RESOURCES:
            for obj in self._graph.all(gvk):
                self._controller.queue.add(WorkItem("owner", gvk, key_of(obj)))

    # --- watches and event handlers

    async def _discover(self) -> float | None:
        """Start a reflector for each new resource and stop those of removed ones.

        Returns the seconds to requeue after; None when discovery has the resources of all established CRDs.
        """
        self._catalog = await discover(self._api)
        new_resources = self._catalog.namespaced.keys() - self._reflectors.keys()
        if new_resources:
            self._deferred_until_synced |= self._unknown_owner_kind
            self._unknown_owner_kind.clear()
        for gvk in new_resources:
            store = self._graph.add_store(gvk)
            apply = partial(self._apply_store_event, gvk)
            reflector = Reflector(self._api, WatchTarget(gvk, optional=True), store.adapter, apply)
            self._reflectors[gvk] = reflector
            self.tasks.start(f"watch {reflector.target.name}", reflector.run)
        for gvk in self._reflectors.keys() - self._catalog.namespaced.keys():
            self._stop_watching(gvk)
        return 1.0 if awaited(self._graph.all(CRD), self._catalog.namespaced) else None

    def _stop_watching(self, gvk: GVK) -> None:
        self.tasks.cancel(f"watch {self._reflectors.pop(gvk).target.name}")
        self._apply_store_event(gvk, ListReplaced((), ""))

    def _apply_store_event(self, gvk: GVK, event: StoreEvent[Json]) -> None:
        store = self._graph.stores.get(gvk)
        if store is None:
            return
        for change in store.apply(event):
            self._handle_change(gvk, change)
        for uid in [uid for uid in self._deferred_until_visible if not self._executor.in_flight.has_pending(uid)]:
            for look in self._deferred_until_visible.pop(uid):
                self._controller.queue.add(look)
        if self._graph.synced:
            self._controller.synced.set()
            for look in self._deferred_until_synced:
                self._controller.queue.add(look)
            self._deferred_until_synced.clear()

    def _handle_change(self, gvk: GVK, change: Change[Json]) -> None:
        """Index one change and enqueue what it affects. A name with a new uid counts as a deletion and a creation."""
        before, after = change.before, change.after
        replaced = before is not None and after is not None and uid_of(before) != uid_of(after)
        self._graph.index(gvk, change)
        if replaced:
            self._enqueue_affected(gvk, before, None)
            self._enqueue_affected(gvk, None, after)
        else:
            self._enqueue_affected(gvk, before, after)

    def _enqueue_affected(self, gvk: GVK, before: Json | None, after: Json | None) -> None:
        obj = after if after is not None else before
        if obj is None:
            return
        if gvk in WORKLOAD_RESOURCES and after is not None:
            self._controller.queue.add(WorkItem("owner", gvk, key_of(obj)))
        if gvk == REPLICA_SET:
            self._enqueue_owner(obj)
        if gvk == NAMESPACE and after is not None:
            self._controller.queue.add(WorkItem("furnish", gvk, key_of(obj)))
        if namespaces.DEFAULT_OBJECTS.get(gvk) == name_of(obj):
            self._controller.queue.add(WorkItem("furnish", NAMESPACE, NamespacedName("", namespace_of(obj))))
        for key in endpoint_slices.affected_services(gvk, before, after, self._graph.all(SERVICE)):
            self._controller.queue.add(WorkItem("endpoints", SERVICE, key))
        if gvk == CRD:
            self._controller.queue.add(WorkItem("discover", CRD, NamespacedName("", "")))
        if gvk == NODE:
            self._enqueue_unscheduled_pods("")
        if gvk == PERSISTENT_VOLUME_CLAIM:
            self._enqueue_unscheduled_pods(namespace_of(obj))
        if gvk == POD:
            self._enqueue_affected_by_pod(obj, after)
        if after is None or before is None or _gc_fields(before) != _gc_fields(after):
            self._enqueue_for_gc(gvk, obj, after)

    def _enqueue_unscheduled_pods(self, namespace: str) -> None:
        """Enqueue the pods that have no node yet; namespace "" means all namespaces."""
        for pod in filter(scheduler.needs_scheduling, self._graph.all(POD)):
            if namespace in ("", namespace_of(pod)):
                self._controller.queue.add(WorkItem("place", POD, key_of(pod)))

    def _enqueue_owner(self, obj: Json) -> Json | None:
        """Enqueue the controller owner of `obj` if its kind is in `CONTROLLERS`. Returns the owner, None if unknown."""
        owner = controller_of(obj)
        gvk = self._catalog.resource_for(str(owner.get("apiVersion")), str(owner.get("kind"))) if owner else None
        if owner is None or gvk is None or gvk not in WORKLOAD_RESOURCES:
            return None
        key = NamespacedName(namespace_of(obj), str(owner.get("name")))
        self._controller.queue.add(WorkItem("owner", gvk, key))
        return self._graph.get(gvk, key)

    def _enqueue_affected_by_pod(self, pod: Json, after: Json | None) -> None:
        owner = self._enqueue_owner(pod)
        if owner is not None and owner.get("kind") == "ReplicaSet":
            self._enqueue_owner(owner)  # its Deployment scales up only when the pods of older templates have gone
        if after is None or spec_of(after).get("nodeName"):
            self._executor.assumed.discard(uid_of(pod))
        elif scheduler.needs_scheduling(after):
            self._controller.queue.add(WorkItem("place", POD, key_of(after)))

    def _enqueue_for_gc(self, gvk: GVK, obj: Json, after: Json | None) -> None:
        """The garbage collector's fields of `obj` changed: enqueue the object itself, its dependents, and those of its
        owners that are being deleted (foreground deletion waits for dependents)."""
        if after is not None:
            self._controller.queue.add(WorkItem("collect", gvk, key_of(after)))
        for dependent in self._graph.dependents(uid_of(obj)):
            self._controller.queue.add(WorkItem("collect", dependent.gvk, key_of(dependent.obj)))
        for ref in gc.owner_references(obj):
            owner = self._graph.by_uid(str(ref.get("uid")))
            if owner and is_deleting(owner[1]):
                self._controller.queue.add(WorkItem("collect", owner[0], key_of(owner[1])))

    # --- reconcile

    async def _reconcile(self, look: WorkItem) -> float | None:
        """The reconcile function of the controller: returns the seconds to requeue after, or None."""
        try:
            return await self._reconcile_object(look)
        except NotFound:
            return NOT_FOUND_REQUEUE_SECONDS  # deleted meanwhile: the watch will deliver the DELETED event

    async def _reconcile_object(self, look: WorkItem) -> float | None:
        if look.controller == "discover":
            return await self._discover()
        if not self._graph.synced:
            self._deferred_until_synced.add(look)
            return None
        obj = self._graph.get(look.gvk, look.key)
        if obj is None:
            return None
        uid = uid_of(obj)
        if self._executor.in_flight.has_pending(uid):
            self._deferred_until_visible.setdefault(uid, set()).add(look)
            return self._relist_overdue(uid)
        now = self._now()
        if look.controller == "owner":
            decision = self._decide_workload(look.gvk, obj, now)
        elif look.controller == "endpoints":
            decision = self._decide_endpoint_slices(obj)
        elif look.controller == "furnish":
            decision = self._decide_namespace(obj)
        elif look.controller == "place":
            decision = self._decide_placement(obj, now)
        else:
            decision = await self._decide_gc(look.gvk, obj)
        first_error: CreateFailed | None = None
        for write in decision.writes:
            try:
                await self._executor.apply(write, obj)
            except CreateFailed as error:  # the remaining writes are sent all the same; raised after the last one
                first_error = first_error or error
            else:
                self._executor.record_events(
                    obj, *(events.event_of_write(look.gvk, obj, write) if look.controller == "owner" else ())
                )
        if first_error:
            raise first_error
        self._executor.record_events(obj, *decision.events)
        return None if decision.requeue_at is None else decision.requeue_at - now

    def _decide_workload(self, gvk: GVK, obj: Json, now: float) -> Decision:
        pods = self._graph.controlled_by(POD, uid_of(obj))
        if gvk in POD_CONTROLLERS:
            return POD_CONTROLLERS[gvk](obj, pods, now)
        replica_sets = self._graph.controlled_by(REPLICA_SET, uid_of(obj))
        pods += [pod for replica_set in replica_sets for pod in self._graph.controlled_by(POD, uid_of(replica_set))]
        return deployments.decide(obj, replica_sets, pods, now)

    def _relist_overdue(self, uid: str) -> float | None:
        """List the resources again whose stores do not show our writes for `uid` in time.

        Returns the seconds to requeue after. Before that, `_apply_store_event` enqueues the object when the writes
        have become visible.
        """
        for gvk in self._executor.in_flight.overdue_resources(uid, time.monotonic()):
            if gvk in self._reflectors:
                self._reflectors[gvk].relist()
        deadline = self._executor.in_flight.deadline(uid)
        return None if deadline is None else deadline - time.monotonic()

    def _decide_namespace(self, namespace: Json) -> Decision:
        account, root = (
            self._graph.get(gvk, NamespacedName(name_of(namespace), name))
            for gvk, name in namespaces.DEFAULT_OBJECTS.items()
        )
        return namespaces.decide(namespace, account, root, self._root_ca)

    def _decide_endpoint_slices(self, service: Json) -> Decision:
        pods = [pod for pod in self._graph.all(POD) if endpoint_slices.selects(service, pod)]
        slices = [
            endpoint_slice
            for endpoint_slice in self._graph.all(ENDPOINT_SLICE)
            if namespace_of(endpoint_slice) == namespace_of(service)
            and labels_of(endpoint_slice).get(endpoint_slices.SERVICE_NAME_LABEL) == name_of(service)
        ]
        return endpoint_slices.decide(service, pods, slices)

    def _decide_placement(self, pod: Json, now: float) -> Decision:
        if uid_of(pod) in self._executor.assumed:
            return Decision()
        nodes = list(self._graph.all(NODE))
        load: Counter[str] = Counter()
        if len(nodes) > 1:
            load.update(str(spec_of(other_pod).get("nodeName") or "") for other_pod in self._graph.all(POD))
        claims = {
            name: self._graph.get(PERSISTENT_VOLUME_CLAIM, NamespacedName(namespace_of(pod), name))
            for name in scheduler.claim_names(pod)
            if name not in self._mounted
        }
        return scheduler.decide(pod, nodes, load, now, claims)

    async def _decide_gc(self, gvk: GVK, obj: Json) -> Decision:
        owners = {}
        for ref in gc.owner_references(obj):
            owners[str(ref.get("uid"))] = await self._owner_state(obj, ref)
        decision = gc.decide(gvk, obj, owners, await self._dependents(obj))
        if gc.OwnerState.NOT_SERVED in owners.values():
            self._unknown_owner_kind.add(WorkItem("collect", gvk, key_of(obj)))
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
        for gvk in [gvk for gvk in self._graph.stores if not namespace or self._catalog.namespaced[gvk]]:
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
        gvk = self._catalog.resource_for(str(ref.get("apiVersion")), str(ref.get("kind")))
        if gvk is None:
            return gc.OwnerState.NOT_SERVED
        owner: Json | None = None
        with contextlib.suppress(NotFound):
            namespace = namespace_of(obj) if self._catalog.namespaced[gvk] else ""
            owner = await self._api.get(gvk, namespace, str(ref.get("name")))
        state = gc.owner_state(owner, uid)
        if state is gc.OwnerState.ABSENT:
            self._graph.mark_absent(uid)
        return state


def _gc_fields(obj: Json) -> object:
    """The fields of an object that the garbage collector decides on."""
    meta = obj["metadata"]
    return meta.get("ownerReferences"), meta.get("finalizers"), bool(meta.get("deletionTimestamp"))
