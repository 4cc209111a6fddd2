"""The writes and events that a `decide` function returns, as values. `decision_executor.py` sends them in order."""

from __future__ import annotations

import msgspec

from trainyard.core import Event
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of
from trainyard.objects.writes import Create, Delete, Patch, Propagation


class CreateIfAbsent(msgspec.Struct, frozen=True):
    """Create the object unless one of its name exists, whatever its owner. No error when the resource is not served."""

    gvk: GVK
    obj: Json


class UpdateStatus(msgspec.Struct, frozen=True):
    """Replace the status subresource. `obj` has the resourceVersion of the decision: on a stale copy the API server
    answers Conflict."""

    gvk: GVK
    obj: Json


class Bind(msgspec.Struct, frozen=True):
    """Bind a pod to a node."""

    namespace: str
    name: str
    uid: str
    node: str


Write = Create | CreateIfAbsent | UpdateStatus | Patch | Delete | Bind


class Decision(msgspec.Struct, frozen=True):
    """The result of a `decide` function."""

    writes: tuple[Write, ...] = ()
    requeue_at: float | None = None  # requeue at this time (seconds since the epoch), even without an event
    events: tuple[Event, ...] = ()  # recorded, best effort, when all writes have succeeded
    pod_events: tuple[tuple[Json, Event], ...] = ()  # the same, about pods instead of the reconciled object


def delete_of(gvk: GVK, obj: Json, propagation: Propagation = "Background") -> Delete:
    """The Delete of an object, with its uid as precondition."""
    return Delete(gvk, namespace_of(obj), name_of(obj), uid_of(obj), propagation)
