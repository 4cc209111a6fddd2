"""A disk that is mounted while the node runs is there for the next pod, and can be unmounted again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.node.ordinary_user import command

pytestmark = pytest.mark.slow

SHARED = ("unshare", "--mount", "--propagation", "shared")  # as systemd has it; in a container / is often private


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


async def main() -> None:
    """In a mount namespace of its own: mount a disk, write onto it from a pod, unmount it while the node runs."""
    from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
    from trainyard.client import ApiClient
    from trainyard.node.kubelet.node import Node
    from trainyard.server import Server

    state, disk = (Path(tempfile.mkdtemp(prefix=prefix)) for prefix in ("cluster-", "disk-"))
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        node = Node(api, state, CurrentInterpreter(state), network="namespace", token=TOKEN, print_message=print)
        await node.start()
        run("mount", "-t", "tmpfs", "disk", str(disk))
        cluster = NodeCluster(api, node, [])
        await cluster.pod("writes", f"open('{disk}/file', 'w').write('kept')")
        await cluster.phase("writes", "Succeeded")
        print((disk / "file").read_text())
        run("umount", str(disk))
        await node.stop(kill=True)
    await server.stop()
    disk.rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a disk")
def test_a_disk_may_appear_and_disappear_while_the_node_runs() -> None:
    if subprocess.run([*SHARED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this root may not make a mount namespace")
    python, env = command(ordinary=False)
    done = subprocess.run(
        [*SHARED, *python, "-m", "tests.node.test_later_disks"], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
