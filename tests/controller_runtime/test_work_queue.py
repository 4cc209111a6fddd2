"""The work queue against a simple model."""

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
        self.processing: list[K] = []
        self.served_while_waiting: dict[K, list[K]] = {}  # for each ready key: the keys served since then

    def ready(self) -> set[K]:
        return {key for key, due_time in self.due.items() if due_time <= self.now and key not in self.processing}

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), delay=st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, -1.0]))
    def add(self, keys: list[K], delay: float) -> None:
        for key in keys:
            self.queue.add(key, delay)
            due_time = self.now + max(0.0, delay)
            self.due[key] = min(due_time, self.due.get(key, due_time))

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def pop(self) -> None:
        ready = self.ready()
        for key in ready:
            self.served_while_waiting.setdefault(key, [])
        popped = self.queue.pop()
        assert (popped is None) == (not ready)
        if popped is None:
            return
        assert popped in ready
        self.check_fairness(popped)
        del self.due[popped]
        self.processing.append(popped)
        del self.served_while_waiting[popped]
        for served in self.served_while_waiting.values():
            served.append(popped)

    def check_fairness(self, popped: K) -> None:
        """No key is served twice while another of its namespace waits; no namespace while another namespace waits."""
        for key, served in self.served_while_waiting.items():
            if key != popped and key.namespace == popped.namespace:
                assert popped not in served, f"{popped} was served twice while {key} waited"
            if key.namespace != popped.namespace:
                namespaces = [served_key.namespace for served_key in served]
                turns = [index for index, namespace in enumerate(namespaces) if namespace == key.namespace]
                popped_turns = [index for index, namespace in enumerate(namespaces) if namespace == popped.namespace]
                assert not popped_turns or (turns and turns[-1] > popped_turns[-1]), (
                    f"{popped.namespace} twice, {key.namespace} waits"
                )

    @precondition(lambda self: self.processing)
    @rule(index=st.integers(0, 5), requeue=st.booleans())
    def done(self, index: int, requeue: bool) -> None:
        key = self.processing.pop(index % len(self.processing))
        self.queue.done(key)
        if requeue:
            self.add([key], 0.0)

    @invariant()
    def as_many_wait_as_should(self) -> None:
        assert len(self.queue) == len(self.due)

    @invariant()
    def the_state_of_each_key_is_known(self) -> None:
        queued = {(key, "due" if due_time <= self.now else "later") for key, due_time in self.due.items()}
        assert set(self.queue.states()) == queued | {(key, "held") for key in self.processing}


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


def test_keys_that_are_processed_for_ever_leave_workers_to_other_namespaces() -> None:
    """A webhook hangs at every create of a namespace."""
    queue: WorkQueue[K] = WorkQueue(clock=lambda: 0.0, share=3)
    for at in range(5):
        queue.add(K("hangs", str(at)))
    assert [queue.pop() for _ in range(5)] == [K("hangs", "0"), K("hangs", "1"), K("hangs", "2"), None, None]
    queue.add(K("small", "only"))
    assert [queue.pop(), queue.pop()] == [K("small", "only"), None]
    queue.done(K("hangs", "1"))
    assert [queue.pop(), queue.pop()] == [K("hangs", "3"), None]


async def test_a_worker_that_waits_is_woken_when_its_namespace_has_room_again() -> None:
    queue: WorkQueue[K] = WorkQueue(share=1)
    queue.add(K("x", "a"))
    key = await queue.get()
    queue.add(K("x", "b"))
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.01)
    assert not getting.done()
    queue.done(key)
    assert await asyncio.wait_for(getting, 5) == K("x", "b")


async def test_a_later_key_is_served_while_the_worker_of_an_earlier_one_is_busy() -> None:
    queue: WorkQueue[K] = WorkQueue()
    queue.add(K("x", "soon"), 0.01)
    queue.add(K("x", "late"), 0.05)
    getting = [asyncio.create_task(queue.get()) for _ in range(3)]
    served = [await asyncio.wait_for(task, 5) for task in getting[:2]]
    assert served == [K("x", "soon"), K("x", "late")]
    getting[2].cancel()


async def test_take_waits_for_an_add() -> None:
    queue: WorkQueue[K] = WorkQueue()
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(K("x", "a"))
    assert await asyncio.wait_for(getting, 5) == K("x", "a")


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
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(K("x", "a"), 0.01)
    assert await asyncio.wait_for(getting, 5) == K("x", "a")


async def test_a_key_in_somebodys_hand_is_not_given_to_another() -> None:
    queue: WorkQueue[K] = WorkQueue()
    queue.add(K("x", "a"))
    key = await queue.get()
    queue.add(key)
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.01)
    assert not getting.done()
    queue.done(key)
    assert await asyncio.wait_for(getting, 5) == key


async def test_a_cancelled_worker_takes_no_item_from_the_queue() -> None:
    queue: WorkQueue[K] = WorkQueue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add(K("x", "a"))
    queue.add(K("x", "b"))
    getters[0].cancel()
    done = await asyncio.wait_for(asyncio.gather(*getters[1:]), 5)
    assert set(done) == {K("x", "a"), K("x", "b")}


async def test_other_tasks_run_between_two_keys_of_a_worker_that_never_waits() -> None:
    """10,000 steady jobs are reconciled without a request: in one turn of the event loop the lease would be lost."""
    queue: WorkQueue[K] = WorkQueue()
    for number in range(100):
        queue.add(K("x", str(number)))
    left: list[int] = []

    async def renew_lease() -> None:
        while len(queue):
            left.append(len(queue))
            await asyncio.sleep(0)

    lease = asyncio.create_task(renew_lease())
    while len(queue):
        queue.done(await queue.get())
    await lease
    assert len(left) >= 100
