"""The garbage collector: deletes objects whose owners are all absent, and finishes foreground and orphan deletions.

Owners are identified by uid, never by name: an object of the same name with another uid is not the owner. Before a
dependent is deleted, an owner that the stores do not have is read from the API server, because its watch may lag. An
owner whose resource is not served (any more) is NOT_SERVED, and its dependents are kept.

For one object:
- It is being deleted and has the finalizer `orphan`: the owner reference to it is removed from its dependents, then
  the finalizer is removed.
- It is being deleted and has the finalizer `foregroundDeletion`: the finalizer is removed when no dependent with
  `blockOwnerDeletion` is left.
- Otherwise its owners decide. While an owner is EXISTS or NOT_SERVED, the object stays, and its references to ABSENT
  and WAITING_FOR_DEPENDENTS owners are removed. Else it is deleted: with propagationPolicy Foreground when an owner is
  WAITING_FOR_DEPENDENTS (in foreground deletion) and the object has dependents of its own; a finalizer of the object
  itself (`orphan`, `foregroundDeletion`) overrides the policy; the default is Background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from trainyard.objects import GVK, Json, is_deleting, name_of, namespace_of, resource_version_of, uid_of
from trainyard.objects.writes import Patch, Propagation
from trainyard.workloads.writes import Decision, Write, delete_of

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class OwnerState(Enum):
    """The state of an owner. WAITING_FOR_DEPENDENTS: in foreground deletion; NOT_SERVED: its
    resource is not served, so that it cannot be read."""

    EXISTS = "exists"
    WAITING_FOR_DEPENDENTS = "being deleted, waits for its dependents"
    ABSENT = "absent"
    NOT_SERVED = "of a resource that is not served"


class Dependent(NamedTuple):
    """An object with an owner reference to the reconciled object."""

    gvk: GVK
    obj: Json


def owner_state(owner: Json | None, uid: str) -> OwnerState:
    """The state of the owner with this uid. `owner` is the object of the owner's name now, None when there is none."""
    if owner is None or uid_of(owner) != uid:
        return OwnerState.ABSENT
    return (
        OwnerState.WAITING_FOR_DEPENDENTS
        if is_deleting(owner) and FOREGROUND in finalizers(owner)
        else OwnerState.EXISTS
    )


def decide(gvk: GVK, obj: Json, owners: Mapping[str, OwnerState], dependents: Sequence[Dependent]) -> Decision:
    """The writes for one object. `owners` maps the uid of each of its owner references to the owner's state."""
    if is_deleting(obj):
        if ORPHAN in finalizers(obj):
            return Decision(tuple(_orphan(gvk, obj, dependents)))
        if FOREGROUND in finalizers(obj):
            return Decision(tuple(_foreground(gvk, obj, dependents)))
        return Decision()
    return Decision(tuple(_follow_owners(gvk, obj, owners, bool(dependents))))


def finalizers(obj: Json) -> list[str]:
    """`metadata.finalizers`, [] when unset."""
    return obj["metadata"].get("finalizers") or []


def owner_references(obj: Json) -> list[Json]:
    """`metadata.ownerReferences` of an object."""
    refs = obj.get("metadata", {}).get("ownerReferences")
    return [ref for ref in refs if isinstance(ref, dict)] if isinstance(refs, list) else []


def _follow_owners(gvk: GVK, obj: Json, owners: Mapping[str, OwnerState], has_dependents: bool) -> list[Write]:
    refs = owner_references(obj)
    states = [owners[str(ref.get("uid"))] for ref in refs]
    keep = [ref for ref, state in zip(refs, states, strict=True) if state in (OwnerState.EXISTS, OwnerState.NOT_SERVED)]
    if len(keep) == len(refs):
        return []
    if keep:
        return [_metadata_patch(gvk, obj, {"ownerReferences": keep})]
    propagation: Propagation = "Background"
    if OwnerState.WAITING_FOR_DEPENDENTS in states and has_dependents:
        propagation = "Foreground"
    if ORPHAN in finalizers(obj):
        propagation = "Orphan"
    elif FOREGROUND in finalizers(obj):
        propagation = "Foreground"
    return [delete_of(gvk, obj, propagation)]


def _orphan(gvk: GVK, obj: Json, dependents: Sequence[Dependent]) -> list[Write]:
    writes: list[Write] = []
    for dependent in dependents:
        kept_refs = [ref for ref in owner_references(dependent.obj) if ref.get("uid") != uid_of(obj)]
        writes.append(_metadata_patch(dependent.gvk, dependent.obj, {"ownerReferences": kept_refs}))
    return [*writes, without_finalizer(gvk, obj, ORPHAN)]


def _foreground(gvk: GVK, obj: Json, dependents: Sequence[Dependent]) -> list[Write]:
    """Remove the finalizer when no dependent blocks the deletion. Dependents are deleted by their own reconciles, in
    which this owner is WAITING_FOR_DEPENDENTS."""
    blocked = any(
        ref.get("uid") == uid_of(obj) and ref.get("blockOwnerDeletion") is True
        for dependent in dependents
        for ref in owner_references(dependent.obj)
    )
    return [] if blocked else [without_finalizer(gvk, obj, FOREGROUND)]


def without_finalizer(gvk: GVK, obj: Json, finalizer: str) -> Patch:
    """The removal of one finalizer of the object, unless it has changed meanwhile."""
    return _metadata_patch(gvk, obj, {"finalizers": [kept for kept in finalizers(obj) if kept != finalizer]})


def _metadata_patch(gvk: GVK, obj: Json, fields: Json) -> Patch:
    """A merge patch of `metadata`, with uid and resourceVersion of `obj` as preconditions."""
    body = {"metadata": {**fields, "resourceVersion": resource_version_of(obj), "uid": uid_of(obj)}}
    return Patch(gvk, namespace_of(obj), name_of(obj), body)
