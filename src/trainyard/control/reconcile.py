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
from trainyard.control.events import Recorder
from trainyard.control.pace import Pace
from trainyard.control.patches import merge_patch
from trainyard.control.writes import Write, Writes
from trainyard.core import Config, Create, Delete, Job, Kind, Patch, Plan, Ref, Refusal
from trainyard.core.refusals import policy_of
from trainyard.objects import GVK, Json, controller_of, key_of, revision_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.values import replace

log = logging.getLogger(__name__)

COUNTS_PAUSE = 1.0  # seconds between two status writes of a job when only counts change
TRY_AGAIN = 1.0  # seconds to requeue after when a write was refused before, too
LASTING = 5  # 5xx answers in a row to one write that make it a refusal (e.g. an admission webhook is down)


@dataclass(slots=True)
class Memory:
    """In-memory state of one job between reconciles. Losing it costs requests, never correctness."""

    refused: dict[Ref, Refusal] = field(default_factory=dict)
    failures: dict[Ref, int] = field(default_factory=dict)  # answers of 500 and more, one after the other
    last_status: float = float("-inf")  # on the monotonic clock
    advanced: bool = False  # the last reconcile created or deleted a child, even if it failed later
    generation: object = None  # metadata.generation of the job that `refused` belongs to

    def read(self, generation: object) -> None:
        """On a new metadata.generation the user may have fixed what was refused: drop the refusals of invalid objects,
        which were rendered from the old spec, and make the others due for a retry now."""
        if generation != self.generation:
            kept = {ref: one for ref, one in self.refused.items() if not one.invalid}
            self.refused = {ref: replace(one, at=0.0, tries=0) for ref, one in kept.items()}
        self.generation = generation

    def done(self, ref: Ref) -> None:
        """The server has taken a write of that object."""
        self.refused.pop(ref, None)
        self.failures.pop(ref, None)


class Pass(msgspec.Struct, frozen=True):
    """One reconcile of one job: the job as read from the store, the plan made from it, and the wall-clock time."""

    kind: Kind
    job: Json
    plan: Plan
    memory: Memory
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
        return None if self.plan.after is None else self.plan.after - self.now


