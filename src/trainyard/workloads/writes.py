"""The writes and events that a `decide` function returns, as data. `executor.py` sends them, in their order."""

from __future__ import annotations

import msgspec

from trainyard.core import Event
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of


class Create(msgspec.Struct, frozen=True):
    """Create the object. If one of its name exists, it must have the same controller owner."""

    gvk: GVK
    obj: Json

    @property
    def namespace(self) -> str:
        return namespace_of(self.obj)


class CreateIfAbsent(msgspec.Struct, frozen=True):
    """Create the object unless one of its name exists, whatever its owner. No error when the resource is not served."""

    gvk: GVK
    obj: Json


class UpdateStatus(msgspec.Struct, frozen=True):
    """Replace the status subresource. `obj` has the resourceVersion of the decision: on a stale copy the API server
    answers Conflict."""

    gvk: GVK
    obj: Json


class Patch(msgspec.Struct, frozen=True):
    """A JSON merge patch. `metadata.resourceVersion` in `body` makes the API server reject a patch of a stale copy."""

    gvk: GVK
    namespace: str
    name: str
    body: Json
    subresource: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Delete the object of this name if it has this uid."""

    gvk: GVK
    namespace: str
    name: str
    uid: str
    propagation: str = "Background"


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


def delete_of(gvk: GVK, obj: Json, propagation: str = "Background") -> Delete:
    """The Delete of an object, with its uid as precondition. `propagation` is the propagationPolicy."""
    return Delete(gvk, namespace_of(obj), name_of(obj), uid_of(obj), propagation)
