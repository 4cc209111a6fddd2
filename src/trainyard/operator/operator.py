"""The operator: watches every kind of job and every kind of child, and reconciles each job by the writes of its plan.

Rules for this file:
- One watch per kind of job, one per kind of child with a label selector (the owner label exists), so that foreign
  objects are not cached. Children are flat records, jobs are dicts.
- A kind whose CRD is not installed counts as "no jobs" (its watch is "parked"): the list is retried with back-off.
- State kept between reconciles (refusals, writes not yet in the stores) is in memory only; losing it is harmless.
- A finished job costs nothing: its plan is idle and an idle plan sends nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from trainyard import core
from trainyard.client import Api, Selection, Unavailable
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.controller import Controller, Latch
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.object_adapter import ObjectAdapter, dict_adapter
from trainyard.controller_runtime.reflector import Listing, NotListed, Reflector, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.controller_runtime.work_queue import WorkQueue
from trainyard.core import Child, Config, Kind, Observed
from trainyard.objects import GVK, Json, Key, key_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.operator.plan_executor import JobState, PlanExecutor, Reconcile

log = logging.getLogger(__name__)


class JobKey(NamedTuple):
    """One job among all kinds."""

    gvk: GVK
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.gvk.plural}/{self.namespace}/{self.name}"


class WatchState(NamedTuple):
    """How one watch stands: "missing", "listing", "watching", or "failing"; how many objects it knows; why it fails."""

    gvk: GVK
    state: str
    objects: int
    why: str


class Operator:
    """`await start()`, `await synced`, `await stop()`. `now` is the clock that plans are made with."""

    def __init__(
        self,
        api: Api,
        kinds: Sequence[Kind],
        config: Config,
        namespace: str = "",
        now: Callable[[], float] = time.time,
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._config = config
        self._now = now
        self._kinds = {kind.gvk: kind for kind in kinds}
        self._controller: Controller[JobKey] = Controller(api, self._reconcile, report=report, component="operator")
        self._targets: dict[GVK, WatchTarget] = {}
        self._jobs: dict[GVK, Store[Json]] = {}
        self._children: dict[GVK, Store[Child]] = {}
        self._runtime_ids: dict[str, dict[str, str]] = {}  # namespace -> uid of the job -> its RuntimeId
        self._states: dict[str, JobState] = {}  # by uid of the job
        self._watch_all(namespace)
        stores: dict[GVK, Store[Any]] = {**self._jobs, **self._children}
        self.writes: InFlightWrites[GVK] = InFlightWrites(stores)
        self._recorder = EventRecorder(api, now)
        self._executor = PlanExecutor(api, config, self.writes, self._recorder, now)

    @property
    def synced(self) -> Latch:
        """Awaitable: every watch has seen a whole list."""
        return self._controller.synced

    @property
    def counts(self) -> dict[str, int]:
        """Passes, and how many ended in conflicts, unavailable, refused, faults."""
        return dict(self._controller.counts)

    @property
    def queue(self) -> WorkQueue[JobKey]:
        return self._controller.queue

    @property
    def watches(self) -> list[WatchState]:
        return [
            WatchState(feed.target.gvk, _watch_state(feed, store), len(store), feed.last_error)
            for feed, store in zip(self._controller.reflectors, self._controller.stores, strict=True)
        ]

    @property
    def unhealthy(self) -> str:
        """The task that ends again and again although it is restarted, "" when there is none."""
        return self._controller.tasks.unhealthy

    @property
    def tasks(self) -> TaskSupervisor:
        """The owner of its long-lived tasks."""
        return self._controller.tasks

    def jobs(self, gvk: GVK) -> Store[Json]:
        """The jobs of one of our kinds, as last seen."""
        return self._jobs[gvk]

    def on_reconciled(self, hear: Callable[[JobKey, str, float], None]) -> None:
        """`hear` is told of each pass: the job, how it ended, how many seconds it took."""
        self._controller.on_reconciled = hear

    def set_config(self, config: Config) -> None:
        """From now on plans are made with this. Every job is looked at again: that costs nothing where none changes."""
        self._config = self._executor.config = config
        self.resync()

    async def start(self) -> None:
        self._controller.tasks.start("record events", self._recorder.run)
        await self._controller.start()

    async def stop(self) -> None:
        """Stop where we are: what is under way is abandoned, the next operator goes on."""
        await self._controller.stop()

    def resync(self) -> None:
        """Look at every job now: for whoever has moved the clock."""
        for gvk, store in self._jobs.items():
            for job in store:
                self._controller.queue.add(JobKey(gvk, *key_of(job)))

    def _watch_all(self, namespace: str) -> None:
        for gvk in self._kinds:
            self._targets[gvk] = source = WatchTarget(gvk, namespace, optional=True)
            view = dict_adapter(namespace_of, gvk.api_version, gvk.kind)
            self._jobs[gvk] = self._controller.watch_with(source, view, partial(self._job_changed, gvk))
        for gvk in dict.fromkeys(gvk for kind in self._kinds.values() for gvk in kind.child_resources):
            self._targets[gvk] = source = WatchTarget(gvk, namespace, Selection(OWNER))
            self._children[gvk] = self._controller.watch_with(source, _child_adapter(gvk.kind), self._child_changed)

    def _job_changed(self, gvk: GVK, before: Json | None, after: Json | None) -> Iterable[JobKey]:
        if before is not None and (after is None or uid_of(after) != uid_of(before)):
            self._forget(before)
        if after is not None:
            ids = self._runtime_ids.setdefault(namespace_of(after), {})
            ids[uid_of(after)] = core.runtime_id_of(after)
        return {JobKey(gvk, *key_of(job)) for job in (before, after) if job is not None}

    def _child_changed(self, before: Child | None, after: Child | None) -> Iterable[JobKey]:
        for namespace, uid in {(child.namespace, child.job) for child in (before, after) if child is not None}:
            for gvk, store in self._jobs.items():
                if (job := store.by_uid(uid)) is not None and namespace_of(job) == namespace:
                    yield JobKey(gvk, *key_of(job))

    def _forget(self, job: Json) -> None:
        uid = uid_of(job)
        self._states.pop(uid, None)
        self.writes.forget(uid)
        ids = self._runtime_ids.get(namespace_of(job), {})
        ids.pop(uid, None)
        if not ids:
            self._runtime_ids.pop(namespace_of(job), None)

    async def _reconcile(self, item: JobKey) -> float | None:
        job = self._jobs[item.gvk].get(Key(item.namespace, item.name))
        if job is None:
            return None
        uid = uid_of(job)
        if self.writes.has_pending(uid):
            return self._wait_for_writes(item, uid)
        memory = self._states.setdefault(uid, JobState())
        seen = self._observed(job, memory)
        kind = self._kinds[item.gvk]
        now = self._now()
        plan = core.plan(kind, job, seen, now)
        try:
            return await self._executor.apply(Reconcile(kind, job, plan, memory, now))
        except Unavailable:
            if memory.progressed:
                self._controller.forget(item)
            raise
        finally:
            if self._jobs[item.gvk].by_uid(uid) is None:
                self._forget(job)  # it went while we wrote

    def _wait_for_writes(self, item: JobKey, uid: str) -> float | None:
        """The stores do not show our own writes yet: watch events will enqueue the job, overdue writes are listed."""
        for gvk in self.writes.overdue(uid, time.monotonic()):
            log.warning("a write has not shown up job=%s resource=%s", item, gvk.plural)
            self._controller.relist(self._targets[gvk])
        deadline = self.writes.deadline(uid)
        return None if deadline is None else deadline - time.monotonic()

    def _observed(self, job: Json, memory: JobState) -> Observed:
        uid = uid_of(job)
        memory.observe_generation(job["metadata"].get("generation"))
        index = _job_index(namespace_of(job), uid)
        children = tuple(child for store in self._children.values() for child in store.by_index(index))
        for child in children:
            refusal = memory.refused.get(child.ref)
            if refusal and refusal.verb == "create" and child.owner == uid:  # a foreign object may bear our label
                memory.write_accepted(child.ref)
        others = self._runtime_ids.get(namespace_of(job), {})
        in_use = frozenset(used for other, used in others.items() if used and other != uid)
        return Observed(children, in_use, dict(memory.refused), self._config)


def _watch_state(feed: Reflector[Any], store: Store[Any]) -> str:
    if feed.not_served:
        return "missing"
    if feed.failing:
        return "failing"
    return "listing" if isinstance(feed.state, (NotListed, Listing)) or not store.synced else "watching"


def _job_index(namespace: str, uid: str) -> str:
    """The index value of a child: namespace and uid of its job. An object in another namespace is never a child of the
    job, even if its owner label has the job's uid."""
    return f"{namespace}/{uid}"


def _child_adapter(kind: str) -> ObjectAdapter[Child]:
    return ObjectAdapter(
        decode=lambda raw: core.child_of(raw, kind),
        key=lambda child: Key(child.namespace, child.name),
        uid=lambda child: child.uid,
        revision=lambda child: child.revision,
        index=lambda child: _job_index(child.namespace, child.job),
        deleting=lambda child: child.deleting,
    )
