"""The HTTP side of the window, by aiohttp: what each route of access.py answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Awaitable, Callable
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
from trainyard.window.options import WindowOptions
from trainyard.window.series import MAX_POINTS, SeriesAnswer, SeriesReader
from trainyard.window.sessions import Sessions, TooManyTries

log = logging.getLogger("trainyard.window")

LIVE_PROTOCOL = "v1.trainyard.dev"
BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."  # as kube-apiserver takes a token with a WebSocket
MAX_BODY = 1 << 16  # bytes of a request
MAX_PAGES = 64
LIST_SECONDS = 10.0  # the first list of a large cluster
BYE_SECONDS = 0.5
SEND_SECONDS = 20.0  # a page that takes no frame for so long is disconnected


class HttpPages:
    """Answers the requests of browsers. `api`: a client of the cluster, None for a history alone."""

    def __init__(
        self, api: ApiClient | None, options: WindowOptions, sessions: Sessions, invite: Callable[[], str]
    ) -> None:
        self._api, self._options, self._sessions, self._invite = api, options, sessions, invite
        self._observation = Observation(api, options.namespace) if api is not None else None
        self._pages = JobPages(api, self._observation, options.history is not None)
        self._sources = Sources(
            self._observation, JobList(self._observation, options.history), self._pages, self._open_log
        )
        self._series_reader, self._series_lock = SeriesReader(), asyncio.Lock()
        self._server = web.Server(self._answer, access_log=None)
        self._open_sockets: set[web.WebSocketResponse] = set()

    @property
    def observes(self) -> bool:
        """Whether the cluster is being watched."""
        return self._observation is not None and self._observation.synced

    def new_connection(self) -> asyncio.Protocol:
        """The protocol of a connection that was accepted."""
        return self._server()

    async def close(self, reason: str) -> None:
        """Tell the open pages the reason, close their connections and the watches."""
        bye = msgspec.json.encode({"type": "bye", "reason": reason}).decode()
        for socket in tuple(self._open_sockets):
            with contextlib.suppress(ConnectionError, RuntimeError, TimeoutError):
                async with asyncio.timeout(BYE_SECONDS):
                    await socket.send_str(bye)
                    await socket.close()
        await self._server.shutdown(BYE_SECONDS)
        if self._observation is not None:
            await self._observation.stop()

    # Checks.

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Refuse foreign hosts and pages; give every response its headers, and every error a sentence."""
        if refused := access.refusal(request.headers):
            response: web.StreamResponse = _error(*refused)
        else:
            try:
                response = await self._route(request)
            except _Refused as error:
                response = _error(error.status, error.text)
            except (ConnectionError, asyncio.CancelledError):
                raise
            except Exception:
                log.exception("a request failed: method=%s path=%r", request.method, request.path)
                response = _error(500, "the window failed to answer: see the log of the cluster")
        if not response.prepared:
            for name, value in access.response_headers(request.headers.get("Host", "")).items():
                response.headers.setdefault(name, value)
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        match_or_refusal = access.find_route(request.method, request.path)
        if isinstance(match_or_refusal, access.Refusal):
            raise _Refused(*match_or_refusal)
        route, values = match_or_refusal
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if route.scope == "key" and not self._sessions.may_invite(token):
            raise _Refused(401, "only the owner of the cluster may invite: use `trainyard ui`")
        if route.scope == "session" and not self._sessions.is_valid(token or _token_of_protocols(request)):
            raise _Refused(401, "this session is over: `trainyard ui` prints a new link")
        handler: Callable[..., Awaitable[web.StreamResponse]] = getattr(self, f"_{route.handler}")
        return await handler(request, **values)

    # Routes.

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=load_assets().page, content_type="text/html", charset="utf-8")

    async def _asset(self, request: web.BaseRequest, version: str, name: str) -> web.StreamResponse:
        assets = load_assets()
        if version != assets.version or name not in assets.files:
            return _error(404, f"no such file: {name}")
        content_type, body = assets.files[name]
        headers = {"Content-Type": content_type, "Cache-Control": "public, max-age=31536000, immutable"}
        return web.Response(body=body, headers=headers)

    async def _invitation(self, request: web.BaseRequest) -> web.StreamResponse:
        return _json({"link": self._invite()})

    async def _session(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await _body(request)
        try:
            session = self._sessions.accept(str(body.get("token")))
        except TooManyTries:
            return _error(429, "too many links were tried; wait a minute")
        if session is None:
            return _error(401, "this link was used, or is older than a minute: `trainyard ui` prints a new one")
        return _json({"session": session})

    async def _live(self, request: web.BaseRequest) -> web.StreamResponse:
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

    async def _stream_frames(self, request: web.BaseRequest) -> web.StreamResponse:
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

    async def _job(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        async with self._looking():
            page = await self._pages.page(uid)
            if page is None:
                return _no_job()
            files = await self._files(uid)
            return _json(msgspec.structs.asdict(page) | {"logs": files})

    async def _yaml(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        async with self._looking():
            text = await self._pages.manifest(uid)
        return _no_job() if text is None else web.Response(text=text, content_type="text/yaml", charset="utf-8")

    async def _log_files(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        async with self._looking():
            return _json({"files": await self._files(uid)})

    async def _log(self, request: web.BaseRequest, uid: str, file: str) -> web.StreamResponse:
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

    async def _series(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        names, replicas = (_list(request.query.get(key, "")) for key in ("names", "replicas"))
        points = request.query.get("points", str(MAX_POINTS))
        if not points.isdecimal() or not 1 <= int(points) <= MAX_POINTS:
            return _error(400, f"points is a number from 1 to {MAX_POINTS}")
        async with self._series_lock:
            answer = await asyncio.to_thread(self._read_series, uid, names, replicas, int(points))
        return _json(answer)

    def _read_series(self, job_uid: str, names: list[str], replicas: list[str], points: int) -> SeriesAnswer:
        record = self._pages.record(job_uid)
        if record is None:  # the job is not known, or runs where there is no history
            return SeriesAnswer([], {}, [], [])
        return self._series_reader.read(record.logs, names, replicas, points)

    async def _ticket(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await _body(request)
        return _json({"ticket": self._sessions.issue_ticket(str(body.get("path")))})

    async def _download(self, request: web.BaseRequest, ticket: str) -> web.StreamResponse:
        path = self._sessions.take_ticket(ticket)
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


class _Refused(Exception):
    """A response that is an error: its status code and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _error(status: int, text: str) -> web.Response:
    return web.Response(body=msgspec.json.encode({"error": text}), status=status, content_type="application/json")


def _list(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


def _no_job() -> web.Response:
    return _error(404, "there is no such job, neither in the cluster nor in the history of this machine")


async def _body(request: web.BaseRequest) -> Json:
    """The JSON object of a request. Another content type is refused: a form of a foreign page could send it."""
    if request.content_type != "application/json":
        raise _Refused(415, "send application/json")
    try:
        body = msgspec.json.decode(await request.read())
    except msgspec.DecodeError:
        raise _Refused(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise _Refused(400, "the body is not an object")
    return body


def _token_of_protocols(request: web.BaseRequest) -> str:
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
