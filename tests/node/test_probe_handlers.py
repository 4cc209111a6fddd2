"""What a probe by HTTP, TCP or gRPC says about a server."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from trainyard.node.kubelet.probes import grpc_health, http_get
from trainyard.node.kubelet.probes.outcome import Outcome, Verdict
from trainyard.server.auth.certificates import CertificateAuthority

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TIMEOUT = 5.0


@asynccontextmanager
async def server(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


async def get(port: int, timeout: float = TIMEOUT, **action: Any) -> Outcome:
    return await http_get.get(action, "127.0.0.1", port, timeout, asyncio.open_connection)


def replies(text: str, requests: list[str] | None = None) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        if requests is not None:
            requests.append(request)
        writer.write(text.replace("\n", "\r\n").encode())
        await writer.drain()

    return answer


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Outcome(Verdict.PASSED)),
        ("HTTP/1.0 204\n\n", Outcome(Verdict.PASSED)),
        ("HTTP/1.1 103 Early Hints\n\nHTTP/1.1 200 OK\n\n", Outcome(Verdict.PASSED)),
        ("HTTP/1.1 304 Not Modified\n\n", Outcome(Verdict.WARNED, "Probe terminated redirects, Response body: ")),
        (
            "HTTP/1.1 302 Found\nLocation: http://example.com/\n\nelsewhere",
            Outcome(Verdict.WARNED, "Probe terminated redirects, Response body: elsewhere"),
        ),
        ("HTTP/1.1 400 Bad\n\nx", Outcome(Verdict.FAILED, "HTTP probe failed with statuscode: 400")),
        ("HTTP/1.1 503 No\n\nx", Outcome(Verdict.FAILED, "HTTP probe failed with statuscode: 503")),
        ("220 smtp\n\n", Outcome(Verdict.FAILED, 'Get "URL": malformed HTTP response "220 smtp"')),
        ("", Outcome(Verdict.FAILED, 'Get "URL": EOF')),
        ("HTTP/1.1 200 OK\n\n" + "x" * 500_000, Outcome(Verdict.PASSED)),
        (
            "HTTP/1.1 302 Found\nLocation: http://127.0.0.1:x/\n\n",
            Outcome(Verdict.FAILED, "Get \"http://127.0.0.1:x/\": Port could not be cast to integer value as 'x'"),
        ),
        ("HTTP/1.1 302 Found\nLocation: /again\n\n", Outcome(Verdict.FAILED, 'Get "URL": stopped after 10 redirects')),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_an_answer_by_http(reply: str, expected: Outcome) -> None:
    async with server(replies(reply)) as port:
        outcome = await get(port, path="/again")
    assert outcome == expected._replace(text=expected.text.replace("URL", f"http://127.0.0.1:{port}/again"))


async def test_a_redirect_to_the_same_host_is_followed() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        moved = "HTTP/1.1 301 Moved\r\nLocation: /new\r\n\r\n"
        writer.write((moved if request.startswith("GET /old ") else "HTTP/1.1 500 No\r\n\r\n").encode())

    async with server(answer) as port:
        assert await get(port, path="/old") == Outcome(Verdict.FAILED, "HTTP probe failed with statuscode: 500")


@pytest.mark.parametrize(
    ("headers", "present", "absent"),
    [
        ({}, ["Host: 127.0.0.1:PORT", "User-Agent: kube-probe/1.37", "Accept: */*", "Connection: close"], []),
        ({"host": "example.com"}, ["Host: example.com"], ["host: example.com", "127.0.0.1"]),
        ({"user-agent": "mine", "accept": ""}, ["user-agent: mine"], ["kube-probe", "ccept:"]),
    ],
    ids=["default", "host", "overridden"],
)
async def test_the_request_of_an_http_probe(headers: dict[str, str], present: list[str], absent: list[str]) -> None:
    requests: list[str] = []
    async with server(replies("HTTP/1.1 200 OK\n\n", requests)) as port:
        listed = [{"name": name, "value": value} for name, value in headers.items()]
        await get(port, path="my health?deep=1", httpHeaders=listed)
    (request,) = requests
    assert request.startswith("GET /my%20health?deep=1 HTTP/1.1\r\n")
    assert all(line.replace("PORT", str(port)) in request.split("\r\n") for line in present)
    assert not any(text in request for text in absent)


async def test_a_probe_by_https_verifies_no_certificate(tmp_path: Path) -> None:
    tls = CertificateAuthority.new(time.time()).server_context(tmp_path, addresses=["192.0.2.1"])
    async with server(replies("HTTP/1.1 200 OK\n\n"), tls) as port:
        assert await get(port, scheme="HTTPS") == Outcome(Verdict.PASSED)
    async with server(replies("")) as port:
        outcome = await get(port, 0.5, scheme="HTTPS")  # a server without TLS waits for the end of a request
        assert outcome.verdict is Verdict.FAILED and outcome.text.startswith(f'Get "https://127.0.0.1:{port}": ')


async def test_a_server_that_does_not_answer_or_listen_fails_the_probe() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()  # until the probe gives up

    async with server(hang) as port:
        text = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        assert await get(port, 0.05) == Outcome(Verdict.FAILED, f'Get "http://127.0.0.1:{port}": {text}')
        health = await grpc_health.check("", "127.0.0.1", port, 0.05, asyncio.open_connection)
        assert health == Outcome(Verdict.FAILED, "timeout: health rpc did not complete within 0.05s")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        assert await get(port) == Outcome(Verdict.FAILED, f'Get "http://127.0.0.1:{port}": {refused}')
        # The library of the kubelet tries a refused connection again until the timeout.
        health = await grpc_health.check("", "127.0.0.1", port, 0.1, asyncio.open_connection)
        text = f'timeout: failed to connect service "127.0.0.1:{port}" within 0.1s: context deadline exceeded'
        assert health == Outcome(Verdict.FAILED, text)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def health(message: bytes) -> bytes:
    """The frames of a server of gRPC that answers with this message: settings, headers, data, trailers."""
    data = b"\0" + len(message).to_bytes(4) + message
    return frame(4, 0, 0) + frame(6, 0, 0, bytes(8)) + frame(1, 4, 1, b"\x88") + frame(0, 0, 1, data) + frame(1, 5, 1)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (health(b"\x08\x01"), Outcome(Verdict.PASSED)),
        (health(b"\x08\x02"), Outcome(Verdict.FAILED, 'service unhealthy (responded with "NOT_SERVING")')),
        (health(b""), Outcome(Verdict.FAILED, 'service unhealthy (responded with "UNKNOWN")')),
        (
            frame(1, 5, 1, b"\x88"),
            Outcome(
                Verdict.FAILED,
                "error: health rpc probe failed: no answer: the service is unknown, or the server has no "
                "grpc.health.v1.Health",
            ),
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            Outcome(Verdict.FAILED, "error: health rpc probe failed: the server does not speak HTTP/2"),
        ),
        (
            frame(0, 0, 1, b"\0\xff\xff\xff\xff" + bytes(9000)) * 10,
            Outcome(Verdict.FAILED, "error: health rpc probe failed: the answer is no HealthCheckResponse"),
        ),
    ],
    ids=["serving", "not serving", "unknown", "no message", "not HTTP/2", "endless"],
)
async def test_an_answer_by_grpc(answer: bytes, expected: Outcome) -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\x0a\x05train"))
        writer.write(answer)
        await reader.read()

    async with server(serve) as port:
        assert await grpc_health.check("train", "127.0.0.1", port, TIMEOUT, asyncio.open_connection) == expected
    assert (
        requests[0].startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") and b"/grpc.health.v1.Health/Check" in requests[0]
    )
