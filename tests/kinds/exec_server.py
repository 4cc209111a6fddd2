"""An API server as ChainerJob's agent sees it: pods, and exec that runs the command here. Over TLS, as the real one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import WSMsgType, web

from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.objects import Json
from trainyard.server.auth.certificates import CertificateAuthority

AGENT = Path(str(kinds.__file__)).parent / "files" / "kubexec.py"
SHELL = AGENT.with_name("kubexeb.sh")
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
TEMPORARY = web.AppKey("TEMPORARY", Path)
SUCCESS: Json = {"metadata": {}, "status": "Success"}
Script = Callable[[web.Request, web.WebSocketResponse], Awaitable[None]]


def pod(name: str, phase: str = "Running", container: str = "chainer", **meta: object) -> Json:
    state: Json = {"running": {}} if phase == "Running" else {"waiting": {}}
    status = {"phase": phase, "containerStatuses": [{"name": container, "state": state}]}
    return {"metadata": {"name": name, **meta}, "spec": {"containers": [{"name": container}]}, "status": status}


def ended_with(code: int) -> Json:
    """The Status at the end of a command."""
    if code == 0:
        return SUCCESS
    cause = {"reason": "ExitCode", "message": str(code)}
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": {"causes": [cause]}}


@dataclass
class Toy:
    """The server. What it answers may be changed while it runs."""

    pods: dict[str, Json] = field(default_factory=dict)
    trouble: list[tuple[int, str]] = field(default_factory=list)  # answers (code, message) to give first
    exec_trouble: list[tuple[int, str]] = field(default_factory=list)  # the same, to exec alone
    protocols: tuple[str, ...] = (V5, V4)
    script: Script | None = None  # plays exec, in place of a real command
    requests: list[str] = field(default_factory=list)
    execs: list[web.Request] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    port: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["pod"]
        self.requests.append(request.path)
        self.tokens.add(request.headers.get("Authorization", ""))
        if self.trouble:
            return refused(*self.trouble.pop(0))
        if name not in self.pods:
            return refused(404, f'pods "{name}" not found')
        if not request.path.endswith("/exec"):
            return web.json_response(self.pods[name])
        if self.exec_trouble:
            return refused(*self.exec_trouble.pop(0))
        self.execs.append(request)
        channel = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0)
        await channel.prepare(request)
        await (self.script or run)(request, channel)
        await channel.close()
        return channel


def refused(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "message": message, "code": code}, status=code)


async def run(request: web.Request, channel: web.WebSocketResponse) -> None:
    """Run the command here. A daemon that it leaves behind does not hold the end up."""
    name = request.match_info["pod"]
    temporary = request.app[TEMPORARY] / name  # every pod has one of its own; daemons of MPI that share one hang
    temporary.mkdir(exist_ok=True)
    pod_env = {**os.environ, "TRAINYARD_POD_NAME": name, "TMPDIR": str(temporary)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *request.query.getall("command"), stdin=pipe, stdout=pipe, stderr=pipe, env=pod_env
    )
    assert process.stdin and process.stdout and process.stderr
    inward = asyncio.create_task(feed(channel, process.stdin))
    outward = [
        asyncio.create_task(pump(channel, number, stream))
        for number, stream in ((1, process.stdout), (2, process.stderr))
    ]
    code = await process.wait()
    await asyncio.wait(outward, timeout=2)
    inward.cancel()
    with contextlib.suppress(ConnectionError):
        await channel.send_bytes(b"\x03" + json.dumps(ended_with(code)).encode())


async def feed(channel: web.WebSocketResponse, stdin: asyncio.StreamWriter) -> None:
    async for message in channel:
        assert message.type is WSMsgType.BINARY
        if message.data == b"\xff\x00":
            if channel.ws_protocol == V4:  # it knows no such thing
                await channel.close(code=1002)
            stdin.close()
        elif message.data[0] == 0:
            with contextlib.suppress(ConnectionError):
                stdin.write(message.data[1:])
                await stdin.drain()


async def pump(channel: web.WebSocketResponse, number: int, stream: asyncio.StreamReader) -> None:
    while chunk := await stream.read(30_000):
        await channel.send_bytes(bytes([number]) + chunk)


class Ended(NamedTuple):
    code: int
    out: bytes
    err: str


@dataclass
class Place:
    """A folder with a service account in it, and the server it leads to."""

    toy: Toy
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if name not in ("POD_NAME", "TRAINYARD_POD_NAME")},
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.toy.port),
            "TRAINYARD_SERVICEACCOUNT_DIR": str(self.folder),
            "TRAINYARD_POD_NAME": "j-master-x",
            "TRAINYARD_EXEC_TIMEOUT": "20",
            "https_proxy": "http://192.0.2.1:1",  # must not be asked
        }

    async def start(self, *arguments: str, python: str = sys.executable, **env: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            python, "-W", "error", str(AGENT), *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env={**self.env, **env}
        )

    async def agent(self, *arguments: str, typed: bytes = b"", python: str = sys.executable, **env: str) -> Ended:
        process = await self.start(*arguments, python=python, **env)
        async with asyncio.timeout(60):
            out, err = await process.communicate(typed)
        assert process.returncode is not None
        return Ended(process.returncode, out, err.decode())


@asynccontextmanager
async def toy_server(folder: Path) -> AsyncIterator[Place]:
    authority = CertificateAuthority.new(time.time())
    toy = Toy({"j-workerset-a-0": pod("j-workerset-a-0")})
    app = web.Application()
    app[TEMPORARY] = temporary = Path(tempfile.mkdtemp())
    for tail in ("", "/exec"):
        app.router.add_get("/api/v1/namespaces/team/pods/{pod}" + tail, toy.answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    (folder / "keys").mkdir(mode=0o700)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server_context(folder / "keys"))
    await site.start()
    toy.port = runner.addresses[0][1]
    for name, text in (("token", "first"), ("namespace", "team"), ("ca.crt", authority.pem)):
        (folder / name).write_text(text)
    try:
        yield Place(toy, folder)
    finally:
        await runner.cleanup()
        shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with toy_server(tmp_path) as place:
        yield place


async def until_requested(server: Toy, count: int) -> None:
    """Wait until the server has had so many requests."""
    await until_async(lambda: len(server.requests), f"{count} requests", accept=lambda number: number >= count)


async def code_of(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(20):
        return await process.wait()
