from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.waiting import until, until_async
from tests.support.watched_objects import until_gone, until_object, until_objects
from trainyard.client import ApiClient
from trainyard.objects.resources import CONFIG_MAP
from trainyard.server import Server


def results(*values: object) -> Callable[[], object]:
    """A look that returns these values or raises these errors, one by one, and then the last one again and again."""
    left = list(values)

    def look() -> object:
        value = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(value, Exception):
            raise value
        return value

    return look


def test_the_first_true_value_is_returned() -> None:
    assert until(results(None, 0, "", "ready", "later"), "it is ready", pause=0) == "ready"


def test_a_value_is_judged_by_accept_and_none_is_no_value() -> None:
    assert until(results(None, 3, 0), "it is zero", accept=lambda number: number == 0, pause=0) == 0


def test_named_errors_mean_not_yet_and_others_are_raised_at_once() -> None:
    assert until(results(OSError(), KeyError(), 1), "it answers", retry_on=(OSError, KeyError), pause=0) == 1
    with pytest.raises(ValueError, match="broken"):
        until(results(OSError(), ValueError("broken")), "it answers", retry_on=OSError, pause=0)


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (results({"phase": "Pending"}), "not within 0.01 s: the pod runs; last value: {'phase': 'Pending'}\nits log"),
        (results(OSError("refused")), "not within 0.01 s: the pod runs; last error: OSError('refused')\nits log"),
    ],
)
async def test_the_failure_says_what_was_awaited_how_long_and_what_was_last_there(
    look: Callable[[], object], text: str
) -> None:
    arguments: dict[str, Any] = {"accept": lambda value: False, "retry_on": OSError, "context": lambda: "its log"}
    with pytest.raises(AssertionError) as failure:
        until(look, "the pod runs", seconds=0.01, pause=0.001, **arguments)
    assert str(failure.value) == text
    with pytest.raises(AssertionError) as failure:
        await until_async(look, "the pod runs", seconds=0.01, pause=0.001, **arguments)
    assert str(failure.value) == text


def test_a_long_value_is_cut_in_the_middle() -> None:
    with pytest.raises(AssertionError) as failure:
        until(lambda: "a" * 5000 + "z", "it is short", accept=lambda text: len(text) < 10, seconds=0, pause=0)
    assert len(str(failure.value)) < 3200 and " ... " in str(failure.value) and str(failure.value).endswith("z'")


async def test_a_look_and_a_context_may_be_coroutine_functions() -> None:
    look = results(None, OSError(), 5)

    async def asynchronous_look() -> object:
        await asyncio.sleep(0)
        return look()

    async def context() -> str:
        return "its log"

    assert await until_async(asynchronous_look, "it is five", retry_on=OSError, pause=0) == 5
    with pytest.raises(AssertionError, match="last value: 5\nits log"):
        await until_async(asynchronous_look, "it is six", accept=lambda n: n == 6, context=context, seconds=0.01)


async def test_a_look_that_hangs_is_cancelled_and_a_timeout_of_its_own_is_raised() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"not within 0\.01 s: it ends; the first look has not ended"):
        await until_async(hang, "it ends", seconds=0.01)
    with pytest.raises(TimeoutError, match="its own"):
        await until_async(results(TimeoutError("its own")), "it ends")


async def test_watched_objects_are_awaited_through_all_their_states() -> None:
    server = Server()
    await server.start()
    try:
        async with ApiClient(server.url) as api:
            waiting = asyncio.create_task(
                until_object(api, CONFIG_MAP, "default", "a", lambda obj: obj["data"]["n"] == "1", "n of a is 1")
            )
            await until_async(lambda: server.hub.listener_count("configmaps") == 1, "the watch is open")
            await api.create(CONFIG_MAP, "default", {"metadata": {"name": "a"}, "data": {"n": "0"}})
            for number in ("1", "2"):
                await api.patch(CONFIG_MAP, "default", "a", {"data": {"n": number}})
            assert (await waiting)["data"] == {"n": "1"}
            gone = asyncio.create_task(until_gone(api, CONFIG_MAP, "default", "a"))
            await api.delete(CONFIG_MAP, "default", "a")
            await gone
            with pytest.raises(AssertionError, match=r"not within 0\.1 s: there is one; last value: \[\]"):
                await until_objects(
                    api, CONFIG_MAP, "default", bool, "there is one", fields="metadata.name=a", seconds=0.1
                )
    finally:
        await server.stop()
