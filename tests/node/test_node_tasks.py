"""A task of the node that ends, and a refused status: logged, visible in the Node, and cleared with their cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from tests.support.watched_objects import until_object
from trainyard.client import ApiClient
from trainyard.client.errors import error_for
from trainyard.node.kubelet.api.authentication import TokenAuthenticator
from trainyard.node.kubelet.node import Node
from trainyard.node.kubelet.registration import NodeConfig
from trainyard.objects import Json, find_condition
from trainyard.objects.resources import NODE
from trainyard.server import Server

pytestmark = pytest.mark.slow


async def _until_ready(api: ApiClient, status: str) -> Json:
    """The Ready condition once it has that status."""

    def ready(node: Json) -> Json:
        return find_condition(node["status"]["conditions"], "Ready") or {}

    awaited = f"Ready of the node is {status}"
    return ready(await until_object(api, NODE, "", "local", lambda node: ready(node).get("status") == status, awaited))


@pytest.mark.parametrize("cluster", ["shared"], indirect=True)
async def test_a_node_is_not_ready_while_a_task_is_down_and_runs_pods_afterwards(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = cluster.node.tasks
    supervised = tasks._tasks["watch pods"]
    run = supervised.run

    async def fail() -> None:
        raise LookupError("pods")

    supervised.run = fail
    task = tasks.task("watch pods")
    assert task is not None
    task.cancel()
    ready = await _until_ready(cluster.api, "False")
    assert ready["reason"] == "KubeletNotReady" and "the task 'watch pods'" in ready["message"]
    assert any("the task 'watch pods' was cancelled; restarting it in" in text for text in cluster.lines)
    supervised.run = run
    await cluster.pod("later", "print('up')")
    await cluster.phase("later", "Succeeded")


async def test_the_tasks_of_a_joined_node_are_restarted(tmp_path: Any) -> None:
    server, lines = Server(token=TOKEN), list[str]()
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        member = NodeConfig(TokenAuthenticator(TOKEN), joined=True)
        images = CurrentInterpreter(tmp_path)
        node = Node(
            api, tmp_path / "state", images, network="shared", token=TOKEN, print_message=lines.append, member=member
        )
        await node.start()
        names = ["heartbeat", "sample usage", "watch its Node", "watch pods", "watch services"]
        assert sorted(node.tasks.names) == names
        for name in names:
            task = node.tasks.task(name)
            assert task is not None
            task.cancel()
        await _until_ready(api, "False")
        await _until_ready(api, "True")
        await node.stop(kill=True)
    await server.stop()
    for name in names:
        assert any(f"node: the task {name!r} was cancelled; restarting" in text for text in lines)


@pytest.mark.parametrize("cluster", ["shared"], indirect=True)
async def test_a_refused_status_is_logged_once_and_a_later_one_is_written(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refusals = cluster.node._cluster.write_status, [0]

    async def refuse_twice(pod: Json, status: Json, annotations: Mapping[str, str]) -> Json | None:
        refusals[0] += 1
        if refusals[0] <= 2:
            raise error_for(422, "Invalid", "status.phase: Invalid value")
        return await write(pod, status, annotations)

    monkeypatch.setattr(cluster.node._cluster, "write_status", refuse_twice)
    await cluster.pod("box", "pass")
    await cluster.phase("box", "Succeeded")
    messages = [text for text in cluster.lines if "refuses its status" in text]
    assert len(messages) == 1 and "box" in messages[0] and "status.phase" in messages[0]
