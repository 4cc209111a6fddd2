"""A pod sees the cluster's own folders empty, and cannot take the cover away; what it mounts of them is seen."""

from __future__ import annotations

from pathlib import Path

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.server import Server


async def test_a_pod_cannot_read_the_clusters_files(state: Path) -> None:
    secrets = state / "cluster"
    (secrets / "node").mkdir(parents=True)
    (secrets / "keys").mkdir()
    (secrets / "keys" / "keys.json").write_text("the token")
    lines: list[str] = []
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        images = CurrentInterpreter(state)
        folder = secrets / "node"
        node = Node(
            api, folder, images, network="namespace", token=TOKEN, print_message=lines.append, hidden=(secrets,)
        )
        await node.start()
        try:
            cluster = NodeCluster(api, node, lines)
            script = (
                f"umount {secrets} 2>/dev/null; unshare -Urm umount -l {secrets} 2>/dev/null;"
                f"unshare -Urm sh -c 'umount {secrets}; cat {secrets}/keys/keys.json' 2>/dev/null;"
                f"cat {secrets}/keys/keys.json;"
                f"ls -A {secrets}; cat /proc/1/root{secrets}/keys/keys.json; touch {secrets}/x && echo wrote;"
                "echo mine > /kept/file; cat /kept/file; true"
            )
            mounts = [{"name": "kept", "mountPath": "/kept"}]
            container = {"name": "main", "image": "x", "command": ["sh", "-c", script], "volumeMounts": mounts}
            await cluster.pod("a", containers=[container], volumes=[{"name": "kept", "emptyDir": {}}])
            text = await cluster.result("a")
        finally:
            await node.stop(kill=True)
    await server.stop()
    assert "the token" not in text and "wrote" not in text and "keys\n" not in text
    assert text.splitlines()[-1] == "mine"
