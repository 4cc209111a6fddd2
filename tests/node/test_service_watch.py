"""The watch of Services lets the pod network adapt to changes, however fast these come."""

from __future__ import annotations

import asyncio
from typing import Any

from trainyard.controller_runtime import TaskSupervisor
from trainyard.node.kubelet.service_watch import ServiceWatch
from trainyard.node.network.directory import Directory
from trainyard.objects import Json


class SlowNetwork:
    """Counts its updates; each waits for `released`, as one that opens a socket does. The first `failures` fail."""

    def __init__(self, failures: int = 0) -> None:
        self.updates, self.failures = 0, failures
        self.started, self.released = asyncio.Event(), asyncio.Event()

    async def services_changed(self) -> None:
        self.updates += 1
        self.started.set()
        await self.released.wait()
        if self.updates <= self.failures:
            raise OSError("no such address")


async def ended() -> None:
    """Wait until every other task has ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*tasks, return_exceptions=True)


def service(name: str) -> Json:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {}}


async def test_a_hundred_changes_during_an_update_are_one_more_update() -> None:
    network: Any = SlowNetwork()
    tasks = TaskSupervisor("node")
    watch = ServiceWatch(Directory(), lambda: network, tasks)
    before = len(asyncio.all_tasks())
    watch.on_changed("ADDED", service("first"))
    await network.started.wait()
    for number in range(100):
        watch.on_changed("ADDED", service(f"web-{number}"))
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before + 1
    network.released.set()
    await ended()
    assert network.updates == 2
    await tasks.stop()


async def test_after_an_update_that_failed_the_next_change_is_applied() -> None:
    network: Any = SlowNetwork(failures=1)
    network.released.set()
    tasks = TaskSupervisor("node")
    watch = ServiceWatch(Directory(), lambda: network, tasks)
    for name in ("first", "second"):
        watch.on_changed("ADDED", service(name))
        await ended()
    assert network.updates == 2
    await tasks.stop()
