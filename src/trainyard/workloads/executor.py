"""Sends the writes of a decision to the API server, and the events about them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from trainyard.client import AlreadyExists, Api, Forbidden, Invalid, NotFound, Unavailable
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import AcknowledgedWrite as Sent
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.store import Store
from trainyard.core import Event
from trainyard.objects import GVK, Json, controller_of, name_of, namespace_of, revision_of, uid_of
from trainyard.objects.resources import NAMESPACE, POD
from trainyard.workloads import events
from trainyard.workloads.pods import deleting
from trainyard.workloads.writes import Bind, Create, Delete, Ensure, Merge, SetStatus, Write


class CannotCreate(Unavailable):
    """An object cannot be created now: its name is held by an object of somebody else, or a ServiceAccount is missing.
    Events say so; it is tried again."""


class Executor:
    """`sent` knows which of our own writes have not come back through the watches yet."""

    def __init__(self, api: Api, stores: Mapping[GVK, Store[Json]], now: Callable[[], float]) -> None:
        self._api, self._stores = api, stores
        self.recorder = EventRecorder(api, now)
        self.sent: InFlightWrites[GVK] = InFlightWrites(stores)
        self.bound: set[str] = set()  # uids of pods that were bound and not yet seen bound

    async def apply(self, write: Write, about: Json) -> None:
        """One write for the object `about`."""
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
                self.sent.record(uid_of(about), Sent(gvk, uid, gone=True), time.monotonic())
            case Bind(namespace, name, uid, node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}, "target": target}
                await api.create(POD, namespace, body, "binding")
                self.bound.add(uid)

    def record(self, about: Json, *said: Event) -> None:
        """Write events about an object, best effort."""
        wanted = tuple(event for event in said if events.wanted(about, event))
        self.recorder.record(about, wanted, events.COMPONENTS.get(str(about["kind"]), "trainyard-workloads"))

    def _note(self, about: Json, gvk: GVK, answer: Json) -> None:
        if gvk in self._stores:
            self.sent.record(uid_of(about), Sent(gvk, uid_of(answer), revision_of(answer)), time.monotonic())

    async def _create(self, gvk: GVK, obj: Json, about: Json) -> None:
        try:
            answer = await self._api.create(gvk, namespace_of(obj), obj)
        except AlreadyExists:
            answer = await self._api.get(gvk, namespace_of(obj), name_of(obj))
            if (controller_of(answer) or {}).get("uid") != uid_of(about):
                text = f"{gvk.kind} {name_of(obj)} is there already and belongs to somebody else; it has to go first"
                self.record(about, Event("Warning", events.FAILED_CREATE, f"Error creating: {text}"))
                raise CannotCreate(0, "NameConflict", text) from None
        except (Invalid, Forbidden) as error:
            self.record(about, Event("Warning", events.FAILED_CREATE, f"Error creating: {error.message}"))
            if isinstance(error, Forbidden):
                raise CannotCreate(0, "FailedCreate", error.message) from None
            raise
        self._note(about, gvk, answer)

    async def _ensure(self, gvk: GVK, obj: Json, about: Json) -> None:
        # Not found: nobody serves that resource, or its namespace has gone meanwhile.
        with contextlib.suppress(AlreadyExists, NotFound):
            try:
                self._note(about, gvk, await self._api.create(gvk, namespace_of(obj), obj))
            except Forbidden:
                where = await self._api.get(NAMESPACE, "", namespace_of(obj))
                if not deleting(where):
                    raise
