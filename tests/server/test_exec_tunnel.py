"""`exec`: a WebSocket from a client through the server to a kubelet, which a small server plays here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from tests.server.server_clients import ACCOUNTS, BINDINGS, PODS, ROLES, Client, account, binding, pod, role, rule
from tests.support.waiting import until_async
from trainyard.objects import decode, encode
from trainyard.server import Server

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
ASK = "command=ls&command=-l&command=&container=main&stdin=true&stdout=true&stderr=true"
Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


async def echo(socket: web.WebSocketResponse) -> None:
    """Standard input comes back as standard output; its end is the end, with exit code 3."""
    async for message in socket:
        if message.data[:1] == b"\x00":
            await socket.send_bytes(b"\x01" + message.data[1:])
        elif message.data == b"\xff\x00":
            cause = {"reason": "ExitCode", "message": "3"}
            failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
            await socket.send_bytes(b"\x03" + encode(failed))
            await socket.close(code=1000)


@dataclass
class Kubelet:
    """What it was asked, and what it does with a connection."""

    talk: Talk = echo
    protocols: tuple[str, ...] = (V5, V4)
    refusal: web.Response | None = None
    port: int = 0
    requests: list[web.BaseRequest] = field(default_factory=list)
    closed: list[int | None] = field(default_factory=list)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if self.refusal is not None:
            return self.refusal
        socket = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0)
        await socket.prepare(request)
        try:
            await self.talk(socket)
        finally:
            self.closed.append(socket.close_code)
        return socket


@pytest.fixture
async def kubelet() -> AsyncIterator[Kubelet]:
    kubelet_ = Kubelet()
    runner = web.ServerRunner(web.Server(kubelet_, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubelet_.port = runner.addresses[0][1]
    yield kubelet_
    await runner.cleanup()


@pytest.fixture
async def locked(kubelet: Kubelet) -> AsyncIterator[Server]:
    """A server with the administrator's token, a node with that kubelet, and a pod `a` on it."""
    server = Server(token="canary")
    await server.start()
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer canary"}) as session:
        client = Client(session, server.url)
        address = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"addresses": address, "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}}}
        await client.make("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                                            "status": status})  # fmt: skip
        await client.make(PODS, pod("a", nodeName="n"))
        await client.make(PODS, pod("unbound"))
    yield server
    await server.stop()


@asynccontextmanager
async def connected(
    server: Server, query: str = ASK, protocols: tuple[str, ...] = (V5, V4), sent: str = "Bearer canary"
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with aiohttp.ClientSession(headers={"Authorization": sent}) as session:
        url = f"{server.url}{PODS}/a/exec?{query}"
        async with session.ws_connect(url, protocols=protocols, max_msg_size=0, autoclose=False) as socket:
            yield socket


async def refused(server: Server, url: str, protocols: tuple[str, ...] = (V5,), **more: Any) -> tuple[int, str]:
    """The Status that answers an upgrade."""
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Authorization": "Bearer canary",
               "Sec-WebSocket-Protocol": ", ".join(protocols), **more}  # fmt: skip
    async with aiohttp.ClientSession() as session, session.get(server.url + url, headers=headers) as got:
        answer = decode(await got.read())
        assert answer["kind"] == "Status" and answer["code"] == got.status
        return got.status, answer["message"]


async def test_stdin_reaches_the_program_and_stdout_the_client(locked: Server, kubelet: Kubelet) -> None:
    async with connected(locked) as socket, asyncio.timeout(10):
        assert socket.protocol == V5
        await socket.send_bytes(b"\x00hello")
        assert await socket.receive_bytes() == b"\x01hello"
        await socket.send_bytes(b"\x04" + encode({"Width": 80, "Height": 25}))
        await socket.send_bytes(b"\xff\x00")  # the input has ended; the output goes on
        end = await socket.receive_bytes()
        assert end[:1] == b"\x03" and decode(end[1:])["details"]["causes"][0]["message"] == "3"
        close = await socket.receive()
        assert (close.type, close.data) == (WSMsgType.CLOSE, 1000)
    (request,) = kubelet.requests
    assert request.path_qs == "/exec/default/a/main?command=ls&command=-l&command=&input=1&output=1&error=1"
    assert request.headers["Authorization"] == "Bearer canary"


@pytest.mark.parametrize(
    ("offered", "spoken", "agreed"),
    [((V5, V4), (V5, V4), V5), ((V4, V5), (V5, V4), V5), ((V4,), (V5, V4), V4), ((V5, V4), (V4,), V4),
     (("v3.channel.k8s.io", V4), (V5, V4), V4)],
)  # fmt: skip
async def test_both_ends_use_the_newest_common_subprotocol(
    locked: Server, kubelet: Kubelet, offered: tuple[str, ...], spoken: tuple[str, ...], agreed: str
) -> None:
    kubelet.protocols = spoken
    async with connected(locked, protocols=offered) as socket:
        assert socket.protocol == agreed


async def test_tty_and_unusual_arguments_are_forwarded(locked: Server, kubelet: Kubelet) -> None:
    query = "command=sh&command=-c&command=echo%20%22a%26b%22%20%C3%A9%2B&stdin=1&stdout=true&tty=true"
    async with connected(locked, query) as socket:
        await socket.send_bytes(b"\x00x")
        await socket.receive_bytes()
    parameters = kubelet.requests[0].query
    assert parameters.getall("command") == ["sh", "-c", 'echo "a&b" é+']
    assert {name: parameters[name] for name in parameters if name != "command"} == {
        "input": "1",
        "output": "1",
        "tty": "1",
    }


CODES = [1000, 1001, 1011, 3000, 4999]


@pytest.mark.parametrize("code", CODES)
async def test_a_close_of_the_kubelet_is_one_for_the_client(locked: Server, kubelet: Kubelet, code: int) -> None:
    async def hang_up(socket: web.WebSocketResponse) -> None:
        await socket.close(code=code, message=b"enough")

    kubelet.talk = hang_up
    async with connected(locked) as socket, asyncio.timeout(10):
        close = await socket.receive()
        assert (close.type, close.data, close.extra) == (WSMsgType.CLOSE, code, "enough")


@pytest.mark.parametrize("code", CODES)
async def test_a_close_of_the_client_is_one_for_the_kubelet(locked: Server, kubelet: Kubelet, code: int) -> None:
    async with connected(locked) as socket:
        await socket.close(code=code)
    await until_async(
        lambda: kubelet.closed, "the kubelet sees the close code", accept=lambda codes: codes == [code], seconds=20
    )


async def test_a_client_that_is_gone_is_gone_for_the_kubelet(locked: Server, kubelet: Kubelet) -> None:
    async with connected(locked) as client:
        client.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # a process that was killed
        await until_async(
            lambda: kubelet.closed, "the session is closed", accept=lambda codes: len(codes) == 1, seconds=20
        )


async def test_an_unreachable_kubelet_is_reported_to_the_client(locked: Server, kubelet: Kubelet) -> None:
    async def die(socket: web.WebSocketResponse) -> None:
        transport = kubelet.requests[-1].transport
        assert transport is not None
        transport.abort()

    kubelet.talk = die
    async with connected(locked) as socket, asyncio.timeout(10):
        close = await socket.receive()
        assert (close.type, close.data) == (WSMsgType.CLOSE, 1011)
        assert "node was lost" in (close.extra or "")


async def test_the_last_output_arrives_after_stdin_is_no_longer_read(locked: Server, kubelet: Kubelet) -> None:
    async def last_words(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for _ in range(200):
            await socket.send_bytes(b"\x01" + b"x" * 10_000)
        await socket.send_bytes(b"\x03" + encode({"status": "Success"}))
        await socket.close(code=1000)

    kubelet.talk = last_words
    async with connected(locked) as socket, asyncio.timeout(20):
        await socket.send_bytes(b"\x00go")
        typing = asyncio.create_task(_type_on(socket))
        messages = [message async for message in _messages(socket)]
        typing.cancel()
    assert len(messages) == 201 and messages[-1] == b"\x03" + encode({"status": "Success"})


async def _type_on(socket: aiohttp.ClientWebSocketResponse) -> None:
    while not socket.closed:
        await socket.send_bytes(b"\x00" + b"y" * 1000)


async def _messages(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[bytes]:
    while (message := await socket.receive()).type is WSMsgType.BINARY:
        yield message.data


async def test_large_streams_go_through_both_ways_in_order(locked: Server, kubelet: Kubelet) -> None:
    parts = [bytes([index % 256]) * 32_768 for index in range(1000)]  # 32 MB
    async with connected(locked) as socket, asyncio.timeout(60):

        async def send() -> None:
            for part in parts:
                await socket.send_bytes(b"\x00" + part)

        sending = asyncio.create_task(send())
        for part in parts:
            assert await socket.receive_bytes() == b"\x01" + part
        await sending


async def test_a_slow_reader_stops_the_sender(locked: Server, kubelet: Kubelet) -> None:
    """Otherwise the server would hold whatever a program prints."""
    written = 0
    stuck = asyncio.Event()

    async def flood(socket: web.WebSocketResponse) -> None:
        nonlocal written
        while True:
            sending = asyncio.ensure_future(socket.send_bytes(b"\x01" + b"x" * 65_536))
            done, _ = await asyncio.wait((sending,), timeout=1.0)
            if not done:
                stuck.set()
            await sending
            written += 1

    kubelet.talk = flood
    async with connected(locked) as socket, asyncio.timeout(60):
        await stuck.wait()
        held = written
        assert held * 65_536 < 64 * 1024 * 1024
        while written < held + 100:
            await socket.receive_bytes()


async def test_an_impossible_exec_is_refused_before_the_upgrade(locked: Server, kubelet: Kubelet) -> None:
    for url, code, text in (
        (f"{PODS}/nope/exec?{ASK}", 404, 'pods "nope" not found'),
        (f"{PODS}/unbound/exec?{ASK}", 400, "pod unbound does not have a host assigned"),
        (f"{PODS}/a/exec?{ASK.replace('main', 'other')}", 400, "container other is not valid for pod a"),
        (f"{PODS}/a/exec?stdout=true", 400, "command: Required value"),
        (f"{PODS}/a/exec?command=ls", 400, "you must specify at least 1 of stdin, stdout, stderr"),
    ):
        got = await refused(locked, url)
        assert got[0] == code and text in got[1], got
    got = await refused(locked, f"{PODS}/a/exec?{ASK}", ("channel.k8s.io",))
    assert got[0] == 400 and f"offer {V5} or {V4}, got channel.k8s.io" in got[1]
    assert (await refused(locked, f"{PODS}/a/exec?{ASK}", Authorization="Bearer wrong"))[0] == 401
    assert not kubelet.requests


@pytest.mark.parametrize(
    ("response", "code", "text"),
    [
        (web.Response(status=404, text='container "main" not found in pod a\n'), 404, 'container "main" not found'),
        (web.Response(status=400, body=encode({"kind": "Status", "message": "it does not run"})), 400, "it does not"),
        (web.Response(status=401, text=""), 401, "the kubelet of the pod's node answered 401"),
        (web.Response(status=200, text="hello"), 500, "error dialing backend"),
    ],
)
async def test_the_kubelets_refusal_is_a_status(
    locked: Server, kubelet: Kubelet, response: web.Response, code: int, text: str
) -> None:
    kubelet.refusal = response
    got = await refused(locked, f"{PODS}/a/exec?{ASK}")
    assert got[0] == code and text in got[1]


async def test_a_node_that_does_not_answer_is_a_clear_error(locked: Server, kubelet: Kubelet) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer canary"}) as session:
        client = Client(session, locked.url)
        await client.ask("PATCH", "/api/v1/nodes/n/status",
                         {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}})  # fmt: skip
    got = await refused(locked, f"{PODS}/a/exec?{ASK}")
    assert got[0] == 500 and "error dialing backend: the kubelet of the pod's node does not answer" in got[1]


async def test_a_request_without_websocket_upgrade_is_answered_with_a_hint(locked: Server) -> None:
    headers = {"Authorization": "Bearer canary", "Upgrade": "SPDY/3.1", "Connection": "Upgrade"}
    async with aiohttp.ClientSession() as session:
        url = f"{locked.url}{PODS}/a/exec?{ASK}"
        running = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
        for status, text in (({}, 'container not found ("main")'), (running, "Upgrade request required")):
            admin = Client(session, locked.url)
            session.headers["Authorization"] = "Bearer canary"
            await admin.ask("PATCH", f"{PODS}/a/status", {"status": status})
            for method in ("POST", "GET"):
                async with session.request(method, url, headers=headers) as got:
                    answer = decode(await got.read())
                    assert got.status == 400 and text in answer["message"], answer
    assert V5 in answer["message"] and "WebSocket" in answer["message"]


async def test_exec_needs_the_rbac_permission(locked: Server, kubelet: Kubelet) -> None:
    """Both verbs, as from Kubernetes 1.35 on: earlier servers ask for `get` only, SPDY ones for `create` only."""
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer canary"}) as session:
        admin = Client(session, locked.url)
        await admin.make(ACCOUNTS, account("robot"))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await admin.make(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
        await admin.make(ROLES, role("r"))
        await admin.make(BINDINGS, binding("b", "r", "robot"))
        url, robots = f"{PODS}/a/exec?{ASK}", f"Bearer {token}"
        for verbs, missing in (("list", "get"), ("create", "get"), ("get", "create")):
            await admin.ask("PATCH", f"{ROLES}/r", {"rules": [rule(verbs, "pods/exec pods")]})
            code, text = await refused(locked, url, Authorization=robots)
            assert code == 403 and f'cannot {missing} resource "pods/exec"' in text
        assert not kubelet.requests
        await admin.ask("PATCH", f"{ROLES}/r", {"rules": [rule("get create", "pods/exec", names="a")]})
        async with connected(locked, sent=robots) as socket, asyncio.timeout(10):
            await socket.send_bytes(b"\x00hi")
            assert await socket.receive_bytes() == b"\x01hi"
        assert kubelet.requests[0].headers["Authorization"] == "Bearer canary", "the kubelet never sees a pod's token"


async def test_many_sessions_are_open_at_a_time(locked: Server, kubelet: Kubelet) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(30):
        clients = [await stack.enter_async_context(connected(locked)) for _ in range(120)]
        for client in clients:
            await client.send_bytes(b"\x00x")
        for client in clients:
            assert await client.receive_bytes() == b"\x01x"


async def test_a_server_that_stops_ends_every_session(locked: Server, kubelet: Kubelet) -> None:
    async with connected(locked) as socket, asyncio.timeout(10):
        await socket.send_bytes(b"\x00x")
        await socket.receive_bytes()
        await locked.stop()
        assert (await socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
    await until_async(lambda: kubelet.closed, "the session is closed", accept=lambda codes: len(codes) == 1, seconds=20)
