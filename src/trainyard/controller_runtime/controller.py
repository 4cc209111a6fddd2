"""The base of every controller: watches fill stores and enqueue keys; workers reconcile, never two the same key.

    loop = Loop(api, reconcile)
    jobs = loop.watch(Source(JOB), wakes=itself)                 # a Store of dicts
    pods = loop.watch(Source(POD), wakes=owned_by("Job"))
    await loop.start(); await loop.synced; ...; await loop.stop()

`reconcile(key)` reads the observed state from the stores, writes the difference to the desired state, and returns the
seconds to requeue after, or None. It is level-triggered: it never learns which event enqueued the key.

Rules for this file:
- No reconcile before every store has synced (one complete list): with a partial list, existing objects look missing.
- Three kinds of failure, handled here and nowhere else: a Conflict (the store was stale: requeue soon), an unavailable
  API server (exponential back-off, at least Retry-After), a refusal or our bug (logged as error, back-off up to five
  minutes). All are counted. A failure delays only its own key.
- A retry is a key added to the work queue with a delay; no worker sleeps while it holds a key.
- Requeue delays are seconds, never wall-clock times: the clock may be set, and the machine may be suspended. So a key
  that is requeued is due after `LONGEST_DELAY` at the latest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

from trainyard.client import Api, ApiError, Conflict, Unavailable
from trainyard.controller_runtime import Reflector, TaskSupervisor, WatchTarget, pause_after
from trainyard.controller_runtime.object_adapter import ObjectAdapter, dict_adapter
from trainyard.controller_runtime.reflector import StoreEvent
from trainyard.controller_runtime.store import Store
from trainyard.controller_runtime.work_queue import WorkQueue
from trainyard.objects import Json, Key, controller_of, key_of, namespace_of

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

EventMapper: TypeAlias = Callable[[T | None, T | None], Iterable[K]]
"""An event handler: maps (old object, new object) to the keys to enqueue; None: the object does not exist."""

CONFLICT_FIRST, CONFLICT_LONGEST = 0.05, 5.0
UNAVAILABLE_FIRST, UNAVAILABLE_LONGEST = 0.5, 8.0  # keys are retried within ten seconds after the API server is back
ERROR_FIRST, ERROR_LONGEST = 1.0, 300.0
LONGEST_DELAY = 300.0


def enqueue_object(before: Json | None, after: Json | None) -> Iterable[Key]:
    """Enqueue the key of the object itself (controller-runtime: EnqueueRequestForObject)."""
    return {key_of(obj) for obj in (before, after) if obj is not None}


def enqueue_owner(kind: str) -> EventMapper[Json, Key]:
    """Enqueue the key of the object's controller owner, if that is of this kind (EnqueueRequestForOwner)."""

    def owners(before: Json | None, after: Json | None) -> Iterable[Key]:
        found = set()
        for obj in (before, after):
            owner = controller_of(obj) if obj is not None else None
            if obj is not None and owner is not None and owner.get("kind") == kind:
                found.add(Key(namespace_of(obj), str(owner.get("name"))))
        return found

    return owners


