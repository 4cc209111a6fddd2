"""A node that comes back to what a former life of it had begun, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster, terminated
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.objects import find_condition
from trainyard.server import Server

pytestmark = pytest.mark.slow


async def test_a_pod_whose_start_was_not_reported_is_not_run_twice(state: Path) -> None:
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        node = Node(api, state, CurrentInterpreter(state), network="shared", token=TOKEN, print_message=lambda _: None)
        cluster = NodeCluster(api, node, [])
        uid = (await cluster.pod("once", "print('again')"))["metadata"]["uid"]
        log = state / "pods" / f"default_once_{uid}" / "logs" / "main" / "1.log"
        log.parent.mkdir(parents=True)
        log.write_text("begun\n")
        await node.start()
        status = (await cluster.phase("once", "Failed"))["status"]
        ended, disruption = terminated(status), find_condition(status["conditions"], "DisruptionTarget")
        assert disruption is not None and disruption["reason"] == "TerminationByKubelet"
        assert ended is not None and (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        assert await cluster.logs("once") == "begun\n"
        await node.stop(kill=True)
    await server.stop()
