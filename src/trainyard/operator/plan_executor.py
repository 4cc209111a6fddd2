"""Carries out one plan by API requests, always in the same order. What to write is decided in `core`.

Order: a spec patch that takes effect ends the reconcile; else the status patch, deletes, patches, creates, Events; then
the job is requeued at the plan's `after`. A plan with nothing to write sends no request.

Guarantees:
- The status patch carries the resourceVersion that the plan was made from, and is sent, even if unchanged, before any
  other write: if the job has changed since, the server answers Conflict and nothing is written (the "fence").
- A delete has a uid precondition: an object re-created under that name is not deleted. NotFound or Conflict is success.
- AlreadyExists on a create: the object is ours (by controller owner uid and owner label), or it counts as a refusal.
- A write that the server rejects (RBAC, quota, invalid object), or answers with 5xx again and again, does not abort the
  other writes: it is remembered as a refusal, which the next plan reports and backs off for.
- The process may be killed after any request. Each acknowledged write is noted in `Writes`, and the job is not
  reconciled again before the stores show it; a write of unknown outcome is retried by a later reconcile.

Assumptions: only the leader writes (Lease); names of children are deterministic, never generated.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from trainyard import core
from trainyard.client import AlreadyExists, Api, ApiError, Conflict, NotFound, Unavailable
from trainyard.controller_runtime.concurrency_limiter import ConcurrencyLimiter
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import AcknowledgedWrite, InFlightWrites
from trainyard.controller_runtime.merge_patch import merge_patch
from trainyard.core import Config, Create, Delete, Job, Kind, Patch, Plan, Ref, Refusal
from trainyard.core.refusals import policy_of
from trainyard.objects import GVK, Json, controller_of, key_of, revision_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.values import replace

log = logging.getLogger(__name__)

COUNTS_INTERVAL = 1.0  # seconds between two status writes of a job when only counts change
REFUSED_RETRY = 1.0  # seconds to requeue after when a write was refused before, too
MOST_SERVER_ERRORS = 5  # 5xx answers in a row to one write that make it a refusal (e.g. an admission webhook is down)


@dataclass(slots=True)
class JobState:
    """In-memory state of one job between reconciles. Losing it costs requests, never correctness."""

    refused: dict[Ref, Refusal] = field(default_factory=dict)
    failures: dict[Ref, int] = field(default_factory=dict)  # answers of 500 and more, one after the other
    last_status: float = float("-inf")  # on the monotonic clock
    progressed: bool = False  # the last reconcile created or deleted a child, even if it failed later
    generation: object = None  # metadata.generation of the job that `refused` belongs to

    def observe_generation(self, generation: object) -> None:
        """On a new metadata.generation the user may have fixed what was refused: drop the refusals of invalid objects,
        which were rendered from the old spec, and make the others due for a retry now."""
        if generation != self.generation:
            kept = {ref: one for ref, one in self.refused.items() if not one.invalid}
            self.refused = {ref: replace(one, at=0.0, tries=0) for ref, one in kept.items()}
        self.generation = generation

    def write_accepted(self, ref: Ref) -> None:
        """The server has taken a write of that object."""
        self.refused.pop(ref, None)
        self.failures.pop(ref, None)


class Reconcile(msgspec.Struct, frozen=True):
    """One reconcile of one job: the job as read from the store, the plan made from it, and the wall-clock time."""

    kind: Kind
    job: Json
    plan: Plan
    state: JobState
    now: float

    @property
    def gvk(self) -> GVK:
        return self.kind.gvk

    @property
    def namespace(self) -> str:
        return key_of(self.job).namespace

    @property
    def name(self) -> str:
        return key_of(self.job).name

    @property
    def uid(self) -> str:
        return uid_of(self.job)

    @property
    def delay(self) -> float | None:
        """Seconds to requeue after, from the plan's `after`; None: no requeue."""
        return None if self.plan.requeue_at is None else self.plan.requeue_at - self.now


