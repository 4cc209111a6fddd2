"""What fails a test with a cluster: one iteration of the loop that takes too long in CPU, in a function of ours."""

from __future__ import annotations

import asyncio
import datetime
import gc
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import loop_stalls
from tests.support.loop_stalls import PRODUCT, AllowedStall, LoopStall, LoopStalls
from trainyard.app.watchdog import Watchdog

PLACE = "page/slow.py:slow_product"
TODAY = datetime.date(2030, 1, 2)


def _product_function(name: str, work: str) -> Callable[[float], None]:
    """A function of the product that does this work for so many seconds of CPU."""
    text = f"def {name}(seconds):\n  end = time.thread_time() + seconds\n  while time.thread_time() < end: {work}"
    variables: dict[str, Any] = {"time": time, "gc": gc}
    exec(compile(text, f"{PRODUCT}page/slow.py", "exec"), variables)  # noqa: S102
    function: Callable[[float], None] = variables[name]
    return function


slow_product = _product_function("slow_product", "pass")
collecting_product = _product_function("collecting_product", "gc.collect()")


@pytest.fixture
def loop_stalls_plugin(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopStalls]:
    plugin = pytestconfig.pluginmanager.get_plugin("loop_stalls")
    assert isinstance(plugin, LoopStalls)
    monkeypatch.setattr(loop_stalls, "LIMIT", 0.1)
    yield plugin
    plugin.stalls.clear()


async def stalls_of(plugin: LoopStalls, function: Callable[[], object]) -> list[LoopStall]:
    """The stalls of a loop with a watchdog in which that is called."""
    watchdog = Watchdog()
    watchdog.start()
    await asyncio.sleep(0)
    function()
    await asyncio.sleep(0)
    await watchdog.stop()
    stalls, plugin.stalls[:] = list(plugin.stalls), []
    return stalls


async def test_a_function_of_the_product_is_named(loop_stalls_plugin: LoopStalls) -> None:
    [stall] = await stalls_of(loop_stalls_plugin, lambda: slow_product(0.2))
    assert stall.place == PLACE and stall.seconds > 0.1


def test_the_stalls_of_a_daemon_are_those_of_the_test_that_started_it(loop_stalls_plugin: LoopStalls) -> None:
    """The product function, the loop and its watchdog are in a process that is started as a daemon is."""
    lines = ["from __future__ import annotations", "import asyncio, time, gc", "from types import SimpleNamespace"]
    lines += ["from trainyard.app.watchdog import Watchdog", f"PRODUCT = {PRODUCT!r}"]
    lines += [inspect.getsource(_product_function), inspect.getsource(stalls_of)]
    lines += ["slow = _product_function('slow_product', 'pass')"]
    lines += ["asyncio.run(stalls_of(SimpleNamespace(stalls=[]), lambda: slow(0.5)))"]
    environment = loop_stalls.environment_of_watched_daemons(os.environ)
    argv = [sys.executable, "-c", "\n".join(lines)]
    subprocess.run(argv, env=environment, check=True)
    assert loop_stalls_plugin.forbidden_stalls(datetime.date.today()) == [], "it is no daemon"
    subprocess.run([*argv, "trainyard.daemon"], env=environment, check=True)
    (sentence,) = loop_stalls_plugin.forbidden_stalls(datetime.date.today())
    assert sentence.endswith(f"ms of CPU, mostly {PLACE}")


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(
    "function",
    [lambda: burn(0.2), lambda: time.sleep(0.3), lambda: slow_product(0.06), lambda: collecting_product(0.2)],
    ids=["the test's own work", "no CPU", "not long", "collections of garbage"],
)
async def test_what_is_no_stall(loop_stalls_plugin: LoopStalls, function: Callable[[], object]) -> None:
    assert await stalls_of(loop_stalls_plugin, function) == []


def test_a_stall_is_allowed_until_a_day(loop_stalls_plugin: LoopStalls, monkeypatch: pytest.MonkeyPatch) -> None:
    row = AllowedStall(PLACE, "a reason", TODAY + datetime.timedelta(days=1))
    monkeypatch.setattr(loop_stalls, "ALLOWED", (row,))
    for today, other, expected in [(TODAY, 0, 0), (TODAY, 1, 1), (row.until, 0, 1)]:
        loop_stalls_plugin.stalls += [LoopStall(1.0, PLACE)] + other * [LoopStall(0.3, "page/other.py:f")]
        assert len(sentences := loop_stalls_plugin.forbidden_stalls(today)) == expected
    assert sentences == [f"the event loop did nothing else for 1000 ms of CPU, mostly {PLACE}"]
    assert loop_stalls_plugin.stalls == []
