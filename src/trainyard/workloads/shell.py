"""The shell that all controllers of this room share: see, decide, write, in that order and nothing else.

Flow: one watch per resource fills the graph; a change names who deserves a look; a look asks the decision of its
controller and has the writes sent in their order (executor.py). Only these two files talk to the API server.

Guarantees:
- a look never happens before our own writes for that object have arrived in the stores;
- deletes carry the uid, status writes the resourceVersion: an old copy is refused and looked at again;
- a failed look is tried again, later each time; it holds nobody else up.
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
from trainyard.controller_runtime.reflector import Reflector, Replaced, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Change
from trainyard.objects import (
    GVK,
    Json,
    Key,
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
    endpoints,
    events,
    gc,
    jobs,
    namespaces,
    placement,
    replicasets,
    statefulsets,
)
from trainyard.workloads.discovery import Catalog, discover
from trainyard.workloads.executor import CannotCreate, Executor
from trainyard.workloads.graph import Graph
from trainyard.workloads.pods import deleting, spec_of
from trainyard.workloads.writes import Decision

LOOKS_AT_ONCE = 4
SOON = 0.05
OF_PODS = {
    JOB: jobs.decide,
    REPLICA_SET: replicasets.decide,
    STATEFUL_SET: statefulsets.decide,
}
CONTROLLERS = (*OF_PODS, DEPLOYMENT)


class Look(NamedTuple):
    """Who deserves a look, and by whom: "owner" (Job, Deployment, ReplicaSet, StatefulSet), "endpoints" (a Service),
    "furnish" (a namespace), "place", "collect" or "discover"."""

    by: str
    gvk: GVK
    key: Key

    @property
    def namespace(self) -> str:
        return self.key.namespace


class Workloads:
    """The controllers. `await start()`, `await synced`, `await stop()`. Pods trust the CA `root_ca` (PEM); claims of
    the names in `mounted` are folders of this machine and need no object."""

    def __init__(
        self,
        api: Api,
        now: Callable[[], float] = time.time,
        root_ca: str = "",
        mounted: Container[str] = (),
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._api = api
        self._now = now
        self._root_ca = root_ca
        self._mounted = mounted
        self._graph = Graph()
        self._catalog = Catalog()
        self._feeds: dict[GVK, Reflector[Json]] = {}
        self._loop: Controller[Look] = Controller(api, self._look, LOOKS_AT_ONCE, report, "workloads")
        self._executor = Executor(api, self._graph.stores, now)
        self._parked: set[Look] = set()
        self._after_writes: dict[str, set[Look]] = {}  # by uid: looks until our own writes for that object have arrived
        self._unknown: set[Look] = set()  # an owner of a kind that nobody serves: until somebody does

    @property
    def tasks(self) -> TaskSupervisor:
        """The owner of its long-lived tasks."""
        return self._loop.tasks

    @property
    def synced(self) -> Latch:
        return self._loop.synced

    async def start(self) -> None:
        await self._discover()
        self.tasks.start("record events", self._executor.recorder.run)
        await self._loop.start()

    async def stop(self) -> None:
        """Stop where we are. A new start goes on from what is there."""
        await self._loop.stop()

    def trust(self, root_ca: str) -> None:
        """From now on pods trust this CA (PEM). Those of a namespace without its ConfigMap wait for it."""
        self._root_ca = root_ca
        for namespace in self._graph.all(NAMESPACE):
            self._loop.queue.add(Look("furnish", NAMESPACE, key_of(namespace)))

    def resync(self) -> None:
        """Look at every Job, Deployment, ReplicaSet and StatefulSet now: for whoever has moved the clock."""
        for gvk in CONTROLLERS:
            for obj in self._graph.all(gvk):
                self._loop.queue.add(Look("owner", gvk, key_of(obj)))

    # --- seeing

    async def _discover(self) -> float | None:
        """Watch what is new, stop watching what is gone. Returns the seconds until the next try, if one is due."""
        self._catalog = await discover(self._api)
        fresh = self._catalog.namespaced.keys() - self._feeds.keys()
        if fresh:
            self._parked |= self._unknown
            self._unknown.clear()
        for gvk in fresh:
            store = self._graph.add(gvk)
            feed = Reflector(self._api, WatchTarget(gvk, optional=True), store.adapter, partial(self._heard, gvk))
            self._feeds[gvk] = feed
            self.tasks.start(f"watch {feed.target.name}", feed.run)
        for gvk in self._feeds.keys() - self._catalog.namespaced.keys():
            self._forget(gvk)
        wanted = {spec_of(crd).get("names", {}).get("plural") for crd in self._graph.all(CRD)}
        served = {gvk.plural for gvk in self._catalog.namespaced}
        return None if wanted <= served else 1.0

    def _forget(self, gvk: GVK) -> None:
        self.tasks.cancel(f"watch {self._feeds.pop(gvk).target.name}")
        self._heard(gvk, Replaced((), ""))

    def _heard(self, gvk: GVK, said: StoreEvent[Json]) -> None:
        store = self._graph.stores.get(gvk)
        if store is None:
            return
        for change in store.apply(said):
            self._changed(gvk, change)
        for uid in [uid for uid in self._after_writes if not self._executor.sent.has_pending(uid)]:
            for look in self._after_writes.pop(uid):
                self._loop.queue.add(look)
        if self._graph.synced:
            self._loop.synced.set()
            for look in self._parked:
                self._loop.queue.add(look)
            self._parked.clear()

    def _changed(self, gvk: GVK, change: Change[Json]) -> None:
        """One object changed: who deserves a look?"""
        before, after = change.before, change.after
        swapped = before is not None and after is not None and uid_of(before) != uid_of(after)
        self._graph.note(gvk, change)
        if swapped:
            self._looks(gvk, before, None)
            self._looks(gvk, None, after)
        else:
            self._looks(gvk, before, after)

    def _looks(self, gvk: GVK, before: Json | None, after: Json | None) -> None:
        one = after if after is not None else before
        if one is None:
            return
        if gvk in CONTROLLERS and after is not None:
            self._loop.queue.add(Look("owner", gvk, key_of(one)))
        if gvk == REPLICA_SET:
            self._look_at_owner(one)
        if gvk == NAMESPACE and after is not None:
            self._loop.queue.add(Look("furnish", gvk, key_of(one)))
        if namespaces.NAMES.get(gvk) == name_of(one):
            self._loop.queue.add(Look("furnish", NAMESPACE, Key("", namespace_of(one))))
        for key in endpoints.concerned(gvk, before, after, self._graph.all(SERVICE)):
            self._loop.queue.add(Look("endpoints", SERVICE, key))
        if gvk == CRD:
            self._loop.queue.add(Look("discover", CRD, Key("", "")))
        if gvk == NODE:
            self._place_waiting("")
        if gvk == PERSISTENT_VOLUME_CLAIM:
            self._place_waiting(namespace_of(one))
        if gvk == POD:
            self._pod_changed(one, after)
        if after is None or before is None or _links(before) != _links(after):
            self._collect(gvk, one, after)

    def _place_waiting(self, namespace: str) -> None:
        """Look at the pods without a node, of all namespaces for ""."""
        for pod in filter(placement.waits, self._graph.all(POD)):
            if namespace in ("", namespace_of(pod)):
                self._loop.queue.add(Look("place", POD, key_of(pod)))

    def _look_at_owner(self, obj: Json) -> Json | None:
        """Look at what controls the object; returns it where it is known."""
        owner = controller_of(obj)
        found = self._catalog.find(str(owner.get("apiVersion")), str(owner.get("kind"))) if owner else None
        if owner is None or found is None or found not in CONTROLLERS:
            return None
        key = Key(namespace_of(obj), str(owner.get("name")))
        self._loop.queue.add(Look("owner", found, key))
        return self._graph.get(found, key)

    def _pod_changed(self, pod: Json, after: Json | None) -> None:
        owner = self._look_at_owner(pod)
        if owner is not None and owner.get("kind") == "ReplicaSet":
            self._look_at_owner(owner)  # its Deployment waits until the pods of older templates have gone
        if after is None or spec_of(after).get("nodeName"):
            self._executor.bound.discard(uid_of(pod))
        elif placement.waits(after):
            self._loop.queue.add(Look("place", POD, key_of(after)))

    def _collect(self, gvk: GVK, one: Json, after: Json | None) -> None:
        """Owner links changed: the object itself, what it owns, and what waits for it to go."""
        if after is not None:
            self._loop.queue.add(Look("collect", gvk, key_of(after)))
        for dependent in self._graph.dependents(uid_of(one)):
            self._loop.queue.add(Look("collect", dependent.gvk, key_of(dependent.obj)))
        for ref in gc.references(one):
            owner = self._graph.with_uid(str(ref.get("uid")))
            if owner and deleting(owner[1]):
                self._loop.queue.add(Look("collect", owner[0], key_of(owner[1])))

    # --- looking

    async def _look(self, look: Look) -> float | None:
        try:
            return await self._look_once(look)
        except NotFound:
            return SOON  # it went while we looked; the watch will say so

    async def _look_once(self, look: Look) -> float | None:
        if look.by == "discover":
            return await self._discover()
        if not self._graph.synced:
            self._parked.add(look)
            return None
        obj = self._graph.get(look.gvk, look.key)
        if obj is None:
            return None
        uid = uid_of(obj)
        if self._executor.sent.has_pending(uid):
            self._after_writes.setdefault(uid, set()).add(look)
            return self._wait_for_writes(uid)
        now = self._now()
        if look.by == "owner":
            decision = self._of_owner(look.gvk, obj, now)
        elif look.by == "endpoints":
            decision = self._endpoints(obj)
        elif look.by == "furnish":
            decision = self._furnish(obj)
        elif look.by == "place":
            decision = self._place(obj, now)
        else:
            decision = await self._collected(look.gvk, obj)
        taken: CannotCreate | None = None
        for write in decision.writes:
            try:
                await self._executor.apply(write, obj)
            except CannotCreate as error:  # the others do not wait for it
                taken = taken or error
            else:
                self._executor.record(obj, *(events.of_write(look.gvk, obj, write) if look.by == "owner" else ()))
        if taken:
            raise taken
        self._executor.record(obj, *decision.events)
        return None if decision.after is None else decision.after - now

    def _of_owner(self, gvk: GVK, obj: Json, now: float) -> Decision:
        pods = self._graph.controlled_by(POD, uid_of(obj))
        if gvk in OF_PODS:
            return OF_PODS[gvk](obj, pods, now)
        sets = self._graph.controlled_by(REPLICA_SET, uid_of(obj))
        pods += [pod for one in sets for pod in self._graph.controlled_by(POD, uid_of(one))]
        return deployments.decide(obj, sets, pods, now)

    def _wait_for_writes(self, uid: str) -> float | None:
        """Their arrival brings us back (see `_heard`). What never arrives is listed again."""
        for gvk in self._executor.sent.overdue(uid, time.monotonic()):
            if gvk in self._feeds:
                self._feeds[gvk].relist()
        deadline = self._executor.sent.deadline(uid)
        return None if deadline is None else deadline - time.monotonic()

    def _furnish(self, namespace: Json) -> Decision:
        where = name_of(namespace)
        account, root = (self._graph.get(gvk, Key(where, name)) for gvk, name in namespaces.NAMES.items())
        return namespaces.decide(namespace, account, root, self._root_ca)

    def _endpoints(self, service: Json) -> Decision:
        behind = [pod for pod in self._graph.all(POD) if endpoints.selects(service, pod)]
        slices = [
            one
            for one in self._graph.all(ENDPOINT_SLICE)
            if namespace_of(one) == namespace_of(service) and labels_of(one).get(endpoints.OF) == name_of(service)
        ]
        return endpoints.decide(service, behind, slices)

    def _place(self, pod: Json, now: float) -> Decision:
        if uid_of(pod) in self._executor.bound:
            return Decision()
        nodes = list(self._graph.all(NODE))
        load: Counter[str] = Counter()
        if len(nodes) > 1:
            load.update(str(spec_of(one).get("nodeName") or "") for one in self._graph.all(POD))
        claims = {
            name: self._graph.get(PERSISTENT_VOLUME_CLAIM, Key(namespace_of(pod), name))
            for name in placement.claims_of(pod)
            if name not in self._mounted
        }
        return placement.decide(pod, nodes, load, now, claims)

    async def _collected(self, gvk: GVK, obj: Json) -> Decision:
        owners = {}
        for ref in gc.references(obj):
            owners[str(ref.get("uid"))] = await self._owner(obj, ref)
        decision = gc.decide(gvk, obj, owners, await self._dependents(obj))
        if gc.Owner.UNKNOWN in owners.values():
            self._unknown.add(Look("collect", gvk, key_of(obj)))
        return decision

    async def _dependents(self, obj: Json) -> list[gc.Dependent]:
        """The last look of an owner that waits for its dependents asks the API server: another watch may lag, and once
        the owner is let go, those we have not heard of would be collected as if nobody had asked for anything else."""
        uid = uid_of(obj)
        seen = self._graph.dependents(uid)
        waits = deleting(obj) and {gc.FOREGROUND, gc.ORPHAN}.intersection(gc.finalizers(obj))
        if not waits or (seen and gc.ORPHAN not in waits):
            return seen
        found = []
        near = namespace_of(obj)
        for gvk in [one for one in self._graph.stores if not near or self._catalog.namespaced[one]]:
            for one in (await self._api.list(gvk, near))["items"]:
                if any(ref.get("uid") == uid for ref in gc.references(one)):
                    found.append(gc.Dependent(gvk, one))
        return found

    async def _owner(self, obj: Json, ref: Json) -> gc.Owner:
        """What is known of an owner. One that we do not see is asked for before it counts as gone."""
        uid = str(ref.get("uid"))
        if self._graph.is_gone(uid):
            return gc.Owner.ABSENT
        seen = self._graph.with_uid(uid)
        if seen is not None:
            return gc.owner_state(seen[1], uid)
        gvk = self._catalog.find(str(ref.get("apiVersion")), str(ref.get("kind")))
        if gvk is None:
            return gc.Owner.UNKNOWN
        found: Json | None = None
        with contextlib.suppress(NotFound):
            namespace = namespace_of(obj) if self._catalog.namespaced[gvk] else ""
            found = await self._api.get(gvk, namespace, str(ref.get("name")))
        state = gc.owner_state(found, uid)
        if state is gc.Owner.ABSENT:
            self._graph.note_gone(uid)
        return state


def _links(obj: Json) -> object:
    """What matters for the collection of an object."""
    meta = obj["metadata"]
    return meta.get("ownerReferences"), meta.get("finalizers"), bool(meta.get("deletionTimestamp"))
