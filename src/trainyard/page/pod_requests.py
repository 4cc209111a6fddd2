"""One request of a browser to a forward: what of it goes to the pod, by the API server, and what comes back.

Rules for this file:
- The API server gets the person's credentials. The pod gets neither those nor the cookie of the forward.
- What a browser sends goes to one path of the API server: no `..`, and no header that the API server acts on.
"""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import unquote

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    WSServerHandshakeError,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from trainyard.client import ApiClient, ApiError
from trainyard.client.tls import system_context
from trainyard.objects import decode
from trainyard.page.responses import RequestRefused
from trainyard.server.proxy.pod_proxy import (
    AUTOMATIC,
    forwarded_headers,
    returned_headers,
    serve_websocket,
    stream_response,
    websocket_options,
)

COOKIE = "trainyard-forward"
CONNECT_SECONDS = 10.0
MAX_STATUS = 1 << 16  # bytes of a Status of the API server
STARTS = "If it has just been started: it needs some seconds until it listens. Then load this page again."
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FOR_THE_API_SERVER = ("impersonate-", "x-remote-")
_OF_THIS_ORIGIN = ("host", "origin", "cookie")  # an API server refuses the first two


class PodRequests:
    """Sends requests with the rights of `api`, by connections of its own: `api` has no WebSockets."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def answer(self, request: web.BaseRequest, prefix: str) -> web.StreamResponse:
        """The answer of a pod. `prefix`: the path of its proxy at the API server. Raises RequestRefused."""
        path = upstream_path(request, prefix)
        try:
            endpoint = await self._api.endpoint()
            if self._session is None:
                timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
                self._session = ClientSession(timeout=timeout, auto_decompress=False, cookie_jar=DummyCookieJar())
            headers = upstream_headers(request)
            if endpoint.identity.token:
                headers["Authorization"] = f"Bearer {endpoint.identity.token}"
            options: dict[str, Any] = {
                "headers": headers,
                "ssl": endpoint.identity.secure or system_context(),
                "proxy": endpoint.proxy or None,
                "server_hostname": endpoint.server_name or None,
            }
            url = URL(f"{endpoint.url}{prefix}{path}", encoded=True)
            if request.headers.get("Upgrade", "").lower() == "websocket" and request.method == "GET":
                return await _forward_websocket(self._session, request, url, options)
            return await _forward(self._session, request, url, prefix, options)
        except (ApiError, ClientError, OSError, TimeoutError) as error:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the browser has gone") from None
            raise RequestRefused(502, f"the API server does not answer: {error or type(error).__name__}") from None


async def _forward(
    session: ClientSession, request: web.BaseRequest, url: URL, prefix: str, options: dict[str, Any]
) -> web.StreamResponse:
    body = request.content if request.body_exists else None
    async with session.request(
        request.method, url, data=body, allow_redirects=False, skip_auto_headers=AUTOMATIC, **options
    ) as upstream:
        headers = returned_headers(upstream)
        if prefix in headers.get("Location", ""):
            headers["Location"] = headers["Location"].partition(prefix)[2] or "/"
        if _may_be_a_status(upstream):
            text = await upstream.read()
            if message := _status_message(text):
                raise RequestRefused(502, f"TensorBoard is not reached: {message}\n\n{STARTS}")
            return web.Response(status=upstream.status, reason=upstream.reason, headers=headers, body=text)
        return await stream_response(request, upstream, headers)


async def _forward_websocket(
    session: ClientSession, request: web.BaseRequest, url: URL, options: dict[str, Any]
) -> web.StreamResponse:
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    protocols = tuple(protocol.strip() for protocol in offered if protocol.strip())
    try:
        program = await session.ws_connect(url, **{**options, **websocket_options(options["headers"], protocols)})
    except WSServerHandshakeError as error:
        raise RequestRefused(502, f"it was answered {error.status}, and no WebSocket was made") from None
    return await serve_websocket(request, program)


def upstream_headers(request: web.BaseRequest) -> CIMultiDict[str]:
    """The headers for the API server and the pod, without credentials."""
    headers = forwarded_headers(request)
    for name in set(headers):
        if name.lower() in _OF_THIS_ORIGIN or name.lower().startswith(_FOR_THE_API_SERVER):
            del headers[name]
    pairs = [pair.strip() for line in request.headers.getall("Cookie", ()) for pair in line.split(";")]
    if others := [pair for pair in pairs if pair and pair.partition("=")[0].strip() != COOKIE]:
        headers["Cookie"] = "; ".join(others)
    if request.content_length is not None and request.body_exists:
        headers["Content-Length"] = str(request.content_length)
    return headers


def upstream_path(request: web.BaseRequest, prefix: str) -> str:
    """The path and query of a request, below the path of the pod's proxy. An API server puts that before absolute links
    in HTML, where it is left out again. Raises RequestRefused."""
    target = request.raw_path
    path = target.partition("?")[0]
    if request.method not in METHODS or not path.startswith("/"):
        raise RequestRefused(405, f"{request.method} is not possible here")
    if {".", ".."} & set(unquote(path).replace("\\", "/").split("/")):
        raise RequestRefused(400, "a path with . or .. is not passed on")
    rest = target.removeprefix(prefix)
    return rest if rest.startswith("/") else f"/{rest}"


def _may_be_a_status(upstream: ClientResponse) -> bool:
    is_short = upstream.content_length is not None and upstream.content_length <= MAX_STATUS
    return upstream.status >= 400 and upstream.content_type == "application/json" and is_short


def _status_message(body: bytes) -> str:
    """The message of an API server that does not reach the pod; "" for an answer of the pod."""
    with contextlib.suppress(ValueError):
        answer = decode(body)
        if isinstance(answer, dict) and answer.get("kind") == "Status":
            return str(answer.get("message") or answer.get("reason"))
    return ""
