"""Our own writes, until the watches have delivered them to the stores: no reconcile from a stale cache.

The write of a status carries the resourceVersion of its object, the owner of the children, so it fails if the cached
owner is stale. It cannot detect that the cached children are stale. So after a reconcile that wrote, the owner is
reconciled again only when the stores show every write: a created or patched object, or the owner itself, at the
resourceVersion of the answer or later; a deleted object absent, or with a deletionTimestamp and another resourceVersion
than before the request: the pod of a lost node is deleted by force when it has its deletionTimestamp.

Rules for this file:
- Writes are not counted (as ControllerExpectations does): uids and resourceVersions are compared with the stores.
- Every wait ends: if a store does not show a write within `timeout`, its resource is listed again, and the complete
  list ends the wait.
- Only objects that were in the store are deleted, so "not in the store" means that the object is gone.
- This state may be lost in a crash: a new operator lists before it reconciles.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from trainyard.controller_runtime.store import Store
from trainyard.objects.structs import replace

R = TypeVar("R", bound=Hashable)

VISIBILITY_TIMEOUT = 20.0  # seconds
SWEEP_THRESHOLD = 64  # from so many owners on, `record` removes the writes that the stores show


class AcknowledgedWrite(msgspec.Struct, Generic[R], frozen=True):
    """One write that the API server accepted. `resource` selects the store that must show it; `uid` and `revision` are
    the uid and the resourceVersion of the written object. `deleted`: for a delete, whose `revision` is the one that the
    store showed before the request."""

    resource: R
    uid: str
    revision: str = ""
    deleted: bool = False


class _InFlight(msgspec.Struct, Generic[R], frozen=True):
    write: AcknowledgedWrite[R]
    since: float  # monotonic time of the write, or of the last relist request
    lists: int = -1  # after a timeout: the store's number of complete lists when the relist was requested


class InFlightWrites(Generic[R]):
    """The accepted writes of each owner (by uid) that the stores do not show yet. `timeout` is in seconds."""

    def __init__(self, stores: Mapping[R, Store[Any]], timeout: float = VISIBILITY_TIMEOUT) -> None:
        self._stores = stores
        self.timeout = timeout
        self._in_flight: dict[str, list[_InFlight[R]]] = {}
        self._sweep_at = SWEEP_THRESHOLD

    def record(self, owner_uid: str, write: AcknowledgedWrite[R], now: float) -> None:
        """Add a write of the owner with this uid, sent at the monotonic time `now`. A write of a resource that
        has no store is ignored: nothing would ever show it."""
        if write.resource not in self._stores:
            return
        self._in_flight.setdefault(owner_uid, []).append(_InFlight(write, now))
        if len(self._in_flight) >= self._sweep_at:  # `has_pending` is never called again for a deleted owner
            for uid in list(self._in_flight):
                self.has_pending(uid)
            self._sweep_at = 2 * len(self._in_flight) + SWEEP_THRESHOLD

    def cached_revision(self, resource: R, uid: str) -> str:
        """The resourceVersion at which the store of the resource shows the object; "" when it does not."""
        store = self._stores.get(resource)
        cached = store and store.by_uid(uid)
        return store.adapter.revision(cached) if store and cached is not None else ""

    def forget(self, owner_uid: str) -> None:
        """Remove all entries of this owner."""
        self._in_flight.pop(owner_uid, None)

    def has_pending(self, owner_uid: str) -> bool:
        """True while a store does not show a write of this owner. Removes the writes that the stores show."""
        pending = [in_flight for in_flight in self._in_flight.get(owner_uid, ()) if not self._is_visible(in_flight)]
        if pending:
            self._in_flight[owner_uid] = pending
        else:
            self.forget(owner_uid)
        return bool(pending)

    def deadline(self, owner_uid: str) -> float | None:
        """The monotonic time at which the first of this owner's writes is overdue; None when it has none."""
        since = [in_flight.since for in_flight in self._in_flight.get(owner_uid, ())]
        return min(since) + self.timeout if since else None

    def overdue_resources(self, owner_uid: str, now: float) -> set[R]:
        """The resources whose stores have not shown a write of this owner within `timeout`: the caller relists them.
        The timeout of those writes starts again."""
        resources: set[R] = set()
        for index, in_flight in enumerate(self._in_flight.get(owner_uid, ())):
            if now >= in_flight.since + self.timeout:
                resource = in_flight.write.resource
                resources.add(resource)
                self._in_flight[owner_uid][index] = replace(
                    in_flight, since=now, lists=self._stores[resource].list_count
                )
        return resources

    def _is_visible(self, in_flight: _InFlight[R]) -> bool:
        write, store = in_flight.write, self._stores[in_flight.write.resource]
        if 0 <= in_flight.lists < store.list_count:  # a complete list has arrived since the relist was requested
            return True
        cached = store.by_uid(write.uid)
        if write.deleted:
            adapter = store.adapter
            return cached is None or (adapter.is_deleting(cached) and adapter.revision(cached) != write.revision)
        if store.has_reached(write.revision):
            return True
        return cached is not None and write.revision in ("", store.adapter.revision(cached))
