"""A small world: one TfJob, its children, and what really happened. Everything here is a frozen, hashable value.

A batch Job is `Batch`, its pods are `Pod`, all other children are `Thing`. Uids count per name ("m1", "m1.2"), so two
histories that differ only in the order of unrelated steps meet in the same world. `Truth` is what a perfect observer
has seen; the operator never reads it, the rules do.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from trainyard.core.children import Container, pod_lines
from trainyard.core.model import Child
from trainyard.core.names import runtime_id

START = 1_700_000_000
JOB_UID = "job"
RUNTIME_ID = runtime_id(JOB_UID, ())
ROLES = ("MASTER", "WORKER", "PS")


class Batch(NamedTuple):
    """A batch Job that fills a slot."""

    slot: int
    gen: int
    attempt: int
    phase: str = ""
    ended: int = 0
    pods: int = 0  # how many pods it has made

    @property
    def uid(self) -> str:
        return f"{ROLES[self.slot][0].lower()}{self.gen}"

    @property
    def name(self) -> str:
        return f"{ROLES[self.slot].lower()}-{RUNTIME_ID}-0"


class Pod(NamedTuple):
    """A pod of a batch Job."""

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

    @property
    def owner(self) -> str:
        return "" if self.orphan else f"{ROLES[self.slot][0].lower()}{self.gen}"

    @property
    def uid(self) -> str:
        return f"{ROLES[self.slot][0].lower()}{self.gen}.{self.number}"

    @property
    def live(self) -> bool:
        return self.phase in ("Pending", "Running")


class Thing(NamedTuple):
    """Any other object: a Service, a ConfigMap, or a foreign object that holds a name of ours."""

    kind: str
    name: str
    gen: int
    foreign: bool = False

    @property
    def uid(self) -> str:
        return f"{self.kind}{self.gen}"


Kid = Batch | Pod | Thing
Kids = tuple[Kid, ...]


class Truth(NamedTuple):
    """What really happened. `must` are the uids of failed attempts that have to be counted, `may` those that can be
    missed or taken for a failure, because their evidence was removed by somebody."""

    must: tuple[tuple[int, str], ...] = ()
    may: tuple[tuple[int, str], ...] = ()
    in_place: int = 0
    succeeded: bool = False  # the MASTER ended with 0 once
    permanent: bool = False  # the MASTER ended with a permanent code once, undisturbed
    wait: int = 0  # the MASTER is not made again before this time
    started: int = 0  # the last start or resume that status has


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
    gens: tuple[int, ...] = (0, 0, 0, 0)  # last uid by slot; the last place is for things
    deleting: bool = False
    now: int = START
    truth: Truth = Truth()
    refused: tuple[tuple[str, str, int, int], ...] = ()  # kind, name, tries, at: the shell's memory
    left: tuple[int, ...] = ()  # how often each bounded move may still happen
    view: View | None = None

    def batch(self, slot: int) -> Batch | None:
        return next((kid for kid in self.kids if isinstance(kid, Batch) and kid.slot == slot), None)

    def batches(self) -> list[Batch]:
        return [kid for kid in self.kids if isinstance(kid, Batch)]

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

    def fail(self, slot: int, uid: str, certain: bool) -> World:
        truth, one = self.truth, (slot, uid)
        if one in truth.must or (one in truth.may and not certain):
            return self
        if certain:
            may = tuple(kept for kept in truth.may if kept != one)
            return self._replace(truth=truth._replace(must=tuple(sorted({*truth.must, one})), may=may))
        return self._replace(truth=truth._replace(may=tuple(sorted({*truth.may, one}))))

    def doubt(self, slot: int, uid: str) -> World:
        """The evidence of a failure goes: from now on it can be missed."""
        truth, one = self.truth, (slot, uid)
        if one not in truth.must:
            return self
        must = tuple(kept for kept in truth.must if kept != one)
        return self._replace(truth=truth._replace(must=must, may=tuple(sorted({*truth.may, one}))))


def ordered(kids: list[Kid]) -> Kids:
    return tuple(sorted(kids, key=lambda kid: (type(kid).__name__, kid)))


@cache
def observed(kid: Kid) -> Child | None:
    """The operator's record of a child; None for what its selector does not show."""
    if isinstance(kid, Thing):
        return None if kid.foreign else Child(kind=kid.kind, namespace="d", name=kid.name, uid=kid.uid, owner=JOB_UID)
    role = ROLES[kid.slot]
    if isinstance(kid, Batch):
        return Child(
            kind="Job", namespace="d", name=kid.name, uid=kid.uid, owner=JOB_UID, role=role, index=0,
            attempt=kid.attempt, phase=kid.phase, reason="BackoffLimitExceeded" if kid.phase == "Failed" else "",
            ended=float(kid.ended), created=float(START),
        )  # fmt: skip
    state = {"Pending": "waiting", "Running": "running"}.get(kid.phase, "terminated")
    one = Container("tensorflow", state, kid.code, kid.reason, kid.restarts, False)
    return Child(
        kind="Pod", namespace="d", name=kid.uid, uid=kid.uid, owner=kid.owner, role=role, index=0, phase=kid.phase,
        deleting=kid.deleting, disrupted=kid.disrupted, created=float(START + kid.number), started=float(START),
        ended=float(kid.ended), containers=pod_lines(one),
    )  # fmt: skip
