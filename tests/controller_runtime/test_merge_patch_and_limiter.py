"""Merge patches remove vanished keys; the concurrency limit is halved once per overload and recovers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.client import Unavailable
from trainyard.controller_runtime.concurrency_limiter import (
    INITIAL_LIMIT,
    INITIAL_THRESHOLD,
    LATELY_SECONDS,
    MAX_LIMIT,
    MIN_LIMIT,
    NOW_SECONDS,
    ROOM_LIMIT,
    ConcurrencyLimiter,
)
from trainyard.controller_runtime.merge_patch import merge_patch

SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a"])
KEYS = st.sampled_from("abc")
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_the_new_out_of_the_old(old: dict[str, Any], new: dict[str, Any]) -> None:
    old = merged({}, old)  # as a server stores it: without nulls outside of lists
    assert repr(sort(merged(old, merge_patch(old, new)))) == repr(sort(merged({}, new)))


@given(OBJECTS)
def test_an_unchanged_object_is_an_empty_patch(value: dict[str, Any]) -> None:
    value = merged({}, value)
    assert merge_patch(value, value) == {}


def sort(value: Any) -> Any:
    """Make equal values equal by repr, in which True is not 1."""
    if isinstance(value, dict):
        return sorted((key, sort(inner)) for key, inner in value.items())
    return [sort(item) for item in value] if isinstance(value, list) else value


def test_a_vanished_key_is_named_with_null_at_every_depth() -> None:
    old = {"phase": "Running", "roles": {"PS": {"failures": 1, "port": 1}, "WORKER": {}}, "list": [{"a": 1, "b": 2}]}
    new = {"phase": "Running", "roles": {"PS": {"port": 1}}, "list": [{"a": 1}]}
    assert merge_patch(old, new) == {"roles": {"PS": {"failures": None}, "WORKER": None}, "list": [{"a": 1}]}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def call(limiter: ConcurrencyLimiter, clock: Clock, seconds: float, batch: int = 1, fails: bool = False) -> None:
    async with limiter.slot(batch=batch):
        clock.now += seconds
        if fails:
            raise Unavailable(429, "TooManyRequests", "not now")


async def test_the_limit_of_a_job_that_is_alone_grows_while_its_writes_wait_in_the_server() -> None:
    """It fell above 50 ms, and a TfJob of 1,000 took 1.7 times as long as its objects by themselves."""
    clock = Clock()
    limiter = ConcurrencyLimiter(clock=clock)
    for _ in range(40):
        await call(limiter, clock, 0.005, batch=200)
    for _ in range(40):
        before = limiter.limit
        await call(limiter, clock, 0.2, batch=200)
        assert limiter.limit > before


async def test_the_limit_doubles_with_each_round_of_answers_until_its_threshold() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(clock=clock)
    limits = []
    while limiter.limit < INITIAL_THRESHOLD:
        limits.append(int(limiter.limit))
        for _ in range(limits[-1]):
            await call(limiter, clock, 0.01)
    assert limits == [4, 8, 16]
    for _ in range(int(INITIAL_THRESHOLD)):
        await call(limiter, clock, 0.01)
    assert INITIAL_THRESHOLD < limiter.limit <= INITIAL_THRESHOLD + 1, "one a round from there on"
    with pytest.raises(Unavailable):
        await call(limiter, clock, 0.01, fails=True)
    assert limiter.threshold == limiter.limit < INITIAL_THRESHOLD, "no second slow start after an overload"


async def test_an_overload_halves_the_rate_and_successes_restore_it() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(clock=clock)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await call(limiter, clock, 0.01, fails=True)
    assert limiter.limit == MIN_LIMIT
    for _ in range(3000):
        await call(limiter, clock, 0.01)
    assert limiter.limit == MAX_LIMIT


async def test_a_slot_in_which_nothing_is_sent_leaves_the_limit_as_it_is() -> None:
    """The rest of a wave is skipped after an overload, and each skipped write counted as a fast answer."""
    clock = Clock()
    limiter = ConcurrencyLimiter(clock=clock)
    with pytest.raises(Unavailable):
        await call(limiter, clock, 0.01, fails=True)
    before = limiter.limit
    for _ in range(50):
        async with limiter.slot(batch=200) as slot:
            slot.skip()
    assert limiter.limit == before
    await call(limiter, clock, 0.01)
    assert limiter.limit > before


async def test_the_limit_never_exceeds_that_of_its_owner() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(3, clock)
    limits = []
    for _ in range(50):
        await call(limiter, clock, 0.01)
        limits.append(limiter.limit)
    assert set(limits) == {3}


async def test_a_burst_of_429s_reduces_the_rate_once() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(clock=clock)
    all_running = asyncio.Barrier(int(INITIAL_LIMIT))

    async def refused() -> None:
        async with limiter.slot():
            await all_running.wait()
            clock.now += 0.001
            raise Unavailable(429, "TooManyRequests", "not now")

    await asyncio.gather(*(refused() for _ in range(int(INITIAL_LIMIT))), return_exceptions=True)
    assert limiter.limit == INITIAL_LIMIT / 2


async def test_a_server_that_turns_slow_is_given_air_but_one_that_is_slow_for_good_is_not_strangled() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(clock=clock)
    for _ in range(50):
        await call(limiter, clock, 0.01)
    before = limiter.limit
    await call(limiter, clock, 5.0)
    assert limiter.limit == before / 2
    for _ in range(400):
        await call(limiter, clock, 5.0)
    assert limiter.limit > MIN_LIMIT * 2


async def test_requests_never_exceed_the_limit_and_are_sent_in_order() -> None:
    limiter = ConcurrencyLimiter()
    running = most_running = 0
    order: list[int] = []

    async def write(number: int) -> None:
        nonlocal running, most_running
        async with limiter.slot():
            order.append(number)
            running += 1
            most_running = max(most_running, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(write(number) for number in range(500)))
    assert most_running <= MAX_LIMIT and most_running >= INITIAL_LIMIT - 1
    assert order == sorted(order)
    assert limiter.running == 0


async def test_a_small_job_waits_for_one_write_of_each_other_job_at_most() -> None:
    """A job of one pod waited 4.5 s behind the creates of another user's job of 2,000."""
    limiter = ConcurrencyLimiter()
    limiter.limit = 1.0
    order: list[str] = []

    async def write(namespace: str, job: str) -> None:
        async with limiter.slot(namespace, job):
            order.append(job)
            await asyncio.sleep(0)

    big = [asyncio.create_task(write("a", "big")) for _ in range(200)]
    other = [asyncio.create_task(write("a", "other")) for _ in range(3)]
    await asyncio.sleep(0)
    small = [asyncio.create_task(write("b", "small"))]
    await asyncio.gather(*big, *other, *small)
    assert order.index("small") <= 4, order[:10]  # one write holds the slot, one of each other job may come before it
    assert order[:12].count("other") == 3, order[:12]


