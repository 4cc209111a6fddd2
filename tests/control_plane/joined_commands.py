"""A node joined to a real control plane, and helpers for its tests. The real scheduler binds pods."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.control_plane import ControlPlane
from tests.support.waiting import until_async
from tests.support.watched_objects import until_gone, until_object
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.node_agent import JoinedNode, JoinOptions
from trainyard.client import ApiClient, NotFound
from trainyard.objects import GVK, Json, encode, find_condition
from trainyard.objects.resources import NODE, POD

PATIENCE = 30.0
POLITE = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"
_numbers = itertools.count(1)


class Joined:
    """One node, one namespace, and what a person does there."""

    def __init__(self, plane: ControlPlane, api: ApiClient, namespace: str, name: str) -> None:
        self.plane, self.api, self.namespace, self.name = plane, api, namespace, name
        self.messages: list[str] = []
        self.node: JoinedNode | None = None

    async def join(self, state: Path, **more: Any) -> JoinedNode:
        self.node = JoinedNode(options(self.plane, self.name, state, say=self.messages.append, **more))
        await self.node.start()
        return self.node

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return await asyncio.to_thread(self.plane.kubectl, "-n", self.namespace, *arguments, stdin=stdin)

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Code, stdout and stderr of a kubectl that may fail."""
        completed = await asyncio.to_thread(self.plane.run, "kubectl", "-n", self.namespace, *arguments, stdin=stdin)
        return completed.returncode, completed.stdout, completed.stderr

    def spec(self, script: str, **more: Any) -> Json:
        """A pod's spec: a shell script on this node, wherever others may be."""
        container = {"name": "main", "image": "any", "command": ["/bin/sh", "-c", script], **more.pop("container", {})}
        selector = {"kubernetes.io/hostname": self.name}
        return {"restartPolicy": "Never", "containers": [container], "nodeSelector": selector, **more}

    async def pod(self, name: str, script: str, **more: Any) -> Json:
        meta = {"name": name, **more.pop("metadata", {})}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self.spec(script, **more)}
        return await self.api.create(POD, self.namespace, body)

    async def create(self, *objs: Json) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objs)}
        await self.kubectl("create", "-f", "-", stdin=encode(listed).decode())

    async def until(self, name: str, true: Callable[[Json], object], gvk: GVK = POD) -> Json:
        """Wait until that holds of the object."""
        namespace = "" if gvk is NODE else self.namespace
        return await until_object(
            self.api,
            gvk,
            namespace,
            name,
            true,
            f"the condition of {gvk.kind} {name}",
            context=lambda: f"messages of the node: {self.messages}",
        )

    async def phase(self, name: str, phase: str) -> Json:
        return await self.until(name, lambda pod: pod["status"].get("phase") == phase)

    async def ready(self, name: str) -> Json:
        return await self.until(name, lambda pod: condition_message(pod, "Ready") == "True")

    async def up(self, name: str) -> None:
        """Wait until the pod is ready and its program, which handles SIGTERM from then on, has printed `up`."""
        await self.ready(name)
        await until_async(lambda: self.kubectl("logs", name), f"{name} prints `up`", accept=lambda log: log == "up\n")

    async def gone(self, name: str, gvk: GVK = POD) -> None:
        """Wait until there is no such object."""
        await until_gone(self.api, gvk, "" if gvk is NODE else self.namespace, name)

    async def result(self, name: str) -> str:
        """What a pod printed, once it has ended well."""
        await self.phase(name, "Succeeded")
        return await self.kubectl("logs", name)


def condition_message(obj: Json, kind: str) -> str:
    """The message of a condition of the object."""
    return str((find_condition((obj.get("status") or {}).get("conditions"), kind) or {}).get("status"))


def options(plane: ControlPlane, name: str, state: Path, **more: Any) -> JoinOptions:
    more = {"network": "shared", "lease_seconds": 4.0, "access": read_kubeconfig([plane.kubeconfig]), **more}
    return JoinOptions(name=name, state=state, **more)


@asynccontextmanager
async def joined(plane: ControlPlane, namespace: str, **options: Any) -> AsyncIterator[Joined]:
    """A node of a name of its own, which is killed at the end if the test has not stopped it."""
    with tempfile.TemporaryDirectory(prefix="joined-") as folder:
        async with plane.api() as api:
            node = Joined(plane, api, namespace, f"laptop-{next(_numbers)}")
            try:
                await node.join(Path(folder) / "state", **options)
                yield node
            finally:
                if node.node is not None:
                    await node.node.stop(kill=True)


async def exists(api: ApiClient, name: str) -> bool:
    try:
        await api.get(NODE, "", name)
    except NotFound:
        return False
    return True
