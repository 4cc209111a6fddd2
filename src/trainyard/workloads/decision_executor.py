"""Sends the writes of a `Decision` and records the events about them. `controller_runtime.executor` sends creates,
patches and deletes; this file the other writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from trainyard.client import AlreadyExists, ApiClient, Forbidden, Invalid, NotFound, Unavailable
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.executor import NameTaken, WriteExecutor
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.store import Store
from trainyard.core import Event
from trainyard.objects import GVK, Json, is_deleting, name_of, namespace_of, uid_of
from trainyard.objects.resources import NAMESPACE, POD
from trainyard.objects.writes import Create, Delete, Patch
from trainyard.workloads import events
from trainyard.workloads.writes import Bind, CreateIfAbsent, UpdateStatus, Write


class CreateFailed(Unavailable):
    """An object cannot be created now: an object with another owner has its name (reason NameConflict), or the API
    server answered 403, for example because a ServiceAccount is missing (reason FailedCreate).

    A Warning event `FailedCreate` has been recorded. The create is retried."""


class DecisionExecutor:
    """Sends the writes of decisions. `in_flight`: the acknowledged writes that the stores (those of the graph) do not
    show yet. `assumed`: uid -> node of the pods whose binding was sent and whose `nodeName` the store does not show
    yet."""

    def __init__(self, api: ApiClient, stores: Mapping[GVK, Store[Json]], now: Callable[[], float]) -> None:
        self._api = api
        self.recorder = EventRecorder(api, now)
        self.in_flight: InFlightWrites[GVK] = InFlightWrites(stores)
        self._executor = WriteExecutor(api, self.in_flight)
        self.assumed: dict[str, str] = {}

    async def apply(self, write: Write, reconciled: Json) -> None:
        """Send one write that was decided for the object `reconciled`. Raises CreateFailed and other ApiErrors."""
        match write:
            case Create():
                await self._create(write, reconciled)
            case Patch():
                await self._executor.patch(write, uid_of(reconciled))
            case Delete():
                await self._executor.delete(write, uid_of(reconciled))
            case CreateIfAbsent(gvk, obj):
                await self._create_if_absent(gvk, obj, reconciled)
            case UpdateStatus(gvk, obj):
                answer = await self._api.replace(gvk, namespace_of(obj), name_of(obj), obj, "status")
                self._executor.record(uid_of(reconciled), gvk, answer)
            case Bind(namespace, name, uid, node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}, "target": target}
                self.assumed[uid] = node  # before the answer: what it uses is not given to another pod meanwhile
                try:
                    await self._api.create(POD, namespace, body, "binding")
                except BaseException:
                    self.assumed.pop(uid, None)  # the watch may have shown its end meanwhile
                    raise

    def record_events(self, reconciled: Json, *object_events: Event) -> None:
        """Record events about an object, best effort."""
        recorded = tuple(event for event in object_events if events.is_recorded(reconciled, event))
        self.recorder.record(
            reconciled, recorded, events.COMPONENTS.get(str(reconciled["kind"]), "trainyard-workloads")
        )

    async def _create(self, create: Create, reconciled: Json) -> None:
        try:
            await self._executor.create(create, uid_of(reconciled))
        except NameTaken:
            text = f"{create.gvk.kind} {create.name} exists already and has another owner; it has to be deleted first"
            self._record_failed_create(reconciled, text)
            raise CreateFailed(0, "NameConflict", text) from None
        except Forbidden as error:
            self._record_failed_create(reconciled, error.message)
            raise CreateFailed(0, "FailedCreate", error.message) from None
        except Invalid as error:
            self._record_failed_create(reconciled, error.message)
            raise

    def _record_failed_create(self, reconciled: Json, text: str) -> None:
        self.record_events(reconciled, Event("Warning", events.FAILED_CREATE, f"Error creating: {text}"))

    async def _create_if_absent(self, gvk: GVK, obj: Json, reconciled: Json) -> None:
        # NotFound: the resource is not served, or the namespace was deleted meanwhile.
        with contextlib.suppress(AlreadyExists, NotFound):
            try:
                answer = await self._api.create(gvk, namespace_of(obj), obj)
                self._executor.record(uid_of(reconciled), gvk, answer)
            except Forbidden:
                namespace = await self._api.get(NAMESPACE, "", namespace_of(obj))
                if not is_deleting(namespace):
                    raise
