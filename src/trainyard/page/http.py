"""The HTTP side of the page, by aiohttp: what each route of access.py answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable
from typing import Any, assert_never

import msgspec
from aiohttp import WSMsgType, web

from trainyard import __version__
from trainyard.client import ApiClient
from trainyard.objects import Json, decode
from trainyard.page import access
from trainyard.page.actions import JobActions
from trainyard.page.assets import load_assets
from trainyard.page.connections import Connections
from trainyard.page.data_routes import DataRoutes
from trainyard.page.job_list import JobList
from trainyard.page.job_pages import JobPages
from trainyard.page.job_progress import ProgressReader
from trainyard.page.live import LivePage, Sources
from trainyard.page.log_stream import LogLines, LogStreams
from trainyard.page.observation import Observation
from trainyard.page.options import PageOptions
from trainyard.page.responses import RequestRefused, error_response, json_body, json_response
from trainyard.page.sessions import Right, Sessions, TooManyTries

log = logging.getLogger("trainyard.page")

LIVE_PROTOCOL = "v1.trainyard.dev"
BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."  # as kube-apiserver takes a token with a WebSocket
BYE_SECONDS = 0.5
PING_SECONDS = 15.0
SEND_SECONDS = 20.0  # a page that takes no frame for so long is disconnected


Handler = Callable[..., Awaitable[web.StreamResponse]]


class HttpPages:
    """Answers the requests of browsers. `api`: a client of the cluster, None for a history alone; `proxy_api`: returns
    one that may reach pods."""

    def __init__(
        self,
        api: ApiClient | None,
        options: PageOptions,
        sessions: Sessions,
        invite: Callable[[Right], str],
        proxy_api: Callable[[], ApiClient] | None,
    ) -> None:
        self._api, self._options, self._sessions, self._invite = api, options, sessions, invite
        self._observation = Observation(api, options.namespace) if api is not None else None
        self._pages = JobPages(api, self._observation, options.history is not None)
        jobs = JobList(self._observation, options.history, options.mode == "local")
        progress = ProgressReader(api, self._observation, jobs, options.history)
        self._log_streams = LogStreams(api) if api is not None else None
        self._sources = Sources(self._observation, jobs, progress, self._pages, self._open_log)
        self._actions = JobActions(api, self._observation)
        self._data = DataRoutes(api, self._observation, self._pages, sessions, options.claims, proxy_api)
        self.connections = Connections(self._answer, access.LIMITS)
        self._open_sockets: set[web.WebSocketResponse] = set()
        self._open_pages = 0
        """Sockets, and streams of lines, which `ping` frames end within seconds of their clients."""

    @property
    def observes(self) -> bool:
        """Whether the cluster is being watched."""
        return self._observation is not None and self._observation.synced

    async def close(self, reason: str) -> None:
        """Tell the open pages the reason, close their connections and the watches."""
        bye = msgspec.json.encode({"type": "bye", "reason": reason}).decode()
        for socket in tuple(self._open_sockets):
            with contextlib.suppress(ConnectionError, RuntimeError, TimeoutError):
                async with asyncio.timeout(BYE_SECONDS):
                    await socket.send_str(bye)
                    await socket.close()
        await self._data.close()
        await self.connections.close(BYE_SECONDS)
        if self._observation is not None:
            await self._observation.stop()

    # Checks.

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Refuse foreign hosts and pages; give every response its headers, and every error a sentence."""
        if refused := access.refusal(request.headers):
            response: web.StreamResponse = error_response(*refused)
        else:
            try:
                response = await self._route(request)
            except RequestRefused as error:
                response = error_response(error.status, error.text)
            except (ConnectionError, asyncio.CancelledError):
                raise
            except Exception:
                log.exception("a request failed: method=%s path=%r", request.method, request.path)
                response = error_response(500, "the page server failed to answer: see the log of the cluster")
        if not response.prepared:
            for name, value in access.response_headers(request.headers.get("Host", "")).items():
                response.headers.setdefault(name, value)
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        match_or_refusal = access.find_route(request.method, request.path)
        if isinstance(match_or_refusal, access.Refusal):
            raise RequestRefused(*match_or_refusal)
        route, values = match_or_refusal
        if refused := _refusal(route.scope, request, self._sessions):
            raise RequestRefused(*refused)
        handler: Handler = getattr(self._data, route.handler, None) or getattr(self, f"_{route.handler}")
        if route.scope == "public":
            return await handler(request, **values)
        with self.connections.admitted(request):
            return await handler(request, **values)

    # Routes.

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=load_assets().page, content_type="text/html", charset="utf-8")

    async def _asset(self, request: web.BaseRequest, version: str, name: str) -> web.StreamResponse:
        assets = load_assets()
        if version != assets.version or name not in assets.files:
            return error_response(404, f"no such file: {name}")
        content_type, body = assets.files[name]
        headers = {"Content-Type": content_type, "Cache-Control": "public, max-age=31536000, immutable"}
        return web.Response(body=body, headers=headers)

    async def _invitation(self, request: web.BaseRequest) -> web.StreamResponse:
        may_write = request.can_read_body and (await json_body(request)).get("write") is True
        return json_response({"link": self._invite("write" if may_write else "read")})

    async def _session(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await json_body(request)
        try:
            session = self._sessions.accept(str(body.get("token")))
        except TooManyTries:
            return error_response(429, "too many links were tried; wait a minute")
        if session is None:
            return error_response(401, "this link was used or is too old: `trainyard ui` prints a new one")
        return json_response({"session": session})

    async def _action(self, request: web.BaseRequest) -> web.StreamResponse:
        return json_response({"message": await self._actions.act(await json_body(request))})

    async def _live(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._open_pages >= access.MAX_PAGES:
            return error_response(503, f"{access.MAX_PAGES} pages are open already")
        self._open_pages += 1
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._serve_socket(request)
            return await self._stream_frames(request)
        finally:
            self._open_pages -= 1

    async def _serve_socket(self, request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            protocols=(LIVE_PROTOCOL,), heartbeat=PING_SECONDS, max_msg_size=access.MAX_BODY, compress=False
        )
        await socket.prepare(request)

        async def send(frame: bytes) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await socket.send_str(frame.decode())

        page = LivePage(self._sources, send, self._hello_to(request))
        self._open_sockets.add(socket)
        sending = asyncio.ensure_future(self._send_frames(page, socket))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT and isinstance(names := _subscriptions(message.data), list):
                    page.subscribe(names)
        finally:
            self._open_sockets.discard(socket)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return socket

    @staticmethod
    async def _send_frames(page: LivePage, socket: web.WebSocketResponse) -> None:
        """Until cancelled. A page to which no frame can be sent any more is disconnected, and connects again."""
        try:
            await page.run()
        except (ConnectionError, TimeoutError):
            pass  # it has gone, or takes no frame
        except Exception:
            log.exception("a page is disconnected: its frames cannot be made")
        await socket.close()

    async def _stream_frames(self, request: web.BaseRequest) -> web.StreamResponse:
        """The same frames as lines of JSON, for curl and for tests; `?subscribe=` may be repeated."""
        response = web.StreamResponse(headers=access.response_headers(request.headers.get("Host", "")))
        response.content_type = "application/x-ndjson"
        await response.prepare(request)

        async def send(frame: bytes) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await response.write(frame + b"\n")

        page = LivePage(self._sources, send, self._hello_to(request))
        page.subscribe(request.query.getall("subscribe", []))
        try:
            await page.run()
        except ConnectionError:
            pass
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response

    def _open_log(self, job_uid: str, replica: str) -> LogLines | None:
        """The new lines of a job that exists."""
        observation = self._observation
        if self._log_streams is None or observation is None:
            return None
        return LogLines(self._log_streams, lambda: observation.pods(job_uid), replica)

    def _hello_to(self, request: web.BaseRequest) -> Callable[[], Json]:
        is_read_only = _right(request, self._sessions) != "write" or self._api is None
        return lambda: {
            "type": "hello",
            "version": __version__,
            "now": time.time(),
            "cluster": self._options.cluster,
            "mode": self._options.mode,
            "readOnly": is_read_only,
            "forbidden": self._observation.forbidden if self._observation else [],
        }


def _refusal(scope: access.Scope, request: web.BaseRequest, sessions: Sessions) -> access.Refusal | None:
    """Why a request may not use the routes of that scope; None if it may."""
    match scope:
        case "public" | "ticket":  # whoever answers looks at the ticket
            return None
        case "key":
            text = "only the owner of the cluster may invite: use `trainyard ui`"
            return None if sessions.may_invite(_bearer_token(request)) else access.Refusal(401, text)
        case "session" | "write":
            right = _right(request, sessions)
            if right is None:
                return access.Refusal(401, "this session is over: `trainyard ui` prints a new link")
            if scope == "write" and right != "write":
                text = "this page is read-only: `trainyard ui --write` prints a link to one that may change jobs"
                return access.Refusal(403, text)
            return None
    assert_never(scope)


def _right(request: web.BaseRequest, sessions: Sessions) -> Right | None:
    return sessions.right_of(_bearer_token(request) or _token_of_protocols(request))


def _bearer_token(request: web.BaseRequest) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


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
        message = decode(text)
    except ValueError:
        return None
    return message.get("subscribe") if isinstance(message, dict) else None
