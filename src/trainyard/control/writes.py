"""Our own writes, until the watch has shown them to us.

The status fence proves that the job was fresh when we wrote; it proves nothing about its children. So after a pass
that wrote, the job is not looked at again before every write of that pass is in the stores: a created or patched
object with its uid or a later revision, a deleted one gone or going, the job itself with the revision we made.

Rules for this file:
- No expectations and no counters: uids and revisions only, compared with the stores.
- Nothing hangs for ever: what has not arrived after a while makes its resource list again, and a whole list that was
  begun after the write answers every question.
- Only what has been seen is deleted, so "not in the store" means that it has gone.
- Losing this memory (a crash) is harmless: a new operator lists first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from trainyard.control.store import Store
from trainyard.objects.values import replace

R = TypeVar("R", bound=Hashable)

TIMEOUT = 20.0


class Write(msgspec.Struct, Generic[R], frozen=True):
    """One write that we know was done. `resource` names the store it must arrive in."""

    resource: R
    uid: str
    revision: str = ""  # as the answer said; "" for a delete
    gone: bool = False


class _Waiting(msgspec.Struct, Generic[R], frozen=True):
    write: Write[R]
    since: float
    lists: int = -1  # after a time-out: how many lists the store had taken in when it was told to list again


class Writes(Generic[R]):
    """What has been written for each job and has not been seen yet."""

    def __init__(self, stores: Mapping[R, Store[Any]], timeout: float = TIMEOUT) -> None:
        self._stores = stores
        self.timeout = timeout
        self._waiting: dict[str, list[_Waiting[R]]] = {}

    def note(self, job: str, write: Write[R], now: float) -> None:
        """Remember a write for the job with that uid."""
        self._waiting.setdefault(job, []).append(_Waiting(write, now))

    def forget(self, job: str) -> None:
        self._waiting.pop(job, None)

    def waits(self, job: str) -> bool:
        """True while a write of this job has not arrived."""
        waiting = [one for one in self._waiting.get(job, ()) if not self._arrived(one)]
        if waiting:
            self._waiting[job] = waiting
        else:
            self.forget(job)
        return bool(waiting)

    def deadline(self, job: str) -> float | None:
        """When the first of this job's writes is overdue."""
        since = [one.since for one in self._waiting.get(job, ())]
        return min(since) + self.timeout if since else None

    def overdue(self, job: str, now: float) -> set[R]:
        """The resources that must be listed again, because a write has not shown up. The wait then starts anew."""
        late: set[R] = set()
        for at, one in enumerate(self._waiting.get(job, ())):
            if now >= one.since + self.timeout:
                late.add(one.write.resource)
                lists = self._stores[one.write.resource].lists
                self._waiting[job][at] = replace(one, since=now, lists=lists)
        return late

    def _arrived(self, one: _Waiting[R]) -> bool:
        write, store = one.write, self._stores[one.write.resource]
        if 0 <= one.lists < store.lists:
            return True
        seen = store.with_uid(write.uid)
        if write.gone:
            return seen is None or store.view.deleting(seen)
        if store.has_reached(write.revision):
            return True
        return seen is not None and write.revision in ("", store.view.revision(seen))
