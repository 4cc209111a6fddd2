"""The lease's decision as a table, and every mixture of candidates, delays and pauses that Hypothesis thinks of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.control.lease import (
    Act,
    Known,
    Move,
    Record,
    Terms,
    Wait,
    contradicted,
    decide,
    leads,
    read,
    saw,
    since_boot,
    unanswered,
    wrote,
)
from trainyard.objects.values import replace

TERMS = Terms(duration=15, deadline=10, retry=2)
MINE = Record("me", 15, 0, "1")
THEIRS = Record("you", 15, 0, "1")
FREE = Record("", 1, 3, "1")


def known(record: Record | None, since: float = 100, looked: float = 100) -> Known:
    return Known(record, True, since, looked)


@pytest.mark.parametrize(
    ("what", "now", "move"),
    [
        (Known(), 100, Act.LOOK),
        (contradicted(known(MINE)), 101, Act.LOOK),
        (known(None), 100, Act.MAKE),
        (known(FREE), 100, Act.TAKE),
        (known(MINE), 101, Wait(1)),
        (known(MINE), 102, Act.RENEW),
        (known(MINE), 500, Act.RENEW),
        (known(THEIRS), 101, Wait(1)),
        (known(THEIRS), 102, Act.LOOK),
        (known(THEIRS, since=100, looked=114), 114.5, Wait(0.5)),
        (known(THEIRS, since=100, looked=114), 115, Act.TAKE),
        (known(replace(THEIRS, duration=30), since=100, looked=114), 115, Wait(1)),
    ],
)
def test_the_table(what: Known, now: float, move: Move) -> None:
    assert decide("me", what, now, TERMS) == move


def test_we_lead_from_the_sending_of_an_accepted_write_until_the_deadline() -> None:
    ours = wrote(known(FREE), MINE, 100)
    assert [leads(ours, now, TERMS) for now in (100, 109.9, 110, 115)] == [True, True, False, False]
    assert not leads(known(MINE), 100, TERMS)  # to see it is not enough: it may be about to end


def test_an_answer_that_is_lost_does_not_lengthen_the_term() -> None:
    ours = unanswered(wrote(known(FREE), MINE, 100), 108)
    assert leads(ours, 109, TERMS) and not leads(ours, 110, TERMS)
    assert decide("me", ours, 109, TERMS) == Wait(1)


def test_who_finds_after_a_lost_answer_that_it_is_his_renews_it_before_his_term_ends() -> None:
    """The answer to a renewal took five seconds and was lost, the next try contradicted us: a second is left."""
    ours = contradicted(unanswered(wrote(known(FREE), MINE, 100), 107))
    found = saw("me", ours, replace(MINE, revision="2"), 109)
    assert leads(found, 109, TERMS) and decide("me", found, 109, TERMS) is Act.RENEW


def test_seeing_another_holder_ends_the_term_at_once() -> None:
    assert not leads(saw("me", wrote(known(FREE), MINE, 100), THEIRS, 101), 101, TERMS)
    assert not leads(saw("me", wrote(known(FREE), MINE, 100), None, 101), 101, TERMS)


def test_only_a_change_sets_the_wait_back() -> None:
    first = saw("me", Known(), THEIRS, 100)
    same = saw("me", first, THEIRS, 110)
    assert decide("me", same, 115, TERMS) is Act.TAKE
    renewed = saw("me", same, replace(THEIRS, revision="2"), 112)
    assert decide("me", renewed, 115, TERMS) is Act.LOOK
    assert decide("me", renewed, 127, TERMS) is Act.TAKE


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": "x"}, []])
def test_a_lease_that_says_nothing_is_nobodys(spec: object) -> None:
    assert read({"metadata": {"resourceVersion": "7"}, "spec": spec}) == Record("", 15, 0, "7")


def test_the_clock_counts_suspend_where_the_system_has_one() -> None:
    assert abs(since_boot() - time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))) < 1


# Several candidates, each with a clock of its own, that may be paused at any point between deciding, sending,
# the server's write and the arrival of its answer.


@dataclass
class World:
    now: float = 0.0
    lease: Record | None = None
    revision: int = 0

    def write(self, seen: Record | None, holder: str, duration: float) -> Record | None:
        """Compare and swap: None is a conflict."""
        if (self.lease.revision if self.lease else "") != (seen.revision if seen else ""):
            return None
        self.revision += 1
        self.lease = Record(holder, duration, 0, str(self.revision))
        return self.lease


@dataclass
class Candidate:
    me: str
    skew: float
    known: Known = field(default_factory=Known)
    next: Callable[[World], None] | None = None

    def clock(self, world: World) -> float:
        return world.now + self.skew

    def advance(self, world: World) -> None:
        """One third of a move: decide and send, the server acts, the answer arrives."""
        if self.next is not None:
            act, self.next = self.next, None
            act(world)
            return
        sent = self.clock(world)
        move = decide(self.me, self.known, sent, TERMS)
        if not isinstance(move, Wait):
            seen = self.known.record
            self.next = lambda world: self.serve(world, move, seen, sent)

    def serve(self, world: World, move: Act, seen: Record | None, sent: float) -> None:
        if move is Act.LOOK:
            found = world.lease
            self.next = lambda world: self.hear(saw(self.me, self.known, found, self.clock(world)))
        elif (made := world.write(seen, self.me, TERMS.duration)) is None:
            self.next = lambda world: self.hear(contradicted(self.known))
        else:
            accepted = made
            self.next = lambda world: self.hear(wrote(self.known, accepted, sent))

    def hear(self, known: Known) -> None:
        self.known = known


@settings(max_examples=300, deadline=None)
@given(
    skews=st.lists(st.floats(-600, 600), min_size=2, max_size=3),
    moves=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.1, 1.0, 3.0, 9.0, 14.0, 40.0])), max_size=120),
)
def test_never_do_two_lead_at_once(skews: list[float], moves: list[tuple[int, float]]) -> None:
    world = World()
    everybody = [Candidate(f"c{at}", skew) for at, skew in enumerate(skews)]
    for who, passed in moves:
        world.now += passed
        everybody[who % len(everybody)].advance(world)
        leading = [one.me for one in everybody if leads(one.known, one.clock(world), TERMS)]
        assert len(leading) <= 1


def test_a_candidate_who_keeps_trying_leads_in_the_end() -> None:
    world, dead, alive = World(), Candidate("dead", 0), Candidate("alive", 300)
    for _ in range(9):
        dead.advance(world)
    assert leads(dead.known, dead.clock(world), TERMS)
    for _ in range(60):
        world.now += 1
        alive.advance(world)
    assert leads(alive.known, alive.clock(world), TERMS)
