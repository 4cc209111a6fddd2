"""HTTP, both ends of a request's way: bytes in, a `Request`; an `Answer`, bytes out.

    connections.py  the head, as aiohttp reads it       guard.py    who may come in
    here            the body; verbs.py answers; the log settles it
    answers.py      a whole answer                      here        a watch
    kubelets.py, tunnel.py, proxies.py                  what a kubelet or a program in a pod answers

Rules for this file:
- Nothing here knows what is asked for. Who asks and how much is checked before a verb sees the request.
- What a verb has written, or seen, is settled before anybody is told, be it an answer or a refusal.
- Watches are written straight to the transport; one that does not take its lines away is cut off.
- An exception that nobody foresaw is logged and answered with a Status 500; the next request is served as ever.
"""

from __future__ import annotations

import asyncio
import logging
import re

from aiohttp import HttpVersion11, web

from trainyard.server import answers, errors
from trainyard.server.bootstrap import OPEN_PATHS
from trainyard.server.connections import Connection, refusal, serving
from trainyard.server.errors import Refused
from trainyard.server.guard import Guard
from trainyard.server.kubelets import Kubelets
from trainyard.server.limits import Limits
from trainyard.server.proxies import Proxies
from trainyard.server.requests import JSON, LARGEST, Inside, Request, Response, Tunnel, Watch
from trainyard.server.settled import settled
from trainyard.server.tunnel import Tunnels
from trainyard.server.users import User
from trainyard.server.verbs import Verbs
from trainyard.server.watching import LAST_BOOKMARK, MOST_BUFFERED, Hub, Listener

log = logging.getLogger("trainyard.server")

_PROXIED = re.compile(r"/proxy(/|$)")  # what a program in a pod is sent is its own matter


