"""Owner garbage collection: what has lost its last owner goes; foreground and orphan deletion are carried out.

Owners are known by uid, never by name: an object of the same name with another uid is a stranger. An owner we do not
see is asked for at the API server before anything is deleted, because another watch may lag. An owner of a kind that
nobody serves (any more) is `UNKNOWN`, and what it owns is left alone.

Flow, for one object:
- being deleted with the finalizer `orphan`: its dependents lose the reference to it, then it loses the finalizer;
- being deleted with the finalizer `foregroundDeletion`: dependents that block it go first, then the finalizer;
- otherwise its owners are looked at: all gone, it is deleted; some gone, only those references are taken out;
  waiting for it (foreground), it is deleted, in the foreground too when it has dependents of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from trainyard.objects import GVK, Json, name_of, namespace_of, revision_of, uid_of
from trainyard.workloads.pods import deleting
from trainyard.workloads.writes import Decision, Merge, Write, delete_of

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Owner(Enum):
    """What is known of an owner."""

    SOLID = "there"
    WAITING = "being deleted, waits for its dependents"
    ABSENT = "gone"
    UNKNOWN = "of a kind that nobody serves"


class Dependent(NamedTuple):
    """An object that names the one we look at as its owner."""

    gvk: GVK
    obj: Json


def owner_state(owner: Json | None, uid: str) -> Owner:
    """`owner` is what is there under the owner's name now, None when nothing is."""
    if owner is None or uid_of(owner) != uid:
        return Owner.ABSENT
    return Owner.WAITING if deleting(owner) and FOREGROUND in finalizers(owner) else Owner.SOLID


def decide(gvk: GVK, obj: Json, owners: Mapping[str, Owner], dependents: Sequence[Dependent]) -> Decision:
    """`owners` says for the uid of every owner reference what is known of it."""
    if deleting(obj):
        if ORPHAN in finalizers(obj):
            return Decision(tuple(_orphan(gvk, obj, dependents)))
        if FOREGROUND in finalizers(obj):
            return Decision(tuple(_foreground(gvk, obj, dependents)))
        return Decision()
    return Decision(tuple(_look_at_owners(gvk, obj, owners, bool(dependents))))


def finalizers(obj: Json) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def references(obj: Json) -> list[Json]:
    found = obj.get("metadata", {}).get("ownerReferences")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _look_at_owners(gvk: GVK, obj: Json, owners: Mapping[str, Owner], has_dependents: bool) -> list[Write]:
    refs = references(obj)
    states = [owners[str(ref.get("uid"))] for ref in refs]
    keep = [ref for ref, state in zip(refs, states, strict=True) if state in (Owner.SOLID, Owner.UNKNOWN)]
    if len(keep) == len(refs):
        return []
    if keep:
        return [_meta_patch(gvk, obj, {"ownerReferences": keep})]
    propagation = "Background"
    if Owner.WAITING in states and has_dependents:
        propagation = "Foreground"
    if ORPHAN in finalizers(obj):
        propagation = "Orphan"
    elif FOREGROUND in finalizers(obj):
        propagation = "Foreground"
    return [delete_of(gvk, obj, propagation)]


def _orphan(gvk: GVK, obj: Json, dependents: Sequence[Dependent]) -> list[Write]:
    writes: list[Write] = []
    for gvk_of, one in dependents:
        rest = [ref for ref in references(one) if ref.get("uid") != uid_of(obj)]
        writes.append(_meta_patch(gvk_of, one, {"ownerReferences": rest}))
    return [*writes, _without_finalizer(gvk, obj, ORPHAN)]


def _foreground(gvk: GVK, obj: Json, dependents: Sequence[Dependent]) -> list[Write]:
    """Dependents are deleted by their own look, which sees the owner WAITING. Here only the end is decided."""
    blocked = any(
        ref.get("uid") == uid_of(obj) and ref.get("blockOwnerDeletion") is True
        for one in dependents
        for ref in references(one.obj)
    )
    return [] if blocked else [_without_finalizer(gvk, obj, FOREGROUND)]


def _without_finalizer(gvk: GVK, obj: Json, finalizer: str) -> Merge:
    return _meta_patch(gvk, obj, {"finalizers": [one for one in finalizers(obj) if one != finalizer]})


def _meta_patch(gvk: GVK, obj: Json, fields: Json) -> Merge:
    """Fenced by the resourceVersion we decided on."""
    body = {"metadata": {**fields, "resourceVersion": revision_of(obj), "uid": uid_of(obj)}}
    return Merge(gvk, namespace_of(obj), name_of(obj), body)
