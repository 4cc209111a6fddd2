"""Merge patches remove vanished keys; the concurrency limit is halved once per overload and recovers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.client import Unavailable
from trainyard.controller_runtime.concurrency_limiter import (
    BIG_SHARE,
    INITIAL_LIMIT,
    INITIAL_THRESHOLD,
    LOWEST_SECONDS,
    MAX_LIMIT,
    MIN_LIMIT,
    NEIGHBOUR_SECONDS,
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
    limiter = ConcurrencyLimiter(clock)
    for _ in range(40):
        await call(limiter, clock, 0.005, batch=200)
    for _ in range(40):
        before = limiter.limit
        await call(limiter, clock, 0.2, batch=200)
        assert limiter.limit > before


async def test_the_limit_beside_neighbours_falls_while_writes_wait_and_not_where_every_write_is_slow() -> None:
    clock = Clock()
    slow, queueing = ConcurrencyLimiter(clock), ConcurrencyLimiter(clock)
    for limiter, seconds in ((slow, 0.1), (queueing, 0.005)):
        limiter.limit = MAX_LIMIT
        await call(limiter, clock, seconds)
        await call(limiter, clock, seconds, batch=200)
        assert ROOM_LIMIT <= limiter.limit < ROOM_LIMIT + 1, "at once"
    for _ in range(int(ROOM_LIMIT)):
        await call(slow, clock, 0.1)
        await call(slow, clock, 0.1, batch=200)
        await call(queueing, clock, 0.001)
        await call(queueing, clock, 0.1, batch=200)
    assert slow.limit > ROOM_LIMIT + 1, "100 ms for each write, as with an admission webhook"
    await call(queueing, clock, 0.001)
    before = queueing.limit
    await call(queueing, clock, 0.1, batch=200)
    assert before - queueing.limit == pytest.approx(1 / before), "by one a round"
    clock.now += 2 * LOWEST_SECONDS
    for _ in range(3):
        await call(queueing, clock, 0.1)
        await call(queueing, clock, 0.1, batch=200)
        clock.now += LOWEST_SECONDS
    await call(queueing, clock, 0.1)
    before = queueing.limit
    await call(queueing, clock, 0.1, batch=200)
    assert queueing.limit > before, "the lowest latency of long ago does not count"


async def test_the_limit_doubles_with_each_round_of_answers_until_its_threshold() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(clock)
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
    limiter = ConcurrencyLimiter(clock)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await call(limiter, clock, 0.01, fails=True)
    assert limiter.limit == MIN_LIMIT
    for _ in range(3000):
        await call(limiter, clock, 0.01)
    assert limiter.limit == MAX_LIMIT


async def test_a_burst_of_429s_reduces_the_rate_once() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter(clock)
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
    limiter = ConcurrencyLimiter(clock)
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


async def test_a_big_job_uses_a_part_of_the_limit_while_others_write() -> None:
    """A request waits in the API server behind all that are in flight, also where each job gets its slot in turn."""
    clock = Clock()
    limiter = ConcurrencyLimiter(clock)
    limiter.limit = limiter.threshold = 20.0
    answers: dict[str, list[asyncio.Event]] = {"big": [], "small": []}

    async def write(job: str, batch: int) -> None:
        async with limiter.slot(job, job, batch):
            answers[job].append(answer := asyncio.Event())
            await answer.wait()

    async def in_flight(job: str) -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return sum(not answer.is_set() for answer in answers[job])

    async def answer_all(job: str) -> None:
        for answer in answers[job]:
            answer.set()
        await asyncio.sleep(0)

    tasks = [asyncio.create_task(write("big", 200)) for _ in range(200)]
    assert await in_flight("big") == 20
    tasks += [asyncio.create_task(write("small", 2)) for _ in range(2)]
    assert await in_flight("small") == 0, "all slots are in use"
    await answer_all("big")
    assert await in_flight("small") == 2
    assert 0 < await in_flight("big") <= limiter.limit * BIG_SHARE, "its share of the limit, both together"
    clock.now += NEIGHBOUR_SECONDS
    await answer_all("small")
    assert await in_flight("big") >= 19
    while tasks := [task for task in tasks if not task.done()]:
        await answer_all("big")
    assert limiter.running == 0


async def test_a_big_job_makes_room_for_its_neighbours_and_takes_it_back() -> None:
    """20 ms an answer is fast for a job that is alone, and slow while others wait for the same server."""
    clock = Clock()
    limiter = ConcurrencyLimiter(clock)

    async def answers(count: int, neighbours: bool) -> float:
        """The limit after so many answers to writes of a big job."""
        for number in range(count):
            await call(limiter, clock, 0.02, 200)
            if neighbours and number % 10 == 0:
                await call(limiter, clock, 0.001)
        return limiter.limit

    await call(limiter, clock, 0.001)
    alone = await answers(100, neighbours=False)
    assert alone > INITIAL_THRESHOLD
    assert await answers(1000, neighbours=True) < alone / 3
    clock.now += NEIGHBOUR_SECONDS
    assert await answers(60, neighbours=False) > INITIAL_THRESHOLD


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
