"""The HTTP layer: authentication, limits, and malformed requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from tests.server.server_clients import MAPS, PODS, Client, config_map, pod
from trainyard.objects import decode
from trainyard.server import Server
from trainyard.server.model.requests import MAX_BODY


@pytest.fixture
async def locked() -> AsyncIterator[Server]:
    server = Server(token="canary")
    await server.start()
    yield server
    await server.stop()


async def test_requests_without_the_token_are_unauthorized(locked: Server) -> None:
    url = f"{locked.url}{MAPS}"
    async with aiohttp.ClientSession() as session:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic canary"}):
            async with session.get(url, headers=header) as got:
                answer = decode(await got.read())
                assert got.status == 401 and answer["reason"] == "Unauthorized" and "canary" not in str(answer)
        async with session.get(url, headers={"Authorization": "Bearer canary"}) as got:
            assert got.status == 200
        async with session.get(f"{locked.url}/readyz") as got:
            assert (got.status, await got.text()) == (200, "ok")


async def test_only_loopback_is_served() -> None:
    for host in ("0.0.0.0", "192.168.1.1"):
        with pytest.raises(ValueError, match="loopback only"):
            await Server().start(host=host)


async def test_a_new_cluster_has_its_namespaces_and_counts_no_requests_of_its_own(
    client: Client, server: Server
) -> None:
    assert not server.verbs
    _, listed = await client.ask("GET", "/api/v1/namespaces")
    assert {"default", "kube-system"} <= {item["metadata"]["name"] for item in listed["items"]}
    assert dict(server.verbs) == {("list", "namespaces"): 1}


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: Client) -> None:
    async with client.session.post(
        client.url + MAPS, data=b" " * (MAX_BODY + 10), headers={"Content-Type": "application/json"}
    ) as got:
        answer = decode(await got.read())
        assert got.status == 413 and answer["reason"] == "RequestEntityTooLarge"
    code, _ = await client.ask("GET", MAPS)
    assert code == 200


async def test_the_usual_answer_is_written_as_aiohttp_would(server: Server) -> None:
    place = urlsplit(server.url)
    answers: list[list[bytes]] = []
    for last in (b"", b"Connection: close\r\n"):  # the second is not usual
        for body in (b"", b'{"metadata":{"name":"a"}}'):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            head = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n" % (
                len(body),
                last,
            )
            path = f"{MAPS}?dryRun=All" if body else "/api/v1/namespaces/default"
            writer.write(f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\n".encode() + head + body)
            got = await reader.readuntil(b"\r\n\r\n")
            answers.append([line for line in got.split(b"\r\n") if not line.startswith((b"Date: ", b"Connection: "))])
            assert (b"\r\nConnection: close\r\n" in got) == bool(last) and b"\r\nDate: " in got
            assert (b" 201 Created\r\n" in got) == bool(body)
            writer.close()
    assert answers[:2] == answers[2:]


async def test_a_refusal_travels_with_its_code(client: Client) -> None:
    code, answer = await client.ask("GET", f"{MAPS}/a")
    assert code == 404
    assert answer == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" not found',
        "reason": "NotFound",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 404,
    }
    for body in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b""):
        headers = {"Content-Type": "application/json; charset=utf-8"}
        async with client.session.post(client.url + MAPS, data=body, headers=headers) as got:
            assert (got.status, decode(await got.read())["reason"]) == (400, "BadRequest"), body[:20]


async def test_a_name_in_a_url_may_be_quoted(client: Client) -> None:
    code, answer = await client.ask("GET", f"{MAPS}/a%2Fb%22%0a")
    assert code == 404 and answer["reason"] == "NotFound"


async def test_concurrent_writers_of_one_object_lose_no_update(client: Client) -> None:
    await client.make(MAPS, config_map("a", data={"count": "0"}))

    async def add() -> None:
        while True:
            _, now = await client.ask("GET", f"{MAPS}/a")
            count = str(int(now["data"]["count"]) + 1)
            fence = {"resourceVersion": now["metadata"]["resourceVersion"]}
            code, answer = await client.ask("PATCH", f"{MAPS}/a", {"metadata": fence, "data": {"count": count}})
            if code == 200:
                return
            assert answer["reason"] == "Conflict"

    await asyncio.gather(*(add() for _ in range(20)))
    _, end = await client.ask("GET", f"{MAPS}/a")
    assert end["data"]["count"] == "20"


async def _kubelet(request: web.BaseRequest) -> web.StreamResponse:
    if request.path.endswith("/waiting"):
        return web.Response(status=400, text="container is waiting to start")
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(f"{request.headers.get('Authorization')} {request.path_qs}\n".encode())
    if request.path.endswith("/breaking"):
        assert request.transport is not None
        request.transport.abort()
    if request.query.get("follow") == "true":
        await asyncio.Event().wait()
    return response


@pytest.fixture
async def kubelet() -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(_kubelet, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


HEADERS = {"Authorization": "Bearer canary"}


@pytest.fixture
async def logging(locked: Server, kubelet: int) -> Server:
    """A server with a pod whose node has its logs."""
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, locked.url)
        address = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"addresses": address, "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}
        await client.make("/api/v1/nodes", node)
        containers = [{"name": name, "image": "i"} for name in ("main", "waiting", "breaking")]
        await client.make(PODS, pod("a", nodeName="n", containers=containers))
    return locked


async def test_a_log_stream_that_breaks_ends_without_a_second_response(logging: Server) -> None:
    where = urlsplit(logging.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = f"GET {PODS}/a/log?container=breaking HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer canary\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(10):
        response = await reader.read()
    writer.close()
    assert response.count(b"HTTP/1.1 ") == 1 and b"/containerLogs/default/a/breaking" in response
    assert not response.endswith(b"0\r\n\r\n"), "it looks like the whole log"


async def test_a_log_comes_from_the_kubelet_line_by_line(logging: Server) -> None:
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        url = f"{logging.url}{PODS}/a/log"
        async with session.get(url, params={"container": "main"}) as got:
            assert await got.text() == "Bearer canary /containerLogs/default/a/main\n"
        async with session.get(url, params={"container": "waiting"}) as got:
            response = await got.json()
            assert (got.status, response["reason"], response["message"]) == (
                400,
                "BadRequest",
                "container is waiting to start",
            )
        async with session.get(url, params={"container": "main", "follow": "true"}) as got, asyncio.timeout(10):
            assert (await got.content.readline()).endswith(b"main?follow=true\n")
    assert logging.verbs["get", "pods/log"] == 3


async def test_a_kubelet_that_is_not_there_is_a_clear_error(client: Client) -> None:
    address = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"addresses": address, "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
    await client.make(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}
    )
    await client.make(PODS, pod("a", nodeName="n"))
    code, answer = await client.ask("GET", f"{PODS}/a/log")
    assert code == 500 and "kubelet of the pod's node does not answer" in answer["message"]


async def test_a_token_in_the_path_is_not_accepted(locked: Server) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{locked.url}/canary/api/v1/pods") as got:
        assert got.status == 401
        assert "canary" not in await got.text()
