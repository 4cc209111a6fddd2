"""Access to the listeners: loopback, the token, the Host, and the unauthenticated paths."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.server.server_clients import ACCOUNTS, MAPS, account
from trainyard.client import ApiClient, ApiError
from trainyard.objects import decode
from trainyard.server import Server
from trainyard.server.http import listeners
from trainyard.server.model.paths import OPEN_PATHS

TOKEN = "-".join(("canary", "of", "the", "doors"))
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def locked() -> AsyncIterator[Server]:
    server = Server(token=TOKEN)
    await server.start()
    yield server
    await server.stop()


async def raw(server: Server, *lines: str) -> tuple[int, str]:
    """One request as written here, with the administrator's token: the code and the body."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join((*lines, f"Authorization: Bearer {TOKEN}", "Connection: close", "", "")).encode("latin-1"))
    async with asyncio.timeout(10):
        answer = (await reader.read()).decode("latin-1")
    writer.close()
    match = re.match(r"HTTP/1\.\d (\d+)", answer)
    assert match, answer
    return int(match[1]), answer.partition("\r\n\r\n")[2]


# --- loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "8.8.8.8", "", "255.255.255.255", "::ffff:8.8.8.8"])
async def test_an_address_that_others_reach_is_refused(host: str) -> None:
    server = Server(token=TOKEN)
    with pytest.raises(ValueError, match=r"listens on loopback only, not on .*; use 127\.0\.0\.1"):
        await server.start(host=host)
    assert server.url == ""
    await server.stop()


async def test_a_host_name_is_checked_by_the_addresses_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """/etc/hosts may resolve localhost to any address."""

    def resolving(*places: str) -> None:
        async def getaddrinfo(self: object, host: str, *rest: object, **more: object) -> list[object]:
            kinds = [(socket.AF_INET6 if ":" in place else socket.AF_INET, place) for place in places]
            return [(kind, socket.SOCK_STREAM, 6, "", (place, 0)) for kind, place in kinds]

        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)

    resolving("192.0.2.7")
    with pytest.raises(ValueError, match=r"not on localhost, which is 192\.0\.2\.7; use 127"):
        await listeners.resolve_loopback("localhost")
    resolving("127.0.0.1", "192.0.2.7")
    with pytest.raises(ValueError, match=r"192\.0\.2\.7"):
        await listeners.resolve_loopback("localhost")
    resolving("::1", "127.0.0.1")
    assert await listeners.resolve_loopback("localhost") == (socket.AF_INET, "127.0.0.1")
    resolving()
    with pytest.raises(ValueError, match="loopback only"):
        await listeners.resolve_loopback("nowhere.invalid")


async def test_loopback_of_ipv6_is_served() -> None:
    server = Server(token=TOKEN)
    await server.start(host="::1")
    assert server.url.startswith("http://[::1]:")
    async with aiohttp.ClientSession(headers=BEARER) as session, session.get(f"{server.url}{MAPS}") as got:
        assert got.status == 200
    await server.stop()


async def test_the_error_of_a_port_in_use_names_it(locked: Server) -> None:
    port = int(locked.url.rpartition(":")[2])
    other = Server(token=TOKEN)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}: address already in use"):
        await other.start(port=port)
    await other.stop()


# --- the token


async def test_requests_without_the_token_are_unauthorized(locked: Server) -> None:
    wrong = (
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xff",
        f"Bearer {TOKEN.upper()}",
        f"Bearer x {TOKEN}",
        f"Token {TOKEN}",
        "Bearer a.b.c",
        "Bearer " + "x" * 30_000,
    )
    async with aiohttp.ClientSession() as session:
        for sent in wrong:
            for path in (MAPS, "/api", "/", "/openapi/v3", "/metrics", "/nowhere", f"/{TOKEN}/api"):
                async with session.get(f"{locked.url}{path}", headers={"Authorization": sent} if sent else {}) as got:
                    body = await got.text()
                    assert (got.status, decode(body)["reason"]) == (401, "Unauthorized"), (sent, path)
                    assert TOKEN not in body
        for sent in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN}"):
            async with session.get(f"{locked.url}{MAPS}", headers={"Authorization": sent}) as got:
                assert got.status == 200, sent


async def test_a_write_without_the_token_is_not_read(locked: Server) -> None:
    """A stranger cannot make the server hold what he sends: the answer comes before the body."""
    host, port = locked.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n".encode())
    async with asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_unauthenticated_paths_return_health_and_nothing_else(locked: Server) -> None:
    async with aiohttp.ClientSession() as session:
        for path in OPEN_PATHS[:4]:
            async with session.get(f"{locked.url}{path}") as got:
                assert got.status == 200, path
            async with session.head(f"{locked.url}{path}", headers=BEARER) as got:
                assert (got.status, await got.read()) == (200, b""), path
            async with session.get(f"{locked.url}{path}", headers={"Authorization": "Bearer wrong"}) as got:
                assert got.status == 401, path  # as the real server: a wrong token is no stranger
            for_admin = {"Impersonate-User": "trainyard-admin"}
            async with session.get(f"{locked.url}{path}", headers=for_admin) as got:
                assert got.status == 403, path
        async with session.get(f"{locked.url}/version") as got:
            assert not {"token", "user", "namespace"} & set(decode(await got.read()))


