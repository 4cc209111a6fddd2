"""The operator: watches every kind of job and every kind of child, and reconciles each job by the writes of its plan.

Rules for this file:
- One watch per kind of job, and one per kind of child with a label selector (the owner label exists), so that foreign
  objects are not cached. Cached jobs are packed, cached children are flat structs (`core.Child`).
- A kind whose CRD is not installed has no jobs (its `WatchState` is "missing"): the list is retried with back-off.
- State kept between reconciles (refusals, writes not yet in the stores) is in memory only and may be lost in a crash.
- A finished job causes no requests: its plan is idle, and an idle plan sends nothing.
- What is kept for each job is small: an operator may have 10,000 of them, of which few change at a time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from trainyard import core
from trainyard.client import ApiClient, ApiError, Selectors, Unavailable
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.concurrency_limiter import MAX_LIMIT
from trainyard.controller_runtime.controller import Controller, Latch
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.object_adapter import ObjectAdapter, PackedObject, packed_adapter
from trainyard.controller_runtime.reflector import Listing, NotListed, Reflector, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.controller_runtime.work_queue import WorkQueue
from trainyard.core import Child, Config, Job, Kind, Observed, Plan, TemplateSource
from trainyard.core.decide import decide
from trainyard.objects import GVK, Json, NamespacedName, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.structs import replace
from trainyard.operator.held_kinds import HeldKinds
from trainyard.operator.plan_executor import PlanExecutor
from trainyard.operator.reconcile import JobState, ReconcileContext
from trainyard.operator.runtime_ids import RuntimeIds

log = logging.getLogger(__name__)

WORKERS, NAMESPACE_SHARE = 64, 48
"""Jobs that are reconciled at once, at most; and of one namespace. A worker that waits for the API server costs little,
and waits long for a big job, or where a webhook hangs: others must be left for the jobs of other namespaces."""
MAX_PARSED_SPECS = 1024  # jobs whose parsed spec, which is as large as the job, is kept between reconciles
PLAN_PAUSE_FACTOR = 10.0
"""A job is planned again only after so many times what its last plan took, however many of its Pods change: a plan of
1,000 replicas takes 50 ms, and planning for each of their events would be quadratic. With 4 instead of 10, `trainyard
run` of 1,000 replicas took 6 % more CPU; with 10 a job of that size is planned twice a second at most."""
MAX_PLAN_PAUSE = 1.0  # seconds


class JobKey(NamedTuple):
    """The work queue key of a job of any kind."""

    gvk: GVK
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.gvk.plural}/{self.namespace}/{self.name}"


class WatchState(NamedTuple):
    """The state of one watch. `state` is "missing" (the resource is not served), "listing", "watching" or "failing";
    `object_count` the number of cached objects; `last_error` the last error, "" when there is none."""

    gvk: GVK
    state: str
    object_count: int
    last_error: str


class Operator:
    """Use: `await start()`, `await synced`, `await stop()`. `namespace`: "" serves all namespaces. `now` is the wall
    clock that plans are made with (Unix seconds). `report` gets a message when a long-lived task ends and is
    restarted."""

    def __init__(
        self,
        api: ApiClient,
        kinds: Sequence[Kind],
        config: Config,
        namespace: str = "",
        now: Callable[[], float] = time.time,
        report: Callable[[str], object] | None = None,
        concurrent_writes: float = MAX_LIMIT,
    ) -> None:
        self.on_job_changed: Callable[[GVK, Json | None, Json | None], None] | None = None  # old job, new job
        self._api = api
        self._config = config
        self._now = now
        self._kinds = {kind.gvk: kind for kind in kinds}
        self._controller: Controller[JobKey] = Controller(
            api, self._reconcile, WORKERS, report, "operator", NAMESPACE_SHARE
        )
        self._targets: dict[GVK, WatchTarget] = {}
        self._jobs: dict[GVK, Store[PackedObject]] = {}
        self._children: dict[GVK, Store[Child]] = {}
        self.held = HeldKinds(self.resync)
        self._runtime_ids = RuntimeIds()
        self._states: dict[str, JobState] = {}  # by job uid
        self._parsed: OrderedDict[str, JobState] = OrderedDict()  # those with a parsed spec, by job uid, last used last
        self._watch_all(namespace)
        stores: dict[GVK, Store[Any]] = {**self._jobs, **self._children}
        self.writes: InFlightWrites[GVK] = InFlightWrites(stores)
        self._recorder = EventRecorder(api, now)
        self._executor = PlanExecutor(api, config, self.writes, self._recorder, now, concurrent_writes)

    @property
    def synced(self) -> Latch:
        """Set when every store has received one complete list. May be awaited."""
        return self._controller.synced

    @property
    def counts(self) -> dict[str, int]:
        """`reconciles` and those of them that failed: conflicts, unavailable, refused, faults."""
        return dict(self._controller.counts)

    @property
    def dropped_events(self) -> int:
        """The number of Events that were not recorded: the API server rejected them, or too many waited."""
        return self._recorder.dropped

    @property
    def waiting_events(self) -> int:
        """The number of Events that are not sent yet."""
        return self._recorder.waiting

    @property
    def queue(self) -> WorkQueue[JobKey]:
        """The work queue of the jobs."""
        return self._controller.queue

    @property
    def watches(self) -> list[WatchState]:
        """The state of each watch, at the moment of the call."""
        return [
            WatchState(reflector.target.gvk, _watch_state(reflector, store), len(store), reflector.last_error)
            for reflector, store in zip(self._controller.reflectors, self._controller.stores, strict=True)
        ]

    @property
    def unhealthy_tasks(self) -> str:
        """The messages about the tasks that keep ending although they are restarted, "" when there are none."""
        return self._controller.tasks.unhealthy

    @property
    def tasks(self) -> TaskSupervisor:
        """The supervisor of the long-lived tasks."""
        return self._controller.tasks

    def jobs(self, gvk: GVK) -> Store[PackedObject]:
        """The store of the jobs of one kind. Raises KeyError for a kind that this operator does not serve."""
        return self._jobs[gvk]

    def set_reconcile_callback(self, callback: Callable[[JobKey, str, float], None]) -> None:
        """Call `callback` after each reconcile with the key of the job, the outcome, and the duration in seconds."""
        self._controller.on_reconciled = callback

    def set_config(self, config: Config) -> None:
        """Make the following plans with `config`, and enqueue every job. A job whose plan is idle causes no request."""
        self._config = self._executor.config = config
        self.resync()

    async def start(self) -> None:
        """Start the watches, the workers and the event recorder."""
        self._controller.tasks.start("record events", self._recorder.run)
        await self._controller.start()

    async def stop(self) -> None:
        """Cancel all tasks. Reconciles in progress are cancelled; the next operator repeats them."""
        await self._controller.stop()

    def resync(self, *gvks: GVK) -> None:
        """Enqueue every job of these kinds now, without any of all kinds. Needed after the clock `now` has been set."""
        for gvk in gvks or self._jobs:
            for job in self._jobs[gvk]:
                self._controller.queue.add(JobKey(gvk, *job.key))

    def _watch_all(self, namespace: str) -> None:
        for gvk, kind in self._kinds.items():
            self._targets[gvk] = target = WatchTarget(gvk, namespace, optional=True)
            adapter = packed_adapter(gvk.api_version, gvk.kind, first_write=bool(kind.further_versions))
            self._jobs[gvk] = self._controller.watch_with(target, adapter, partial(self._job_changed, gvk))
        tables = [version.roles for kind in self._kinds.values() for version in kind.versions]
        optional = {gvk for table in tables for gvk in table.optional_resources}
        for gvk in dict.fromkeys(gvk for table in tables for gvk in table.children_in(self._config)):
            self._targets[gvk] = target = WatchTarget(gvk, namespace, Selectors(OWNER), optional=gvk in optional)
            self._children[gvk] = self._controller.watch_with(target, _child_adapter(gvk.kind), self._child_changed)

    def _job_changed(self, gvk: GVK, before: PackedObject | None, after: PackedObject | None) -> Iterable[JobKey]:
        if before is not None and (after is None or after.uid != before.uid):
            self._forget_job(before)
        if self.on_job_changed is not None:
            self.on_job_changed(gvk, *(None if job is None else job.unpack() for job in (before, after)))
        if after is not None and self._kinds[gvk].api.has_runtime_id:
            self._runtime_ids.set(after.namespace, after.uid, core.runtime_id_of(after.unpack()))
        return {JobKey(gvk, *job.key) for job in (before, after) if job is not None}

    def _child_changed(self, before: Child | None, after: Child | None) -> Iterable[JobKey]:
        if before is not None and (state := self._states.get(before.job_uid)) is not None:
            if after is None or after.uid != before.uid:
                state.observe_end(before.uid)
            if after is None and _is_disrupted_pod(before):
                gone = replace(before, deleting=True, delete_deadline=0.0)  # so that no plan deletes it again
                state.deleted_pods[before.owner_uid] = gone
        for namespace, uid in {(child.namespace, child.job_uid) for child in (before, after) if child is not None}:
            for gvk, store in self._jobs.items():
                if (job := store.by_uid(uid)) is not None:
                    if job.namespace == namespace:
                        yield JobKey(gvk, *job.key)
                    break

    def _forget_job(self, job: PackedObject) -> None:
        """Drop the state of a job that does not exist any more."""
        self._states.pop(job.uid, None)
        self._parsed.pop(job.uid, None)
        self.writes.forget(job.uid)
        self._runtime_ids.set(job.namespace, job.uid, "")

    async def _reconcile(self, job_key: JobKey) -> float | None:
        cached = self._jobs[job_key.gvk].get(NamespacedName(job_key.namespace, job_key.name))
        if cached is None:
            return None
        uid = cached.uid
        if self.writes.has_pending(uid):
            return self._wait_for_writes(job_key, uid)
        state = self._states.setdefault(uid, JobState())
        started = time.monotonic()
        if state.next_plan > started:
            return state.next_plan - started
        job = cached.unpack()
        kind = self._kinds[job_key.gvk].version_of(job)
        observed = self._observed(job_key.gvk, job, state)
        source = kind.template_source if observed.held is None else None
        if source and state.parsed is None and core.snapshot_of(kind, job) is None:
            observed = await _with_template_source(self._api, source, job, observed)
        now = self._now()
        in_use = self._runtime_ids.in_use(job_key.namespace)
        parsed = core.parse_job_with(
            kind, job, state.parse(kind, job, observed.template_source), observed.config, in_use
        )
        plan = decide(parsed, observed, now)
        state.next_plan = started + min(MAX_PLAN_PAUSE, PLAN_PAUSE_FACTOR * (time.monotonic() - started))
        try:
            requeue_after = await self._executor.apply(ReconcileContext(kind, job, plan, state, now))
            # A write is overdue in time also when no watch delivers anything.
            waits = (requeue_after, _seconds_until(self.writes.deadline(uid)))
            return min((wait for wait in waits if wait is not None), default=None)
        except Unavailable:
            if state.progressed:
                self._controller.forget(job_key)
            raise
        finally:
            self._keep_parsed(parsed, plan, state)
            if self._jobs[job_key.gvk].by_uid(uid) is None:
                self._forget_job(cached)  # it was deleted during the reconcile, which may have added state again

    def _keep_parsed(self, job: Job, plan: Plan, state: JobState) -> None:
        """Keep the parsed spec of a job that changes; drop that of the job that was reconciled least recently, if there
        are too many. Of the 10,000 jobs that an operator finds at its start, most have ended or run on."""
        if plan.idle and (job.uid not in self._parsed or job.status.outcome):
            state.parsed = None
            self._parsed.pop(job.uid, None)
            return
        self._parsed[job.uid] = state
        self._parsed.move_to_end(job.uid)
        if len(self._parsed) > MAX_PARSED_SPECS:
            _, oldest = self._parsed.popitem(last=False)
            oldest.parsed = None

    def _wait_for_writes(self, job_key: JobKey, uid: str) -> float | None:
        """The stores do not show all writes of this job yet: their watch events will enqueue it. The resources of
        overdue writes are listed again. Returns the seconds until the next write is overdue."""
        for gvk in self.writes.overdue_resources(uid, time.monotonic()):
            log.warning("no watch event for a write, listing again job=%s resource=%s", job_key, gvk.plural)
            self._controller.relist(self._targets[gvk])
        return _seconds_until(self.writes.deadline(uid))

    def _observed(self, gvk: GVK, job: Json, state: JobState) -> Observed:
        """The input of the plan: the job's children and the refusals. Drops the refusals of creates whose object exists
        now."""
        uid = uid_of(job)
        state.observe_generation(job["metadata"].get("generation"))
        namespace = namespace_of(job)  # an object in another namespace may have our label, too
        labelled = (child for store in self._children.values() for child in store.by_index(uid))
        children = tuple(child for child in labelled if child.namespace == namespace)
        if state.awaited:
            state.awaited.intersection_update(child.uid for child in children)
        if state.deleted_pods:
            children += _deleted_pods_of_failed_jobs(state, children)
        for child in children:
            refusal = state.refusals.get(child.ref)
            if refusal and refusal.verb == "create" and child.owner_uid == uid:  # a foreign object may have our label
                state.clear_refusal(child.ref)
        refused, held = dict(state.refusals), self.held.reason(gvk)
        return Observed(children, refused=refused, config=self._cluster_config(), held=held)

    def _cluster_config(self) -> Config:
        """The configuration, with the optional resources of children that the API server does not serve."""
        missing = (
            frozenset(reflector.target.gvk for reflector in self._controller.reflectors if reflector.not_served)
            & self._children.keys()
        )
        return (
            replace(self._config, missing_resources=self._config.missing_resources | missing)
            if missing
            else self._config
        )


async def _with_template_source(api: ApiClient, source: TemplateSource, job: Json, observed: Observed) -> Observed:
    """With the object that has the job's templates, or why it cannot be read. Raises Unavailable."""
    reference = source.reference(job)
    if reference is None:
        return replace(observed, template_error="the job refers to no known kind of object with pod templates")
    kind, key = reference
    try:
        template_source = await api.get(kind.gvk, key.namespace, key.name)
    except Unavailable:
        raise
    except ApiError as error:
        return replace(observed, template_error=error.message)
    return replace(observed, template_source=template_source)


