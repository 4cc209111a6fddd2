"""A client of the kubelet's exec path, as kubectl and our rsh agent are behind the API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.node.node_cluster import TOKEN, NodeCluster
from trainyard.objects import Json
from trainyard.objects.resources import NODE

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


@dataclass
class Talk:
    """One session, as the client sees it."""

    socket: ClientWebSocketResponse
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    status: Json = field(default_factory=dict)
    frames: int = 0

    async def say(self, data: bytes) -> None:
        await self.socket.send_bytes(b"\0" + data)

    async def end_stdin(self) -> None:
        await self.socket.send_bytes(bytes([255, 0]))

    async def resize(self, width: int, height: int) -> None:
        await self.socket.send_bytes(b"\4" + json.dumps({"Width": width, "Height": height}).encode())

    async def hear(self) -> bool:
        """Take one frame in; False when the session is over."""
        message = await self.socket.receive()
        if message.type is not WSMsgType.BINARY:
            return False
        channel, data = message.data[0], message.data[1:]
        self.frames += 1
        if channel == 1:
            self.out += data
        elif channel == 2:
            self.err += data
        elif channel == 3 and data:
            self.status = json.loads(data)
        return True

    async def read_until(self, text: bytes, seconds: float = 20) -> None:
        try:
            async with asyncio.timeout(seconds):
                while text not in self.out:
                    assert await self.hear(), (self.out, self.err, self.status)
        except TimeoutError:
            raise AssertionError(f"never said {text!r}: {self.out!r} {self.err!r}") from None

    async def end(self, seconds: float = 20) -> Json:
        try:
            async with asyncio.timeout(seconds):
                while await self.hear():
                    pass
        except TimeoutError:
            raise AssertionError(f"the session does not end: {self.out!r} {self.err!r} {self.status}") from None
        return self.status

    @property
    def code(self) -> int:
        """The exit code, as kubectl reads it."""
        if self.status.get("status") == "Success":
            return 0
        assert self.status["reason"] == "NonZeroExitCode", self.status
        (cause,) = self.status["details"]["causes"]
        assert cause["reason"] == "ExitCode"
        return int(cause["message"])


async def kubelet_port(cluster: NodeCluster) -> int:
    return int((await cluster.api.get(NODE, "", "local"))["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"])


def query(command: Sequence[str], streams: Sequence[str]) -> list[tuple[str, str]]:
    return [*(("command", argument) for argument in command), *((stream, "1") for stream in streams)]


@asynccontextmanager
async def talk(
    cluster: NodeCluster, pod: str, command: Sequence[str], streams: Sequence[str] = ("output", "error"), **more: Any
) -> AsyncIterator[Talk]:
    """Open a session in the container "main" of a pod."""
    protocol, token = more.pop("protocol", V5), more.pop("token", TOKEN)
    container = more.pop("container", "main")
    url = f"http://127.0.0.1:{await kubelet_port(cluster)}/exec/default/{pod}/{container}"
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        ClientSession(headers=headers) as client,
        client.ws_connect(url, params=query(command, streams), protocols=[protocol], max_msg_size=0) as socket,
    ):
        assert socket.protocol == protocol
        yield Talk(socket)


async def execute(cluster: NodeCluster, pod: str, *command: str) -> Talk:
    """Run a command to its end."""
    async with talk(cluster, pod, command) as session:
        await session.end()
        return session


async def refusal(
    cluster: NodeCluster, path: str, parameters: list[tuple[str, str]], protocol: str = V5
) -> tuple[int, str]:
    """Status code and text of the kubelet's refusal."""
    url = f"http://127.0.0.1:{await kubelet_port(cluster)}/exec/{path}"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers = {"Authorization": f"Bearer {TOKEN}", "Sec-WebSocket-Key": "c29tZSBzaXh0ZWVuIGJ5dA==", **upgrade}
    if protocol:
        headers["Sec-WebSocket-Protocol"] = protocol
    async with ClientSession() as client, client.get(url, params=parameters, headers=headers) as answer:
        return answer.status, await answer.text()