class PlanExecutor:
    """Sends the writes of plans to the API server."""

    def __init__(
        self,
        api: Api,
        config: Config,
        writes: InFlightWrites[GVK],
        recorder: EventRecorder,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.limiter = ConcurrencyLimiter()
        self._api = api
        self.config = config
        self._writes = writes
        self._recorder = recorder
        self._now = now

    async def apply(self, this: Reconcile) -> float | None:
        """Send the plan's writes; return the seconds to requeue after. Raises ApiErrors that are not refusals."""
        plan = this.plan
        this.state.progressed = False
        if plan.idle:
            return this.delay
        if plan.spec_patch and await self._patch_spec(this, plan.spec_patch):
            return None
        if not (plan.urgent or plan.writes_objects):
            wait = this.state.last_status + COUNTS_INTERVAL - time.monotonic()
            if wait > 0:
                return wait
        if not await self._patch_status(this):
            return None
        before = dict(this.state.refused)
        await self._run_concurrently([partial(self._delete, this, delete) for delete in plan.deletes])
        for patch in plan.patches:
            await self._patch(this, patch)
        await self._create_all(this)
        told = tuple(event for event in plan.events if event.about not in this.state.refused)
        self._recorder.record(this.job, told, this.kind.messages.source)
        log.info(
            "pass wrote kind=%s job=%s/%s deletes=%d patches=%d creates=%d",
            *(this.gvk.kind, this.namespace, this.name),
            *(len(plan.deletes), len(plan.patches), len(plan.creates)),
        )
        again = self._requeue_for_refusals(this, before)
        return again if again is not None else this.delay

    def _requeue_for_refusals(self, this: Reconcile, before: dict[Ref, Refusal]) -> float | None:
        """Seconds to requeue after if a write was refused in this reconcile, so that the next plan reports it."""
        news = [refusal for ref, refusal in this.state.refused.items() if before.get(ref) is not refusal]
        if not news:
            return None
        return 0.0 if any(refusal.tries == 1 for refusal in news) else REFUSED_RETRY

    async def _patch_spec(self, this: Reconcile, spec: Json) -> bool:
        """Store defaults in the spec. True when the reconcile ends here: a watch event will follow, or the job is gone.
        False when the patch changed nothing (no event will come) or was rejected: the job goes on without stored
        defaults, which are computed again each time."""
        body = {"metadata": {"resourceVersion": revision_of(this.job)}, "spec": spec}
        try:
            answer = await self._api.patch(this.gvk, this.namespace, this.name, body)
        except NotFound:
            log.debug("job has gone kind=%s job=%s/%s", this.gvk.kind, this.namespace, this.name)
            return True
        except ApiError as error:
            if _is_transient(error):
                raise
            words = "defaults are not stored, the job goes on without kind=%s job=%s/%s why=%s"
            log.warning(words, this.gvk.kind, this.namespace, this.name, error)
            return False
        self._record_write(this, this.gvk, answer)
        return revision_of(answer) != revision_of(this.job)

    async def _patch_status(self, this: Reconcile) -> bool:
        """Patch the status at the plan's resourceVersion. False when the job is gone; Conflict when it has changed."""
        body: Json = {"metadata": {"resourceVersion": revision_of(this.job)}}
        old = this.job.get("status")
        if not isinstance(old, dict):
            body["status"] = this.plan.status
        elif changes := merge_patch(old, this.plan.status):
            body["status"] = changes
        try:
            answer = await self._api.patch(this.gvk, this.namespace, this.name, body, "status")
        except NotFound:
            log.debug("job has gone kind=%s job=%s/%s", this.gvk.kind, this.namespace, this.name)
            return False
        this.state.last_status = time.monotonic()
        self._record_write(this, this.gvk, answer)
        return True

    async def _delete(self, this: Reconcile, delete: Delete) -> None:
        gvk = delete.gvk
        try:
            with suppress(NotFound, Conflict):  # already gone, or re-created with another uid
                propagation = "Foreground" if delete.foreground else "Background"
                await self._api.delete(gvk, this.namespace, delete.name, delete.uid, propagation, delete.grace)
        except ApiError as error:
            self._record_refusal(this, delete, error)
            return
        this.state.write_accepted(delete.ref)
        this.state.progressed = True
        self._writes.record(this.uid, AcknowledgedWrite(gvk, delete.uid, gone=True), time.monotonic())
        log.debug("deleted %s=%s/%s reason=%s", gvk.kind, this.namespace, delete.name, delete.reason)

    async def _patch(self, this: Reconcile, patch: Patch) -> None:
        try:
            answer = await self._api.patch(patch.gvk, this.namespace, patch.name, patch.body, patch.subresource)
        except NotFound:
            return  # the watch will say so
        except ApiError as error:
            self._record_refusal(this, patch, error, sent=patch.body)
            return
        this.state.write_accepted(patch.ref)
        self._record_write(this, patch.gvk, answer)

    async def _create_all(self, this: Reconcile) -> None:
        """Make everything the plan wants."""
        if not this.plan.creates:
            return
        # Children are rendered from the plan's status; the job is parsed once, not once per child.
        job = core.parse_job(this.kind, {**this.job, "status": this.plan.status}, self.config)
        made: set[Ref] = set()
        for wave in _create_waves(this.plan.creates):
            able = [
                create for create in wave if made.issuperset(create.depends_on)
            ]  # the next plan says why others wait
            await self._run_concurrently([partial(self._create, this, job, create) for create in able])
            made |= {create.ref for create in able if create.ref not in this.state.refused}

    async def _create(self, this: Reconcile, job: Job, create: Create) -> None:
        obj = core.render_child(job, create)
        try:
            made = await self._api.create(create.gvk, this.namespace, obj)
        except AlreadyExists as error:
            found = await self._existing(this, create)
            if why := _why_not_owned(this, found):
                taken = f'{create.gvk.kind} "{create.name}" exists already and {why}'
                self._record_refusal(this, create, error, taken)
                return
            made = found
        except ApiError as error:
            self._record_refusal(this, create, error, sent=obj)
            return
        this.state.write_accepted(create.ref)
        this.state.progressed = True
        self._record_write(this, create.gvk, made)

    async def _existing(self, this: Reconcile, create: Create) -> Json:
        """Read the existing object of that name, by list: needs no RBAC verb get. Raises Conflict when it is gone."""
        listed = await self._api.list(create.gvk, this.namespace, field_selector=f"metadata.name={create.name}")
        for found in listed.get("items") or ():
            return {"apiVersion": create.gvk.api_version, "kind": create.gvk.kind, **found}
        raise Conflict(409, "Conflict", f'{create.gvk.kind} "{create.name}" has gone since it was in the way')

    def _record_refusal(
        self,
        this: Reconcile,
        write: Create | Patch | Delete,
        error: ApiError,
        message: str = "",
        sent: Json | None = None,
    ) -> None:
        """Remember a rejected write. Re-raises a Conflict, and a transient error unless it lasts (see `_lasts`)."""
        if _is_transient(error) and not _is_persistent(this.state, write.ref, error):
            raise error
        verb, message = type(write).__name__.lower(), message or error.message
        before = this.state.refused.get(write.ref)
        tries = before.tries + 1 if before and before.verb == verb else 1
        policy = policy_of(error.code, error.message, error.details.get("causes"), sent)
        this.state.refused[write.ref] = Refusal(error.code, error.reason, message, self._now(), tries, verb, policy)
        log.warning(
            "%s refused %s=%s/%s tries=%d why=%s", verb, write.gvk.kind, this.namespace, write.name, tries, message
        )

    def _record_write(self, this: Reconcile, gvk: GVK, answer: Json) -> None:
        self._writes.record(this.uid, AcknowledgedWrite(gvk, uid_of(answer), revision_of(answer)), time.monotonic())

    async def _run_concurrently(self, calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Run the calls, as many at once as `pace` allows. After a failure skip those not begun and raise it."""
        errors: list[Exception] = []

        async def one(call: Callable[[], Awaitable[None]]) -> None:
            if errors:
                return
            try:
                async with self.limiter.slot():
                    if errors:
                        raise _Skipped
                    await call()
            except _Skipped:
                pass
            except Exception as error:
                errors.append(error)

        await asyncio.gather(*(one(call) for call in calls))
        if errors:
            raise errors[0]


def _create_waves(creates: Iterable[Create]) -> Iterator[list[Create]]:
    """Split the creates into waves, in order: a new one begins where an object needs one of this wave, and between
    replicas (with a slot) and extras (Services, ConfigMaps)."""
    wave: list[Create] = []
    refs: set[Ref] = set()
    for create in creates:
        if wave and ((wave[0].slot is None) != (create.slot is None) or refs.intersection(create.depends_on)):
            yield wave
            wave, refs = [], set()
        wave.append(create)
        refs.add(create.ref)
    if wave:
        yield wave


def _is_transient(error: ApiError) -> bool:
    """True for an error to retry, which is no refusal: Conflict, an unavailable server, 401."""
    return isinstance(error, (Unavailable, Conflict)) or error.code == 401


def _is_persistent(memory: JobState, ref: Ref, error: ApiError) -> bool:
    """Count a 5xx answer to a write of this object. True from LASTING in a row on: it is then a refusal, which the user
    sees and which does not abort the other writes. (The server itself works: it accepted the status patch before.)"""
    if error.code < 500:
        return False
    memory.failures[ref] = failures = memory.failures.get(ref, 0) + 1
    return failures >= MOST_SERVER_ERRORS


class _Skipped(Exception):
    """Skip this write: another write of the same reconcile failed while this one waited for `pace`."""


def _why_not_owned(this: Reconcile, found: Json) -> str:
    """Why an existing object with a child's name is not this job's child; "" when it is."""
    owner = controller_of(found)
    if owner is None or owner.get("uid") != this.uid:
        who = f"{owner.get('kind')} {owner.get('name')}" if owner else "nobody"
        if found["metadata"].get("deletionTimestamp"):
            return f"belongs to {who}, not to this job; it is being deleted: it is waited for"
        other = "RuntimeId" if this.kind.has_runtime_id else "name"
        return f"belongs to {who}, not to this job: delete or rename it, or give this job another {other}"
    if (found["metadata"].get("labels") or {}).get(OWNER) != this.uid:
        # Our watches select by this label, so the store would never show the object.
        return f"has no label {OWNER} with this job's uid, so it is not looked at: delete it, or give it the label"
    return ""
