"""The shell that all controllers of this room share: see, decide, write, in that order and nothing else.

Flow: one watch per resource fills the graph; a change names who deserves a look; a look asks the decision of its
controller and sends the writes in their order. Only this file talks to the API server.

Guarantees:
- a look never happens before our own writes for that object have arrived in the stores;
- deletes carry the uid, status writes the resourceVersion: an old copy is refused and looked at again;
- a failed look is tried again, later each time; it holds nobody else up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import NamedTuple

from trainyard.client import AlreadyExists, Api, ApiError, Forbidden, Invalid, NotFound, Unavailable
from trainyard.control import Change, Feed, Loop, Once, Source
from trainyard.control.watch import Replaced, Said
from trainyard.control.writes import Write as Sent
from trainyard.control.writes import Writes
from trainyard.objects import (
    GVK,
    Json,
    Key,
    controller_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    revision_of,
    uid_of,
)
from trainyard.workloads import deployments, endpoints, gc, jobs, namespaces, placement, statefulsets
from trainyard.workloads.discovery import Catalog, discover
from trainyard.workloads.graph import CRD, Graph
from trainyard.workloads.pods import deleting, spec_of
from trainyard.workloads.writes import Bind, Create, Decision, Delete, Ensure, Merge, SetStatus, Write

EVENT = GVK("", "v1", "Event", "events")
LOOKS_AT_ONCE = 4
SOON = 0.05
CONTROLLERS = {
    jobs.JOB: jobs.decide,
    deployments.DEPLOYMENT: deployments.decide,
    statefulsets.STATEFUL_SET: statefulsets.decide,
}


class NameTaken(Unavailable):
    """A name that we need is held by an object of somebody else."""


class Look(NamedTuple):
    """Who deserves a look, and by whom: "owner" (Job, Deployment, StatefulSet), "endpoints" (a Service), "furnish" (a
    namespace), "place", "collect" or "discover"."""

    by: str
    gvk: GVK
    key: Key

    @property
    def namespace(self) -> str:
        return self.key.namespace


class Workloads:
    """The controllers. `await start()`, `await synced`, `await stop()`. Pods trust the CA `root_ca` (PEM)."""

    def __init__(self, api: Api, now: Callable[[], float] = time.time, root_ca: str = "") -> None:
        self._api = api
        self._now = now
        self._root_ca = root_ca
        self._graph = Graph()
        self._catalog = Catalog()
        self._feeds: dict[GVK, Feed[Json]] = {}
        self._loop: Loop[Look] = Loop(api, self._look, now, LOOKS_AT_ONCE)
        self._sent: Writes[GVK] = Writes(self._graph.stores)
        self._parked: set[Look] = set()
        self._unknown: set[Look] = set()  # an owner of a kind that nobody serves: until somebody does
        self._bound: set[str] = set()  # uids of pods we have bound and not yet seen bound
        self._said: dict[str, str] = {}  # the last warning by uid: the same one is not said again
        self._watching: dict[GVK, asyncio.Task[None]] = {}

    @property
    def synced(self) -> Once:
        return self._loop.synced

    async def start(self) -> None:
        await self._discover()
        await self._loop.start()

    async def stop(self) -> None:
        """Stop where we are. A new start goes on from what is there."""
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)
        await self._loop.stop()

    def look(self) -> None:
        """Look at every Job, Deployment and StatefulSet now: for whoever has moved the clock."""
        for gvk in CONTROLLERS:
            for obj in self._graph.all(gvk):
                self._loop.queue.add(Look("owner", gvk, key_of(obj)))

    # --- seeing

    async def _discover(self) -> float | None:
        """Watch what is new, stop watching what is gone. Returns when to ask again, if a CRD is not served yet."""
        self._catalog = await discover(self._api)
        fresh = self._catalog.namespaced.keys() - self._watching.keys()
        if fresh:
            self._parked |= self._unknown
            self._unknown.clear()
        for gvk in fresh:
            store = self._graph.add(gvk)
            feed = Feed(self._api, Source(gvk, optional=True), store.view, partial(self._heard, gvk))
            self._feeds[gvk] = feed
            self._watching[gvk] = asyncio.create_task(feed.run())
        for gvk in self._watching.keys() - self._catalog.namespaced.keys():
            self._forget(gvk)
        wanted = {spec_of(crd).get("names", {}).get("plural") for crd in self._graph.all(CRD)}
        served = {gvk.plural for gvk in self._catalog.namespaced}
        return None if wanted <= served else self._now() + 1.0

    def _forget(self, gvk: GVK) -> None:
        self._watching.pop(gvk).cancel()
        del self._feeds[gvk]
        self._heard(gvk, Replaced((), ""))

    def _heard(self, gvk: GVK, said: Said[Json]) -> None:
        store = self._graph.stores.get(gvk)
        if store is None:
            return
        for change in store.apply(said):
            self._changed(gvk, change)
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
        if after is None:
            self._said.pop(uid_of(one), None)
        if gvk == namespaces.NAMESPACE and after is not None:
            self._loop.queue.add(Look("furnish", gvk, key_of(one)))
        if namespaces.NAMES.get(gvk) == name_of(one):
            self._loop.queue.add(Look("furnish", namespaces.NAMESPACE, Key("", namespace_of(one))))
        for key in endpoints.concerned(gvk, before, after, self._graph.all(endpoints.SERVICE)):
            self._loop.queue.add(Look("endpoints", endpoints.SERVICE, key))
        if gvk == CRD:
            self._loop.queue.add(Look("discover", CRD, Key("", "")))
        if gvk == placement.NODE:
            for pod in filter(placement.waits, self._graph.all(placement.POD)):
                self._loop.queue.add(Look("place", placement.POD, key_of(pod)))
        if gvk == placement.POD:
            self._pod_changed(one, after)
        if after is None or before is None or _links(before) != _links(after):
            self._collect(gvk, one, after)

    def _pod_changed(self, pod: Json, after: Json | None) -> None:
        owner = controller_of(pod)
        found = self._catalog.find(str(owner.get("apiVersion")), str(owner.get("kind"))) if owner else None
        if owner and found in CONTROLLERS:
            self._loop.queue.add(Look("owner", found, Key(namespace_of(pod), str(owner.get("name")))))
        if after is None or spec_of(after).get("nodeName"):
            self._bound.discard(uid_of(pod))
        elif placement.waits(after):
            self._loop.queue.add(Look("place", placement.POD, key_of(after)))

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
            return self._now() + SOON  # it went while we looked; the watch will say so

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
        if self._sent.waits(uid):
            return self._wait_for_writes(uid)
        if look.by == "owner":
            decision = CONTROLLERS[look.gvk](obj, self._graph.controlled_by(jobs.POD, uid), self._now())
        elif look.by == "endpoints":
            decision = self._endpoints(obj)
        elif look.by == "furnish":
            decision = self._furnish(obj)
        elif look.by == "place":
            decision = self._place(obj)
        else:
            decision = await self._collected(look.gvk, obj)
        taken: NameTaken | None = None
        for write in decision.writes:
            try:
                await self._send(write, obj)
            except NameTaken as error:  # the others do not wait for it
                taken = taken or error
        if taken:
            raise taken
        return decision.after

    def _wait_for_writes(self, uid: str) -> float | None:
        """Their arrival is a change, which brings us back. What never arrives is listed again."""
        for gvk in self._sent.overdue(uid, self._now()):
            if gvk in self._feeds:
                self._feeds[gvk].relist()
        return self._sent.deadline(uid)

    def _furnish(self, namespace: Json) -> Decision:
        where = name_of(namespace)
        account, root = (self._graph.get(gvk, Key(where, name)) for gvk, name in namespaces.NAMES.items())
        return namespaces.decide(namespace, account, root, self._root_ca)

    def _endpoints(self, service: Json) -> Decision:
        behind = [pod for pod in self._graph.all(placement.POD) if endpoints.selects(service, pod)]
        slices = [
            one
            for one in self._graph.all(endpoints.SLICE)
            if namespace_of(one) == namespace_of(service) and labels_of(one).get(endpoints.OF) == name_of(service)
        ]
        return endpoints.decide(service, behind, slices)

    def _place(self, pod: Json) -> Decision:
        if uid_of(pod) in self._bound:
            return Decision()
        nodes = list(self._graph.all(placement.NODE))
        load: Counter[str] = Counter()
        if len(nodes) > 1:
            load.update(str(spec_of(one).get("nodeName") or "") for one in self._graph.all(placement.POD))
        return placement.decide(pod, nodes, load, self._now())

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

    # --- writing

    async def _send(self, write: Write, about: Json) -> None:
        api = self._api
        match write:
            case Create(gvk, obj):
                await self._create(gvk, obj, about)
            case Ensure(gvk, obj):
                await self._ensure(gvk, obj, about)
            case SetStatus(gvk, obj):
                answer = await api.replace(gvk, namespace_of(obj), name_of(obj), obj, "status")
                self._note(about, gvk, answer)
            case Merge(gvk, namespace, name, body, subresource):
                self._note(about, gvk, await api.patch(gvk, namespace, name, body, subresource))
            case Delete(gvk, namespace, name, uid, propagation):
                with contextlib.suppress(NotFound):
                    await api.delete(gvk, namespace, name, uid, propagation)
                self._sent.note(uid_of(about), Sent(gvk, uid, gone=True), self._now())
            case Bind(namespace, name, uid, node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}, "target": target}
                await api.create(jobs.POD, namespace, body, "binding")
                self._bound.add(uid)

    def _note(self, about: Json, gvk: GVK, answer: Json) -> None:
        if gvk in self._graph.stores:
            self._sent.note(uid_of(about), Sent(gvk, uid_of(answer), revision_of(answer)), self._now())

    async def _create(self, gvk: GVK, obj: Json, about: Json) -> None:
        try:
            answer = await self._api.create(gvk, namespace_of(obj), obj)
        except AlreadyExists:
            answer = await self._api.get(gvk, namespace_of(obj), name_of(obj))
            if (controller_of(answer) or {}).get("uid") != uid_of(about):
                text = f"{gvk.kind} {name_of(obj)} is there already and belongs to somebody else; it has to go first"
                await self._say(about, f"Error creating: {text}")
                raise NameTaken(0, "NameConflict", text) from None
        except (Invalid, Forbidden) as error:
            await self._say(about, f"Error creating: {error.message}")
            raise
        self._note(about, gvk, answer)

    async def _ensure(self, gvk: GVK, obj: Json, about: Json) -> None:
        # Not found: nobody serves that resource, or its namespace has gone meanwhile.
        with contextlib.suppress(AlreadyExists, NotFound):
            try:
                self._note(about, gvk, await self._api.create(gvk, namespace_of(obj), obj))
            except Forbidden:
                where = await self._api.get(namespaces.NAMESPACE, "", namespace_of(obj))
                if not deleting(where):
                    raise

    async def _say(self, about: Json, message: str) -> None:
        """A Warning event, for people: why an object's pods cannot be made."""
        if self._said.get(uid_of(about)) == message:
            return
        self._said[uid_of(about)] = message
        meta = {"name": f"{name_of(about)[:200]}.{token_hex(8)}", "namespace": namespace_of(about)}
        ref = {"apiVersion": about.get("apiVersion"), "kind": about.get("kind"), "name": name_of(about)}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": meta,
            "involvedObject": {**ref, "namespace": namespace_of(about), "uid": uid_of(about)},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": message,
            "source": {"component": "trainyard-workloads"},
        }
        with contextlib.suppress(ApiError):
            await self._api.create(EVENT, namespace_of(about), event)


def _links(obj: Json) -> object:
    """What matters for the collection of an object."""
    meta = obj["metadata"]
    return meta.get("ownerReferences"), meta.get("finalizers"), bool(meta.get("deletionTimestamp"))
