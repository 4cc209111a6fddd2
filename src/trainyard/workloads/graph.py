"""Everything seen, of all resources: one store each, and who depends on whom by uid."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.store import Change, Store
from trainyard.objects import GVK, Json, Key, key_of, uid_of
from trainyard.objects.resources import CRD
from trainyard.objects.values import replace
from trainyard.workloads.gc import Dependent, references

REMEMBERED = 20_000


class _Names(msgspec.Struct):
    plural: str = ""


class _Spec(msgspec.Struct):
    names: _Names = msgspec.field(default_factory=_Names)


class _Definition(msgspec.Struct):
    metadata: Json
    spec: _Spec = msgspec.field(default_factory=_Spec)


_definition = msgspec.json.Decoder(_Definition)


def _named(raw: bytes) -> Json:
    """A definition without its schemas, which are large and nobody's business here."""
    made: Json = msgspec.to_builtins(_definition.decode(raw))
    return {"apiVersion": CRD.api_version, "kind": CRD.kind, **made}


class Graph:
    """The objects by resource, by uid, and by the uids of their owners. A uid that is gone never comes back."""

    def __init__(self) -> None:
        self.stores: dict[GVK, Store[Json]] = {}
        self._dependents: dict[str, set[tuple[GVK, Key]]] = {}
        self._gone: dict[str, None] = {}  # in order of arrival, so that the oldest is forgotten first

    def add(self, gvk: GVK) -> Store[Json]:
        view = dict_adapter(api_version=gvk.api_version, kind=gvk.kind)
        store = Store(replace(view, decode=_named) if gvk == CRD else view)
        self.stores[gvk] = store
        return store

    @property
    def synced(self) -> bool:
        return all(store.synced for store in self.stores.values())

    def get(self, gvk: GVK, key: Key) -> Json | None:
        store = self.stores.get(gvk)
        return store.get(key) if store else None

    def all(self, gvk: GVK) -> Iterator[Json]:
        store = self.stores.get(gvk)
        return iter(store) if store else iter(())

    def with_uid(self, uid: str) -> tuple[GVK, Json] | None:
        for gvk, store in self.stores.items():
            obj = store.by_uid(uid)
            if obj is not None:
                return gvk, obj
        return None

    def controlled_by(self, gvk: GVK, uid: str) -> list[Json]:
        """The objects of a resource whose controller owner has this uid."""
        store = self.stores.get(gvk)
        return list(store.by_index(uid)) if store and uid else []

    def dependents(self, uid: str) -> list[Dependent]:
        found = ((gvk, self.get(gvk, key)) for gvk, key in sorted(self._dependents.get(uid, ()), key=str))
        return [Dependent(gvk, obj) for gvk, obj in found if obj is not None]

    def note(self, gvk: GVK, change: Change[Json]) -> None:
        """Keep the index of owners. Called after the store has taken the change in."""
        before, after = change.before, change.after
        if before is not None:
            for ref in references(before):
                self._forget(str(ref.get("uid")), (gvk, key_of(before)))
            if after is None or uid_of(after) != uid_of(before):
                self.note_gone(uid_of(before))
        if after is not None:
            for ref in references(after):
                self._dependents.setdefault(str(ref.get("uid")), set()).add((gvk, key_of(after)))

    def note_gone(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def is_gone(self, uid: str) -> bool:
        return uid in self._gone

    def _forget(self, owner: str, dependent: tuple[GVK, Key]) -> None:
        siblings = self._dependents.get(owner, set())
        siblings.discard(dependent)
        if not siblings:
            self._dependents.pop(owner, None)
