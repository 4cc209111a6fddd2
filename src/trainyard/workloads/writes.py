"""What a controller may want, as data. The decisions return these; `shell.py` alone sends them, in the order given."""

from __future__ import annotations

import msgspec

from trainyard.core import Event
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of


class Create(msgspec.Struct, frozen=True):
    gvk: GVK
    obj: Json

    @property
    def namespace(self) -> str:
        return namespace_of(self.obj)


class Ensure(msgspec.Struct, frozen=True):
    """Create the object unless one of that name is there, whoever owns it. Nothing where nobody serves the resource."""

    gvk: GVK
    obj: Json


class SetStatus(msgspec.Struct, frozen=True):
    """Replace the status. `obj` carries the resourceVersion we decided on: an old copy is refused."""

    gvk: GVK
    obj: Json


class Merge(msgspec.Struct, frozen=True):
    """A merge patch. Name the resourceVersion in `body` where an old copy must not win."""

    gvk: GVK
    namespace: str
    name: str
    body: Json
    subresource: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Delete the object with this uid, never a namesake."""

    gvk: GVK
    namespace: str
    name: str
    uid: str
    propagation: str = "Background"


class Bind(msgspec.Struct, frozen=True):
    """Give a pod to a node."""

    namespace: str
    name: str
    uid: str
    node: str


Write = Create | Ensure | SetStatus | Merge | Delete | Bind


class Decision(msgspec.Struct, frozen=True):
    writes: tuple[Write, ...] = ()
    after: float | None = None  # look again then, even if nothing happens
    events: tuple[Event, ...] = ()  # written, best effort, once all the writes have succeeded


def delete_of(gvk: GVK, obj: Json, propagation: str = "Background") -> Delete:
    return Delete(gvk, namespace_of(obj), name_of(obj), uid_of(obj), propagation)
