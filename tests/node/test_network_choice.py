"""Which network is used, and the message when one does not work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.leftovers import ROOT
from tests.node.node_cluster import TOKEN, CurrentInterpreter
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node, NodeError

# Runs where the kernel refuses one more network namespace: in a user namespace of its own whose limit is nought.
REFUSED = """
import asyncio, os, sys
from pathlib import Path
from trainyard.node.supervisor import syscalls
syscalls.enter_user_namespace(0, os.getuid(), os.getgid())
syscalls.write("/proc/sys/user/max_net_namespaces", "0")
from tests.node.leftovers import ROOT
from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.server import Server

async def main(network, state):
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        images = CurrentInterpreter(state)
        node = Node(api, state, images, network=network, token=TOKEN, print_message=lambda text: print(text))
        await node.start()
        cluster = NodeCluster(api, node, [])
        await cluster.pod("hello", "print('hello')")
        print(node.network, await cluster.result("hello"))
        await node.stop(kill=True)
    await server.stop()

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""


def refused(network: str, state: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / "src"), str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    arguments = [sys.executable, "-c", REFUSED, network, str(state)]
    env = {"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"}
    return subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_network_auto_uses_the_next_network_and_reports_why(state: Path) -> None:
    done = refused("auto", state)
    lines = done.stdout.splitlines()
    reason = "namespace does not work on this machine: the kernel's limit"
    assert lines[0].startswith(f"network: shared ({reason}"), done.stderr
    assert lines[1] == "shared hello"


def test_a_requested_network_is_not_replaced(state: Path) -> None:
    done = refused("namespace", state)
    assert done.returncode != 0 and "try --network shared" in done.stderr


async def test_a_network_that_does_not_exist_is_named_with_those_that_do(state: Path) -> None:
    async with ApiClient("http://127.0.0.1:1", TOKEN) as api:
        with pytest.raises(NodeError, match="there is no network 'mesh'; write one of auto, namespace, shared"):
            await Node(api, state, CurrentInterpreter(state), network="mesh").start()
