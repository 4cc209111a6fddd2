"""A server with one node, images that are the current interpreter, and helpers for tests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.client import ApiClient, ApiError, NotFound
from trainyard.node.images import WORKING_DIRECTORY, Image, ImageProblem, Images, PreparedImage
from trainyard.node.kubelet.node import Node
from trainyard.objects import Json, decode
from trainyard.objects.resources import EVENT, POD, SERVICE

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
        """Wait by a watch until the pod's status is so."""
        last: Json = {}
        try:
            async with asyncio.timeout(seconds):
                last = await self.api.get(POD, "default", name)
                if true(last.get("status") or {}):
                    return last
                fields = f"metadata.name={name}"
                async for line in self.api.watch(POD, "default", last["metadata"]["resourceVersion"], "", fields):
                    answer = decode(line)
                    if answer["type"] in ("ADDED", "MODIFIED"):
                        last = answer["object"]
                        if true(last.get("status") or {}):
                            return last
        except TimeoutError:
            status = last.get("status") or {}
            logs = [
                await self.printed(name, container["name"])
                for container in (last.get("spec") or {}).get("containers") or []
            ]
            logs += [
                await self.printed(name, container["name"]) for container in last["spec"].get("initContainers") or []
            ]
            raise AssertionError(f"pod {name} stays {status}; printed {logs}; said {self.lines}") from None
        raise AssertionError("the watch ended")

    async def phase(self, name: str, phase: str, seconds: float = 20) -> Json:
        return await self.until(name, lambda status: status.get("phase") == phase, seconds)

    async def events(self, name: str, last: str = "Started") -> list[Json]:
        """The events about a pod, once there is one of the reason `last`."""
        async with asyncio.timeout(20):
            while True:
                listed = await self.api.list(EVENT, "default")
                items = [item for item in listed["items"] if item["involvedObject"]["name"] == name]
                if any(event["reason"] == last for event in items):
                    return items
                async for _ in self.api.watch(EVENT, "default", listed["metadata"]["resourceVersion"]):
                    break

    async def gone(self, name: str, seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    seen = await self.api.get(POD, "default", name)
                except NotFound:
                    return
                fields = f"metadata.name={name}"
                async for line in self.api.watch(POD, "default", seen["metadata"]["resourceVersion"], "", fields):
                    if decode(line)["type"] == "DELETED":
                        return

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