def _seconds_until(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def _is_disrupted_pod(child: Child) -> bool:
    return child.kind == "Pod" and (child.deleting or child.disrupted)


def _deleted_pods_of_failed_jobs(state: JobState, children: tuple[Child, ...]) -> tuple[Child, ...]:
    """The pods that were deleted from outside, as they were last seen, of batch Jobs that have failed and have no pod
    now. A job is not planned after each event: without these pods a deletion would count as a failure of the program.
    """
    owners = {child.uid: child for child in children if child.kind == "Job"}
    have_pods = {child.owner_uid for child in children if child.kind == "Pod"}
    state.deleted_pods = {
        owner: pod for owner, pod in state.deleted_pods.items() if owner in owners and owner not in have_pods
    }
    return tuple(pod for owner, pod in state.deleted_pods.items() if owners[owner].phase == "Failed")


def _watch_state(reflector: Reflector[Any], store: Store[Any]) -> str:
    if reflector.not_served:
        return "missing"
    if reflector.failing:
        return "failing"
    return "listing" if isinstance(reflector.state, (NotListed, Listing)) or not store.synced else "watching"


def _child_adapter(kind: str) -> ObjectAdapter[Child]:
    return ObjectAdapter(
        decode=lambda raw: core.decode_child(raw, kind),
        key=lambda child: NamespacedName(child.namespace, child.name),
        uid=lambda child: child.uid,
        revision=lambda child: child.resource_version,
        index=lambda child: child.job_uid,
        is_deleting=lambda child: child.deleting,
    )
