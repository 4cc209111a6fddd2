"""Our own writes, until the watches have delivered them to the stores: no reconcile from a stale cache.

The resourceVersion in the status patch proves that the job was fresh; it proves nothing about its children. So after a
reconcile that wrote, the job is not reconciled again before the stores show every write: a created or patched object,
or the job itself, at the answered resourceVersion or later; a deleted object absent or with a deletionTimestamp.

Rules for this file:
- No counted expectations (ControllerExpectations): only uids and resourceVersions are compared with the stores.
- No wait is endless: a write that the store does not show within `timeout` makes its resource relist, and the complete
  list that follows ends the wait.
- Only objects that were in the store are deleted, so "not in the store" means that the object is gone.
- Losing this state (a crash) is harmless: a new operator lists before it reconciles.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from trainyard.controller_runtime.store import Store
from trainyard.objects.values import replace

R = TypeVar("R", bound=Hashable)

TIMEOUT = 20.0
SWEEP_AT = 64  # objects with writes, from which on those are forgotten whose writes the stores show


class AcknowledgedWrite(msgspec.Struct, Generic[R], frozen=True):
    """One write that the API server acknowledged. `resource` names the store that must show it."""

    resource: R
    uid: str
    revision: str = ""  # as the answer said; "" for a delete
    gone: bool = False


class _InFlight(msgspec.Struct, Generic[R], frozen=True):
    write: AcknowledgedWrite[R]
    since: float
    lists: int = -1  # after a time-out: the store's number of complete lists when the relist was requested


class InFlightWrites(Generic[R]):
    """The acknowledged writes of each job that the stores do not show yet."""

    def __init__(self, stores: Mapping[R, Store[Any]], timeout: float = TIMEOUT) -> None:
        self._stores = stores
        self.timeout = timeout
        self._in_flight: dict[str, list[_InFlight[R]]] = {}
        self._sweep_at = SWEEP_AT

    def record(self, job: str, write: AcknowledgedWrite[R], now: float) -> None:
        """Remember a write for the job with that uid."""
        self._in_flight.setdefault(job, []).append(_InFlight(write, now))
        if len(self._in_flight) >= self._sweep_at:  # nobody asks for objects that are gone
            for each in list(self._in_flight):
                self.has_pending(each)
            self._sweep_at = 2 * len(self._in_flight) + SWEEP_AT

    def forget(self, job: str) -> None:
        self._in_flight.pop(job, None)

    def has_pending(self, job: str) -> bool:
        """True while a store does not show a write of this job."""
        waiting = [one for one in self._in_flight.get(job, ()) if not self._is_visible(one)]
        if waiting:
            self._in_flight[job] = waiting
        else:
            self.forget(job)
        return bool(waiting)

    def deadline(self, job: str) -> float | None:
        """When the first of this job's writes is overdue."""
        since = [one.since for one in self._in_flight.get(job, ())]
        return min(since) + self.timeout if since else None

    def overdue(self, job: str, now: float) -> set[R]:
        """The resources to relist, whose stores do not show a write in time. Restarts the timeout of those writes."""
        late: set[R] = set()
        for at, one in enumerate(self._in_flight.get(job, ())):
            if now >= one.since + self.timeout:
                late.add(one.write.resource)
                lists = self._stores[one.write.resource].lists
                self._in_flight[job][at] = replace(one, since=now, lists=lists)
        return late

    def _is_visible(self, one: _InFlight[R]) -> bool:
        write, store = one.write, self._stores[one.write.resource]
        if 0 <= one.lists < store.lists:
            return True
        seen = store.by_uid(write.uid)
        if write.gone:
            return seen is None or store.adapter.deleting(seen)
        if store.has_reached(write.revision):
            return True
        return seen is not None and write.revision in ("", store.adapter.revision(seen))