class Latch:
    """A condition that becomes true once and stays true: await it, or test it with bool()."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __await__(self) -> Generator[Any, None, None]:
        if not self._event.is_set():
            yield from self._event.wait().__await__()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()


class Controller(Generic[K]):
    """One controller: watches, work queue, workers. `counts` has the number of reconciles and of failures by kind."""

    def __init__(
        self,
        api: Api,
        reconcile: Callable[[K], Awaitable[float | None]],
        workers: int = 16,
        report: Callable[[str], object] | None = None,
        component: str = "controller",
    ) -> None:
        """`report` gets a sentence when one of the long-lived tasks has ended and is started again."""
        self.queue: WorkQueue[K] = WorkQueue()
        self.synced = Latch()
        self.counts: Counter[str] = Counter()
        self.reflectors: list[Reflector[Any]] = []
        self.on_reconciled: Callable[[K, str, float], None] | None = None  # after each reconcile: key, outcome, seconds
        self._api = api
        self._reconcile = reconcile
        self._workers = workers
        self.stores: list[Store[Any]] = []  # in the order of the feeds
        self._failures: dict[K, int] = {}
        self._not_before: dict[K, float] = {}  # not reconciled before then (back-off, Retry-After), even on an event
        self.tasks = TaskSupervisor(component, report)

    def watch(self, target: WatchTarget, mapper: EventMapper[Json, K]) -> Store[Json]:
        """Watch a resource into a store of dicts, indexed by controller owner uid; enqueue the keys `wakes` returns."""
        return self.watch_with(target, dict_adapter(api_version=target.gvk.api_version, kind=target.gvk.kind), mapper)

    def watch_with(self, source: WatchTarget, view: ObjectAdapter[T], wakes: EventMapper[T, K]) -> Store[T]:
        """As `watch`, with the caller's own decoder and key functions (`view`). To be called before `start`."""
        store = Store(view)

        def apply(said: StoreEvent[T]) -> None:
            for change in store.apply(said):
                for key in wakes(change.before, change.after):
                    self.queue.add(key)
            if not self.synced and all(one.synced for one in self.stores):
                self.synced.set()

        self.reflectors.append(Reflector(self._api, source, view, apply))
        self.stores.append(store)
        return store

    async def start(self) -> None:
        """Begin to watch; the first pass comes when everything is synced."""
        for feed in self.reflectors:
            self.tasks.start(f"watch {feed.target.name}", feed.run)
        for number in range(self._workers):
            self.tasks.start(f"worker {number}", self._work)

    async def stop(self) -> None:
        """Cancel the watches and the workers. A reconcile in progress is cancelled, which is safe."""
        await self.tasks.stop()

    def relist(self, target: WatchTarget) -> None:
        """List that resource again, now."""
        for feed in self.reflectors:
            if feed.target == target:
                feed.relist()

    def forget(self, key: K) -> None:
        """Reset the back-off of this key (client-go: Forget): it made progress although the reconcile failed."""
        self._failures.pop(key, None)

    async def _work(self) -> None:
        await self.synced
        while True:
            key = await self.queue.get()
            try:
                await self._process(key)
            except BaseException:  # the worker dies: enqueue its key again
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)

    async def _process(self, key: K) -> None:
        backoff = self._not_before.get(key, 0.0) - time.monotonic()
        if backoff > 0:
            self.queue.add(key, backoff)
            return
        self._not_before.pop(key, None)
        self.counts["passes"] += 1
        began = time.perf_counter()
        outcome = "abandoned"
        try:
            outcome = await self._reconcile_once(key)
        finally:
            if self.on_reconciled is not None:
                self.on_reconciled(key, outcome, time.perf_counter() - began)

    async def _reconcile_once(self, key: K) -> str:
        """Reconcile the key once. Returns the outcome."""
        try:
            delay = await self._reconcile(key)
        except Conflict as error:
            log.debug("our copy was old key=%s why=%s", key, error)
            self._requeue_after_failure(key, "conflicts", CONFLICT_FIRST, CONFLICT_LONGEST)
            return "conflict"
        except ApiError as error:
            if isinstance(error, Unavailable) or error.code == 401:  # an expired token is renewed elsewhere
                retry_after = error.retry_after if isinstance(error, Unavailable) else None
                wait = self._requeue_after_failure(
                    key, "unavailable", UNAVAILABLE_FIRST, UNAVAILABLE_LONGEST, retry_after or 0.0
                )
                self._not_before[key] = time.monotonic() + wait
                log.warning("the API server cannot now key=%s again_in=%.1fs why=%s", key, wait, error)
                return "unavailable"
            wait = self._requeue_after_failure(key, "refused", ERROR_FIRST, ERROR_LONGEST)
            log.error("the API server refuses key=%s again_in=%.1fs why=%s", key, wait, error)
            return "refused"
        except Exception:
            wait = self._requeue_after_failure(key, "faults", ERROR_FIRST, ERROR_LONGEST)
            log.exception("bug while reconciling key=%s again_in=%.1fs", key, wait)
            return "fault"
        self._failures.pop(key, None)
        if delay is not None:
            self.queue.add(key, min(delay, LONGEST_DELAY))
        return "done"

    def _requeue_after_failure(self, key: K, what: str, first: float, longest: float, at_least: float = 0.0) -> float:
        """Count a failure of this key and requeue it with back-off. Returns the delay in seconds."""
        self.counts[what] += 1
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        wait = max(pause_after(failures, first, longest), at_least)
        self.queue.add(key, wait)
        return wait
