"""Requests that a program in a pod answers: `pods/NAME:PORT/proxy/...`, the way a browser reaches TensorBoard.

    client --HTTP--> here --a socket of the pod's node--> the program

Rules for this file:
- The node is asked first which socket leads to the pod's port. It is a Unix socket in the node's private folder: the
  program is reached by those who may use this server, and by no one else on this machine.
- Method, path, query, headers and body go on as they came. What is between two neighbours stays here, and so does who
  asks: the program never sees a token of the cluster.
- A redirect to a path of the program's own becomes one below the client's path. Pages are not rewritten.
- WebSockets are passed on message by message (tunnel.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import cache
from urllib.parse import urlsplit

from aiohttp import (
    ClientError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    UnixConnector,
    WSServerHandshakeError,
    web,
)
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from trainyard.server.errors import Refused
from trainyard.server.requests import Inside, Request
from trainyard.server.tunnel import CLOSE_SECONDS, CONNECT_SECONDS, LARGEST_MESSAGE, between

_NEIGHBOURS = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
_OURS = frozenset({"authorization", "content-length", "impersonate-user", "impersonate-group", "impersonate-uid"})
_AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_CROSS_ORIGIN = "access-control-"
MOVED = 301


class Proxies:
    """`token` is what the nodes ask for."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def serve(self, request: web.BaseRequest, asked: Request, inside: Inside) -> web.StreamResponse:
        """The program's answer, passed on as it comes. Raises Refused as long as nothing has been sent."""
        if not inside.path.startswith("/") and asked.protocols is None:
            return web.Response(status=MOVED, headers={"Location": f"{inside.prefix}/{inside.path}"})
        path = await self._socket(inside)
        headers = _sent_on(request)
        async with _at(path, inside.secure) as session:
            try:
                if asked.protocols is not None:
                    return await _talk(request, session, inside, asked.protocols, headers)
                return await _pass(request, session, inside, asked.body, headers)
            except (ClientError, OSError, TimeoutError) as error:
                if request.transport is None or request.transport.is_closing():
                    raise ConnectionResetError("the client of a proxied request has gone") from None
                why = str(error) or type(error).__name__
                raise _unreachable(f"{inside.what} does not answer: {why}; does its program listen there?") from None

    async def _socket(self, inside: Inside) -> str:
        """The path of the socket, as the node of the pod says it."""
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(total=CONNECT_SECONDS))
        try:
            async with self._session.get(URL(inside.door, encoded=True), headers=self._headers) as got:
                said = (await got.text()).strip()
        except (ClientError, OSError, TimeoutError) as error:
            raise _unreachable(f"the node of {inside.what} does not answer: {type(error).__name__}") from None
        if got.status != 200:
            raise _unreachable(f"{inside.what}: {said}")
        return said


def _at(path: str, secure: bool) -> contextlib.AbstractAsyncContextManager[ClientSession]:
    connector = (_Secure if secure else UnixConnector)(path, force_close=True)
    timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    return ClientSession(connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=DummyCookieJar())


class _Secure(UnixConnector):
    """TLS to a program: aiohttp's own connector speaks none to a Unix socket, whatever the URL says."""

    async def _create_connection(self, req: ClientRequest, traces: object, timeout: object) -> ResponseHandler:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, protocol = await asyncio.get_running_loop().create_unix_connection(
                self._factory, self.path, ssl=_unverified(), server_hostname=req.url.host
            )
        return protocol


@cache
def _unverified() -> ssl.SSLContext:
    """As a real cluster does: the certificate of a program in a pod is nobody's to judge."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _pass(
    request: web.BaseRequest, session: ClientSession, inside: Inside, body: bytes, headers: Mapping[str, str]
) -> web.StreamResponse:
    async with session.request(
        request.method,
        _url(inside),
        headers=headers,
        data=body or None,
        allow_redirects=False,
        skip_auto_headers=_AUTOMATIC,
    ) as got:
        response = web.StreamResponse(status=got.status, reason=got.reason, headers=_passed_back(request, inside, got))
        if got.content_length is None and request.method != "HEAD" and got.status not in (204, 304):
            response.enable_chunked_encoding()
        await response.prepare(request)
        async for piece in _pieces(got, request):
            await response.write(piece)
        await response.write_eof()
        return response


async def _pieces(got: ClientResponse, request: web.BaseRequest) -> AsyncIterator[bytes]:
    """The body. A program that breaks off in its midst breaks the client's connection off, too."""
    try:
        async for piece in got.content.iter_any():
            yield piece
    except ClientError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(str(error)) from None


async def _talk(
    request: web.BaseRequest,
    session: ClientSession,
    inside: Inside,
    protocols: tuple[str, ...],
    headers: Mapping[str, str],
) -> web.StreamResponse:
    """A WebSocket with the program. What it answers instead of upgrading is a Status for the client."""
    kept = CIMultiDict((name, value) for name, value in headers.items() if not name.lower().startswith("sec-websocket"))
    try:
        program = await session.ws_connect(
            _url(inside), protocols=protocols, headers=kept, max_msg_size=LARGEST_MESSAGE, autoclose=False
        )
    except WSServerHandshakeError as error:
        raise _unreachable(f"{inside.what} answered {error.status} and made no WebSocket") from None
    chosen = (program.protocol,) if program.protocol else ()
    client = web.WebSocketResponse(
        protocols=chosen, max_msg_size=LARGEST_MESSAGE, timeout=CLOSE_SECONDS, autoclose=False, compress=False
    )
    await client.prepare(request)
    await between(client, program)
    return client


def _url(inside: Inside) -> URL:
    scheme = "https" if inside.secure else "http"
    return URL(
        f"{scheme}://{inside.host}{inside.path if inside.path.startswith('/') else '/' + inside.path}", encoded=True
    )


def _sent_on(request: web.BaseRequest) -> CIMultiDict[str]:
    """The client's headers, and how it came here."""
    named = {one.strip().lower() for line in request.headers.getall("Connection", ()) for one in line.split(",")}
    leave = _NEIGHBOURS | _OURS | named
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in leave)
    headers.setdefault("X-Forwarded-Uri", request.rel_url.raw_path)
    headers.setdefault("X-Forwarded-Host", request.host)
    headers.setdefault("X-Forwarded-Proto", "https" if request.secure else "http")
    return headers


def _passed_back(request: web.BaseRequest, inside: Inside, got: ClientResponse) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value)
        for name, value in got.headers.items()
        if name.lower() not in _NEIGHBOURS and not name.lower().startswith(_CROSS_ORIGIN)
    )
    if location := headers.get("Location"):
        headers["Location"] = moved(location, inside.prefix, (request.host, inside.host))
    return headers


def moved(location: str, prefix: str, hosts: tuple[str, ...]) -> str:
    """Where a redirect leads for the client. Relative ones, and those to another host, are right as they are."""
    url = urlsplit(location)
    if (url.netloc and url.netloc not in hosts) or not url.path.startswith("/") or url.path.startswith(prefix):
        return location
    return url._replace(scheme="", netloc="", path=f"{prefix}{url.path}").geturl()


def _unreachable(text: str) -> Refused:
    return Refused(503, "ServiceUnavailable", f"error trying to reach service: {text}")
