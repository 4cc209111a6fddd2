"""Disconnects and refusals of a client of logs or exec, of the supervisor or the API server leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiohttp import ClientSession

from tests.node.node_cluster import TOKEN
from tests.support.waiting import until_async
from trainyard.client.errors import error_for
from trainyard.node.kubelet import tokens
from trainyard.node.kubelet.api.authentication import TokenAuthenticator
from trainyard.node.kubelet.api.container_logs import ContainerLog
from trainyard.node.kubelet.api.exec import ExecRequest, ExecSession
from trainyard.node.kubelet.api.handlers import PodHandlers, RequestError
from trainyard.node.kubelet.api.listener import KubeletListener
from trainyard.node.kubelet.spec.pod_spec import TokenRequest
from trainyard.node.sandbox.supervisor_client import Sandbox, SandboxCallbacks, SandboxError
from trainyard.node.supervisor.channel import Channel


def refuse(*_: object) -> NoReturn:
    raise RequestError(404, "there is nothing here")


@pytest.fixture
async def silent(tmp_path: Path) -> AsyncIterator[tuple[KubeletListener, Path]]:
    """A kubelet with one container, which has printed a line and prints no more."""
    path = tmp_path / "1.log"
    path.write_bytes(b"up\n")
    handlers = PodHandlers(lambda *_: ContainerLog(path, lambda: False), refuse, refuse, str)
    kubelet = KubeletListener(handlers, TokenAuthenticator(TOKEN))
    await kubelet.start()
    yield kubelet, path
    await kubelet.stop()


def opened(path: Path) -> bool:
    return str(path) in [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]


async def test_a_followed_log_is_closed_when_its_reader_disconnects(silent: tuple[KubeletListener, Path]) -> None:
    kubelet, path = silent
    async with ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        url = f"http://127.0.0.1:{kubelet.port}/containerLogs/default/box/main?follow=true"
        async with client.get(url) as answer:
            assert await answer.content.readline() == b"up\n"
            assert opened(path)
    await until_async(lambda: not opened(path), "the log is closed", seconds=20)


async def test_a_token_of_odd_bytes_is_a_wrong_token(silent: tuple[KubeletListener, Path]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", silent[0].port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"401"
    writer.close()


class Gone:
    """A WebSocket whose client went right after its handshake."""

    async def send_bytes(self, data: bytes) -> None:
        raise ConnectionResetError

    async def receive(self) -> NoReturn:
        raise ConnectionResetError


async def test_a_client_that_disconnects_at_once_leaks_no_descriptors() -> None:
    gc.collect()  # what earlier tests have left
    before = set(os.listdir("/proc/self/fd"))
    for tty in (False, True):
        await ExecSession(Gone(), ExecRequest(["true"], stdin=True, stdout=True, stderr=not tty, tty=tty)).run(refuse)
    await until_async(
        lambda: set(os.listdir("/proc/self/fd")) - before, "no descriptor is left open", accept=lambda left: not left
    )


async def test_a_send_that_waits_for_buffer_space_fails_when_the_supervisor_is_gone() -> None:
    sandbox = Sandbox("shared", SandboxCallbacks())
    ours, supervisor = socket.socketpair()
    ours.setblocking(False)
    sandbox._channel = Channel(ours)
    large = "x" * (1 << 20)  # more than fits into a socket that nobody reads
    asking = [asyncio.create_task(sandbox.add_pod(large, "host", "10.244.0.2", {})) for _ in range(3)]
    await until_async(lambda: sandbox._writable is not None, "a send waits for space in the buffer")
    await sandbox.close()
    async with asyncio.timeout(20):
        results = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(error) for error in results] == [SandboxError] * 3
    supervisor.close()


_SOURCES = [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]
WITH_A_TOKEN: dict[str, Any] = {
    "volumes": [{"name": "access", "projected": {"sources": _SOURCES}}],
    "containers": [{"name": "main", "volumeMounts": [{"name": "access", "mountPath": "/token"}]}],
}


class Accounts:
    """An API server that issues one token and then does not know the service account any more."""

    def __init__(self) -> None:
        self.requests = 0
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    async def token(self, pod: object, request: TokenRequest) -> tuple[str, float]:
        self.requests += 1
        if self.requests > 1:
            raise error_for(404, "NotFound", 'serviceaccounts "robot" not found')
        return "token-1", 3600.0


async def test_a_renewal_that_is_refused_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def waited(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 12:
            enough.set()
        await sleep(0)

    pod: dict[str, Any] = {"metadata": {}, "spec": WITH_A_TOKEN}
    clock = [0.0]
    renewing = tokens.Tokens(Accounts(), pod, lambda: clock[0])  # type: ignore[arg-type]  # a scripted one
    assert list((await renewing.all()).values()) == ["token-1"]
    clock[0] = 3000.0
    monkeypatch.setattr(asyncio, "sleep", waited)
    renewing.start_renewal(tmp_path)
    async with asyncio.timeout(20):
        await enough.wait()
    renewing.stop()
    assert waits[:4] == [0.5, 0.5, 1.0, 2.0] and waits[-1] > 100


async def test_a_renewal_that_ends_is_reported_and_started_again(tmp_path: Path) -> None:
    accounts = Accounts()
    pod: dict[str, Any] = {"metadata": {"namespace": "n", "name": "a"}, "spec": WITH_A_TOKEN}
    renewing = tokens.Tokens(accounts, pod, lambda: 0.0)  # type: ignore[arg-type]  # a scripted one
    await renewing.all()
    renewing.start_renewal(tmp_path)
    assert renewing.tasks.names == ["renew tokens"]
    task = renewing.tasks.task("renew tokens")
    assert task is not None
    task.cancel()
    await until_async(lambda: renewing.tasks.task("renew tokens") not in (None, task), "the task is started again")
    renewing.stop()
    assert accounts.lines[0].startswith("node: pod n/a: the task 'renew tokens' was cancelled; restarting it in 0.")
