"""A runner to be killed: a server, a node and pods that are hard to get rid of.

python -m tests.node.runner NETWORK STATE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from tests.node.sessions import execute
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.objects.resources import POD
from trainyard.server import Server

# A program with a child, and one that left its session and its parent; both ignore TERM.
STUBBORN = """trap '' TERM
(trap '' TERM; sleep 1000; : $MARK) &
setsid sh -c "trap '' TERM; sleep 1000; : $MARK" &
echo up; sleep 1000; : $MARK"""
# Started by exec: it leaves its session and its parent, as Open MPI's daemon does, and ignores TERM.
DAEMON = """(setsid sh -c "trap '' TERM; sleep 1000; : $MARK" >/dev/null 2>&1 &)"""


async def main(network: str, state: Path) -> None:
    server = Server(token=TOKEN)
    await server.start()
    api = ApiClient(server.url, TOKEN)
    node = Node(api, state, CurrentInterpreter(state), network=network, token=TOKEN, print_message=lambda _: None)
    await node.start()
    print("started", flush=True)
    cluster = NodeCluster(api, node, [])
    for number in range(1000):
        command = ["sh", "-c", STUBBORN.replace("$MARK", str(state))]
        await cluster.pod(f"pod-{number}", restartPolicy="Always", container={"command": command})
        if number < 2:
            await cluster.phase(f"pod-{number}", "Running")
            done = await execute(cluster, f"pod-{number}", "sh", "-c", DAEMON.replace("$MARK", str(state)))
            assert done.code == 0, done.status
            print("running", flush=True)
        elif number > 3:
            await cluster.api.delete(POD, "default", f"pod-{number - 3}", grace_period_seconds=0)
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
