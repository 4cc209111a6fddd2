"""A small world: one job, its children, and what really happened. Everything here is a frozen, hashable value.

A batch Job is `Batch`, a StatefulSet is `Set`, the pods of both, and those that fill a slot by themselves, are `Pod`,
all other children are `Thing`. A slot is a number in the scene's `Cast`, and a letter in a uid: "a1" is the first
object in the first slot, "a1.2" its second pod. Uids count per name, so two histories that differ only in the order of
unrelated steps meet in the same world. `Truth` is what a perfect observer has seen; the operator never reads it, the
rules do.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.core.names import runtime_id

START = 1_700_000_000
NAME = "small"
JOB_UID = "job"
RUNTIME_ID = runtime_id(JOB_UID, ())
LETTERS = "abcdefgh"


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


class Thing(NamedTuple):
    """Any other object: a Service, a ConfigMap, or a foreign object that holds a name of ours."""

    kind: str
    name: str
    gen: int
    foreign: bool = False
    body: int = 0

    @property
    def uid(self) -> str:
        return f"{self.kind}{self.gen}"


Kid = Batch | Set | Pod | Thing
Kids = tuple[Kid, ...]


class Truth(NamedTuple):
    """What really happened. `must` are the uids of failed attempts that have to be counted, `may` those that can be
    missed or taken for a failure, because their evidence was removed by somebody. Each is told with the number of what
    counts it, see `Cast.counts`."""

    must: tuple[tuple[int, str], ...] = ()
    may: tuple[tuple[int, str], ...] = ()
    in_place: int = 0
    done: tuple[int, ...] = ()  # slots that decide and have ended with 0
    permanent: bool = False  # what is judged ended with a permanent code once, undisturbed
    wait: int = 0  # no new attempt is made before this time
    closed: tuple[str, ...] = ()  # rendezvous whose members were stopped by a suspend


class View(NamedTuple):
    """A remembered old view. Where it `waits`, the operator's own child writes are added to `kids` as they are made,
    and it is gone when the operator is restarted; the other kind is what a restarted operator may be shown."""

    spec: int
    status: int
    deleting: bool
    kids: Kids
    fresh: bool = True  # the job was not written since
    waits: bool = True
    restarted: bool = False  # the operator was restarted since


class World(NamedTuple):
    """`spec` and `status` are numbers of interned JSON values, see `Book`."""

    spec: int
    status: int
    kids: Kids
    gens: tuple[int, ...]  # last uid by slot; the last place is for things
    deleting: bool = False
    now: int = START
    truth: Truth = Truth()
    refused: tuple[tuple[str, str, int, int], ...] = ()  # kind, name, tries, at: the shell's memory
    left: tuple[int, ...] = ()  # how often each bounded move may still happen
    view: View | None = None

    def holder(self, slot: int) -> Batch | Set | Pod | None:
        """What fills the slot."""
        return next((kid for kid in self.holders() if kid.slot == slot), None)

    def holders(self) -> list[Batch | Set | Pod]:
        return [kid for kid in self.kids if fills(kid)]  # type: ignore[misc]  # no Thing fills a slot

    def workloads(self) -> list[Batch | Set]:
        return [*self.batches(), *self.sets()]

    def batches(self) -> list[Batch]:
        return [kid for kid in self.kids if isinstance(kid, Batch)]

    def sets(self) -> list[Set]:
        return [kid for kid in self.kids if isinstance(kid, Set)]

    def pods(self, owner: str = "") -> list[Pod]:
        return [kid for kid in self.kids if isinstance(kid, Pod) and (not owner or kid.owner == owner)]

    def things(self) -> list[Thing]:
        return [kid for kid in self.kids if isinstance(kid, Thing)]

    def with_kids(self, *kids: Kid, gone: Kids = ()) -> World:
        """The world with these children, and without `gone`. A child replaces the one it grew from by being in gone."""
        rest = [kid for kid in self.kids if kid not in gone]
        return self._replace(kids=ordered([*rest, *kids]))

    def swap(self, old: Kid, new: Kid) -> World:
        return self.with_kids(new, gone=(old,))

    def fail(self, one: tuple[int, str], certain: bool) -> World:
        truth = self.truth
        if one in truth.must or (one in truth.may and not certain):
            return self
        if certain:
            may = tuple(kept for kept in truth.may if kept != one)
            return self._replace(truth=truth._replace(must=tuple(sorted({*truth.must, one})), may=may))
        return self._replace(truth=truth._replace(may=tuple(sorted({*truth.may, one}))))

    def doubt(self, one: tuple[int, str]) -> World:
        """The evidence of a failure goes: from now on it can be missed."""
        truth = self.truth
        if one not in truth.must:
            return self
        must = tuple(kept for kept in truth.must if kept != one)
        return self._replace(truth=truth._replace(must=must, may=tuple(sorted({*truth.may, one}))))


def fills(kid: Kid) -> bool:
    return isinstance(kid, Batch | Set) or (isinstance(kid, Pod) and kid.alone)


def resource(kid: Kid) -> str:
    """The kind of the object."""
    if isinstance(kid, Thing):
        return kid.kind
    return {Batch: "Job", Set: "StatefulSet", Pod: "Pod"}[type(kid)]


def ordered(kids: list[Kid]) -> Kids:
    return tuple(sorted(kids, key=lambda kid: (type(kid).__name__, kid)))
