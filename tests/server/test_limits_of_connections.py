"""Too large, too slow, too many: each gets a clear response, and other clients are not delayed."""

from __future__ import annotations

import asyncio
import gzip
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.server.server_clients import MAPS, Client, config_map, until_listeners
from trainyard.objects import decode, encode
from trainyard.server import CertificateAuthority, Server
from trainyard.server.http.limits import Limits, raise_descriptor_limit
from trainyard.server.http.responses import accepts_gzip, warning_header
from trainyard.server.model.requests import MAX_BODY

SHORT = Limits(handshake_seconds=0.3, head_seconds=0.4, body_seconds=0.3, response_seconds=0.4)
GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def served(limits: Limits | None = None, token: str = "") -> AsyncIterator[Server]:
    server = Server(limits=limits, token=token)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def opened(url: str, sent: bytes = b"", **more: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, **more)
    writer.write(sent)
    return reader, writer


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server hangs up."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def assert_server_answers(server: Server) -> None:
    async with asyncio.timeout(5), aiohttp.ClientSession() as session, session.get(f"{server.url}{MAPS}") as got:
        assert got.status == 200


# --- too much


@pytest.mark.parametrize(("head", "code"), [
    (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)), 431),
    (b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n", 413),
    (b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n", 415),
    (b"POST /api HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\nContent-Length: 9\r\n", 417),
])  # fmt: skip
async def test_a_body_over_the_limit_is_refused_before_it_has_arrived(head: bytes, code: int) -> None:
    async with served() as server:
        reader, writer = await opened(server.url, head + b"\r\n")
        async with asyncio.timeout(5):
            first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            length = int(rest.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            status = decode(await reader.readexactly(length))
        assert int(first.split()[1]) == code == status["code"], first
        assert status["status"] == "Failure" and len(status["message"]) > 20
        writer.close()
        await assert_server_answers(server)


async def test_a_chunked_body_is_limited_while_it_arrives() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY // 65_536 + 8):
            yield b" " * 65_536

    async with served() as server, aiohttp.ClientSession() as session:
        async with session.post(f"{server.url}{MAPS}", data=endless()) as got:
            assert (got.status, decode(await got.read())["reason"]) == (413, "RequestEntityTooLarge")
        await assert_server_answers(server)


async def test_a_gzip_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    async with served() as server, aiohttp.ClientSession() as session:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        async with session.post(f"{server.url}{MAPS}", data=bomb, headers=headers) as got:
            assert got.status == 415 and "encoded as gzip; send it as it is" in await got.text()


# --- too slow


async def test_a_slow_request_head_is_timed_out() -> None:
    async with served(SHORT) as server:
        reader, writer = await opened(server.url)
        start = time.monotonic()
        while not writer.is_closing() and time.monotonic() < start + 8:
            writer.write(b"X")
            await asyncio.sleep(0.02)  # this is how slow it is
        assert time.monotonic() - start < 5 and await read_to_end(reader) == b""
        await assert_server_answers(server)


@pytest.mark.slow
async def test_a_slow_request_body_is_timed_out_with_a_status() -> None:
    head = f"POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    async with served(SHORT) as server:
        reader, writer = await opened(server.url, head.encode())
        got = await read_to_end(reader)
        assert got.startswith(b"HTTP/1.1 408") and decode(got.partition(b"\r\n\r\n")[2])["reason"] == "Timeout"
        writer.close()
        await assert_server_answers(server)


async def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    async with served(SHORT) as server:
        reader, writer = await opened(server.url, GET % b"/readyz")
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
        assert (await read_to_end(reader)).endswith(b"ok") and 0.2 < time.monotonic() - start < 5
        writer.close()
    async with served(Limits(head_seconds=2.0)) as server:
        busy, pen = await opened(server.url)
        for _ in range(5):  # longer than the limit in all
            pen.write(GET % b"/readyz")
            async with asyncio.timeout(5):
                assert (await busy.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.5)
        pen.close()


async def test_a_slow_tls_handshake_is_timed_out(tmp_path: Path) -> None:
    authority = CertificateAuthority.new(time.time())
    async with served(SHORT) as server:
        await server.start_tls(authority.server_context(tmp_path))
        silent, sender = await opened(server.tls_url)
        plain, two = await opened(server.tls_url, GET % b"/version")
        assert await read_to_end(silent) == b"" and b"200" not in await read_to_end(plain)
        for writer in (sender, two):
            writer.close()
        context = ssl.create_default_context(cadata=authority.pem)
        async with aiohttp.ClientSession() as session, session.get(f"{server.tls_url}/readyz", ssl=context) as got:
            assert got.status == 200


@pytest.mark.slow
async def test_a_response_that_is_not_read_is_timed_out_and_delays_no_other() -> None:
    async with served(Limits(response_seconds=0.4)) as server, aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        for number in range(25):  # 12.5 MB: the change log keeps 16
            await client.make(MAPS, config_map(f"m-{number}", data={"a": "x" * 500_000}))
        for query in (b"", b"?watch=1&resourceVersion=0", b"?watch=1&resourceVersion=1"):
            reader, writer = await opened(server.url, GET % (MAPS.encode() + query), limit=1024)
            await assert_server_answers(server)
            got = b""
            await asyncio.sleep(1.0)  # it does not read for longer than it may
            got = await read_to_end(reader)
            assert len(got) < 12_500_000, query
            writer.close()
        assert server.hub.listener_count("configmaps") == 0


async def test_a_watch_has_no_time_limit() -> None:
    async with served(SHORT) as server, aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        async with client.watch(MAPS) as lines:
            await asyncio.sleep(1.0)
            await client.make(MAPS, config_map("late"))
            async with asyncio.timeout(5):
                assert (await anext(lines))["object"]["metadata"]["name"] == "late"


# --- too many


async def test_past_the_limit_a_client_gets_503_and_is_accepted_later() -> None:
    async with served(Limits(max_connections=3)) as server:
        held = [await opened(server.url) for _ in range(3)]
        for _, writer in held:
            writer.write(GET % b"/readyz")
        for reader, _ in held:
            await reader.readuntil(b"\r\n\r\nok")
        reader, writer = await opened(server.url, b"")
        got = await read_to_end(reader)
        assert got.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in got
        assert decode(got.partition(b"\r\n\r\n")[2])["message"] == "too many connections are open; try again"
        for _, connection in held:
            connection.write_eof()
        for reader, _ in held:
            assert await read_to_end(reader) == b""
        await assert_server_answers(server)


SCARCE = """
import asyncio, resource, sys
from trainyard.server import Server
from trainyard.server.http.limits import Limits

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    server = Server(limits=Limits(max_connections=1_000_000))
    await server.start()
    print(server.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_server_without_free_descriptors_recovers() -> None:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCARCE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout and running.stdin and running.stderr
    url = (await running.stdout.readline()).decode().strip()
    first, pen = await opened(url, GET % b"/readyz")
    await first.readuntil(b"\r\n\r\nok")
    crowd = [await opened(url, GET % b"/readyz") for _ in range(100)]
    async with asyncio.timeout(10):
        line = await running.stderr.readline()
        assert line == b"no descriptors are left, new connections wait; raise `ulimit -n`\n"
        pen.write(GET % b"/readyz")
        await first.readuntil(b"\r\n\r\nok")  # who is in is served
        for reader, writer in crowd:  # and the others as soon as there is room
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
            writer.close()
    pen.close()
    _, complaints = await running.communicate(b"")
    assert (running.returncode, complaints) == (0, b"")  # it is said once


def test_the_server_raises_its_limit_of_descriptors() -> None:
    code = (
        "import resource as r; from trainyard.server.http.limits import *; r.setrlimit(r.RLIMIT_NOFILE, (100, 900));"
        "assert Limits().connection_limit() == 64; raise_descriptor_limit(); print(*r.getrlimit(r.RLIMIT_NOFILE));"
        "print(Limits().connection_limit(), Limits(max_connections=7).connection_limit())"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["900", "900", "388", "7"]


def test_a_limit_of_descriptors_is_not_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (20_000, 20_000))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, values: pytest.fail(f"set to {values}"))
    raise_descriptor_limit()


@pytest.mark.slow
async def test_hundreds_of_idle_watches_delay_no_request() -> None:
    """5,000 are visited by bench/watchers.py."""
    async with served() as server, AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        client = Client(session, server.url)
        alone = await _quickest(client)
        watches = [await stack.enter_async_context(client.watch(MAPS)) for _ in range(300)]
        await until_listeners(server, "configmaps", 300)
        assert await _quickest(client) < 10 * alone + 0.01
        await client.make(MAPS, config_map("news"))
        async with asyncio.timeout(10):
            woken = [(await anext(lines))["object"]["metadata"]["name"] for lines in watches]
        assert woken == ["news"] * 300
    assert server.hub.listener_count("configmaps") == 0


async def _quickest(client: Client) -> float:
    times = []
    for _ in range(10):
        start = time.perf_counter()
        assert (await client.ask("GET", "/api/v1/namespaces/default"))[0] == 200
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.slow
async def test_the_server_closes_quickly_whatever_the_clients_do(tmp_path: Path) -> None:
    server = Server()
    await server.start()
    await server.start_tls(CertificateAuthority.new(time.time()).server_context(tmp_path))
    async with aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        for number in range(20):
            await client.make(MAPS, config_map(f"m-{number}", data={"a": "x" * 500_000}))
    list_, watch = GET % MAPS.encode(), GET % f"{MAPS}?watch=1".encode()
    post = f"POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{".encode()
    quiet = GET % MAPS.replace("configmaps", "secrets?watch=1").encode()
    sent = (b"", b"GET /", list_, list_, watch, watch, post, quiet)
    held = [await opened(server.url, request, limit=1024) for request in sent]
    held.append(await opened(server.tls_url))
    await until_listeners(server, "secrets", 1)
    start = time.monotonic()
    await server.stop()
    assert time.monotonic() - start < 5
    for _, writer in held:
        writer.close()
    with pytest.raises(OSError):
        await opened(server.url)


# --- answers


@pytest.mark.parametrize(("method", "version"), [("POST", "1.1"), ("PUT", "1.1")])
async def test_a_client_that_expects_100_continue_gets_it(method: str, version: str) -> None:
    body = encode(config_map("a"))
    path = MAPS if method == "POST" else f"{MAPS}/a"
    head = f"{method} {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Expect: 100-Continue\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    async with served() as server:
        reader, writer = await opened(server.url, head.encode())
        async with asyncio.timeout(5):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_to_end(reader)).startswith(b"HTTP/1.1 201" if method == "POST" else b"HTTP/1.1 404")
        writer.close()
    async with served(token="x" * 20) as locked:
        reader, writer = await opened(locked.url, head.encode())
        assert (await read_to_end(reader)).startswith(b"HTTP/1.1 401")  # without sending what nobody reads
        writer.close()


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE"])
async def test_a_method_that_the_api_does_not_have_is_405(client: Client, method: str) -> None:
    for path in (MAPS, "/api/v1/namespaces/default"):
        async with client.session.request(method, f"{client.url}{path}") as got:
            assert got.status == 405
    async with client.session.head(f"{client.url}/readyz") as got:
        assert (got.status, got.headers["Content-Length"], await got.read()) == (200, "2", b"")


async def test_large_responses_are_compressed_for_clients_that_accept_it(client: Client) -> None:
    await client.make(MAPS, config_map("small"))
    await client.make(MAPS, config_map("large", data={"a": "x" * 200_000}))
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        for name, accepted, packed in (("large", "gzip", True), ("small", "gzip", False), ("large", "identity", False),
                                       ("large", "br, gzip;q=0.5", True), ("large", "gzip;q=0", False)):  # fmt: skip
            async with session.get(f"{client.url}{MAPS}/{name}", headers={"Accept-Encoding": accepted}) as got:
                body = await got.read()
                assert (got.headers.get("Content-Encoding") == "gzip") is packed, (name, accepted)
                assert decode(gzip.decompress(body) if packed else body)["metadata"]["name"] == name
                assert not packed or len(body) < 10_000
    assert not accepts_gzip("gzipped") and not accepts_gzip("") and accepts_gzip("br,gzip")


def test_a_warning_header_is_one_line_whatever_its_text() -> None:
    assert warning_header("unknown field") == '299 - "unknown field"'
    assert warning_header('say "a\\b"\r\nSet-Cookie: x\ud800') == '299 - "say \\"a\\\\b\\"??Set-Cookie: x?"'
