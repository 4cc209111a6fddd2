"""The graph: one store of objects per resource, an index of dependents by the uid of their owner, and indexes of the
objects that Services and pods refer to by labels."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.store import Change, Store
from trainyard.objects import GVK, Json, NamespacedName, key_of, labels_of, name_of, namespace_of, uid_of
from trainyard.objects.resources import CRD, ENDPOINT_SLICE, POD, SERVICE
from trainyard.objects.structs import replace
from trainyard.workloads.endpoint_slices import SERVICE_NAME_LABEL, selector_of, selects
from trainyard.workloads.gc import Dependent, owner_references
from trainyard.workloads.label_index import LabelIndex, SelectorIndex
from trainyard.workloads.pod_groups import group_of

MAX_ABSENT_UIDS = 2_000  # uids of objects that are gone


class _Names(msgspec.Struct):
    plural: str = ""


class _Spec(msgspec.Struct):
    names: _Names = msgspec.field(default_factory=_Names)


class _CustomResourceDefinition(msgspec.Struct):
    metadata: Json
    spec: _Spec = msgspec.field(default_factory=_Spec)


_crd_decoder = msgspec.json.Decoder(_CustomResourceDefinition)


def _decode_crd(raw: bytes) -> Json:
    """A CustomResourceDefinition with only its metadata and plural: the schemas are large and not used here."""
    crd: Json = msgspec.to_builtins(_crd_decoder.decode(raw))
    return {"apiVersion": CRD.api_version, "kind": CRD.kind, **crd}


class Graph:
    """Objects by resource and key, by uid, and by the uids of their owners.

    The uids of deleted objects are kept (up to `MAX_ABSENT_UIDS`): a uid is never used again, so such an owner is
    absent.
    """

    def __init__(self) -> None:
        self.stores: dict[GVK, Store[Json]] = {}
        self._dependents: dict[str, set[tuple[GVK, NamespacedName]]] = {}
        self.pods_by_label, self.slices_by_label = LabelIndex(), LabelIndex()
        self.services_by_selector = SelectorIndex()
        self._members: dict[NamespacedName, dict[NamespacedName, None]] = {}  # PodGroup -> the pods that name it
        self._gone: dict[str, None] = {}  # an ordered set: the oldest uid is dropped first

    def add_store(self, gvk: GVK) -> Store[Json]:
        """Add an empty store for a resource."""
        adapter = dict_adapter(api_version=gvk.api_version, kind=gvk.kind)
        store = Store(replace(adapter, decode=_decode_crd) if gvk == CRD else adapter)
        self.stores[gvk] = store
        return store

    @property
    def synced(self) -> bool:
        """Whether every store has received one complete list."""
        return all(store.synced for store in self.stores.values())

    def get(self, gvk: GVK, key: NamespacedName) -> Json | None:
        """The object, None when it does not exist or its resource is not watched."""
        store = self.stores.get(gvk)
        return store.get(key) if store else None

    def all(self, gvk: GVK) -> Iterator[Json]:
        """The objects of one resource, none when it is not watched."""
        store = self.stores.get(gvk)
        return iter(store) if store else iter(())

    def by_uid(self, uid: str) -> tuple[GVK, Json] | None:
        """The object with this uid and its GVK, None when no watched resource has it."""
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
        """The objects with an owner reference to this uid."""
        objs = ((gvk, self.get(gvk, key)) for gvk, key in sorted(self._dependents.get(uid, ()), key=str))
        return [Dependent(gvk, obj) for gvk, obj in objs if obj is not None]

    def selected_pods(self, service: Json) -> list[Json]:
        """The pods that the selector of the Service matches."""
        candidates = self.pods_by_label.candidates(namespace_of(service), selector_of(service))
        pods = (self.get(POD, key) for key in candidates)
        return [pod for pod in pods if pod is not None and selects(service, pod)]

    def members_of(self, group: NamespacedName) -> list[Json]:
        """The pods that name the PodGroup, which need not exist, in the order of their creation."""
        pods = (self.get(POD, key) for key in self._members.get(group, ()))
        return [pod for pod in pods if pod is not None]

    def services_of(self, pod: Json) -> list[Json]:
        """The Services whose selector matches the pod, which need not exist any more."""
        candidates = self.services_by_selector.candidates(namespace_of(pod), labels_of(pod))
        services = (self.get(SERVICE, key) for key in candidates)
        return [service for service in services if service is not None and selects(service, pod)]

    def endpoint_slices_of(self, service: Json) -> list[Json]:
        """The EndpointSlices whose label names the Service."""
        candidates = self.slices_by_label.candidates(namespace_of(service), {SERVICE_NAME_LABEL: name_of(service)})
        slices = (self.get(ENDPOINT_SLICE, key) for key in candidates)
        return [endpoint_slice for endpoint_slice in slices if endpoint_slice is not None]

    def index(self, gvk: GVK, change: Change[Json], deleted: bool = True) -> None:
        """Update the indexes. To be called after the store has applied the change. `deleted`: an object
        that is not in the store any more was deleted; it may also be in a resource that is not watched any more."""
        before, after = change.before, change.after
        if gvk in (POD, ENDPOINT_SLICE):
            labels = self.pods_by_label if gvk == POD else self.slices_by_label
            labels.update(key_of(after or before or {}), labels_of(before or {}), labels_of(after or {}))
        if gvk == POD:
            self._index_member(before, after)
        elif gvk == SERVICE:
            self.services_by_selector.update(key_of(after or before or {}), selector_of(after or {}))
        if before is not None:
            for ref in owner_references(before):
                self._remove_dependent(str(ref.get("uid")), (gvk, key_of(before)))
            if deleted and (after is None or uid_of(after) != uid_of(before)):
                self.mark_absent(uid_of(before))
        if after is not None:
            for ref in owner_references(after):
                self._dependents.setdefault(str(ref.get("uid")), set()).add((gvk, key_of(after)))

    def _index_member(self, before: Json | None, after: Json | None) -> None:
        if before is not None and (group := group_of(before)) and (after is None or group_of(after) != group):
            members = self._members.get(group, {})
            members.pop(key_of(before), None)
            if not members:
                self._members.pop(group, None)
        if after is not None and (group := group_of(after)):
            self._members.setdefault(group, {})[key_of(after)] = None

    def mark_absent(self, uid: str) -> None:
        """Remember that no object with this uid exists any more."""
        self._gone[uid] = None
        if len(self._gone) > MAX_ABSENT_UIDS:
            del self._gone[next(iter(self._gone))]

    def is_absent(self, uid: str) -> bool:
        """Whether a lookup has shown that no object has this uid."""
        return uid in self._gone

    def _remove_dependent(self, owner_uid: str, dependent: tuple[GVK, NamespacedName]) -> None:
        dependents = self._dependents.get(owner_uid, set())
        dependents.discard(dependent)
        if not dependents:
            self._dependents.pop(owner_uid, None)
