"""The table of the election's next moves, and random interleavings of candidates, delays and pauses by Hypothesis."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.controller_runtime.leader_election import boottime
from trainyard.controller_runtime.lease import (
    LeaseAction,
    LeaseMove,
    LeaseRecord,
    LeaseTimings,
    ObservedLease,
    Wait,
    invalidate,
    is_leading,
    next_move,
    observe,
    parse_lease,
    record_failure,
    record_write,
)
from trainyard.objects.structs import replace

TERMS = LeaseTimings(duration=15, deadline=10, retry=2)
MINE = LeaseRecord("me", 15, 0, "1")
THEIRS = LeaseRecord("you", 15, 0, "1")
FREE = LeaseRecord("", 1, 3, "1")


def known(record: LeaseRecord | None, since: float = 100, looked: float = 100) -> ObservedLease:
    return ObservedLease(record, True, since, looked)


@pytest.mark.parametrize(
    ("observed", "now", "move"),
    [
        (ObservedLease(), 100, LeaseAction.READ),
        (invalidate(known(MINE)), 101, LeaseAction.READ),
        (known(None), 100, LeaseAction.CREATE),
        (known(FREE), 100, LeaseAction.ACQUIRE),
        (known(MINE), 101, Wait(1)),
        (known(MINE), 102, LeaseAction.RENEW),
        (known(MINE), 500, LeaseAction.RENEW),
        (known(THEIRS), 101, Wait(1)),
        (known(THEIRS), 102, LeaseAction.READ),
        (known(THEIRS, since=100, looked=114), 114.5, Wait(0.5)),
        (known(THEIRS, since=100, looked=114), 115, LeaseAction.ACQUIRE),
        (known(replace(THEIRS, duration=30), since=100, looked=114), 115, Wait(1)),
    ],
)
def test_the_transition_table_of_the_lease(observed: ObservedLease, now: float, move: LeaseMove) -> None:
    assert next_move("me", observed, now, TERMS) == move


def test_we_lead_from_the_sending_of_an_accepted_write_until_the_deadline() -> None:
    ours = record_write(known(FREE), MINE, 100)
    assert [is_leading(ours, now, TERMS) for now in (100, 109.9, 110, 115)] == [True, True, False, False]
    assert not is_leading(known(MINE), 100, TERMS)  # reading our own Lease is not enough: it may expire at any moment


def test_an_answer_that_is_lost_does_not_lengthen_the_term() -> None:
    ours = record_failure(record_write(known(FREE), MINE, 100), 108)
    assert is_leading(ours, 109, TERMS) and not is_leading(ours, 110, TERMS)
    assert next_move("me", ours, 109, TERMS) == Wait(1)


def test_a_lease_found_to_be_held_after_a_lost_response_is_renewed_in_time() -> None:
    """The answer to a renewal was lost after five seconds and the retry got a Conflict: one second is left."""
    ours = invalidate(record_failure(record_write(known(FREE), MINE, 100), 107))
    reread = observe("me", ours, replace(MINE, revision="2"), 109)
    assert is_leading(reread, 109, TERMS) and next_move("me", reread, 109, TERMS) is LeaseAction.RENEW


def test_seeing_another_holder_ends_the_term_at_once() -> None:
    assert not is_leading(observe("me", record_write(known(FREE), MINE, 100), THEIRS, 101), 101, TERMS)
    assert not is_leading(observe("me", record_write(known(FREE), MINE, 100), None, 101), 101, TERMS)


def test_only_a_change_sets_the_wait_back() -> None:
    first = observe("me", ObservedLease(), THEIRS, 100)
    same = observe("me", first, THEIRS, 110)
    assert next_move("me", same, 115, TERMS) is LeaseAction.ACQUIRE
    renewed = observe("me", same, replace(THEIRS, revision="2"), 112)
    assert next_move("me", renewed, 115, TERMS) is LeaseAction.READ
    assert next_move("me", renewed, 127, TERMS) is LeaseAction.ACQUIRE


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": "x"}, []])
def test_a_lease_without_holder_is_free(spec: object) -> None:
    assert parse_lease({"metadata": {"resourceVersion": "7"}, "spec": spec}) == LeaseRecord("", 15, 0, "7")


def test_the_clock_counts_suspend_where_the_system_has_one() -> None:
    assert abs(boottime() - time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))) < 1


# Several candidates, each with its own clock. A candidate may be paused between its decision, its request, the write on
# the server and the arrival of the answer.


@dataclass
class World:
    now: float = 0.0
    lease: LeaseRecord | None = None
    revision: int = 0

    def write(self, read: LeaseRecord | None, holder: str, duration: float) -> LeaseRecord | None:
        """Write the lease if it is still as it was read. None: Conflict."""
        if (self.lease.revision if self.lease else "") != (read.revision if read else ""):
            return None
        self.revision += 1
        self.lease = LeaseRecord(holder, duration, 0, str(self.revision))
        return self.lease


@dataclass
class Candidate:
    me: str
    skew: float
    known: ObservedLease = field(default_factory=ObservedLease)
    next: Callable[[World], None] | None = None

    def clock(self, world: World) -> float:
        return world.now + self.skew

    def advance(self, world: World) -> None:
        """One of three steps: decide and send the request; the server handles it; the answer arrives."""
        if self.next is not None:
            step, self.next = self.next, None
            step(world)
            return
        sent = self.clock(world)
        move = next_move(self.me, self.known, sent, TERMS)
        if not isinstance(move, Wait):
            read = self.known.record
            self.next = lambda world: self.serve(world, move, read, sent)

    def serve(self, world: World, move: LeaseAction, read: LeaseRecord | None, sent: float) -> None:
        if move is LeaseAction.READ:
            lease = world.lease
            self.next = lambda world: self.receive(observe(self.me, self.known, lease, self.clock(world)))
        elif (written := world.write(read, self.me, TERMS.duration)) is None:
            self.next = lambda world: self.receive(invalidate(self.known))
        else:
            accepted = written
            self.next = lambda world: self.receive(record_write(self.known, accepted, sent))

    def receive(self, known: ObservedLease) -> None:
        self.known = known


@settings(max_examples=300, deadline=None)
@given(
    skews=st.lists(st.floats(-600, 600), min_size=2, max_size=3),
    moves=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.1, 1.0, 3.0, 9.0, 14.0, 40.0])), max_size=120),
)
def test_two_candidates_never_lead_at_once(skews: list[float], moves: list[tuple[int, float]]) -> None:
    world = World()
    candidates = [Candidate(f"c{index}", skew) for index, skew in enumerate(skews)]
    for index, seconds in moves:
        world.now += seconds
        candidates[index % len(candidates)].advance(world)
        leading = [
            candidate.me for candidate in candidates if is_leading(candidate.known, candidate.clock(world), TERMS)
        ]
        assert len(leading) <= 1


def test_a_candidate_that_keeps_trying_leads_eventually() -> None:
    world, dead, alive = World(), Candidate("dead", 0), Candidate("alive", 300)
    for _ in range(9):
        dead.advance(world)
    assert is_leading(dead.known, dead.clock(world), TERMS)
    for _ in range(60):
        world.now += 1
        alive.advance(world)
    assert is_leading(alive.known, alive.clock(world), TERMS)
