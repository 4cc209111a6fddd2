"""An exit that is reported before the start of its run belongs to that run alone, and loses nothing of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainyard.node.kubelet.api.pod_logs import PodLogs
from trainyard.node.kubelet.container_starter import ContainerExit, ContainerStarter
from trainyard.node.kubelet.pod_state import Ended, Event, Started
from trainyard.node.kubelet.usage.usage import UsageSampler
from trainyard.node.sandbox.supervisor_client import StartError
from trainyard.objects.metric_points import METRICS, decode_points

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}}


class Starts:
    """The starts of a pod's container, whose process is what `spawn` does with the descriptor of its log."""

    def __init__(self, folder: Path, spawn: Callable[[int], Awaitable[int]]) -> None:
        @asynccontextmanager
        async def process(*_: object) -> AsyncIterator[None]:
            yield

        self.events: list[Event] = []
        self.usage = UsageSampler()
        self._tasks: list[asyncio.Task[None]] = []
        sandbox = SimpleNamespace(spawn=lambda process, fd: spawn(fd))
        context: Any = SimpleNamespace(now=lambda: 0.0, sandbox=sandbox, print_once=print, usage=self.usage)
        record: Any = SimpleNamespace(pod=POD, folder=folder, run_id=lambda name, run: f"u/{name}/{run}")
        runtime: Any = SimpleNamespace(process=process)
        logs = PodLogs(folder, folder / "logs")
        self.starter = ContainerStarter(context, record, runtime, logs, self.events.append, self._start_task)

    def _start_task(self, work: Any) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(work))
        return self._tasks[-1]

    async def run(self, number: int) -> None:
        """Start run number `number`, and wait until its events are fed."""
        self.starter.start("main", number)
        await self._tasks[-1]


async def test_the_exit_of_a_failed_start_is_not_taken_for_that_of_the_next_run(tmp_path: Path) -> None:
    failures = iter([StartError(128, "StartError", "no such program")])

    async def spawn(_: int) -> int:
        if failure := next(failures, None):
            starts.starter.exited_early("main", ContainerExit(1, 137, "Error", 0))
            raise failure
        return 0

    starts = Starts(tmp_path, spawn)
    for number in (1, 2):
        await starts.run(number)
    assert [type(event) for event in starts.events] == [Ended, Started]


async def test_what_a_short_program_has_reported_is_recorded(tmp_path: Path) -> None:
    """On a busy machine the node reads the end of a program before the answer to its start."""

    async def spawn(log: int) -> int:
        os.write(log, b"step 1 loss 0.5\n")
        starts.usage.container_ended("u/main/1", 0)
        starts.starter.exited_early("main", ContainerExit(1, 0, "Completed", 0))
        return 1

    starts = Starts(tmp_path, spawn)
    await starts.run(1)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert [type(event) for event in starts.events] == [Started, Ended]
    [point] = decode_points((tmp_path / "logs" / METRICS).read_bytes())
    assert (point.name, point.step, point.value) == ("loss", 1.0, 0.5)
