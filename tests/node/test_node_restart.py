"""A node that comes back to what a former life of it had begun, on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster, terminated
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.objects import find_condition
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
