"""What a controller may want, as data. The decisions return these; `shell.py` alone sends them, in the order given."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.core import Event
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of


@dataclass(frozen=True, slots=True)
class Create:
    gvk: GVK
    obj: Json

    @property
    def namespace(self) -> str:
        return namespace_of(self.obj)


@dataclass(frozen=True, slots=True)
class Ensure:
    """Create the object unless one of that name is there, whoever owns it. Nothing where nobody serves the resource."""

    gvk: GVK
    obj: Json


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace the status. `obj` carries the resourceVersion we decided on: an old copy is refused."""

    gvk: GVK
    obj: Json


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge patch. Name the resourceVersion in `body` where an old copy must not win."""

    gvk: GVK
    namespace: str
    name: str
    body: Json
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this uid, never a namesake."""

    gvk: GVK
    namespace: str
    name: str
    uid: str
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a pod to a node."""

    namespace: str
    name: str
    uid: str
    node: str


Write = Create | Ensure | SetStatus | Merge | Delete | Bind


@dataclass(frozen=True, slots=True)
class Decision:
    writes: tuple[Write, ...] = ()
    after: float | None = None  # look again then, even if nothing happens
    events: tuple[Event, ...] = ()  # written, best effort, once all the writes have succeeded


def delete_of(gvk: GVK, obj: Json, propagation: str = "Background") -> Delete:
    return Delete(gvk, namespace_of(obj), name_of(obj), uid_of(obj), propagation)