class Shell:
    """Sends the writes of plans to the API server."""

    def __init__(
        self, api: Api, config: Config, writes: Writes[GVK], recorder: Recorder, now: Callable[[], float] = time.time
    ) -> None:
        self.pace = Pace()
        self._api = api
        self.config = config
        self._writes = writes
        self._recorder = recorder
        self._now = now

    async def obey(self, this: Pass) -> float | None:
        """Send the plan's writes; return the seconds to requeue after. Raises ApiErrors that are not refusals."""
        plan = this.plan
        this.memory.advanced = False
        if plan.idle:
            return this.delay
        if plan.spec_patch and await self._patch_spec(this, plan.spec_patch):
            return None
        if not (plan.urgent or plan.writes_world):
            wait = this.memory.last_status + COUNTS_PAUSE - time.monotonic()
            if wait > 0:
                return wait
        if not await self._patch_status(this):
            return None
        before = dict(this.memory.refused)
        await self._together([partial(self._delete, this, delete) for delete in plan.deletes])
        for patch in plan.patches:
            await self._patch(this, patch)
        await self._create_all(this)
        told = tuple(event for event in plan.events if event.about not in this.memory.refused)
        self._recorder.say(this.job, told, this.kind.speech.source)
        log.info(
            "pass wrote kind=%s job=%s/%s deletes=%d patches=%d creates=%d",
            *(this.gvk.kind, this.namespace, this.name),
            *(len(plan.deletes), len(plan.patches), len(plan.creates)),
        )
        again = self._again(this, before)
        return again if again is not None else this.delay

    def _again(self, this: Pass, before: dict[Ref, Refusal]) -> float | None:
        """Seconds to requeue after if a write was refused in this reconcile, so that the next plan reports it."""
        news = [refusal for ref, refusal in this.memory.refused.items() if before.get(ref) is not refusal]
        if not news:
            return None
        return 0.0 if any(refusal.tries == 1 for refusal in news) else TRY_AGAIN

    async def _patch_spec(self, this: Pass, spec: Json) -> bool:
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
            if _passes(error):
                raise
            words = "defaults are not stored, the job goes on without kind=%s job=%s/%s why=%s"
            log.warning(words, this.gvk.kind, this.namespace, this.name, error)
            return False
        self._note(this, this.gvk, answer)
        return revision_of(answer) != revision_of(this.job)

    async def _patch_status(self, this: Pass) -> bool:
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
        this.memory.last_status = time.monotonic()
        self._note(this, this.gvk, answer)
        return True

    async def _delete(self, this: Pass, delete: Delete) -> None:
        gvk = delete.gvk
        try:
            with suppress(NotFound, Conflict):  # already gone, or re-created with another uid
                propagation = "Foreground" if delete.waits else "Background"
                await self._api.delete(gvk, this.namespace, delete.name, delete.uid, propagation, delete.grace)
        except ApiError as error:
            self._refuse(this, delete, error)
            return
        this.memory.done(delete.ref)
        this.memory.advanced = True
        self._writes.note(this.uid, Write(gvk, delete.uid, gone=True), time.monotonic())
        log.debug("deleted %s=%s/%s reason=%s", gvk.kind, this.namespace, delete.name, delete.reason)

    async def _patch(self, this: Pass, patch: Patch) -> None:
        try:
            answer = await self._api.patch(patch.gvk, this.namespace, patch.name, patch.body, patch.subresource)
        except NotFound:
            return  # the watch will say so
        except ApiError as error:
            self._refuse(this, patch, error, sent=patch.body)
            return
        this.memory.done(patch.ref)
        self._note(this, patch.gvk, answer)

    async def _create_all(self, this: Pass) -> None:
        """Make everything the plan wants."""
        if not this.plan.creates:
            return
        # Children are rendered from the plan's status; the job is parsed once, not once per child.
        job = core.read(this.kind, {**this.job, "status": this.plan.status}, self.config)
        made: set[Ref] = set()
        for wave in _waves(this.plan.creates):
            able = [create for create in wave if made.issuperset(create.needs)]  # the next plan says why others wait
            await self._together([partial(self._create, this, job, create) for create in able])
            made |= {create.ref for create in able if create.ref not in this.memory.refused}

    async def _create(self, this: Pass, job: Job, create: Create) -> None:
        obj = core.render_for(job, create)
        try:
            made = await self._api.create(create.gvk, this.namespace, obj)
        except AlreadyExists as error:
            found = await self._holder(this, create)
            if why := _not_ours(this, found):
                taken = f'{create.gvk.kind} "{create.name}" exists already and {why}'
                self._refuse(this, create, error, taken)
                return
            made = found
        except ApiError as error:
            self._refuse(this, create, error, sent=obj)
            return
        this.memory.done(create.ref)
        this.memory.advanced = True
        self._note(this, create.gvk, made)

    async def _holder(self, this: Pass, create: Create) -> Json:
        """Read the existing object of that name, by list: needs no RBAC verb get. Raises Conflict when it is gone."""
        listed = await self._api.list(create.gvk, this.namespace, field_selector=f"metadata.name={create.name}")
        for found in listed.get("items") or ():
            return {"apiVersion": create.gvk.api_version, "kind": create.gvk.kind, **found}
        raise Conflict(409, "Conflict", f'{create.gvk.kind} "{create.name}" has gone since it was in the way')

    def _refuse(
        self, this: Pass, write: Create | Patch | Delete, error: ApiError, message: str = "", sent: Json | None = None
    ) -> None:
        """Remember a rejected write. Re-raises a Conflict, and a transient error unless it lasts (see `_lasts`)."""
        if _passes(error) and not _lasts(this.memory, write.ref, error):
            raise error
        verb, message = type(write).__name__.lower(), message or error.message
        before = this.memory.refused.get(write.ref)
        tries = before.tries + 1 if before and before.verb == verb else 1
        policy = policy_of(error.code, error.message, error.details.get("causes"), sent)
        this.memory.refused[write.ref] = Refusal(error.code, error.reason, message, self._now(), tries, verb, policy)
        log.warning(
            "%s refused %s=%s/%s tries=%d why=%s", verb, write.gvk.kind, this.namespace, write.name, tries, message
        )

    def _note(self, this: Pass, gvk: GVK, answer: Json) -> None:
        self._writes.note(this.uid, Write(gvk, uid_of(answer), revision_of(answer)), time.monotonic())

    async def _together(self, calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Run the calls, as many at once as `pace` allows. After a failure skip those not begun and raise it."""
        errors: list[Exception] = []

        async def one(call: Callable[[], Awaitable[None]]) -> None:
            if errors:
                return
            try:
                async with self.pace.turn():
                    if errors:
                        raise _LeftOut
                    await call()
            except _LeftOut:
                pass
            except Exception as error:
                errors.append(error)

        await asyncio.gather(*(one(call) for call in calls))
        if errors:
            raise errors[0]


def _waves(creates: Iterable[Create]) -> Iterator[list[Create]]:
    """Split the creates into waves, in order: a new one begins where an object needs one of this wave, and between
    replicas (with a slot) and extras (Services, ConfigMaps)."""
    wave: list[Create] = []
    refs: set[Ref] = set()
    for create in creates:
        if wave and ((wave[0].slot is None) != (create.slot is None) or refs.intersection(create.needs)):
            yield wave
            wave, refs = [], set()
        wave.append(create)
        refs.add(create.ref)
    if wave:
        yield wave


def _passes(error: ApiError) -> bool:
    """True for an error to retry, which is no refusal: Conflict, an unavailable server, 401."""
    return isinstance(error, (Unavailable, Conflict)) or error.code == 401


def _lasts(memory: Memory, ref: Ref, error: ApiError) -> bool:
    """Count a 5xx answer to a write of this object. True from LASTING in a row on: it is then a refusal, which the user
    sees and which does not abort the other writes. (The server itself works: it accepted the status patch before.)"""
    if error.code < 500:
        return False
    memory.failures[ref] = failures = memory.failures.get(ref, 0) + 1
    return failures >= LASTING


class _LeftOut(Exception):
    """Skip this write: another write of the same reconcile failed while this one waited for `pace`."""


def _not_ours(this: Pass, found: Json) -> str:
    """Why an existing object with a child's name is not this job's child; "" when it is."""
    owner = controller_of(found)
    if owner is None or owner.get("uid") != this.uid:
        who = f"{owner.get('kind')} {owner.get('name')}" if owner else "nobody"
        if found["metadata"].get("deletionTimestamp"):
            return f"belongs to {who}, not to this job; it is being deleted: it is waited for"
        other = "RuntimeId" if this.kind.runtime_id else "name"
        return f"belongs to {who}, not to this job: delete or rename it, or give this job another {other}"
    if (found["metadata"].get("labels") or {}).get(OWNER) != this.uid:
        # Our watches select by this label, so the store would never show the object.
        return f"has no label {OWNER} with this job's uid, so it is not looked at: delete it, or give it the label"
    return ""