async def test_the_token_is_compared_in_constant_time(locked: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def watched(first: bytes, other: bytes) -> bool:
        compared.append(other)
        return first == other

    monkeypatch.setattr(hmac, "compare_digest", watched)
    async with aiohttp.ClientSession(headers=BEARER) as session, session.get(f"{locked.url}{MAPS}") as got:
        assert got.status == 200
    assert compared == [TOKEN.encode()]


async def test_the_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    server = Server(token=TOKEN)
    await server.start()
    async with aiohttp.ClientSession(headers=BEARER) as session:
        for method, path in (("GET", MAPS), ("POST", MAPS), ("GET", "/nowhere"), ("PUT", f"{MAPS}/a"), ("BREW", "/")):
            async with session.request(method, f"{server.url}{path}", data=b"{") as got:
                assert TOKEN not in await got.text() and TOKEN not in str(got.headers)
    for lines in (
        ("GET /version HTTP/1.1", f"Host: {TOKEN} x"),
        ("GET / HTTP/1.1", "Host: localhost", "X" * 40_000),
        (f"G{TOKEN} / HTTP/1.1",),
        (f"Authorization: Bearer {TOKEN}",),
    ):
        assert TOKEN not in (await raw(server, *lines))[1]
    await server.stop()
    assert TOKEN not in caplog.text and TOKEN not in repr(server)


# --- Host and Origin


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:8001",
        "127.9.9.9",
        "[::1]",
        "[::1]:6443",
        "10.96.0.1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc:443",
        "kubernetes.default.svc.cluster.local",
    ],
)
async def test_the_server_answers_to_its_names(locked: Server, host: str) -> None:
    assert (await raw(locked, f"GET {MAPS} HTTP/1.1", f"Host: {host}"))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "8.8.8.8",
        "[2001:db8::1]",
        "localhost:x",
        "localhost:80:80",
        "evil@localhost",
        "0.0.0.0",
        "kubernetes.evil",
        "\xff",
        "",
        "127.0.0.1evil",
        "2130706433",
        "[::1%25evil]",
        "::1%;x",
    ],
)
async def test_a_host_name_that_resolves_to_us_by_dns_rebinding_is_refused(locked: Server, host: str) -> None:
    """DNS rebinding: a page of evil.example, whose name now means 127.0.0.1. The token does not help it either."""
    for path in (MAPS, "/version"):
        code, body = await raw(locked, f"GET {path} HTTP/1.1", f"Host: {host}")
        answer = decode(body)
        assert (code, answer["code"], answer["status"]) == (421, 421, "Failure")
        assert "call it 127.0.0.1, localhost or kubernetes.default.svc" in answer["message"]


async def test_the_host_of_the_request_line_counts_too(locked: Server) -> None:
    assert (await raw(locked, "GET http://evil.example/version HTTP/1.1", "Host: localhost"))[0] == 421
    assert (await raw(locked, f"GET http://127.0.0.1{MAPS} HTTP/1.1", "Host: localhost"))[0] == 200


async def test_a_request_has_one_host(locked: Server) -> None:
    code, body = await raw(locked, f"GET {MAPS} HTTP/1.1")
    assert (code, decode(body)["message"]) == (400, "the request is not HTTP/1.1, or names no Host")
    assert (await raw(locked, f"GET {MAPS} HTTP/1.1", "Host: localhost", "Host: evil.example"))[0] == 400
    assert (await raw(locked, f"GET {MAPS} HTTP/1.0"))[0] == 200


async def test_a_page_from_elsewhere_may_not_ask(locked: Server) -> None:
    """`kubectl proxy` adds its token to every request; browsers send the Origin."""
    for origin in ("http://evil.example", "null", "", "https://evil.example:443", "file://", "http://localhost.evil"):
        code, body = await raw(locked, f"GET {MAPS} HTTP/1.1", "Host: localhost", f"Origin: {origin}")
        assert (code, decode(body)["reason"]) == (403, "Forbidden"), origin
    for origin in ("http://127.0.0.1:8001", "http://localhost:3000", "http://[::1]:1"):
        assert (await raw(locked, f"GET {MAPS} HTTP/1.1", "Host: localhost", f"Origin: {origin}"))[0] == 200


# --- inside


async def test_a_client_in_the_process_needs_no_address_and_still_a_token() -> None:
    server = Server(token=TOKEN)
    await server.open()
    assert (server.url, server.tls_url) == ("", "")
    async with ApiClient("http://in-process", TOKEN, transport=server.in_process()) as api:
        assert await api.request("GET", MAPS)
    async with ApiClient("http://in-process", "wrong", transport=server.in_process()) as stranger:
        with pytest.raises(ApiError, match="Unauthorized"):
            await stranger.request("GET", MAPS)
    await server.stop()


async def test_responses_are_not_cached(locked: Server) -> None:
    async with aiohttp.ClientSession(headers=BEARER) as session:
        for path in (MAPS, "/version", "/nowhere"):
            async with session.get(f"{locked.url}{path}") as got:
                assert got.headers["Cache-Control"] == "no-cache, private"
        async with session.post(f"{locked.url}{ACCOUNTS}", json=account("robot")) as got:
            assert got.status == 201
