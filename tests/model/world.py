"""A small world: one job, its children, and what really happened. Everything here is a frozen, hashable value.

A batch Job is `Batch`, a StatefulSet is `Set`, the pods of both, and those that fill a slot by themselves, are `Pod`,
all other children are `OtherChild`. A slot is a number in the initial state's `Scenario`, and a letter in a uid: "a1"
is the first object in the first slot, "a1.2" its second pod. Uids count per name, so two histories that differ only in
the order of unrelated steps meet in the same world. `Truth` is what a perfect observer has seen; the operator never
reads it, the rules do.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.core.names import runtime_id

START = 1_700_000_000
NAME = "small"
JOB_UID = "job"
RUNTIME_ID = runtime_id(JOB_UID, ())
LETTERS = "abcdefgh"
UNKNOWN = -1


class Batch(NamedTuple):
    """A batch Job that fills a slot."""

    slot: int
    gen: int
    attempt: int
    phase: str = ""
    ended: int = 0
    pods: int = 0  # how many pods it has made
    deleting: bool = False  # it goes when its pods have gone

    @property
    def uid(self) -> str:
        return f"{LETTERS[self.slot]}{self.gen}"


class Set(NamedTuple):
    """A StatefulSet that fills a slot."""

    slot: int
    gen: int
    attempt: int
    replicas: int
    body: int  # what else it was made of, as the number of a value
    deleting: bool = False

    @property
    def uid(self) -> str:
        return f"{LETTERS[self.slot]}{self.gen}"


class Pod(NamedTuple):
    """A pod of a batch Job or a StatefulSet, or one that fills a slot alone."""

    slot: int
    gen: int
    number: int
    phase: str = "Pending"
    code: int = 0
    reason: str = ""
    disrupted: bool = False
    deleting: bool = False
    restarts: int = 0
    ended: int = 0
    orphan: bool = False  # its Job went without it
    attempt: int = 0
    ownerless: bool = False  # somebody has deleted its Job
    alone: bool = False  # the rest is of a pod that is alone
    began: int = START
    body: int = 0
    disruption: str = ""  # the reason of its condition DisruptionTarget
    stalled: bool = False  # its node has noted that it makes no progress

    @property
    def owner(self) -> str:
        return "" if self.orphan else JOB_UID if self.alone else f"{LETTERS[self.slot]}{self.gen}"

    @property
    def uid(self) -> str:
        whole = f"{LETTERS[self.slot]}{self.gen}"
        return whole if self.alone else f"{whole}.{self.number}"

    @property
    def live(self) -> bool:
        return self.phase in ("Pending", "Running")


class OtherChild(NamedTuple):
    """Any other object: a Service, a ConfigMap, or a foreign object that holds a name of ours."""

    kind: str
    name: str
    gen: int
    foreign: bool = False
    body: int = 0

    @property
    def uid(self) -> str:
        return f"{self.kind}{self.gen}"


ChildState = Batch | Set | Pod | OtherChild
ChildStates = tuple[ChildState, ...]


class Truth(NamedTuple):
    """What really happened. `must` are the uids of failed attempts that have to be counted, `may` those that can be
    missed or taken for a failure, because their evidence was removed by somebody. Each is told with the number of what
    counts it, see `Scenario.counts`."""

    must: tuple[tuple[int, str], ...] = ()
    may: tuple[tuple[int, str], ...] = ()
    in_place: int = 0
    done: tuple[int, ...] = ()  # slots that decide and have ended with 0
    permanent: bool = False  # what is judged ended with a permanent code once, undisturbed
    wait: int = 0  # no new attempt is made before this time
    closed: tuple[str, ...] = ()  # rendezvous whose members were stopped by a suspend
    met: tuple[str, ...] = ()  # the children of a gang that the operator has seen run together, until one succeeds
    lost: bool = False  # a replica of the gang has failed, was drained or deleted since its attempt began
    rows: tuple[int, ...] = ()  # by what counts failures: attempts in a row that ended without progress, or UNKNOWN
    next_row: int | None = None  # the same with the present attempt of a gang, or of the slot 0, once it has ended
    causes: tuple[str, ...] = ()  # the causes of disruptions and stalls; of a gang those of its present attempt
    restarts: tuple[int, ...] = ()  # when the restarts were made that `restart-limit` limits
    pending: int = 0  # such failures that are counted and not restarted yet

    def row(self, counts: int) -> int:
        return self.rows[counts] if self.rows else 0

    def with_row(self, counts: int, row: int, of: int) -> Truth:
        rows = [*(self.rows or (0,) * of)]
        rows[counts] = row
        return self._replace(rows=tuple(rows) if any(rows) else ())


class View(NamedTuple):
    """A remembered old view. Where it `waits`, the operator's own child writes are added to `children` as they are
    made, and it is gone when the operator is restarted; the other kind is what a restarted operator may be shown."""

    spec: int
    status: int
    deleting: bool
    children: ChildStates
    fresh: bool = True  # the job was not written since
    waits: bool = True
    restarted: bool = False  # the operator was restarted since
    unanswered: tuple[tuple[str, str, int], ...] = ()  # kind, name, attempt of creates of the operator without answer


class World(NamedTuple):
    """`spec` and `status` are numbers of interned JSON values, see `PlanCache`."""

    spec: int
    status: int
    children: ChildStates
    gens: tuple[int, ...]  # last uid by slot; the last place is for other children
    deleting: bool = False
    now: int = START
    truth: Truth = Truth()
    refused: tuple[tuple[str, str, int, int], ...] = ()  # kind, name, tries, at: the executor's memory
    left: tuple[int, ...] = ()  # how often each bounded transition may still happen
    view: View | None = None

    def holder(self, slot: int) -> Batch | Set | Pod | None:
        """What fills the slot."""
        return next((obj for obj in self.holders() if obj.slot == slot), None)

    def holders(self) -> list[Batch | Set | Pod]:
        return [obj for obj in self.children if fills(obj)]  # no OtherChild fills a slot

    def workloads(self) -> list[Batch | Set]:
        return [*self.batches(), *self.sets()]

    def batches(self) -> list[Batch]:
        return [obj for obj in self.children if isinstance(obj, Batch)]

    def sets(self) -> list[Set]:
        return [obj for obj in self.children if isinstance(obj, Set)]

    def pods(self, owner: str = "") -> list[Pod]:
        return [obj for obj in self.children if isinstance(obj, Pod) and (not owner or obj.owner == owner)]

    def other_children(self) -> list[OtherChild]:
        return [obj for obj in self.children if isinstance(obj, OtherChild)]

    def with_children(self, *children: ChildState, gone: ChildStates = ()) -> World:
        """The world with these children, and without `gone`. A child replaces the one it grew from by being in gone."""
        rest = [obj for obj in self.children if obj not in gone]
        return self._replace(children=ordered([*rest, *children]))

    def swap(self, old: ChildState, new: ChildState) -> World:
        return self.with_children(new, gone=(old,))

    def fail(self, failure: tuple[int, str], certain: bool) -> World:
        truth = self.truth
        if failure in truth.must or (failure in truth.may and not certain):
            return self
        if certain:
            may = tuple(kept for kept in truth.may if kept != failure)
            return self._replace(truth=truth._replace(must=tuple(sorted({*truth.must, failure})), may=may))
        return self._replace(truth=truth._replace(may=tuple(sorted({*truth.may, failure}))))

    def unmet(self) -> World:
        """The gang is not complete any more, by its own doing."""
        return self._replace(truth=self.truth._replace(met=()))

    def doubt(self, failure: tuple[int, str]) -> World:
        """The evidence of a failure is deleted: from now on the failure can be missed."""
        truth = self.truth
        if failure not in truth.must:
            return self
        must = tuple(kept for kept in truth.must if kept != failure)
        return self._replace(truth=truth._replace(must=must, may=tuple(sorted({*truth.may, failure}))))


def fills(obj: ChildState) -> bool:
    return isinstance(obj, Batch | Set) or (isinstance(obj, Pod) and obj.alone)


def resource(obj: ChildState) -> str:
    """The kind of the object."""
    if isinstance(obj, OtherChild):
        return obj.kind
    return {Batch: "Job", Set: "StatefulSet", Pod: "Pod"}[type(obj)]


def ordered(children: list[ChildState]) -> ChildStates:
    return tuple(sorted(children, key=lambda obj: (type(obj).__name__, obj)))
