"""Workloads: the watches, the work queue and the reconcile function that all controllers of this package share.

Flow: one reflector per resource fills the stores of the graph. Each change of an object adds the items of the
objects it affects to the work queue (work_items.py). A reconcile calls the `decide` function of one controller
(decisions.py, garbage_collector.py) and sends the returned writes in their order (decision_executor.py). Only
controller_manager.py, decision_executor.py, garbage_collector.py and discovery.py send requests to the API server.

Guarantees:
- An object is reconciled only when the stores show all of our own earlier writes for it.
- Deletes carry the uid as a precondition and status updates carry the resourceVersion: the API server rejects a write
  that was decided on a stale copy, and the object is reconciled again.
- A reconcile that failed is retried with increasing back-off and does not delay other keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from functools import partial

from trainyard.client import ApiClient, NotFound
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.controller import Controller, Latch
from trainyard.controller_runtime.reflector import ListReplaced, Reflector, StoreEvent, WatchTarget
from trainyard.objects import GVK, Json, key_of, namespace_of, uid_of
from trainyard.objects.resources import CRD, NAMESPACE, NATIVE_POD_GROUP, NODE, POD
from trainyard.workloads import decisions, events, pod_groups, scheduler
from trainyard.workloads.decision_executor import CreateFailed, DecisionExecutor
from trainyard.workloads.discovery import RESTMapper, awaited, discover
from trainyard.workloads.garbage_collector import GarbageCollector
from trainyard.workloads.graph import Graph
from trainyard.workloads.work_items import WORKLOAD_RESOURCES, WorkItem, affected_items, bound_or_deleted
from trainyard.workloads.writes import Decision

WORKERS = 4
NOT_FOUND_REQUEUE_SECONDS = 0.05
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""A field selector of pods."""


