"""The executor: sends the writes of a `Decision` to the API server and records the events about them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from trainyard.client import AlreadyExists, ApiClient, Forbidden, Invalid, NotFound, Unavailable
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import AcknowledgedWrite, InFlightWrites
from trainyard.controller_runtime.store import Store
from trainyard.core import Event
from trainyard.objects import GVK, Json, controller_of, name_of, namespace_of, resource_version_of, uid_of
from trainyard.objects.resources import NAMESPACE, POD
from trainyard.workloads import events
from trainyard.workloads.pods import is_deleting
from trainyard.workloads.writes import Bind, Create, CreateIfAbsent, Delete, Patch, UpdateStatus, Write


class CreateFailed(Unavailable):
    """An object cannot be created now: an object with another owner has its name (reason NameConflict), or the API
    server answered 403, for example because a ServiceAccount is missing (reason FailedCreate).

    A Warning event `FailedCreate` has been recorded. The create is retried."""


class WriteExecutor:
    """Sends writes. `sent` has the acknowledged writes that the stores (those of the graph) do not show yet.

    `bound` has the uids of pods whose binding was acknowledged and whose `nodeName` the store does not show yet.
    """

    def __init__(self, api: ApiClient, stores: Mapping[GVK, Store[Json]], now: Callable[[], float]) -> None:
        self._api, self._stores = api, stores
        self.recorder = EventRecorder(api, now)
        self.in_flight: InFlightWrites[GVK] = InFlightWrites(stores)
        self.assumed: set[str] = set()

    async def apply(self, write: Write, reconciled: Json) -> None:
        """Send one write that was decided for the object `reconciled`. Raises CreateFailed and other ApiErrors."""
        api = self._api
        match write:
            case Create(gvk, obj):
                await self._create(gvk, obj, reconciled)
            case CreateIfAbsent(gvk, obj):
                await self._ensure(gvk, obj, reconciled)
            case UpdateStatus(gvk, obj):
                answer = await api.replace(gvk, namespace_of(obj), name_of(obj), obj, "status")
                self._track(reconciled, gvk, answer)
            case Patch(gvk, namespace, name, body, subresource):
                self._track(reconciled, gvk, await api.patch(gvk, namespace, name, body, subresource))
            case Delete(gvk, namespace, name, uid, propagation):
                with contextlib.suppress(NotFound):
                    await api.delete(gvk, namespace, name, uid, propagation)
                written = AcknowledgedWrite(gvk, uid, deleted=True)
                self.in_flight.record(uid_of(reconciled), written, time.monotonic())
            case Bind(namespace, name, uid, node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}, "target": target}
                await api.create(POD, namespace, body, "binding")
                self.assumed.add(uid)

    def record_events(self, reconciled: Json, *object_events: Event) -> None:
        """Record events about an object, best effort."""
        recorded = tuple(event for event in object_events if events.is_recorded(reconciled, event))
        self.recorder.record(
            reconciled, recorded, events.COMPONENTS.get(str(reconciled["kind"]), "trainyard-workloads")
        )

    def _track(self, reconciled: Json, gvk: GVK, answer: Json) -> None:
        if gvk in self._stores:
            self.in_flight.record(
                uid_of(reconciled),
                AcknowledgedWrite(gvk, uid_of(answer), resource_version_of(answer)),
                time.monotonic(),
            )

    async def _create(self, gvk: GVK, obj: Json, reconciled: Json) -> None:
        try:
            answer = await self._api.create(gvk, namespace_of(obj), obj)
        except AlreadyExists:
            answer = await self._api.get(gvk, namespace_of(obj), name_of(obj))
            if (controller_of(answer) or {}).get("uid") != uid_of(reconciled):
                text = f"{gvk.kind} {name_of(obj)} is there already and belongs to somebody else; it has to go first"
                self.record_events(reconciled, Event("Warning", events.FAILED_CREATE, f"Error creating: {text}"))
                raise CreateFailed(0, "NameConflict", text) from None
        except (Invalid, Forbidden) as error:
            self.record_events(reconciled, Event("Warning", events.FAILED_CREATE, f"Error creating: {error.message}"))
            if isinstance(error, Forbidden):
                raise CreateFailed(0, "FailedCreate", error.message) from None
            raise
        self._track(reconciled, gvk, answer)

    async def _ensure(self, gvk: GVK, obj: Json, reconciled: Json) -> None:
        # NotFound: the resource is not served, or the namespace was deleted meanwhile.
        with contextlib.suppress(AlreadyExists, NotFound):
            try:
                self._track(reconciled, gvk, await self._api.create(gvk, namespace_of(obj), obj))
            except Forbidden:
                namespace = await self._api.get(NAMESPACE, "", namespace_of(obj))
                if not is_deleting(namespace):
                    raise
