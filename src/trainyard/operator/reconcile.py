"""One reconcile of one job as values: the job, its plan, and what is kept of it in memory between reconciles."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainyard import core
from trainyard.core import Child, Kind, ParsedSpec, Plan, PlannedCreate, Refusal
from trainyard.objects import GVK, Json, Ref, key_of, uid_of
from trainyard.objects.structs import replace


class JobState(msgspec.Struct):
    """The state of one job that is kept in memory between reconciles. If it is lost, requests are repeated, no more."""

    refusals: dict[Ref, Refusal] = msgspec.field(default_factory=dict)
    server_errors: dict[Ref, int] = msgspec.field(default_factory=dict)  # consecutive 5xx answers to its writes
    # creates that may have been made although they were answered with 429 or 5xx, or not at all
    unanswered: dict[Ref, PlannedCreate] = msgspec.field(default_factory=dict)
    last_status_patch: float = float("-inf")  # monotonic time of the last status patch
    next_plan: float = float("-inf")  # monotonic time before which the job is not planned again
    awaited: set[str] | None = None  # uids of children that were deleted and that the stores still show
    progressed: bool = False  # the last reconcile created or deleted a child, even if it failed later
    deleted_pods: dict[str, Child] = msgspec.field(default_factory=dict)  # the last of each batch Job, by its uid
    generation: object = None  # metadata.generation of the job when `refusals` and `parsed` were set
    parsed: ParsedSpec | None = None
    warned: set[tuple[str, Ref | None]] = msgspec.field(default_factory=set)  # recorded Plan.pod_warnings

    def parse(self, kind: Kind, job: Json, template_source: Json | None = None) -> ParsedSpec:
        """The parsed spec of the job, parsed once for each generation, but not kept while its templates are missing."""
        if self.parsed is None or self.generation is None:
            self.parsed = core.parse_spec(kind, job, template_source)
        parsed = self.parsed
        if kind.template_source and parsed.snapshot is None:
            self.parsed = None
        return parsed

    def observe_generation(self, generation: object) -> None:
        """A new metadata.generation means that the spec was edited: drop the parsed spec and the refusals of invalid
        objects, which were rendered from the old spec, and make the other refused writes due for a retry now."""
        if generation != self.generation:
            self.parsed = None
            kept = {ref: refusal for ref, refusal in self.refusals.items() if not refusal.invalid}
            self.refusals = {ref: replace(refusal, at=0.0, attempts=0) for ref, refusal in kept.items()}
        self.generation = generation

    def await_ends(self, uids: Iterable[str]) -> None:
        """Children with these uids are deleted now."""
        self.awaited = {*(self.awaited or ()), *uids} or None

    def observe_end(self, uid: str) -> None:
        """The child with this uid is gone. After the last one of those that were deleted the next plan is due at once:
        it fills the slots, for which all of a gang wait."""
        if self.awaited and uid in self.awaited:
            self.awaited.remove(uid)
            if not self.awaited:
                self.awaited = None  # an empty set is large
                self.next_plan = float("-inf")

    def clear_refusal(self, ref: Ref) -> None:
        """Drop the refusal and the count of 5xx answers of this object: the server has accepted a write of it."""
        self.refusals.pop(ref, None)
        self.server_errors.pop(ref, None)
        self.unanswered.pop(ref, None)


class ReconcileContext(msgspec.Struct, frozen=True):
    """One reconcile of one job: the job as read from the store, the plan made from it, the job's in-memory state, and
    the wall-clock time of the plan (Unix seconds)."""

    kind: Kind
    job: Json
    plan: Plan
    state: JobState
    now: float

    @property
    def gvk(self) -> GVK:
        """The GVK of the job."""
        return self.kind.gvk

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return key_of(self.job).namespace

    @property
    def name(self) -> str:
        """The name of the job."""
        return key_of(self.job).name

    @property
    def uid(self) -> str:
        """The uid of the job: the label value by which its children are watched."""
        return uid_of(self.job)

    @property
    def batch(self) -> int:
        """How many objects the plan creates and deletes, and one for the status: the batch of each of these writes."""
        return 1 + len(self.plan.deletes) + len(self.plan.creates)

    @property
    def requeue_after(self) -> float | None:
        """Seconds to requeue after, from the plan's `requeue_at`; None: no requeue."""
        return None if self.plan.requeue_at is None else self.plan.requeue_at - self.now