class ControllerManager:
    """The controllers of this package. `await start()`, `await synced`, `await stop()`.

    `root_ca` (PEM) is the CA that every namespace's ConfigMap `kube-root-ca.crt` holds. `local_claims` has the names of
    PersistentVolumeClaims that are folders of this machine: pods that use them are scheduled without the claim object.
    `awaits_node`: a node of this cluster is starting; until a Node is Ready, pods wait without a condition or an event.
    """

    def __init__(
        self,
        api: ApiClient,
        now: Callable[[], float] = time.time,
        root_ca: str = "",
        local_claims: Container[str] = (),
        report: Callable[[str], object] | None = None,
        awaits_node: bool = False,
    ) -> None:
        self._api = api
        self._now = now
        self._root_ca = root_ca
        self._local_claims = local_claims
        self._awaits_node = awaits_node
        self._graph = Graph()
        self._mapper = RESTMapper()
        self._garbage_collector = GarbageCollector(api, self._graph, self._mapper)
        self._reflectors: dict[GVK, Reflector[Json]] = {}
        self._controller: Controller[WorkItem] = Controller(api, self._reconcile, WORKERS, report, "workloads")
        self._executor = DecisionExecutor(api, self._graph.stores, now)
        self._deferred_until_synced: set[WorkItem] = set()
        self._deferred_until_visible: dict[str, set[WorkItem]] = {}  # by uid: until the stores show our writes for it

    @property
    def tasks(self) -> TaskSupervisor:
        """The supervisor of the long-lived tasks."""
        return self._controller.tasks

    @property
    def synced(self) -> Latch:
        """Set when every store has received one complete list."""
        return self._controller.synced

    async def start(self) -> None:
        """Watch every resource that the server serves, and start the workers. Raises ApiError when discovery fails."""
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
            self._controller.queue.add(WorkItem("namespace", NAMESPACE, key_of(namespace)))

    def resync(self) -> None:
        """Enqueue every Job, Deployment, ReplicaSet and StatefulSet now: to be called after the clock was set."""
        for gvk in WORKLOAD_RESOURCES:
            for obj in self._graph.all(gvk):
                self._controller.queue.add(WorkItem("workload", gvk, key_of(obj)))

    # --- watches and event handlers

    async def _discover(self) -> float | None:
        """Start a reflector for each new resource and stop those of removed ones.

        Returns the seconds to requeue after; None when discovery has the resources of all established CRDs.
        """
        self._mapper.namespaced = (await discover(self._api)).namespaced
        new_resources = self._mapper.namespaced.keys() - self._reflectors.keys()
        if new_resources:
            self._deferred_until_synced |= self._garbage_collector.take_unknown_owner_kinds()
        for gvk in new_resources:
            store = self._graph.add_store(gvk)
            apply = partial(self._apply_store_event, gvk)
            reflector = Reflector(self._api, WatchTarget(gvk, optional=True), store.adapter, apply)
            self._reflectors[gvk] = reflector
            self.tasks.start(f"watch {reflector.target.name}", reflector.run)
        for gvk in self._reflectors.keys() - self._mapper.namespaced.keys():
            self._stop_watching(gvk)
        return 1.0 if awaited(self._graph.all(CRD), self._mapper.namespaced) else None

    def _stop_watching(self, gvk: GVK) -> None:
        """Forget the objects of a resource that discovery does not have any more. They count as deleted only if the
        watch has said so: owners of a version that another one replaces still exist."""
        self.tasks.cancel(f"watch {self._reflectors.pop(gvk).target.name}")
        if store := self._graph.stores.get(gvk):
            for change in store.apply(ListReplaced((), "")):
                self._graph.index(gvk, change, deleted=False)

    def _apply_store_event(self, gvk: GVK, event: StoreEvent[Json]) -> None:
        store = self._graph.stores.get(gvk)
        if store is None:
            return
        for change in store.apply(event):
            self._graph.index(gvk, change)
            if gvk == POD:
                for uid in bound_or_deleted(change):
                    self._executor.assumed.pop(uid, None)
            if gvk == NODE:
                self._awaits_node = self._awaits_node and not any(map(scheduler.is_ready, self._graph.all(NODE)))
            for item in affected_items(self._graph, self._mapper, gvk, change):
                # The first Ready Node adds all pods: they are scheduled in the order in which they were created.
                if item.controller != "scheduler" or not self._awaits_node:
                    self._controller.queue.add(item)
        for uid in [uid for uid in self._deferred_until_visible if not self._executor.in_flight.has_pending(uid)]:
            for item in self._deferred_until_visible.pop(uid):
                self._controller.queue.add(item)
        if self._graph.synced:
            self._controller.synced.set()
            for item in self._deferred_until_synced:
                self._controller.queue.add(item)
            self._deferred_until_synced.clear()

    # --- reconcile

    async def _reconcile(self, item: WorkItem) -> float | None:
        """The reconcile function of the controller: returns the seconds to requeue after, or None."""
        try:
            return await self._reconcile_object(item)
        except NotFound:
            return NOT_FOUND_REQUEUE_SECONDS  # deleted meanwhile: the watch will deliver the DELETED event

    async def _reconcile_object(self, item: WorkItem) -> float | None:
        if item.controller == "discovery":
            return await self._discover()
        if not self._graph.synced:
            self._deferred_until_synced.add(item)
            return None
        obj = self._graph.get(item.gvk, item.key)
        if obj is None:
            return None
        uid = uid_of(obj)
        if self._executor.in_flight.has_pending(uid):
            self._deferred_until_visible.setdefault(uid, set()).add(item)
            return self._relist_overdue(uid)
        now = self._now()
        decision = await self._decide(item, obj, now)
        await self._send(item, obj, decision)
        return None if decision.requeue_at is None else decision.requeue_at - now

    async def _decide(self, item: WorkItem, obj: Json, now: float) -> Decision:
        match item.controller:
            case "workload":
                return decisions.decide_workload(self._graph, item.gvk, obj, now)
            case "endpoints":
                return decisions.decide_endpoint_slices(self._graph, obj)
            case "namespace":
                return decisions.decide_namespace(self._graph, obj, self._root_ca)
            case "pod group protection":
                return await self._decide_protection(obj)
            case "scheduler" if item.gvk == NATIVE_POD_GROUP:
                assumed = self._executor.assumed
                return decisions.decide_group_placement(self._graph, obj, now, self._local_claims, assumed)
            case "scheduler":
                if uid_of(obj) in self._executor.assumed:
                    return Decision()
                return decisions.decide_placement(self._graph, obj, now, self._local_claims, self._executor.assumed)
            case _:
                return await self._garbage_collector.decide(item.gvk, obj)

    async def _decide_protection(self, group: Json) -> Decision:
        """The pods are listed from the API server before the finalizer is removed: their watch may lag behind that of
        the groups, and the store lack a member."""
        decision = pod_groups.decide_protection(group, self._graph.members_of(key_of(group)))
        if not decision.writes:
            return decision
        pods = await self._api.list(POD, namespace_of(group), field_selector=UNFINISHED)
        members = (pod for pod in pods["items"] if pod_groups.group_of(pod) == key_of(group))
        return pod_groups.decide_protection(group, members)

    async def _send(self, item: WorkItem, obj: Json, decision: Decision) -> None:
        """Send the writes of a decision and record its events. Raises CreateFailed and other ApiErrors."""
        first_error: CreateFailed | None = None
        for write in decision.writes:
            try:
                await self._executor.apply(write, obj)
            except CreateFailed as error:  # the remaining writes are sent all the same; raised after the last one
                first_error = first_error or error
            else:
                self._executor.record_events(
                    obj, *(events.event_of_write(item.gvk, obj, write) if item.controller == "workload" else ())
                )
        if first_error:
            raise first_error
        self._executor.record_events(obj, *decision.events)
        for pod, event in decision.pod_events:
            self._executor.record_events(pod, event)

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
