"""The HTTP listener of the window: loopback only, plain HTTP, which browsers trust there.

It has a port of its own: that of the API server speaks TLS with the cluster's own CA, about which a browser warns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from trainyard import __version__
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.window import access
from trainyard.window.assets import load_assets
from trainyard.window.job_list import JobList
from trainyard.window.job_pages import JobPages
from trainyard.window.live import LivePage, Sources
from trainyard.window.log_files import MAX_RANGE, LogFile, pod_files, read_range, recorded_files, whole_log
from trainyard.window.log_lines import LogLines
from trainyard.window.observation import Observation
from trainyard.window.sessions import Sessions, TooManyTries

log = logging.getLogger("trainyard.window")

LIVE_PROTOCOL = "v1.trainyard.dev"
BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."  # as kube-apiserver takes a token with a WebSocket
MAX_BODY = 1 << 16  # bytes of a request
MAX_PAGES = 64
LIST_SECONDS = 10.0  # the first list of a large cluster
SEND_SECONDS = 20.0  # a page that takes no frame for so long is disconnected


class WindowOptions(msgspec.Struct, frozen=True):
    """`cluster`: its name on the page. `mode`: local (of this machine), cluster (a real one) or history. `namespace`:
    "" for all. `history`: the folder of the history; None: none is shown."""

    cluster: str
    mode: str = "local"
    namespace: str = ""
    history: Path | None = None


class Window:
    """`await start()`, then `link()` for each browser, finally `await stop()`. `api`: a client of the cluster, whose
    rights the page has; None for a history alone."""

    def __init__(self, api: ApiClient | None, options: WindowOptions) -> None:
        self._api, self._options = api, options
        self._observation = Observation(api, options.namespace) if api is not None else None
        self._pages = JobPages(api, self._observation, options.history is not None)
        self._sources = Sources(
            self._observation, JobList(self._observation, options.history), self._pages, self._open_log
        )
        self.sessions = Sessions(time.monotonic)
        self.url = ""
        """The address of the page, without an invitation."""
        self._runner: web.AppRunner | None = None
        self._open_sockets: set[web.WebSocketResponse] = set()

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._guard])
        for route in access.ROUTES:
            handler = self._checked(route.scope, getattr(self, f"_{route.handler}"))
            if route.method == "GET":
                app.router.add_get(route.path, handler, allow_head=False)
            else:
                app.router.add_route(route.method, route.path, handler)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/ui/"

    def link(self) -> str:
        """A link that opens the page, once and within a minute. The invitation is in the fragment: browsers send that
        to no server, and the page removes it from the history at once."""
        return f"{self.url}#token={self.sessions.invite()}"

    async def stop(self, reason: str = "the cluster stops") -> None:
        """Tell the pages, close the listener and the watches. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        bye = msgspec.json.encode({"type": "bye", "reason": reason}).decode()
        for socket in tuple(self._open_sockets):
            with contextlib.suppress(ConnectionError, RuntimeError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await socket.send_str(bye)
                    await socket.close()
        await runner.cleanup()
        if self._observation is not None:
            await self._observation.stop()

    # Checks.

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse foreign hosts and pages; give every response its headers, and every error a sentence."""
        host = request.headers.get("Host", "")
        if refused := access.refusal(request.headers):
            return _error(*refused)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = _error(error.status, error.text or error.reason)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed: method=%s path=%r", request.method, request.path)
            response = _error(500, "the window failed to answer: see the log of the cluster")
        if not response.prepared:
            for name, value in access.response_headers(host).items():
                response.headers.setdefault(name, value)
        return response

    def _checked(
        self, scope: access.Scope, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def checked(request: web.Request) -> web.StreamResponse:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if scope == "key" and not self.sessions.may_invite(token):
                return _error(401, "only the owner of the cluster may invite: use `trainyard ui`")
            if scope == "session" and not self.sessions.is_valid(token or _token_of_protocols(request)):
                return _error(401, "this session is over: `trainyard ui` prints a new link")
            return await handler(request)

        return checked

    # Routes.

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=load_assets().page, content_type="text/html", charset="utf-8")

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        assets, name = load_assets(), request.match_info["name"]
        if request.match_info["version"] != assets.version or name not in assets.files:
            return _error(404, f"no such file: {name}")
        content_type, body = assets.files[name]
        headers = {"Content-Type": content_type, "Cache-Control": "public, max-age=31536000, immutable"}
        return web.Response(body=body, headers=headers)

    async def _invitation(self, request: web.Request) -> web.StreamResponse:
        return _json({"link": self.link()})

    async def _session(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        try:
            session = self.sessions.accept(str(body.get("token")))
        except TooManyTries:
            return _error(429, "too many links were tried; wait a minute")
        if session is None:
            return _error(401, "this link was used, or is older than a minute: `trainyard ui` prints a new one")
        return _json({"session": session})

    async def _live(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return await self._stream_frames(request)
        if len(self._open_sockets) >= MAX_PAGES:
            return _error(503, f"{MAX_PAGES} pages are open already")
        socket = web.WebSocketResponse(protocols=(LIVE_PROTOCOL,), heartbeat=15.0, max_msg_size=MAX_BODY, compress=True)
        await socket.prepare(request)

        async def send(frame: Any) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await socket.send_str(msgspec.json.encode(frame).decode())

        page = LivePage(self._sources, send, self._hello)
        self._open_sockets.add(socket)
        sending = asyncio.ensure_future(page.run())
        sending.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT and isinstance(names := _subscriptions(message.data), list):
                    page.subscribe(names)
                if sending.done():
                    break
        finally:
            self._open_sockets.discard(socket)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return socket

    async def _stream_frames(self, request: web.Request) -> web.StreamResponse:
        """The same frames as lines of JSON, for curl and for tests; `?subscribe=` may be repeated."""
        response = web.StreamResponse(headers=access.response_headers(request.headers.get("Host", "")))
        response.content_type = "application/x-ndjson"
        await response.prepare(request)

        async def send(frame: Any) -> None:
            await response.write(msgspec.json.encode(frame) + b"\n")

        page = LivePage(self._sources, send, self._hello)
        page.subscribe(request.query.getall("subscribe", []))
        with contextlib.suppress(ConnectionError):
            await page.run()
        return response

    async def _job(self, request: web.Request) -> web.StreamResponse:
        async with self._looking():
            page = await self._pages.page(request.match_info["uid"])
            if page is None:
                return _no_job()
            files = await self._files(request.match_info["uid"])
            return _json(msgspec.structs.asdict(page) | {"logs": files})

    async def _yaml(self, request: web.Request) -> web.StreamResponse:
        async with self._looking():
            text = await self._pages.manifest(request.match_info["uid"])
        return _no_job() if text is None else web.Response(text=text, content_type="text/yaml", charset="utf-8")

    async def _log_files(self, request: web.Request) -> web.StreamResponse:
        async with self._looking():
            return _json({"files": await self._files(request.match_info["uid"])})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        uid, file = request.match_info["uid"], request.match_info["file"]
        try:
            offset, limit = int(request.query.get("offset", "0")), int(request.query.get("limit", str(MAX_RANGE)))
        except ValueError:
            return _error(400, "offset and limit are numbers of bytes")
        async with self._looking():
            record = await asyncio.to_thread(self._pages.record, uid)
            part = await read_range(self._api, record, self._pods(uid), file, offset, limit)
        if part is None:
            return _error(404, f"the job has no log {file}")
        headers = {
            "X-Log-Offset": str(part.offset),
            "X-Log-Next": str(part.next_offset),
            "X-Log-Size": str(part.size),
        }
        return web.Response(body=part.data, content_type="application/octet-stream", headers=headers)

    async def _ticket(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        return _json({"ticket": self.sessions.issue_ticket(str(body.get("path")))})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        path = self.sessions.take_ticket(request.match_info["ticket"])
        prefix, _, rest = (path or "").partition("/")
        uid, _, file = rest.partition("/logs/")
        if path is None or prefix != "jobs" or not file:
            return _error(404, "this link was used, or is older than half a minute: click it again")
        name = f"{file.replace('/', '-')}.log"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        headers |= access.response_headers(request.headers.get("Host", ""))
        async with self._looking():
            record = await asyncio.to_thread(self._pages.record, uid)
            chunks = await asyncio.to_thread(whole_log, self._api, record, self._pods(uid), file)
        if chunks is None:
            return _error(404, f"the job has no log {file}")
        response = web.StreamResponse(headers=headers)
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        async for chunk in chunks:
            await response.write(chunk)
        return response

    # What the routes share.

    @contextlib.asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        """Watch the cluster meanwhile, and wait until it is listed."""
        if self._observation is None:
            yield
            return
        listed = asyncio.Event()
        listener = lambda uid: listed.set()  # noqa: E731  (subscribe and unsubscribe must get the same object)
        self._observation.subscribe(listener)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIST_SECONDS):
                    while not self._observation.synced:
                        listed.clear()
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.1):  # the last list may be empty: it changes no job
                                await listed.wait()
            yield
        finally:
            self._observation.unsubscribe(listener)

    def _pods(self, job_uid: str) -> list[Json]:
        return self._observation.pods(job_uid) if self._observation else []

    async def _files(self, job_uid: str) -> list[LogFile]:
        record = await asyncio.to_thread(self._pages.record, job_uid)
        return await asyncio.to_thread(recorded_files, record) if record else pod_files(self._pods(job_uid))

    def _open_log(self, job_uid: str, replica: str) -> LogLines | None:
        """The new lines of a job that exists."""
        observation = self._observation
        if self._api is None or observation is None:
            return None
        return LogLines(self._api, lambda: observation.pods(job_uid), replica)

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "version": __version__,
            "now": time.time(),
            "cluster": self._options.cluster,
            "mode": self._options.mode,
            "readOnly": True,
            "forbidden": self._observation.forbidden if self._observation else [],
        }


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _error(status: int, text: str) -> web.Response:
    return web.Response(body=msgspec.json.encode({"error": text}), status=status, content_type="application/json")


def _no_job() -> web.Response:
    return _error(404, "there is no such job, neither in the cluster nor in the history of this machine")


async def _body(request: web.Request) -> Json:
    """The JSON object of a request. Another content type is refused: a form of a foreign page could send it."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send application/json")
    try:
        body = msgspec.json.decode(await request.read())
    except msgspec.DecodeError:
        raise web.HTTPBadRequest(text="the body is not JSON") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body is not an object")
    return body


def _token_of_protocols(request: web.Request) -> str:
    """The session in Sec-WebSocket-Protocol: a browser gives a WebSocket no other header."""
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        encoded = protocol.strip()
        if encoded.startswith(BEARER_PROTOCOL):
            encoded = encoded.removeprefix(BEARER_PROTOCOL)
            try:
                return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode("ascii")
            except (Base64Error, UnicodeDecodeError):
                return ""
    return ""


def _subscriptions(text: str) -> Any:
    """The names in a message of the page; None for another message."""
    try:
        message = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return message.get("subscribe") if isinstance(message, dict) else None
