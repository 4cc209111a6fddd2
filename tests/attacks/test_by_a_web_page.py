"""What a page in the person's browser may try: it reaches every port of loopback.

A request as a browser sends it is written byte for byte: no client of ours would send it. The API server is the same in
both networks, so one is asked.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator

import pytest

from trainyard.server import Server

TOKEN = "-".join(("canary", "of", "the", "pages"))
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
UPGRADE = (
    *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
    "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==",
)
HOST = "Host: 127.0.0.1:6443"
ORIGIN = "Origin: http://evil.example"
BEARER = f"Authorization: Bearer {TOKEN}"
BODY = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"theirs"}}'


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server_with_token = Server(token=TOKEN)
    await server_with_token.start()
    yield server_with_token
    await server_with_token.stop()


async def ask(server: Server, *lines: str, body: str = "") -> tuple[int, str]:
    """The code of the answer, and its head."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = [*lines, f"Content-Length: {len(body)}"] if body else list(lines)
    if not any(line.startswith("Connection:") for line in lines):
        head.append("Connection: close")
    writer.write(("\r\n".join([*head, "", ""]) + body).encode("latin-1"))
    async with asyncio.timeout(10):
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    writer.close()
    code = re.match(r"HTTP/1\.1 (\d+)", answer)
    assert code, answer
    return int(code[1]), answer


@pytest.mark.parametrize("path", [MAPS, "/version", "/livez", "/", f"{PODS}/a/exec?command=sh"])
@pytest.mark.parametrize("upgrade", [(), UPGRADE], ids=["plain", "websocket"])
async def test_dns_rebinding_is_refused_even_with_a_token(server: Server, path: str, upgrade: tuple[str, ...]) -> None:
    """evil.example now means 127.0.0.1: for the browser it is the page's own origin."""
    assert (await ask(server, f"GET {path} HTTP/1.1", "Host: evil.example:6443", BEARER, *upgrade))[0] == 421


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("token", [(), (BEARER,)], ids=["no token", "token"])
async def test_a_page_of_another_origin_gets_no_readable_response(
    server: Server, method: str, token: tuple[str, ...]
) -> None:
    """CORS: the preflight request is refused, and no answer names an origin that may read it."""
    preflight = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
    code, answer = await ask(server, f"{method} {MAPS} HTTP/1.1", HOST, ORIGIN, *token, *preflight)
    assert code in (401, 403) and "access-control" not in answer.lower()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_form_post_without_preflight_writes_nothing(server: Server, kind: str) -> None:
    """Nothing that a browser adds by itself (a cookie, a password) is a credential, and the server sets none."""
    basic = base64.b64encode(f"admin:{TOKEN}".encode()).decode()
    for credential in (f"Cookie: token={TOKEN}", f"Authorization: Basic {basic}", "Accept: text/html"):
        lines = (f"POST {MAPS} HTTP/1.1", HOST, f"Content-Type: {kind}", credential)
        code, answer = await ask(server, *lines, body=BODY)
        assert code == 401 and "set-cookie" not in answer.lower() and "basic" not in answer.lower()
    assert (await ask(server, f"GET {MAPS}/theirs HTTP/1.1", HOST, BEARER))[0] == 404


@pytest.mark.parametrize(
    "subresource", ["exec?command=sh&stdout=1", "attach?stdout=1", "portforward?ports=80", "log?follow=1"]
)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example", "file://"])
async def test_a_websocket_of_another_origin_is_not_opened(server: Server, subresource: str, origin: str) -> None:
    """Browsers send no preflight for a WebSocket. A token as a subprotocol, which Kubernetes takes, helps neither."""
    protocol = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    offers = f"Sec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{protocol}"
    lines = (f"GET {PODS}/a/{subresource} HTTP/1.1", HOST, f"Origin: {origin}", *UPGRADE, offers)
    for token in ((), (BEARER,)):
        assert (await ask(server, *lines, *token))[0] in (401, 403)


@pytest.mark.parametrize("query", ["access_token=", "token=", "authorization=Bearer%20"])
async def test_a_token_in_the_url_is_not_accepted(server: Server, query: str) -> None:
    assert (await ask(server, f"GET {MAPS}?{query}{TOKEN} HTTP/1.1", HOST))[0] == 401
