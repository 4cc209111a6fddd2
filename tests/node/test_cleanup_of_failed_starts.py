"""The supervisor releases the resources of a pod whose start fails."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.node.leftovers import supervisors
from tests.node.node_cluster import NodeCluster
from tests.node.test_exec import WAITS
from tests.support.waiting import until_async
from trainyard.node.sandbox.supervisor_client import Sandbox, SandboxCallbacks, StartError
from trainyard.node.sandbox.supervisor_process import SupervisorProcess
from trainyard.objects.resources import POD

pytestmark = pytest.mark.slow


def held(supervisor: int) -> list[str]:
    """The namespaces that it keeps open."""
    links = []
    for fd in os.listdir(f"/proc/{supervisor}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{supervisor}/fd/{fd}"))
    return sorted(link for link in links if link.startswith(("net:", "uts:", "ipc:")))


@pytest.mark.parametrize("cluster", ["namespace"], indirect=True)
async def test_a_pod_that_is_deleted_while_its_namespaces_are_made_leaves_none(
    cluster: NodeCluster, state: Path
) -> None:
    (supervisor,) = supervisors(str(state))[1]
    before = held(supervisor)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        await cluster.pod("early", WAITS)
        # It waits for nothing else while it holds this lock.
        await until_async(
            lambda: any(worker._runtime._sandbox_lock.locked() for worker in cluster.node._pods.workers.values()),
            "the node waits for the supervisor",
        )
        await cluster.api.delete(POD, "default", "early", grace_period_seconds=0)
        await until_async(
            lambda: all(worker.state.has_ended for worker in cluster.node._pods.workers.values()), "the pod is over"
        )
    finally:
        os.kill(supervisor, signal.SIGCONT)
    await cluster.pod("after", "print('goes on')")
    assert await cluster.result("after") == "goes on\n"
    await until_async(lambda: held(supervisor), "no namespace is left", accept=lambda links: links == before)


async def test_a_pod_that_cannot_be_furnished_leaves_no_namespaces(state: Path) -> None:
    sandbox = Sandbox("namespace", SandboxCallbacks())
    await sandbox.start(SupervisorProcess("namespace", state / "supervisor.log"))
    (supervisor,) = supervisors(str(state))[1]
    before = held(supervisor)
    with pytest.raises(StartError, match="mount tmpfs on /there/is/none"):
        await sandbox.add_pod("uid", "host", "10.244.0.2", {"/there/is/none": -1})
    assert held(supervisor) == before
    await sandbox.close()
