"""The queue against the simplest model that could be right."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainyard.controller_runtime.work_queue import WorkQueue

pytestmark = pytest.mark.slow


class K(NamedTuple):
    namespace: str
    name: str


KEYS = st.builds(K, st.sampled_from("xy"), st.sampled_from("abc"))


class Queued(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.queue: WorkQueue[K] = WorkQueue(clock=lambda: self.now)
        self.due: dict[K, float] = {}
        self.held: list[K] = []
        self.served_while_waiting: dict[K, list[K]] = {}  # for each ready key: who was served since it was ready

    def ready(self) -> set[K]:
        return {key for key, at in self.due.items() if at <= self.now and key not in self.held}

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), delay=st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, -1.0]))
    def add(self, keys: list[K], delay: float) -> None:
        for key in keys:
            self.queue.add(key, delay)
            at = self.now + max(0.0, delay)
            self.due[key] = min(at, self.due.get(key, at))

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def pop(self) -> None:
        ready = self.ready()
        for key in ready:
            self.served_while_waiting.setdefault(key, [])
        got = self.queue.pop()
        assert (got is None) == (not ready)
        if got is None:
            return
        assert got in ready
        self.check_turns(got)
        del self.due[got]
        self.held.append(got)
        del self.served_while_waiting[got]
        for waiting in self.served_while_waiting.values():
            waiting.append(got)

    def check_turns(self, got: K) -> None:
        """Nobody is served twice while another waits; nor is a namespace while another one waits."""
        for key, served in self.served_while_waiting.items():
            if key != got and key.namespace == got.namespace:
                assert got not in served, f"{got} was served twice while {key} waited"
            if key.namespace != got.namespace:
                others = [one for one in served if one.namespace == got.namespace]
                since = [at for at, one in enumerate(served) if one.namespace == key.namespace]
                latest = others and max(at for at, one in enumerate(served) if one.namespace == got.namespace)
                assert not others or (since and since[-1] > latest), f"{got.namespace} twice, {key.namespace} waits"

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 5), again=st.booleans())
    def done(self, at: int, again: bool) -> None:
        key = self.held.pop(at % len(self.held))
        self.queue.done(key)
        if again:
            self.add([key], 0.0)

    @invariant()
    def as_many_wait_as_should(self) -> None:
        assert len(self.queue) == len(self.due)

    @invariant()
    def the_next_time_is_known(self) -> None:
        free = [at for key, at in self.due.items() if key not in self.held]
        expected = min(free, default=None)
        said = self.queue.next_time()
        if expected is None or said is None:
            assert said is expected
        else:
            assert max(said, self.now) == max(expected, self.now)


TestQueued = Queued.TestCase
TestQueued.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_an_old_entry_of_the_same_time_does_not_give_a_held_key_away() -> None:
    now = 100.0
    queue: WorkQueue[K] = WorkQueue(clock=lambda: now)
    queue.add(K("x", "a"), 3)
    queue.add(K("x", "a"), 0)
    assert queue.pop() == K("x", "a")
    queue.add(K("x", "a"), 3)
    now = 103.0
    assert queue.pop() is None
    queue.done(K("x", "a"))
    assert queue.pop() == K("x", "a")


def test_a_thousand_keys_of_one_namespace_do_not_hold_up_the_one_of_another() -> None:
    queue: WorkQueue[K] = WorkQueue(clock=lambda: 0.0)
    for at in range(1000):
        queue.add(K("big", str(at)))
    queue.add(K("small", "only"))
    assert [queue.pop(), queue.pop()] == [K("big", "0"), K("small", "only")]


async def test_take_waits_for_an_add() -> None:
    queue: WorkQueue[K] = WorkQueue()
    taking = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(K("x", "a"))
    assert await asyncio.wait_for(taking, 5) == K("x", "a")


async def test_take_waits_for_the_time() -> None:
    queue: WorkQueue[K] = WorkQueue()
    clock = asyncio.get_running_loop().time
    began = clock()
    queue.add(K("x", "late"), 30)
    queue.add(K("x", "soon"), 0.05)
    assert await asyncio.wait_for(queue.get(), 5) == K("x", "soon")
    assert clock() - began >= 0.045


async def test_an_earlier_time_shortens_a_wait_that_has_begun() -> None:
    queue: WorkQueue[K] = WorkQueue()
    queue.add(K("x", "a"), 3600)
    taking = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(K("x", "a"), 0.01)
    assert await asyncio.wait_for(taking, 5) == K("x", "a")


async def test_a_key_in_somebodys_hand_is_not_given_to_another() -> None:
    queue: WorkQueue[K] = WorkQueue()
    queue.add(K("x", "a"))
    key = await queue.get()
    queue.add(key)
    taking = asyncio.create_task(queue.get())
    await asyncio.sleep(0.01)
    assert not taking.done()
    queue.done(key)
    assert await asyncio.wait_for(taking, 5) == key


async def test_a_taker_that_is_cancelled_takes_nothing_along() -> None:
    queue: WorkQueue[K] = WorkQueue()
    takers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add(K("x", "a"))
    queue.add(K("x", "b"))
    takers[0].cancel()
    done = await asyncio.wait_for(asyncio.gather(*takers[1:]), 5)
    assert set(done) == {K("x", "a"), K("x", "b")}
