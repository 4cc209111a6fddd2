"""The writes of a controller as values: what its decision returns, and what `controller_runtime.executor` sends."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from trainyard.objects.meta import GVK, Json, Ref, name_of, namespace_of

Verb = Literal["create", "patch", "delete"]
"""The type of a write, as RBAC names it."""
Propagation = Literal["Background", "Foreground", "Orphan"]
"""The propagationPolicy of a delete. Foreground: the object exists, and its name is taken, until its dependents are
gone."""


class Create(msgspec.Struct, frozen=True):
    """Create an object. `obj` is complete: metadata has the name and the namespace."""

    verb: ClassVar[Verb] = "create"
    gvk: GVK
    obj: Json

    @property
    def namespace(self) -> str:
        """The namespace of the object."""
        return namespace_of(self.obj)

    @property
    def name(self) -> str:
        """The name of the object."""
        return name_of(self.obj)

    @property
    def ref(self) -> Ref:
        """Kind and name of the object."""
        return Ref(self.gvk.kind, self.name)


class Patch(msgspec.Struct, frozen=True):
    """A JSON merge patch of the object, or of its `subresource`.

    `body` may have preconditions, which the API server answers with Conflict unless they hold: metadata.uid (the object
    was not deleted and created anew) and metadata.resourceVersion (it has not changed).

    A `deferrable` patch may be sent later, together with the next change.
    """

    verb: ClassVar[Verb] = "patch"
    gvk: GVK
    namespace: str
    name: str
    body: Json
    subresource: str = ""
    deferrable: bool = False

    @property
    def ref(self) -> Ref:
        """Kind and name of the object."""
        return Ref(self.gvk.kind, self.name)


class Delete(msgspec.Struct, frozen=True):
    """Delete the object of this name if it has this uid.

    `grace_period_seconds` 0 is the force deletion of a pod. `reason` is for the log.
    """

    verb: ClassVar[Verb] = "delete"
    gvk: GVK
    namespace: str
    name: str
    uid: str
    propagation: Propagation = "Background"
    grace_period_seconds: int | None = None
    reason: str = ""

    @property
    def ref(self) -> Ref:
        """Kind and name of the object."""
        return Ref(self.gvk.kind, self.name)
