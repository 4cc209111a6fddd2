"""The proxy subresource: forwards `pods/NAME:PORT/proxy/...` to a program in the pod (a browser to TensorBoard).

    client --HTTP--> API server --Unix socket of the pod's node--> program

Rules for this file:
- The server first asks the node for the socket of the pod's port. It is a Unix socket in the node's private folder, so
  that only users of this server reach the program, and no other user of this machine.
- Method, path, query, headers and body are forwarded unchanged, except hop-by-hop headers and the credentials of the
  client: the program never gets a token of the cluster.
- A redirect to a path of the program is rewritten to one below the client's path. Response bodies are not rewritten.
- WebSockets are forwarded message by message (tunnel.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from aiohttp import (
    ClientError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    DummyCookieJar,
    UnixConnector,
    WSServerHandshakeError,
    web,
)
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from trainyard.server.model.errors import StatusError
from trainyard.server.model.requests import PodProxy, Request
from trainyard.server.proxy.kubelet_logs import KubeletClient
from trainyard.server.proxy.tunnel import CLOSE_SECONDS, CONNECT_SECONDS, LARGEST_MESSAGE, forward

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
_NOT_FORWARDED = frozenset(
    {"authorization", "content-length", "impersonate-user", "impersonate-group", "impersonate-uid"}
)
AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_CROSS_ORIGIN = "access-control-"
MOVED_PERMANENTLY = 301


class PodProxies(KubeletClient):
    """Forwards proxy requests."""

    async def serve(self, request: web.BaseRequest, decoded: Request, target: PodProxy) -> web.StreamResponse:
        """Stream the program's response. Raises StatusError 503 as long as no part of a response has been sent."""
        if not target.path.startswith("/") and decoded.protocols is None:
            return web.Response(status=MOVED_PERMANENTLY, headers={"Location": f"{target.prefix}/{target.path}"})
        path = await self._socket_path(target)
        headers = forwarded_headers(request)
        async with _session_at(path, target.secure) as session:
            try:
                if decoded.protocols is not None:
                    return await _forward_websocket(request, session, target, decoded.protocols, headers)
                return await _forward(request, session, target, decoded.body, headers)
            except (ClientError, OSError, TimeoutError) as error:
                if request.transport is None or request.transport.is_closing():
                    raise ConnectionResetError("the client of a proxied request has gone") from None
                reason = str(error) or type(error).__name__
                raise _unreachable(
                    f"{target.description} does not answer: {reason}; does its program listen there?"
                ) from None

    async def _socket_path(self, inside: PodProxy) -> str:
        """The path of the socket, as answered by the pod's node. Raises StatusError 503."""
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(total=CONNECT_SECONDS))
        try:
            async with self._session.get(URL(inside.socket_url, encoded=True), headers=self._headers) as response:
                text = (await response.text()).strip()
        except (ClientError, OSError, TimeoutError) as error:
            raise _unreachable(f"the node of {inside.description} does not answer: {type(error).__name__}") from None
        if response.status != 200:
            raise _unreachable(f"{inside.description}: {text}")
        return text


def _session_at(path: str, secure: bool) -> contextlib.AbstractAsyncContextManager[ClientSession]:
    connector = (_TlsUnixConnector if secure else UnixConnector)(path, force_close=True)
    timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    return ClientSession(connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=DummyCookieJar())


class _TlsUnixConnector(UnixConnector):
    """TLS over a Unix socket: aiohttp's UnixConnector never uses TLS, even for https URLs."""

    async def _create_connection(self, req: ClientRequest, traces: object, timeout: object) -> ResponseHandler:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, protocol = await asyncio.get_running_loop().create_unix_connection(
                self._factory, self.path, ssl=_unverified_context(), server_hostname=req.url.host
            )
        return protocol


