"""A server with one node, images that are the current interpreter, and helpers for tests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.watched_objects import until_gone, until_object, until_objects
from trainyard.client import ApiClient, ApiError
from trainyard.node.images import WORKING_DIRECTORY, Image, ImageProblem, Images, PreparedImage
from trainyard.node.kubelet.node import Node
from trainyard.objects import Json
from trainyard.objects.resources import EVENT, POD, SERVICE
from trainyard.server import Server

TOKEN = "secret-of-this-test"


class CurrentInterpreter(Images):
    """Every image is the interpreter that runs the tests; "missing" cannot be had, "with-program" has an entrypoint,
    "unknown" runs in the pod's working directory."""

    def __init__(self, state: Path) -> None:
        self._bin = state / "bin"
        self._bin.mkdir()
        (self._bin / "python").symlink_to(sys.executable)

    def find(self, image: str) -> Image | None:
        return None

    async def prepare(self, image: str, need_command: bool, has_args: bool = False, folder: str = "") -> PreparedImage:
        if image == "missing":
            raise ImageProblem("ErrImagePull", "no such image; write another")
        if image == "slow":
            await asyncio.sleep(1)
        entrypoint = ["python", "-c"] if image == "with-program" else []
        workdir = WORKING_DIRECTORY if image == "unknown" else ""
        return PreparedImage([str(self._bin)], {"FROM_IMAGE": "yes"}, entrypoint, ["print('default')"], workdir)


class NodeCluster:
    """A server with one node, and helpers for tests."""

    def __init__(self, api: ApiClient, node: Node, lines: list[str]) -> None:
        self.api, self.node, self.lines = api, node, lines

    async def pod(self, name: str, script: str = "", **more: Any) -> Json:
        """Create a pod placed on the node: `script` runs with the current interpreter, unless `containers` is given."""
        meta = {"name": name, **more.pop("metadata", {})}
        container = {"name": "main", "image": "any", "command": ["python", "-c", script], **more.pop("container", {})}
        spec = {"restartPolicy": "Never", "containers": [container], "nodeName": "local", **more}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        return await self.api.create(POD, "default", body)

    async def service(self, name: str, **spec: Any) -> Json:
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        return await self.api.create(SERVICE, "default", body)

    async def until(self, name: str, true: Callable[[Json], object], seconds: float = 20) -> Json:
        """Wait until that holds of the pod's status."""

        async def context() -> str:
            spec = (await self.api.get(POD, "default", name))["spec"]
            containers = [*spec["containers"], *(spec.get("initContainers") or [])]
            logs = [await self.printed(name, container["name"]) for container in containers]
            return f"printed: {logs}\nmessages of the node: {self.lines}"

        def accept(pod: Json) -> object:
            return true(pod.get("status") or {})

        awaited = f"the status of pod {name}"
        return await until_object(self.api, POD, "default", name, accept, awaited, context=context, seconds=seconds)

    async def phase(self, name: str, phase: str, seconds: float = 20) -> Json:
        return await self.until(name, lambda status: status.get("phase") == phase, seconds)

    async def events(self, name: str, last: str = "Started") -> list[Json]:
        """The events about a pod, once there is one of the reason `last`."""

        def about_the_pod(events: list[Json]) -> list[Json]:
            return [event for event in events if event["involvedObject"]["name"] == name]

        def accept(events: list[Json]) -> bool:
            return any(event["reason"] == last for event in about_the_pod(events))

        return about_the_pod(await until_objects(self.api, EVENT, "default", accept, f"an event {last} of pod {name}"))

    async def gone(self, name: str, seconds: float = 20) -> None:
        await until_gone(self.api, POD, "default", name, seconds=seconds)

    async def logs(self, name: str, container: str = "main", **options: Any) -> str:
        return b"".join([piece async for piece in self.api.logs("default", name, container, **options)]).decode()

    async def printed(self, name: str, container: str) -> str:
        """What it has printed so far, for the message of a test that fails."""
        try:
            return await self.logs(name, container)
        except ApiError as error:
            return str(error)

    async def result(self, name: str, phase: str = "Succeeded") -> str:
        """What a pod printed, once it has ended so."""
        await self.phase(name, phase)
        return await self.logs(name)


@asynccontextmanager
async def running_node(state: Path, network: str) -> AsyncIterator[NodeCluster]:
    """A server and a node with this state folder, which run within the block."""
    lines: list[str] = []
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        node = Node(api, state, CurrentInterpreter(state), network=network, token=TOKEN, print_message=lines.append)
        await node.start()
        yield NodeCluster(api, node, lines)
        await node.stop(kill=True)
    await server.stop()


def terminated(status: Json, container: str = "main") -> Json | None:
    for container_status in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        if container_status["name"] == container:
            return (container_status["state"] or {}).get("terminated")
    return None


def waiting(status: Json, container: str = "main") -> Json:
    for container_status in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        if container_status["name"] == container:
            return (container_status["state"] or {}).get("waiting") or {}
    return {}