class Http:
    """The handler of aiohttp's low-level server: no router, the URL grammar is in paths.py."""

    def __init__(self, verbs: Verbs, hub: Hub, guard: Guard, kubelet: str, limits: Limits) -> None:
        self._verbs, self._hub, self._guard, self._limits = verbs, hub, guard, limits
        self._kubelets, self._tunnels, self._proxies = Kubelets(kubelet), Tunnels(kubelet), Proxies(kubelet)
        self._connections = serving(self)

    def connection(self) -> Connection:
        """What speaks with one client."""
        return Connection(self._connections, self._limits)

    @property
    def count(self) -> int:
        """How many clients are connected."""
        return len(self._connections.connections)

    async def close(self, seconds: float) -> None:
        """End all connections; what has been asked may still be answered in so many seconds."""
        self._tunnels.end()
        await asyncio.sleep(0)  # what has just come in begins, so that it can be waited for
        self._connections.pre_shutdown()
        await self._connections.shutdown(seconds)
        for part in (self._tunnels, self._proxies, self._kubelets):
            await part.close()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        try:
            user = self._guard.admit(request, path)
            asked = _asked(request, path, await self._body(request, path), user)
            answer = await settled(self._verbs, asked)
            if isinstance(answer, Response):
                if request.method == "HEAD" and path not in OPEN_PATHS:
                    raise errors.method_not_allowed()
                return await answers.send(request, answer, self._limits.answer)
            if isinstance(answer, Watch):
                return await self._watch(request, answer)
            if isinstance(answer, Tunnel):
                return await self._tunnels.serve(request, answer)
            if isinstance(answer, Inside):
                return await self._proxies.serve(request, asked, answer)
            return await self._kubelets.stream(request, answer)
        except Refused as refused:
            return refusal(request, refused)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed: method=%s path=%r", request.method, path)
            return refusal(request, Refused(500, "InternalError", "Internal error occurred: see the API server's log"))

    async def _body(self, request: web.BaseRequest, path: str) -> bytes:
        """All of it. Raises Refused 400, 408, 413, 415 or 417, and ConnectionResetError when the client has gone."""
        if not request.body_exists:
            return b""
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding != "identity" and not _PROXIED.search(path):
            text = f"the body is encoded as {errors.printable(encoding)[:100]}; send it as it is"
            raise Refused(415, "UnsupportedMediaType", text)
        if (request.content_length or 0) > LARGEST:
            raise _too_large()
        _go_on(request)
        try:
            if request.content.is_eof():  # it has come with the head, as nearly all do
                return request.content.read_nowait()
            async with asyncio.timeout(self._limits.body):
                return await _all_of(request)
        except TimeoutError:
            text = f"the body of the request did not arrive within {self._limits.body:g} seconds"
            raise Refused(408, "Timeout", text) from None
        except web.RequestPayloadError:
            raise errors.bad_request("the body of the request is not what its head says") from None

    async def _watch(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return response
        listener = Listener(
            watch, lambda line: transport.write(_chunk(line)), lambda: transport.get_write_buffer_size() > MOST_BUFFERED
        )
        last: asyncio.TimerHandle | None = None
        if watch.bookmarks and watch.seconds > LAST_BOOKMARK:
            loop = asyncio.get_running_loop()
            last = loop.call_later(watch.seconds - LAST_BOOKMARK, self._hub.last_mark, listener)
        try:
            async with asyncio.timeout(watch.seconds):
                await self._catch_up(request, response, listener)
                why = await listener.ended
            if why in ("slow", "broken"):
                if why == "slow":
                    log.warning("a watch was dropped, it does not read: resource=%s", watch.resource.full_name)
                transport.abort()
                return response
        except TimeoutError:
            pass
        finally:
            self._hub.remove(listener)
            if last is not None:
                last.cancel()
        await response.write_eof()
        return response

    async def _catch_up(self, request: web.BaseRequest, response: web.StreamResponse, listener: Listener) -> None:
        """What is there, what has been missed, then the present. The last look and the first hearing are one step."""
        watch = listener.watch
        for start in range(0, len(watch.initial), 200):
            await self._part(request, response, b"".join(watch.initial[start : start + 200]))
        if watch.initial_end:
            await self._part(request, response, listener.mark(watch.revision, initial_end=True))
        while lines := self._hub.past(listener):
            await self._part(request, response, b"".join(lines))
            if listener.ended.done():
                return

    async def _part(self, request: web.BaseRequest, response: web.StreamResponse, part: bytes) -> None:
        """One part of what is there already. Raises ConnectionResetError when the client does not take it."""
        late = asyncio.get_running_loop().call_later(self._limits.answer, answers.cut_off, request)
        try:
            await response.write(part)
        finally:
            late.cancel()


def _chunk(line: bytes) -> bytes:
    """What HTTP puts around a part of a body whose length nobody knows."""
    return b"%x\r\n%b\r\n" % (len(line), line)


def _go_on(request: web.BaseRequest) -> None:
    """Tell a client that waits for a word that its body is welcome. Raises Refused 417."""
    expected = request.headers.get("Expect")
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise Refused(417, "ExpectationFailed", "Expect may say 100-continue and nothing else")
    if request.version >= HttpVersion11 and request.transport is not None and not request.content.is_eof():
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _all_of(request: web.BaseRequest) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > LARGEST:
            raise _too_large()
        parts.append(part)
    return b"".join(parts)


def _too_large() -> Refused:
    return Refused(413, "RequestEntityTooLarge", f"Request entity too large: limit is {LARGEST}")


def _asked(request: web.BaseRequest, path: str, body: bytes, user: User) -> Request:
    headers, query = request.headers, request.rel_url.raw_query_string
    kind = headers.get("Content-Type")
    return Request(
        method=request.method,
        path=path,
        query={name: request.query[name] for name in request.query} if query else {},
        body=body,
        content_type=kind or "" if kind in (None, JSON) else request.content_type,
        accept=headers.get("Accept", ""),
        user=user,
        query_string=query,
        protocols=_offered(request),
        agent=headers.get("User-Agent", ""),
        etag=headers.get("If-None-Match", ""),
    )


def _offered(request: web.BaseRequest) -> tuple[str, ...] | None:
    """The subprotocols of a WebSocket upgrade, None when it is none."""
    if request.headers.get("Upgrade", "").lower() != "websocket" or request.method != "GET":
        return None
    lines = request.headers.getall("Sec-WebSocket-Protocol", ())
    return tuple(one.strip() for line in lines for one in line.split(",") if one.strip())
