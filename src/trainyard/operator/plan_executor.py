"""Sends the writes of one plan to the API server, always in the same order. The plan itself is made in `core`.

Order: the spec patch, the status patch, deletes, patches, creates, Events; then the job is requeued at the plan's
`requeue_at`. An idle plan sends no request.

Guarantees:
- The status patch carries the resourceVersion of the job that the plan was made from and precedes any other write; it
  is sent even if the status is unchanged. If the job has changed since, the server answers Conflict and nothing is
  written (the "fence"). After a spec patch it carries the resourceVersion of the answer, which has the spec that the
  plan was made with; with any other spec, the reconcile ends there, and the watch event starts the next one.
- A create whose name is taken by an object that is not a child of this job is a refusal.
- A write that the server rejects (RBAC, quota, invalid object), or answers with 5xx MAX_SERVER_ERRORS times in a row,
  does not abort the other writes: it is recorded as a refusal, which the next plan reports and backs off for.
- A create without an answer may have been made, and the stores may not show it. If the next plan does not send it
  again, as for another attempt, it is looked for first: pods of two attempts must not run beside each other.
- The process may be killed after any request. Each accepted write is recorded in `InFlightWrites`, and the job is not
  reconciled again before the stores show it; a write of unknown outcome is retried by a later reconcile.

`controller_runtime.executor` sends each write, and tells what AlreadyExists, NotFound and Conflict mean for it.

Assumptions: only the leader writes (Lease); names of children are deterministic, never generated.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from trainyard import core
from trainyard.client import ApiClient, ApiError, Conflict, NotFound, Unavailable
from trainyard.controller_runtime.concurrency_limiter import MAX_LIMIT, ConcurrencyLimiter
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.executor import NameTaken, WriteExecutor
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.merge_patch import merge_patch
from trainyard.core import Config, PlannedCreate, Refusal
from trainyard.core.refusals import refusing_policy
from trainyard.objects import GVK, Json, Ref, as_dict, labels_of, resource_version_of, uid_of
from trainyard.objects.labels import OWNER, PREFIX
from trainyard.objects.meta import OWN_FIELDS
from trainyard.objects.structs import replace
from trainyard.objects.writes import Create, Delete, Patch
from trainyard.operator import taken_names
from trainyard.operator.create_waves import CreateWaves
from trainyard.operator.reconcile import JobState, ReconcileContext

log = logging.getLogger(__name__)

REPLICA_COUNTS_INTERVAL = 1.0  # seconds between two status patches of a job with nothing that is urgent
REFUSED_REQUEUE_SECONDS = 1.0  # seconds to requeue after when a write was refused that had been refused before
MAX_SERVER_ERRORS = 5  # consecutive 5xx answers that make a write a refusal (e.g. an admission webhook is down)


class PlanExecutor:
    """Sends the writes of plans to the API server through one `ConcurrencyLimiter`: at most `concurrent_writes` at a
    time, and one more for each namespace without a write in flight. `now` is the wall clock (Unix seconds)."""

    def __init__(
        self,
        api: ApiClient,
        config: Config,
        writes: InFlightWrites[GVK],
        recorder: EventRecorder,
        now: Callable[[], float] = time.time,
        concurrent_writes: float = MAX_LIMIT,
    ) -> None:
        self.limiter = ConcurrencyLimiter(concurrent_writes)
        self._executor = WriteExecutor(api, writes, OWNER)
        self.config = config
        self._recorder = recorder
        self._now = now

    async def apply(self, reconcile: ReconcileContext) -> float | None:
        """Send the plan's writes. Returns the seconds to requeue after, None: no requeue. Raises Conflict and the
        transient errors that do not count as refusals (see `_record_refusal`)."""
        plan = reconcile.plan
        reconcile.state.progressed = False
        self._record_pod_warnings(reconcile)
        if plan.idle:
            return reconcile.requeue_after
        if await self._find_unanswered(reconcile):
            return 0.0  # until the stores show it, the job is not reconciled
        if plan.spec_patch:
            patched = await self._patch_spec(reconcile, plan.spec_patch)
            if patched is None:
                return None
            reconcile, plan = patched, patched.plan
        if plan.deferrable:
            remaining = reconcile.state.last_status_patch + REPLICA_COUNTS_INTERVAL - time.monotonic()
            if remaining > 0:
                return remaining
        is_patched, creates = await self._patch_status_and_render(reconcile)
        if not is_patched:
            return None
        refused_before = dict(reconcile.state.refusals)
        reconcile.state.await_ends(delete.uid for delete in plan.deletes)
        await self._run_concurrently(reconcile, [partial(self._delete, reconcile, delete) for delete in plan.deletes])
        for patch in plan.patches:
            await self._patch(reconcile, patch)
        if creates is not None:
            await self._create_all(reconcile, creates)
        events = core.recorded_events(plan.events, reconcile.state.refusals)
        self._recorder.record(reconcile.job, events, reconcile.kind.status.source, may_wait=bool(plan.creates))
        log.log(
            logging.INFO if plan.writes_objects else logging.DEBUG,
            "plan applied kind=%s job=%s/%s deletes=%d patches=%d creates=%d",
            *(reconcile.gvk.kind, reconcile.namespace, reconcile.name),
            *(len(plan.deletes), len(plan.patches), len(plan.creates)),
        )
        retry_delay = self._requeue_for_refusals(reconcile, refused_before)
        return retry_delay if retry_delay is not None else reconcile.requeue_after

    async def _find_unanswered(self, reconcile: ReconcileContext) -> bool:
        """Look for the objects of creates that had no answer and are not sent again by this plan. True if there are
        any: they are recorded in `InFlightWrites`."""
        if not reconcile.state.unanswered:
            return False
        sent_again = {(create.ref, create.attempt) for create in reconcile.plan.creates}
        unanswered, is_found = reconcile.state.unanswered, False
        for ref, create in list(unanswered.items()):
            if (ref, create.attempt) not in sent_again:
                is_found |= await self._executor.find(create.gvk, reconcile.namespace, create.name, reconcile.uid)
                del unanswered[ref]
        return is_found

    def _record_pod_warnings(self, reconcile: ReconcileContext) -> None:
        """They need no write of the job's: a plan has them as long as the pods cannot start."""
        state, warnings = reconcile.state, reconcile.plan.pod_warnings
        if warnings:
            new = core.unwarned(warnings, state.warned)
            state.warned |= {(event.reason, event.regarding) for event in new}
            self._recorder.record(reconcile.job, new, reconcile.kind.status.source)
        else:
            state.warned.clear()

    def _requeue_for_refusals(self, reconcile: ReconcileContext, refused_before: dict[Ref, Refusal]) -> float | None:
        """Seconds to requeue after if a write was refused in this reconcile, so that the next plan reports it, or if an
        unwatched object, whose create was refused before, is accepted now: no watch event will follow."""
        unwatched = reconcile.kind.roles.created_resources
        accepted = refused_before.keys() - reconcile.state.refusals.keys()
        if any(create.gvk in unwatched and create.ref in accepted for create in reconcile.plan.creates):
            return 0.0
        refusals = [
            refusal for ref, refusal in reconcile.state.refusals.items() if refused_before.get(ref) is not refusal
        ]
        if not refusals:
            return None
        return 0.0 if any(refusal.attempts == 1 for refusal in refusals) else REFUSED_REQUEUE_SECONDS

    async def _patch_spec(self, reconcile: ReconcileContext, spec: Json) -> ReconcileContext | None:
        """Store defaults in the spec. Returns the reconcile of the stored job, which goes on at once: with the watch
        event and another plan the first batch Job of 1,000 came 5 to 35 ms later. None when the reconcile ends here:
        a watch event will follow, because the server has stored another spec, or the job is gone. When the patch was
        rejected, the reconcile goes on without stored defaults, which each reconcile computes again."""
        body = {"metadata": {"resourceVersion": resource_version_of(reconcile.job)}, "spec": spec}
        try:
            answer = await self._patch_job(reconcile, body)
        except NotFound:
            log.debug("job is gone kind=%s job=%s/%s", reconcile.gvk.kind, reconcile.namespace, reconcile.name)
            return None
        except ApiError as error:
            if _is_transient(error):
                raise
            log_format = "defaults are not stored, the job continues without them kind=%s job=%s/%s error=%s"
            log.warning(log_format, reconcile.gvk.kind, reconcile.namespace, reconcile.name, error)
            return reconcile
        if resource_version_of(answer) == resource_version_of(reconcile.job):
            return reconcile  # nothing has changed, so that no watch event follows
        if answer.get("spec") != {**as_dict(reconcile.job.get("spec")), **spec}:
            return None
        status = {**reconcile.plan.status, "observedGeneration": answer["metadata"].get("generation")}
        return replace(reconcile, job=answer, plan=replace(reconcile.plan, status=status))

    async def _patch_status(self, reconcile: ReconcileContext) -> bool:
        """Patch the status at the plan's resourceVersion. False when the job is gone, and when its definition drops
        what the operator has to remember. Raises Conflict when it has changed."""
        body: Json = {"metadata": {"resourceVersion": resource_version_of(reconcile.job)}}
        old_status = reconcile.job.get("status")
        if not isinstance(old_status, dict):
            body["status"] = reconcile.plan.status
        elif changes := merge_patch(old_status, reconcile.plan.status):
            body["status"] = changes
        kind = reconcile.kind
        is_first = kind.status.public is not None and core.snapshot_of(kind, reconcile.job) is None
        try:
            async with self.limiter.slot(reconcile.namespace, reconcile.uid, reconcile.batch):
                answer = await self._patch_job(reconcile, body, "status", version_only=not is_first)
        except NotFound:
            log.debug("job is gone kind=%s job=%s/%s", reconcile.gvk.kind, reconcile.namespace, reconcile.name)
            return False
        reconcile.state.last_status_patch = time.monotonic()
        if is_first and OWN_FIELDS not in as_dict(answer.get("status")):
            log.error("the definition of %s drops status.%s: apply Trainyard's", reconcile.gvk.plural, OWN_FIELDS)
            return False
        return True

    async def _patch_status_and_render(self, reconcile: ReconcileContext) -> tuple[bool, CreateWaves | None]:
        """As `_patch_status`. The creates are rendered, from the plan's status, while the API server works on the
        patch: the first Pod comes 1 to 3 ms earlier."""
        if not reconcile.plan.creates:
            return await self._patch_status(reconcile), None
        patch = asyncio.create_task(self._patch_status(reconcile))
        try:
            await asyncio.sleep(0)  # the request is sent first
            stored = {**reconcile.job, "status": reconcile.plan.status}
            parsed = reconcile.state.parse(reconcile.kind, stored)
            job = core.parse_job_with(reconcile.kind, stored, parsed, self.config).with_slots(reconcile.plan.slots)
            creates = CreateWaves.of(job, reconcile.plan.creates)
        finally:  # also if rendering fails: the next reconcile must not meet this patch
            is_patched = await patch
        return is_patched, creates

    async def _patch_job(
        self, reconcile: ReconcileContext, body: Json, subresource: str = "", *, version_only: bool = False
    ) -> Json:
        """Returns the job; with `version_only` only its uid and resourceVersion."""
        patch = Patch(reconcile.gvk, reconcile.namespace, reconcile.name, body, subresource)
        return await self._executor.patch(patch, reconcile.uid, version_only=version_only)

    async def _delete(self, reconcile: ReconcileContext, delete: Delete) -> None:
        try:
            await self._executor.delete(delete, reconcile.uid)
        except ApiError as error:
            self._record_refusal(reconcile, delete, error)
            return
        reconcile.state.clear_refusal(delete.ref)
        reconcile.state.progressed = True
        log.debug("deleted %s=%s/%s reason=%s", delete.gvk.kind, delete.namespace, delete.name, delete.reason)

    async def _patch(self, reconcile: ReconcileContext, patch: Patch) -> None:
        try:
            await self._executor.patch(patch, reconcile.uid)
        except NotFound:
            return  # a watch event will follow and start another reconcile
        except ApiError as error:
            self._record_refusal(reconcile, patch, error, sent=patch.body)
            return
        reconcile.state.clear_refusal(patch.ref)

    async def _create_all(self, reconcile: ReconcileContext, creates: CreateWaves) -> None:
        """Create the plan's objects in waves, skipping those that depend on an object that was not created."""
        created: set[Ref] = set()
        for wave in creates.waves:
            # The next plan reports why the others are not created.
            possible = [planned for planned in wave if created.issuperset(planned.depends_on)]
            await self._run_concurrently(
                reconcile, [partial(self._create, reconcile, creates, planned) for planned in possible]
            )
            created |= {planned.ref for planned in possible if planned.ref not in reconcile.state.refusals}

    async def _create(self, reconcile: ReconcileContext, creates: CreateWaves, planned: PlannedCreate) -> None:
        create = Create(planned.gvk, creates.render(planned))
        try:
            await self._executor.create(create, reconcile.uid)
        except NameTaken as error:
            existing = error.existing
            if existing is None and taken_names.was_planned_before(reconcile, planned.ref):
                reconcile.state.clear_refusal(planned.ref)
                return
            if existing is not None and taken_names.can_adopt(reconcile, planned, existing):
                await self._adopt(reconcile, planned, create.obj, existing)
                return
            reason = taken_names.why_not_owned(reconcile, existing)
            message = f'{planned.gvk.kind} "{planned.name}" exists already and {reason}'
            self._record_refusal(reconcile, planned, error, message)
        except ApiError as error:
            if isinstance(error, Unavailable):
                reconcile.state.unanswered[planned.ref] = planned
            self._record_refusal(reconcile, planned, error, sent=create.obj)
        else:
            reconcile.state.clear_refusal(planned.ref)
            reconcile.state.progressed = True

    async def _adopt(self, reconcile: ReconcileContext, planned: PlannedCreate, rendered: Json, existing: Json) -> None:
        """Label a child that an earlier operator made for the job, so that the watches of children show it."""
        own_labels = {name: value for name, value in labels_of(rendered).items() if name.startswith(PREFIX)}
        body: Json = {"metadata": {"uid": uid_of(existing), "labels": own_labels}}
        await self._patch(reconcile, Patch(planned.gvk, reconcile.namespace, planned.name, body))
        log.info("adopted %s=%s/%s", planned.gvk.kind, reconcile.namespace, planned.name)

    def _record_refusal(
        self,
        reconcile: ReconcileContext,
        write: PlannedCreate | Patch | Delete,
        error: ApiError,
        message: str = "",
        sent: Json | None = None,
    ) -> None:
        """Record a rejected write as a refusal, with `message` or else the message of the error; `sent` is the body of
        the request. Re-raises a Conflict, and a transient error unless it is persistent (see `_is_persistent`)."""
        if _is_transient(error) and not _is_persistent(reconcile.state, write.ref, error):
            raise error
        verb, message = write.verb, message or error.message
        previous = reconcile.state.refusals.get(write.ref)
        tries = previous.attempts + 1 if previous and previous.verb == verb else 1
        policy = refusing_policy(error.code, error.message, error.details.get("causes"), sent)
        reconcile.state.refusals[write.ref] = Refusal(
            error.code, error.reason, message, self._now(), tries, verb, policy
        )
        refused = (verb, write.gvk.kind, reconcile.namespace, write.name, tries, message)
        log.warning("%s refused %s=%s/%s attempts=%d error=%s", *refused)

    async def _run_concurrently(
        self, reconcile: ReconcileContext, calls: Sequence[Callable[[], Awaitable[None]]]
    ) -> None:
        """Run the calls, as many at once as `limiter` allows; it is fair to the jobs. After a failure, skip the calls
        not begun and raise it."""
        errors: list[Exception] = []
        remaining = iter(calls)

        async def work() -> None:
            for call in remaining:
                try:
                    async with self.limiter.slot(reconcile.namespace, reconcile.uid, reconcile.batch) as slot:
                        if errors:
                            slot.skip()
                            return
                        await call()
                except Exception as error:
                    errors.append(error)
                if errors:
                    return

        # Not a task for each call: of thousands, only the next ones need memory.
        await asyncio.gather(*(work() for _ in range(min(len(calls), int(MAX_LIMIT)))))
        if errors:
            raise errors[0]


def _is_transient(error: ApiError) -> bool:
    """True for an error after which the reconcile is retried, which is no refusal: Conflict, Unavailable, 401."""
    return isinstance(error, (Unavailable, Conflict)) or error.code == 401


def _is_persistent(state: JobState, ref: Ref, error: ApiError) -> bool:
    """Count a 5xx answer to a write of this object. True from the MAX_SERVER_ERRORS-th consecutive one on: it is then
    a refusal, which the job's status reports and which does not abort the other writes. The server itself works: it
    has accepted the status patch before."""
    if error.code < 500:
        return False
    state.server_errors[ref] = failures = state.server_errors.get(ref, 0) + 1
    return failures >= MAX_SERVER_ERRORS
