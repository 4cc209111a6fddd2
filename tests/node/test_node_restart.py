"""A node that comes back to what a former life of it had begun, on this machine."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster, terminated
from tests.support.waiting import until_async
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.node.kubelet.restore import LOST
from trainyard.objects import Json, find_condition
from trainyard.objects.resources import POD
from trainyard.server import Server

pytestmark = pytest.mark.slow


@asynccontextmanager
async def stopped_node(state: Path) -> AsyncIterator[NodeCluster]:
    """A server, and a node that the test starts and stops."""
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        node = Node(api, state, CurrentInterpreter(state), network="shared", token=TOKEN, print_message=lambda _: None)
        yield NodeCluster(api, node, [])
    await server.stop()


async def test_a_pod_whose_start_was_not_reported_is_not_run_twice(state: Path) -> None:
    async with stopped_node(state) as cluster:
        uid = (await cluster.pod("once", "print('again')"))["metadata"]["uid"]
        log = state / "pods" / f"default_once_{uid}" / "logs" / "main" / "1.log"
        log.parent.mkdir(parents=True)
        log.write_text("begun\n")
        await cluster.node.start()
        status = (await cluster.phase("once", "Failed"))["status"]
        ended, disruption = terminated(status), find_condition(status["conditions"], "DisruptionTarget")
        assert disruption is not None and disruption["reason"] == "TerminationByKubelet"
        assert ended is not None and (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        assert await cluster.logs("once") == "begun\n"
        await cluster.node.stop(kill=True)


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("up", flush=True)
while True:
    time.sleep(1)
"""


async def test_a_stop_that_is_cancelled_kills_the_pods_and_writes_how_they_ended(state: Path) -> None:
    """`down --grace 3` took ten seconds more: the daemon closed the supervisor, and then waited for its reports."""
    async with stopped_node(state) as cluster:
        await cluster.node.start()
        await cluster.pod("stubborn", STUBBORN, terminationGracePeriodSeconds=120)
        await cluster.phase("stubborn", "Running")
        async with asyncio.timeout(30):
            stopping: asyncio.Task[None] | None = None
            log = ""
            async for piece in cluster.api.logs("default", "stubborn", "main", follow=True):
                log += piece.decode()
                if stopping is None and "up" in log:
                    stopping = asyncio.create_task(cluster.node.stop(will_restart=True))
                if "told" in log:
                    break
            assert stopping is not None
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        status = (await cluster.phase("stubborn", "Failed"))["status"]
        ended = terminated(status)
        assert ended is not None and ended["exitCode"] == 137
        assert find_condition(status["conditions"], "DisruptionTarget") is not None


class MortalNode:
    """Nodes one after the other on one state, each a process that dies by SIGKILL."""

    def __init__(self, server: Server, state: Path) -> None:
        self.lives = 0
        self._server, self._state = server, state

    async def start(self, last: int = 0, when: str = "before") -> Process:
        """A node that dies at its write to a pod with the number `last`, before or after the server has it."""
        self.lives += 1
        folder = self._state / f"life-{self.lives}"
        folder.mkdir()
        arguments = (self._server.url, TOKEN, str(self._state), str(folder), str(last), when)
        program = (sys.executable, "-m", "tests.node.mortal_node", *arguments)
        return await asyncio.create_subprocess_exec(*program, cwd=Path(__file__).parents[2], stdout=DEVNULL)


ALONE = """
import fcntl, pathlib, signal
runs = pathlib.Path({folder!r}, {name!r})
with runs.open("a") as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("begins", file=file, flush=True)
    signal.pause()
"""
"""Each run adds a line. A second one at the same time would end at once with BlockingIOError."""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_node_that_is_killed_while_it_restores_its_pods_runs_none_twice(state: Path, when: str) -> None:
    """kill -9 at each write to a pod, one later in each life, until a life has nothing to write that is due."""
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        cluster = NodeCluster(api, Node(api, state, CurrentInterpreter(state)), [])
        mortal = MortalNode(server, state)
        process = await mortal.start()
        for name, policy in (("once", "Never"), ("again", "OnFailure")):
            await cluster.pod(name, ALONE.format(folder=str(state), name=name), restartPolicy=policy)
        for name in ("once", "again"):
            await cluster.phase(name, "Running")
            await until_async((state / name).exists, f"the first run of pod {name}")
        process.kill()
        await process.wait()

        def is_restored(status: Json) -> bool:
            (main,) = status["containerStatuses"]
            last = (main["lastState"].get("terminated") or {}).get("reason")
            return int(main["restartCount"]) > 0 and last == LOST[0]

        async def restored() -> None:
            await cluster.phase("once", "Failed")
            await cluster.until("again", is_restored)

        for last in range(1, 20):
            process = await mortal.start(last, when)
            ends = [asyncio.create_task(restored()), asyncio.create_task(process.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            is_alive = ends[0].done() and not ends[1].done()
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            if is_alive:
                await restored()
                break
        once = (await cluster.phase("once", "Failed"))["status"]
        ended, disruption = terminated(once), find_condition(once["conditions"], "DisruptionTarget")
        assert ended is not None and (ended["exitCode"], ended["reason"]) == (137, LOST[0])
        assert disruption is not None and disruption["reason"] == "TerminationByKubelet"
        assert (state / "once").read_text() == "begins\n"
        again = (await api.get(POD, "default", "again"))["status"]["containerStatuses"][0]
        assert len((state / "again").read_text().splitlines()) <= again["restartCount"] + 1
        assert mortal.lives > 2
        process.kill()
        await process.wait()
    await server.stop()
