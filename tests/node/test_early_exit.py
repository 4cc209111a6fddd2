"""An exit that is reported before the start of its run belongs to that run alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainyard.node.kubelet.container_starter import ContainerExit, ContainerStarter
from trainyard.node.kubelet.lifecycle import Ended, Event, Started
from trainyard.node.kubelet.pod_logs import PodLogs
from trainyard.node.kubelet.supervisor_client import StartError
from trainyard.node.kubelet.usage import UsageSampler

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}}


async def test_the_exit_of_a_failed_start_is_not_taken_for_that_of_the_next_run(tmp_path: Path) -> None:
    events: list[Event] = []
    failures = iter([StartError(128, "StartError", "no such program")])

    async def spawn(process: object, fd: int) -> int:
        if failure := next(failures, None):
            starter.exited_early("main", ContainerExit(1, 137, "Error", 0))
            raise failure
        return 0

    @asynccontextmanager
    async def process(*_: object) -> AsyncIterator[None]:
        yield

    sandbox = SimpleNamespace(spawn=spawn)
    context: Any = SimpleNamespace(now=lambda: 0.0, sandbox=sandbox, print_once=print, usage=UsageSampler())
    record: Any = SimpleNamespace(pod=POD, folder=tmp_path, run_id=lambda name, run: f"u/{name}/{run}")
    runtime: Any = SimpleNamespace(process=process)
    tasks: list[asyncio.Task[None]] = []

    def start_task(work: Any) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    starter = ContainerStarter(
        context, record, runtime, PodLogs(tmp_path, tmp_path / "logs"), events.append, start_task
    )
    for run in (1, 2):
        starter.start("main", run)
        await tasks[-1]
    assert [type(event) for event in events] == [Ended, Started]