class Writes:
    """Writes of jobs, each of which is in flight until it is answered."""

    def __init__(self, clock: Clock) -> None:
        self.limiter = ConcurrencyLimiter(clock=clock)
        self.limiter.limit = self.limiter.threshold = 40.0
        self._answers: dict[str, list[asyncio.Event]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, job: str, batch: int, count: int = 1) -> None:
        self._tasks += [asyncio.create_task(self._write(job, batch)) for _ in range(count)]

    async def _write(self, job: str, batch: int) -> None:
        async with self.limiter.slot(job, job, batch):
            self._answers.setdefault(job, []).append(answer := asyncio.Event())
            await answer.wait()

    async def in_flight(self, job: str) -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return sum(not answer.is_set() for answer in self._answers.get(job, ()))

    async def answer(self, job: str) -> None:
        """All that are in flight."""
        for answer in self._answers[job]:
            answer.set()
        await asyncio.sleep(0)

    async def end(self) -> None:
        while not all(task.done() for task in self._tasks):
            for job in list(self._answers):
                await self.answer(job)
        assert self.limiter.running == 0


async def test_a_big_job_has_one_write_in_flight_while_small_ones_write() -> None:
    """A request waits in the API server behind all that are in flight, also where each job gets its slot in turn."""
    clock = Clock()
    writes = Writes(clock)
    writes.send("big", 200, count=200)
    assert await writes.in_flight("big") == 40
    writes.send("small", 2, count=2)
    assert await writes.in_flight("small") == 1, "all slots are in use: one more for the other namespace"
    await writes.answer("big")
    assert await writes.in_flight("small") == 2
    assert await writes.in_flight("big") == 1
    clock.now += NOW_SECONDS
    await writes.answer("big")
    assert await writes.in_flight("big") == ROOM_LIMIT, "so many meet the next small one"
    clock.now += LATELY_SECONDS - NOW_SECONDS
    await writes.answer("small")
    assert await writes.in_flight("big") >= 40
    await writes.end()


async def test_writes_that_hang_delay_no_other_namespace() -> None:
    """A webhook of one namespace does not answer. After an overload there are two slots: both writes in them hang."""
    writes = Writes(Clock())
    writes.limiter = ConcurrencyLimiter(MIN_LIMIT)
    writes.send("hangs", 5, count=20)
    assert await writes.in_flight("hangs") == MIN_LIMIT
    writes.send("other", 5, count=3)
    for left in (3, 2, 1):
        assert await writes.in_flight("other") == 1, f"{left} are left to send"
        await writes.answer("other")
    assert (await writes.in_flight("hangs"), await writes.in_flight("other")) == (MIN_LIMIT, 0)
    for namespace in ("x", "y", "z"):
        writes.send(namespace, 5)
    assert sum([await writes.in_flight(namespace) for namespace in ("x", "y", "z")]) == 2, "twice the limit at most"
    await writes.end()


async def test_a_big_job_goes_on_beside_small_ones_without_end() -> None:
    """Where the limit was for both, small jobs that kept it busy would stop the big one."""
    writes = Writes(Clock())
    writes.send("small", 5, count=100)
    assert await writes.in_flight("small") == 40
    writes.send("big", 200, count=20)
    for _ in range(20):
        await writes.answer("small")
        assert await writes.in_flight("big") == 1
        await writes.answer("big")
        writes.send("small", 5, count=40)
    assert await writes.in_flight("big") == 0
    await writes.end()


async def test_a_status_by_itself_holds_up_no_big_job() -> None:
    """A cluster where many jobs run has one each moment; a big job would never be alone."""
    writes = Writes(Clock())
    writes.send("running", 1)
    assert await writes.in_flight("running") == 1
    writes.send("big", 200, count=100)
    assert await writes.in_flight("big") == 39
    await writes.end()


async def test_a_cancelled_slot_goes_to_the_next_in_line() -> None:
    limiter = ConcurrencyLimiter()
    limiter.limit = 1.0
    release = asyncio.Event()

    async def hold() -> None:
        async with limiter.slot():
            await release.wait()

    holder = asyncio.create_task(hold())
    waiters = [asyncio.create_task(hold()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    release.set()
    await asyncio.sleep(0)  # the holder releases its slot, which is granted to the next waiter
    waiters[1].cancel()
    await asyncio.wait_for(asyncio.gather(holder, waiters[2]), 5)
    await asyncio.gather(*waiters, return_exceptions=True)
    assert limiter.running == 0
