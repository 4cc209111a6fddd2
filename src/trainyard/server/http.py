"""HTTP, both ends of a request's way: bytes in, a `Request`; an `Answer`, bytes out.

Rules for this file:
- Nothing here knows what is asked for. Token and size are checked before a verb sees the request.
- A bearer token says who asks: the administrator's, or a ServiceAccount's (tokens.py). Without one nobody comes in.
- Watches are written straight to the transport; one that does not take its lines away is cut off.
- An exception that nobody foresaw is logged and answered with a Status 500; the next request is served as ever.
"""

from __future__ import annotations

import asyncio
import hmac
import logging

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from trainyard.server import access, errors
from trainyard.server.errors import Refused
from trainyard.server.log import NotWritten
from trainyard.server.proxies import Proxies
from trainyard.server.rbac import Asked
from trainyard.server.requests import JSON, LARGEST, Answer, Elsewhere, Inside, Request, Response, Tunnel, Watch
from trainyard.server.tunnel import LARGEST_REFUSAL, Tunnels, refusal
from trainyard.server.users import ADMIN, User, named
from trainyard.server.verbs import Verbs
from trainyard.server.watching import Hub, Listener, bookmark

log = logging.getLogger("trainyard.server")

MOST_BUFFERED = 16 * 1024 * 1024
"""Bytes a watcher may leave unread before it is dropped."""
OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class Http:
    """The handler of aiohttp's low-level server: no router, the URL grammar is in paths.py."""

    def __init__(self, verbs: Verbs, hub: Hub, token: str) -> None:
        self._verbs, self._hub, self._log = verbs, hub, verbs.writes.log
        self._token = f"Bearer {token}".encode() if token else b""
        self._kubelet: ClientSession | None = None
        self._tunnels = Tunnels(token)
        self._proxies = Proxies(token)

    def end_tunnels(self) -> None:
        self._tunnels.end()

    async def close(self) -> None:
        await self._tunnels.close()
        await self._proxies.close()
        if self._kubelet is not None:
            await self._kubelet.close()
            self._kubelet = None

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        try:
            asked = await _read(request, path, self._user(request, path))
            answer = await self._settled(asked)
            if isinstance(answer, Response):
                return web.Response(body=answer.body, status=answer.code, content_type=answer.content_type)
            if isinstance(answer, Watch):
                return await self._watch(request, answer)
            if isinstance(answer, Tunnel):
                return await self._tunnels.serve(request, answer)
            if isinstance(answer, Inside):
                return await self._proxies.serve(request, asked, answer)
            return await self._elsewhere(request, answer)
        except Refused as refused:
            return _status(refused)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed: method=%s path=%r", request.method, path)
            return _status(Refused(500, "InternalError", "Internal error occurred: see the log of the API server"))

    async def _settled(self, asked: Request) -> Answer:
        """What the verbs say, once nothing of it can be taken back: a read may have seen what is not stored yet."""
        while True:
            try:
                try:
                    return self._verbs.answer(asked)
                finally:
                    await self._log.durable(self._log.revision)
            except NotWritten as why:
                if asked.method not in ("GET", "HEAD"):
                    raise Refused(500, "InternalError", str(why)) from None

    def _user(self, request: web.BaseRequest, path: str) -> User:
        """Who asks. Raises Refused 401."""
        sent = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if path in OPEN_PATHS or hmac.compare_digest(sent, self._token):
            return self._acting(request, ADMIN)
        user = self._verbs.tokens.user_of(sent[7:].decode("latin-1")) if sent.startswith(b"Bearer ") else None
        if user is not None:
            return self._acting(request, user)
        if not self._token:
            return self._acting(request, ADMIN)
        raise Refused(401, "Unauthorized", "Unauthorized")

    def _acting(self, request: web.BaseRequest, user: User) -> User:
        """Whom the user acts for (`kubectl --as`): only the administrator may."""
        wanted = request.headers.get("Impersonate-User", "")
        if not wanted:
            return user
        if not user.all_rights:
            raise access.refusal(user, Asked("impersonate", resource="users", name=errors.printable(wanted)))
        return named(errors.printable(wanted), tuple(request.headers.getall("Impersonate-Group", ())))

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
        try:
            async with asyncio.timeout(watch.seconds):
                await self._catch_up(response, listener)
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
        await response.write_eof()
        return response

    async def _catch_up(self, response: web.StreamResponse, listener: Listener) -> None:
        """What is there, what has been missed, then the present. The last look and the first hearing are one step."""
        watch = listener.watch
        for start in range(0, len(watch.initial), 200):
            await response.write(b"".join(watch.initial[start : start + 200]))
        if watch.initial_end:
            await response.write(bookmark(watch, watch.revision, initial_end=True))
        while lines := self._hub.past(listener):
            await response.write(b"".join(lines))
            if listener.ended.done():
                return

    async def _elsewhere(self, request: web.BaseRequest, answer: Elsewhere) -> web.StreamResponse:
        """The kubelet's answer, passed on as it comes."""
        if self._kubelet is None:
            forever = ClientTimeout(total=None, sock_connect=10)
            many = TCPConnector(limit=0)
            self._kubelet = ClientSession(connector=many, timeout=forever, auto_decompress=False)
        headers = {"Authorization": self._token.decode()} if self._token else {}
        try:
            async with self._kubelet.get(answer.url, headers=headers) as got:
                if got.status >= 300:
                    raise refusal(got.status, (await got.content.read(LARGEST_REFUSAL)).decode("utf-8", "replace"))
                kind = got.headers.get("Content-Type", "text/plain")
                response = web.StreamResponse(status=got.status, headers={"Content-Type": kind})
                response.enable_chunked_encoding()
                await response.prepare(request)
                async for chunk in got.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (ClientError, TimeoutError, OSError) as error:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client of a log has gone") from None
            text = f"the kubelet of the pod's node does not answer: {type(error).__name__}"
            raise Refused(500, "InternalError", text) from None


def _chunk(line: bytes) -> bytes:
    """What HTTP puts around a part of a body whose length nobody knows."""
    return b"%x\r\n%b\r\n" % (len(line), line)


async def _read(request: web.BaseRequest, path: str, user: User) -> Request:
    body = b""
    if request.body_exists:
        parts: list[bytes] = []
        size = 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > LARGEST:
                text = f"Request entity too large: limit is {LARGEST}"
                raise Refused(413, "RequestEntityTooLarge", text)
            parts.append(part)
        body = b"".join(parts)
    return Request(
        method=request.method,
        path=path,
        query={name: request.query[name] for name in request.query},
        body=body,
        content_type=request.content_type if "Content-Type" in request.headers else "",
        accept=request.headers.get("Accept", ""),
        user=user,
        query_string=request.rel_url.raw_query_string,
        protocols=_offered(request),
    )


def _offered(request: web.BaseRequest) -> tuple[str, ...] | None:
    """The subprotocols of a WebSocket upgrade, None when it is none."""
    if request.headers.get("Upgrade", "").lower() != "websocket" or request.method != "GET":
        return None
    lines = request.headers.getall("Sec-WebSocket-Protocol", ())
    return tuple(one.strip() for line in lines for one in line.split(",") if one.strip())


def _status(refused: Refused) -> web.Response:
    response = web.Response(body=refused.body(), status=refused.code, content_type=JSON)
    seconds = (refused.details or {}).get("retryAfterSeconds")
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    if refused.code == 413:
        response.force_close()
    return response
