"""The base of every controller: reflectors fill stores and enqueue keys; workers reconcile, each key one at a time.

    controller = Controller(api, reconcile)
    jobs = controller.watch(WatchTarget(JOB), mapper=enqueue_object)        # a Store of dicts
    pods = controller.watch(WatchTarget(POD), mapper=enqueue_owner("Job"))
    await controller.start(); await controller.synced; ...; await controller.stop()

`reconcile(key)` reads the observed state from the stores, writes the difference to the desired state, and returns the
seconds to requeue after, or None. It is level-triggered: it is not told which event enqueued the key.

Rules for this file:
- No reconcile before every store has synced (received one complete list): in a partial list existing objects are
  missing.
- Three kinds of failure, handled here and nowhere else: a Conflict (the store was stale: requeue soon), an unavailable
  API server (exponential back-off, at least Retry-After), and any other error answer or exception (logged as error,
  back-off up to five minutes). All are counted. A failure delays only its own key.
- A retry is a key added to the work queue with a delay; no worker sleeps while it processes a key.
- Requeue delays are seconds, never wall-clock times: the wall clock may be set, and the machine may be suspended. For
  the same reason no requeue delay is longer than `MAX_REQUEUE_DELAY`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

from trainyard.client import ApiClient, ApiError, Conflict, Unavailable
from trainyard.controller_runtime import Reflector, TaskSupervisor, WatchTarget, backoff_delay
from trainyard.controller_runtime.object_adapter import ObjectAdapter, dict_adapter
from trainyard.controller_runtime.reflector import StoreEvent
from trainyard.controller_runtime.store import Store
from trainyard.controller_runtime.work_queue import WorkQueue
from trainyard.objects import Json, NamespacedName, controller_of, key_of, namespace_of

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

EventMapper: TypeAlias = Callable[[T | None, T | None], Iterable[K]]
"""An event handler: maps (old object, new object) to the keys to enqueue; None: the object does not exist."""

# The first and the longest back-off after each kind of failure, in seconds.
CONFLICT_INITIAL_DELAY, CONFLICT_MAX_DELAY = 0.05, 5.0
# Keys are retried within ten seconds after the API server is back.
UNAVAILABLE_INITIAL_DELAY, UNAVAILABLE_MAX_DELAY = 0.5, 8.0
ERROR_INITIAL_DELAY, ERROR_MAX_DELAY = 1.0, 300.0
MAX_REQUEUE_DELAY = 300.0  # seconds


def enqueue_object(before: Json | None, after: Json | None) -> Iterable[NamespacedName]:
    """Enqueue the key of the object itself (controller-runtime: EnqueueRequestForObject)."""
    return {key_of(obj) for obj in (before, after) if obj is not None}


def enqueue_owner(kind: str) -> EventMapper[Json, NamespacedName]:
    """Enqueue the key of the object's controller owner, if that is of this kind (controller-runtime:
    EnqueueRequestForOwner)."""

    def owner_keys(before: Json | None, after: Json | None) -> Iterable[NamespacedName]:
        keys = set()
        for obj in (before, after):
            owner = controller_of(obj) if obj is not None else None
            if obj is not None and owner is not None and owner.get("kind") == kind:
                keys.add(NamespacedName(namespace_of(obj), str(owner.get("name"))))
        return keys

    return owner_keys


class Latch:
    """A condition that becomes true once and stays true: `await latch` waits for it, `bool(latch)` tests it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __await__(self) -> Generator[Any, None, None]:
        if not self._event.is_set():
            yield from self._event.wait().__await__()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Make the condition true and wake all that wait for it. Further calls change nothing."""
        self._event.set()


class Controller(Generic[K]):
    """One controller: reflectors, stores, work queue and workers. `counts` has the number of reconciles ("reconciles")
    and of failures of each kind. `synced` is set when every store has received one complete list."""

    def __init__(
        self,
        api: ApiClient,
        reconcile: Callable[[K], Awaitable[float | None]],
        workers: int = 16,
        report: Callable[[str], object] | None = None,
        component: str = "controller",
        namespace_share: int = sys.maxsize,
    ) -> None:
        """`report` is called with a message when a long-lived task has ended and is restarted; `component` begins
        it. `namespace_share`: how many keys of one namespace are reconciled at once."""
        self.queue: WorkQueue[K] = WorkQueue(share=namespace_share)
        self.synced = Latch()
        self.counts: Counter[str] = Counter()
        self.reflectors: list[Reflector[Any]] = []
        self.on_reconciled: Callable[[K, str, float], None] | None = None  # parameters: key, outcome, seconds
        self._api = api
        self._reconcile = reconcile
        self._workers = workers
        self.stores: list[Store[Any]] = []  # in the order of `reflectors`
        self._failures: dict[K, int] = {}
        # Until this monotonic time the key is not reconciled, even on an event: the server is unavailable.
        self._not_before: dict[K, float] = {}
        self.tasks = TaskSupervisor(component, report)

    def watch(self, target: WatchTarget, mapper: EventMapper[Json, K]) -> Store[Json]:
        """Watch a resource into a store of dicts, indexed by controller owner uid. Each change enqueues the keys that
        `mapper` returns. To be called before `start`."""
        return self.watch_with(target, dict_adapter(api_version=target.gvk.api_version, kind=target.gvk.kind), mapper)

    def watch_with(self, target: WatchTarget, adapter: ObjectAdapter[T], mapper: EventMapper[T, K]) -> Store[T]:
        """As `watch`, with an adapter of the caller instead of that for dicts."""
        store = Store(adapter)

        def apply(event: StoreEvent[T]) -> None:
            for change in store.apply(event):
                for key in mapper(change.before, change.after):
                    self.queue.add(key)
            if not self.synced and all(watched.synced for watched in self.stores):
                self.synced.set()

        self.reflectors.append(Reflector(self._api, target, adapter, apply))
        self.stores.append(store)
        return store

    async def start(self) -> None:
        """Start the reflectors and the workers. The first reconcile follows when every store has synced."""
        for reflector in self.reflectors:
            self.tasks.start(f"watch {reflector.target.name}", reflector.run)
        for number in range(self._workers):
            self.tasks.start(f"worker {number}", self._work)

    async def stop(self) -> None:
        """Cancel the reflectors and the workers, and with them any reconcile in progress, which is safe."""
        await self.tasks.stop()

    def relist(self, target: WatchTarget) -> None:
        """List the resource of this target again, now."""
        for reflector in self.reflectors:
            if reflector.target == target:
                reflector.relist()

    def forget(self, key: K) -> None:
        """Reset the back-off of this key (client-go: Forget): it made progress although the reconcile failed."""
        self._failures.pop(key, None)

    async def _work(self) -> None:
        await self.synced
        while True:
            key = await self.queue.get()
            try:
                await self._process(key)
            except BaseException:  # this worker ends (it is cancelled, say): enqueue the key for another worker
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)

    async def _process(self, key: K) -> None:
        remaining = self._not_before.get(key, 0.0) - time.monotonic()
        if remaining > 0:
            self.queue.add(key, remaining)
            return
        self._not_before.pop(key, None)
        self.counts["reconciles"] += 1
        started = time.perf_counter()
        outcome = "abandoned"
        try:
            outcome = await self._reconcile_once(key)
        finally:
            if self.on_reconciled is not None:
                self.on_reconciled(key, outcome, time.perf_counter() - started)

    async def _reconcile_once(self, key: K) -> str:
        """Reconcile the key once and requeue it if needed. Returns the outcome: done, conflict, unavailable, refused
        (any other error answer) or fault (any other exception)."""
        try:
            requeue_after = await self._reconcile(key)
        except Conflict as error:
            log.debug("conflict, the store was stale key=%s error=%s", key, error)
            self._requeue_after_failure(key, "conflicts", CONFLICT_INITIAL_DELAY, CONFLICT_MAX_DELAY)
            return "conflict"
        except ApiError as error:
            if isinstance(error, Unavailable) or error.code == 401:  # an expired token is renewed elsewhere
                retry_after = error.retry_after if isinstance(error, Unavailable) else None
                backoff = self._requeue_after_failure(
                    key, "unavailable", UNAVAILABLE_INITIAL_DELAY, UNAVAILABLE_MAX_DELAY, retry_after or 0.0
                )
                self._not_before[key] = time.monotonic() + backoff
                log.warning("API server unavailable key=%s requeue_after=%.1fs error=%s", key, backoff, error)
                return "unavailable"
            backoff = self._requeue_after_failure(key, "refused", ERROR_INITIAL_DELAY, ERROR_MAX_DELAY)
            log.error("request refused key=%s requeue_after=%.1fs error=%s", key, backoff, error)
            return "refused"
        except Exception:
            backoff = self._requeue_after_failure(key, "faults", ERROR_INITIAL_DELAY, ERROR_MAX_DELAY)
            log.exception("reconcile failed with an unexpected error key=%s requeue_after=%.1fs", key, backoff)
            return "fault"
        self._failures.pop(key, None)
        if requeue_after is not None:
            self.queue.add(key, min(requeue_after, MAX_REQUEUE_DELAY))
        return "done"

    def _requeue_after_failure(
        self, key: K, failure: str, first: float, longest: float, at_least: float = 0.0
    ) -> float:
        """Count a failure of this key (in `counts[failure]`) and requeue it with back-off. Returns the delay in
        seconds, which is at least `at_least`."""
        self.counts[failure] += 1
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        backoff = max(backoff_delay(failures, first, longest), at_least)
        self.queue.add(key, backoff)
        return backoff
