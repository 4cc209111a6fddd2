"""HTTP: decodes bytes into a `Request`, and encodes an `Answer` into bytes.

    connections.py  the request head, parsed by aiohttp  authentication.py    authentication
    this file       the body; then verbs.py executes the request and the log commits it
    responses.py      a complete response                  this file   a watch
    kubelet_logs.py, tunnel.py, pod_proxy.py                   responses of a kubelet or of a program in a pod

Rules for this file:
- Nothing here depends on the resource. User and body size are checked before a verb gets the request.
- The entries that a verb has written or read are committed before the response is sent, errors included.
- Watch events are written directly to the transport; a client that does not read them is disconnected.
- An unexpected exception is logged and answered with a Status 500; the server continues.
"""

from __future__ import annotations

import asyncio
import logging
import re

from aiohttp import web

from trainyard.server.auth.authentication import Authenticator
from trainyard.server.execution import execute
from trainyard.server.http import responses
from trainyard.server.http.bodies import read_body
from trainyard.server.http.connections import Connection, connection_factory, error_response
from trainyard.server.http.limits import Limits
from trainyard.server.model import errors
from trainyard.server.model.errors import StatusError
from trainyard.server.model.paths import OPEN_PATHS
from trainyard.server.model.requests import JSON, MAX_BODY, PodProxy, Request, Response, Tunnel, Watch
from trainyard.server.model.users import User
from trainyard.server.proxy.kubelet_logs import KubeletLogs
from trainyard.server.proxy.pod_proxy import PodProxies
from trainyard.server.proxy.tunnel import Tunnels
from trainyard.server.storage.watches import LAST_BOOKMARK_SECONDS, MAX_BUFFERED, Listener, WatchHub
from trainyard.server.verbs import Verbs

log = logging.getLogger("trainyard.server")

_PROXIED = re.compile(r"/proxy(/|$)")  # bodies for a program in a pod are forwarded as they are


class HttpHandler:
    """The handler of aiohttp's low-level server. There is no router; model/paths.py parses URLs."""

    def __init__(self, verbs: Verbs, hub: WatchHub, authenticator: Authenticator, kubelet: str, limits: Limits) -> None:
        self._verbs, self._hub, self._authenticator, self._limits = verbs, hub, authenticator, limits
        self._kubelets, self._tunnels, self._proxies = KubeletLogs(kubelet), Tunnels(kubelet), PodProxies(kubelet)
        self._connections = connection_factory(self)

    def new_connection(self) -> Connection:
        """The protocol of a new client connection."""
        return Connection(self._connections, self._limits)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections.connections)

    async def close(self, seconds: float) -> None:
        """Close all connections; requests in progress have `seconds` to finish."""
        self._tunnels.cancel_all()
        await asyncio.sleep(0)  # lets requests that have just arrived start, so that shutdown waits for them
        self._connections.pre_shutdown()
        await self._connections.shutdown(seconds)
        for part in (self._tunnels, self._proxies, self._kubelets):
            await part.close()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one HTTP request; errors become a Status response."""
        path = request.rel_url.raw_path
        try:
            user = self._authenticator.authenticate(request, path)
            decoded = _request_of(request, path, await self._body(request, path), user)
            answer = await execute(self._verbs, decoded)
            if isinstance(answer, Response):
                if request.method == "HEAD" and path not in OPEN_PATHS:
                    raise errors.method_not_allowed()
                return await responses.send(request, answer, self._limits.response_seconds)
            if isinstance(answer, Watch):
                return await self._watch(request, answer)
            if isinstance(answer, Tunnel):
                return await self._tunnels.serve(request, answer)
            if isinstance(answer, PodProxy):
                return await self._proxies.serve(request, decoded, answer)
            return await self._kubelets.stream(request, answer)
        except StatusError as refused:
            return error_response(request, refused)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed: method=%s path=%r", request.method, path)
            return error_response(
                request, StatusError(500, "InternalError", "Internal error occurred: see the API server's log")
            )

    async def _body(self, request: web.BaseRequest, path: str) -> bytes:
        """The whole request body. Raises StatusError 400, 408, 413, 415 or 417, and ConnectionResetError when the
        client disconnects."""
        if not request.body_exists:
            return b""
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding != "identity" and not _PROXIED.search(path):
            text = f"the body is encoded as {errors.printable(encoding)[:100]}; send it as it is"
            raise StatusError(415, "UnsupportedMediaType", text)
        return await read_body(request, MAX_BODY, self._limits.body_seconds)

    async def _watch(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return response
        listener = Listener(
            watch, lambda line: transport.write(_chunk(line)), lambda: transport.get_write_buffer_size() > MAX_BUFFERED
        )
        last_bookmark: asyncio.TimerHandle | None = None
        if watch.bookmarks and watch.seconds > LAST_BOOKMARK_SECONDS:
            loop = asyncio.get_running_loop()
            last_bookmark = loop.call_later(
                watch.seconds - LAST_BOOKMARK_SECONDS, self._hub.send_last_bookmark, listener
            )
        try:
            async with asyncio.timeout(watch.seconds):
                await self._catch_up(request, response, listener)
                reason = await listener.ended
            if reason in ("slow", "broken"):
                if reason == "slow":
                    log.warning("watch closed, its client reads too slowly: resource=%s", watch.resource.full_name)
                transport.abort()
                return response
        except TimeoutError:
            pass
        finally:
            self._hub.remove(listener)
            if last_bookmark is not None:
                last_bookmark.cancel()
        await response.write_eof()
        return response

    async def _catch_up(self, request: web.BaseRequest, response: web.StreamResponse, listener: Listener) -> None:
        """Send the initial objects, then past events. The last read of the past and the registration for new events
        are one step, so that no event is lost."""
        watch = listener.watch
        for start in range(0, len(watch.initial), 200):
            await self._write_part(request, response, b"".join(watch.initial[start : start + 200]))
        if watch.initial_end:
            await self._write_part(request, response, listener.bookmark(watch.revision, initial_end=True))
        while lines := self._hub.past_lines(listener):
            await self._write_part(request, response, b"".join(lines))
            if listener.ended.done():
                return

    async def _write_part(self, request: web.BaseRequest, response: web.StreamResponse, part: bytes) -> None:
        """Write one part of the initial events. Raises ConnectionResetError when the client does not read it in
        time."""
        deadline = asyncio.get_running_loop().call_later(self._limits.response_seconds, responses.abort, request)
        try:
            await response.write(part)
        finally:
            deadline.cancel()


def _chunk(line: bytes) -> bytes:
    """A chunk of chunked transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(line), line)


def _request_of(request: web.BaseRequest, path: str, body: bytes, user: User) -> Request:
    headers, query = request.headers, request.rel_url.raw_query_string
    content_type = headers.get("Content-Type")
    return Request(
        method=request.method,
        path=path,
        query={name: request.query[name] for name in request.query} if query else {},
        body=body,
        content_type=content_type or "" if content_type in (None, JSON) else request.content_type,
        accept=headers.get("Accept", ""),
        user=user,
        query_string=query,
        protocols=_offered_protocols(request),
        agent=headers.get("User-Agent", ""),
        etag=headers.get("If-None-Match", ""),
    )


def _offered_protocols(request: web.BaseRequest) -> tuple[str, ...] | None:
    """The subprotocols of a WebSocket upgrade; None when the request is no upgrade."""
    if request.headers.get("Upgrade", "").lower() != "websocket" or request.method != "GET":
        return None
    lines = request.headers.getall("Sec-WebSocket-Protocol", ())
    return tuple(protocol.strip() for line in lines for protocol in line.split(",") if protocol.strip())
