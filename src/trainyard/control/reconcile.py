"""The shell obeys one plan, always in the same order. It has no opinions.

Flow: a spec patch goes alone and ends the pass; else the status, then deletes, then patches, then creates, then events,
then the plan's `after`. A plan with nothing to write sends nothing.

Guarantees:
- The status names the resourceVersion we decided on, and is sent even if unchanged whenever something else is to be
  written: if the job has changed meanwhile, nothing at all is written (the fence).
- A delete names the uid: never a namesake we have not seen. Gone already, or a namesake there, is success.
- A create under a taken name is ours (by owner uid and owner label) or a refusal that the next plan sees.
- What the server refuses for good (no right, a quota, an invalid object), or fails at again and again, ends nothing:
  the other writes go on, and the next plan says it and waits.
- It may be killed after any request. Every write that is known to be done is noted in `Writes`, and the job is not
  looked at again before it has arrived; a write of unknown outcome is simply tried again by a later pass.

Assumptions: one operator writes (a lease sees to that); names of children are computed, never random.
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
TRY_AGAIN = 1.0  # seconds until the plan sees a refusal that it has seen before
LASTING = 5  # so many failures of a server at one write, while it takes others, are no accident: a webhook that is down


@dataclass(slots=True)
class Memory:
    """What is remembered of one job between passes. Losing it costs a request, never a fault."""

    refused: dict[Ref, Refusal] = field(default_factory=dict)
    failures: dict[Ref, int] = field(default_factory=dict)  # answers of 500 and more, one after the other
    last_status: float = float("-inf")  # on the monotonic clock
    advanced: bool = False  # the last pass has made or deleted at least one child, whatever came after
    generation: object = None  # of the spec that `refused` is about

    def read(self, generation: object) -> None:
        """An edit of the spec may have mended what was refused. What was wrong in itself was made from another spec and
        says nothing of this one; the rest is true until it is tried again, which is now."""
        if generation != self.generation:
            kept = {ref: one for ref, one in self.refused.items() if not one.invalid}
            self.refused = {ref: replace(one, at=0.0, tries=0) for ref, one in kept.items()}
        self.generation = generation

    def done(self, ref: Ref) -> None:
        """The server has taken a write of that object."""
        self.refused.pop(ref, None)
        self.failures.pop(ref, None)


class Pass(msgspec.Struct, frozen=True):
    """One look at one job: what it was when we decided, and what was decided."""

    kind: Kind
    job: Json
    plan: Plan
    memory: Memory

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


class Shell:
    """Sends what plans say."""

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
        """Carry out one plan; return when to look again. Raises ApiError when it could not be carried out whole."""
        plan = this.plan
        this.memory.advanced = False
        if plan.idle:
            return plan.after
        if plan.spec_patch and await self._patch_spec(this, plan.spec_patch):
            return None
        if not (plan.urgent or plan.writes_world):
            wait = this.memory.last_status + COUNTS_PAUSE - time.monotonic()
            if wait > 0:
                return self._now() + wait
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
        return again if again is not None else plan.after

    def _again(self, this: Pass, before: dict[Ref, Refusal]) -> float | None:
        """When to look again if something was refused just now: the plan has to say so."""
        news = [one for ref, one in this.memory.refused.items() if before.get(ref) is not one]
        if not news:
            return None
        return self._now() + (0.0 if any(one.tries == 1 for one in news) else TRY_AGAIN)

    async def _patch_spec(self, this: Pass, spec: Json) -> bool:
        """True when the pass ends here. Not so when the server made nothing of the patch: no watch will tell of it. Nor
        when it does not allow it: what is not stored is worked out again, and the job need not wait."""
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
        """The fence. False when the job has gone; Conflict when it is not as it was when we decided."""
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
            with suppress(NotFound, Conflict):  # it has gone already, or what has its name now is not it
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
        # Children are made for what the status says now. The job is read once, however many there are.
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
        """What has the name already, by a list of one: who may list need not get. Conflict when it has gone."""
        listed = await self._api.list(create.gvk, this.namespace, field_selector=f"metadata.name={create.name}")
        for found in listed.get("items") or ():
            return {"apiVersion": create.gvk.api_version, "kind": create.gvk.kind, **found}
        raise Conflict(409, "Conflict", f'{create.gvk.kind} "{create.name}" has gone since it was in the way')

    def _refuse(
        self, this: Pass, write: Create | Patch | Delete, error: ApiError, message: str = "", sent: Json | None = None
    ) -> None:
        """Remember that the server does not take it. Raises what is none: a conflict, and what passes by itself."""
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
        """All of them, as many at once as the pace allows. After a failure what has not begun is left for later."""
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
    """The plan's order, cut where something needs what stands before it, and between replicas and what is none."""
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
    """True for what is no refusal: a conflict, and what goes away by itself."""
    return isinstance(error, (Unavailable, Conflict)) or error.code == 401


def _lasts(memory: Memory, ref: Ref, error: ApiError) -> bool:
    """Count a failure of the server. True when it fails at this object again and again: the user has to hear of it, and
    the other writes go on. (That the server itself is well is known: it has taken the status just before.)"""
    if error.code < 500:
        return False
    memory.failures[ref] = failures = memory.failures.get(ref, 0) + 1
    return failures >= LASTING


class _LeftOut(Exception):
    """An earlier write of the same pass has failed while this one stood in line."""


def _not_ours(this: Pass, found: Json) -> str:
    """Why an object that holds a child's name is not that child, "" when it is."""
    owner = controller_of(found)
    if owner is None or owner.get("uid") != this.uid:
        who = f"{owner.get('kind')} {owner.get('name')}" if owner else "nobody"
        if found["metadata"].get("deletionTimestamp"):
            return f"belongs to {who}, not to this job; it is being deleted: it is waited for"
        other = "RuntimeId" if this.kind.runtime_id else "name"
        return f"belongs to {who}, not to this job: delete or rename it, or give this job another {other}"
    if (found["metadata"].get("labels") or {}).get(OWNER) != this.uid:
        # No watch of ours will ever show it: waiting for it would be waiting for ever.
        return f"has no label {OWNER} with this job's uid, so it is not looked at: delete it, or give it the label"
    return ""