@cache
def _unverified_context() -> ssl.SSLContext:
    """A TLS context that does not verify the certificate: kube-apiserver does not verify those of pods either."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _forward(
    request: web.BaseRequest, session: ClientSession, inside: PodProxy, body: bytes, headers: Mapping[str, str]
) -> web.StreamResponse:
    async with session.request(
        request.method,
        _url(inside),
        headers=headers,
        data=body or None,
        allow_redirects=False,
        skip_auto_headers=AUTOMATIC,
    ) as upstream:
        returned = returned_headers(upstream)
        if location := returned.get("Location"):
            returned["Location"] = rewritten_location(location, inside.prefix, (request.host, inside.host))
        return await stream_response(request, upstream, returned)


async def stream_response(
    request: web.BaseRequest, upstream: ClientResponse, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Answer `request` with these headers and with the status and the body of the program's response."""
    response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
    if upstream.content_length is None and request.method != "HEAD" and upstream.status not in (204, 304):
        response.enable_chunked_encoding()
    await response.prepare(request)
    async for chunk in _body_chunks(upstream, request):
        await response.write(chunk)
    await response.write_eof()
    return response


async def _body_chunks(upstream: ClientResponse, request: web.BaseRequest) -> AsyncIterator[bytes]:
    """The chunks of the response body. When the program's connection breaks, the client's connection is aborted,
    too."""
    try:
        async for chunk in upstream.content.iter_any():
            yield chunk
    except ClientError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(str(error)) from None


async def _forward_websocket(
    request: web.BaseRequest,
    session: ClientSession,
    inside: PodProxy,
    protocols: tuple[str, ...],
    headers: Mapping[str, str],
) -> web.StreamResponse:
    """Forward a WebSocket. When the program does not upgrade, the client gets a Status (StatusError 503)."""
    try:
        program = await session.ws_connect(_url(inside), **websocket_options(headers, protocols))
    except WSServerHandshakeError as error:
        raise _unreachable(f"{inside.description} answered {error.status} and made no WebSocket") from None
    return await serve_websocket(request, program)


def websocket_options(headers: Mapping[str, str], protocols: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of `ClientSession.ws_connect` for a WebSocket that is forwarded. `headers`: those of the client."""
    forwarded = CIMultiDict(
        (name, value) for name, value in headers.items() if not name.lower().startswith("sec-websocket")
    )
    return {"protocols": protocols, "headers": forwarded, "max_msg_size": LARGEST_MESSAGE, "autoclose": False}


async def serve_websocket(request: web.BaseRequest, program: ClientWebSocketResponse) -> web.StreamResponse:
    """Upgrade the client, and forward in both directions until one end closes."""
    chosen = (program.protocol,) if program.protocol else ()
    client = web.WebSocketResponse(
        protocols=chosen, max_msg_size=LARGEST_MESSAGE, timeout=CLOSE_SECONDS, autoclose=False, compress=False
    )
    await client.prepare(request)
    await forward(client, program)
    return client


def _url(inside: PodProxy) -> URL:
    scheme = "https" if inside.secure else "http"
    return URL(
        f"{scheme}://{inside.host}{inside.path if inside.path.startswith('/') else '/' + inside.path}", encoded=True
    )


def forwarded_headers(request: web.BaseRequest) -> CIMultiDict[str]:
    """The client's headers without hop-by-hop headers and credentials, plus X-Forwarded-* headers."""
    connection_options = {
        option.strip().lower() for line in request.headers.getall("Connection", ()) for option in line.split(",")
    }
    dropped = _HOP_BY_HOP | _NOT_FORWARDED | connection_options
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in dropped)
    headers.setdefault("X-Forwarded-Uri", request.rel_url.raw_path)
    headers.setdefault("X-Forwarded-Host", request.host)
    headers.setdefault("X-Forwarded-Proto", "https" if request.secure else "http")
    return headers


def returned_headers(upstream: ClientResponse) -> CIMultiDict[str]:
    """The program's headers without hop-by-hop headers, and without those that let other origins in."""
    return CIMultiDict(
        (name, value)
        for name, value in upstream.headers.items()
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(_CROSS_ORIGIN)
    )


def rewritten_location(location: str, prefix: str, hosts: tuple[str, ...]) -> str:
    """The Location of a redirect, rewritten for the client. Relative ones and those to another host are unchanged."""
    url = urlsplit(location)
    if (url.netloc and url.netloc not in hosts) or not url.path.startswith("/") or url.path.startswith(prefix):
        return location
    return url._replace(scheme="", netloc="", path=f"{prefix}{url.path}").geturl()


def _unreachable(text: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", f"error trying to reach service: {text}")
