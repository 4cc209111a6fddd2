"""A node starts a few containers at one time; a pod that waits for something else holds no place of another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tests.node.node_cluster import NodeCluster, waiting
from tests.node.test_exec import WAITS
from trainyard.node.kubelet.start_limiter import StartLimiter
from trainyard.node.sandbox.supervisor_client import Process


class Starts:
    """Starts that end when the test says so. `running`: the names of those that have a place; `begun`: the names of all
    that got one."""

    def __init__(self, limiter: StartLimiter) -> None:
        self._limiter = limiter
        self.running: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def add(self, names: Iterable[str]) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._start(name))
        await asyncio.sleep(0)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)

    async def _start(self, name: str) -> None:
        async with self._limiter.place():
            self.running.append(name)
            self.begun.put_nowait(name)
            await self._ends[name].wait()
        self.running.remove(name)


async def test_starts_get_places_in_the_order_in_which_they_came() -> None:
    starts = Starts(StartLimiter(places=2))
    await starts.add("abcd")
    assert starts.running == ["a", "b"]
    await starts.end("b")
    assert starts.running == ["a", "c"]
    await starts.end("a")
    assert starts.running == ["c", "d"]


async def test_a_cancelled_start_leaves_its_place_to_the_next() -> None:
    starts = Starts(StartLimiter(places=1))
    await starts.add("abc")
    starts.tasks["b"].cancel()
    starts.tasks["a"].cancel()
    await asyncio.wait([starts.tasks["a"], starts.tasks["b"]])
    await asyncio.sleep(0)
    assert starts.running[-1] == "c"


async def test_a_start_that_hangs_goes_on_without_its_place() -> None:
    limiter = StartLimiter(places=1, longest_hold=0.0)
    hanging = Starts(limiter)
    await hanging.add("abc")
    assert [await hanging.begun.get() for _ in "abc"] == ["a", "b", "c"]
    assert hanging.running == ["a", "b", "c"]
    for name in "abc":
        await hanging.end(name)
    limiter.longest_hold = 60.0
    starts = Starts(limiter)
    await starts.add("ab")
    assert starts.running == ["a"]  # the place was given back once, not twice


@pytest.mark.slow
async def test_the_pods_of_a_big_job_start_a_few_at_a_time(cluster: NodeCluster) -> None:
    context = cluster.node._context
    assert context is not None
    context.start_limiter = StartLimiter(places=3)
    sandbox, running, numbers = context.sandbox, 0, []
    spawn = sandbox.spawn

    async def counted(process: Process, log: int) -> int:
        nonlocal running
        running += 1
        numbers.append(running)
        try:
            return await spawn(process, log)
        finally:
            running -= 1

    sandbox.spawn = counted  # type: ignore[method-assign]
    names = [f"worker-{number}" for number in range(12)]
    await asyncio.gather(*(cluster.pod(name, f"print('{name}')") for name in names))
    for name in names:
        assert await cluster.result(name) == f"{name}\n"
    assert len(numbers) == 12
    assert max(numbers) <= 3


@pytest.mark.slow
async def test_a_pod_that_waits_holds_no_place(cluster: NodeCluster) -> None:
    context = cluster.node._context
    assert context is not None
    context.start_limiter = StartLimiter(places=1, longest_hold=60.0)
    missing = {"configMapRef": {"name": "missing"}}
    volume = {"name": "missing", "configMap": {"name": "missing"}}
    init = {"name": "first", "image": "any", "command": ["python", "-c", WAITS]}
    await cluster.pod("image", container={"image": "missing"})
    await cluster.pod("variables", container={"envFrom": [missing]})
    mounted = {"volumeMounts": [{"name": "missing", "mountPath": "/missing"}]}
    await cluster.pod("volume", container=mounted, volumes=[volume])
    await cluster.pod("init", initContainers=[init])
    for name in ("image", "variables", "volume"):
        await cluster.until(name, lambda status: waiting(status).get("message"))
    await cluster.until("init", lambda status: "running" in str(status.get("initContainerStatuses")))
    await cluster.pod("after", "print('goes on')")
    assert await cluster.result("after") == "goes on\n"
