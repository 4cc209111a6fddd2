"""WebSockets that are passed on to a kubelet, message by message, both ways.

    client --frames--> here --frames--> kubelet        kubelet --frames--> here --frames--> client

Rules for this file:
- The kubelet is asked first. What it refuses is a Status for the client, who has not been upgraded yet.
- Nothing is read from one side before the other has taken what came before: a slow reader stops the writer.
- Frames are not looked at: channels, half-closes and exit codes are a matter between the two ends.
- When one end closes, the other is closed with the same code; when one end is lost, the other is told so.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from types import SimpleNamespace
from typing import NamedTuple

from aiohttp import (
    ClientError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    ClientWSTimeout,
    TCPConnector,
    TraceConfig,
    TraceRequestEndParams,
    WSCloseCode,
    WSMsgType,
    web,
)
from yarl import URL

from trainyard.server import errors
from trainyard.server.errors import Refused
from trainyard.server.requests import Tunnel

LARGEST_MESSAGE = 16 * 1024 * 1024
LARGEST_REFUSAL = 64 * 1024
CONNECT_SECONDS, CLOSE_SECONDS = 10.0, 2.0

Socket = ClientWebSocketResponse | web.WebSocketResponse


class Close(NamedTuple):
    """How one end closed."""

    code: int
    why: bytes


class _Trace(TraceConfig):
    """Keeps what a kubelet says when it does not upgrade: aiohttp itself drops the body."""

    def __init__(self) -> None:
        super().__init__()
        self.on_request_end.append(self._keep)

    async def _keep(self, session: ClientSession, context: SimpleNamespace, end: TraceRequestEndParams) -> None:
        if end.response.status != 101:
            body = await end.response.content.read(LARGEST_REFUSAL)
            _refused.set(body.decode("utf-8", "replace").strip())


_refused: ContextVar[str] = ContextVar("refused", default="")


class Tunnels:
    """All that are open, and the connections to the kubelets. `token` is what the kubelets ask for."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: ClientSession | None = None
        self._open: set[asyncio.Task[object]] = set()

    def end(self) -> None:
        for task in self._open:
            task.cancel()

    async def close(self) -> None:
        self.end()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def serve(self, request: web.BaseRequest, tunnel: Tunnel) -> web.StreamResponse:
        """Until one of the ends has gone. Raises Refused as long as the client has not been upgraded."""
        kubelet = await self._dial(tunnel)
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
        client = web.WebSocketResponse(
            protocols=(kubelet.protocol or tunnel.protocols[-1],),
            max_msg_size=LARGEST_MESSAGE,
            timeout=CLOSE_SECONDS,
            autoclose=False,
            compress=False,
        )
        try:
            await client.prepare(request)
            await between(client, kubelet)
        finally:
            if task is not None:
                self._open.discard(task)
            with contextlib.suppress(ConnectionError, RuntimeError):
                await kubelet.close(code=WSCloseCode.GOING_AWAY)
        return client

    async def _dial(self, tunnel: Tunnel) -> ClientWebSocketResponse:
        """The kubelet's end. Raises Refused with what it says when it does not take it."""
        if self._session is None:
            timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            many = TCPConnector(limit=0)
            self._session = ClientSession(connector=many, timeout=timeout, trace_configs=[_Trace()])
        _refused.set("")
        try:
            return await self._session.ws_connect(
                URL(tunnel.url, encoded=True),
                protocols=tunnel.protocols,
                headers=self._headers,
                max_msg_size=LARGEST_MESSAGE,
                timeout=ClientWSTimeout(ws_close=CLOSE_SECONDS),
                autoclose=False,
            )
        except ClientResponseError as error:
            raise errors.of_kubelet(error.status, _refused.get()) from None
        except (ClientError, TimeoutError, OSError) as error:
            text = f"error dialing backend: the kubelet of the pod's node does not answer: {type(error).__name__}"
            raise Refused(500, "InternalError", text) from None


async def between(client: web.WebSocketResponse, kubelet: ClientWebSocketResponse) -> None:
    """Both ways, until one end closes or is lost."""
    up = asyncio.create_task(_pump(client, kubelet))
    down = asyncio.create_task(_pump(kubelet, client))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        # Who cannot be written to has gone, but what he said last (the exit code) may still wait to be read.
        if all(task.result() is None for task in (up, down) if task.done()):
            await asyncio.wait((up, down))
        from_client = up.result() if up.done() else None
        from_kubelet = down.result() if down.done() else None
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
    ended = from_kubelet or from_client
    if ended is not None:
        closes = (end.close(code=ended.code, message=ended.why) for end in (client, kubelet))
        await asyncio.gather(*closes, return_exceptions=True)


async def _pump(source: Socket, sink: Socket) -> Close | None:
    """One way. How the source closed; None when the sink takes nothing any more."""
    while True:
        message = await source.receive()
        try:
            if message.type is WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            elif message.type is WSMsgType.TEXT:
                await sink.send_str(message.data)
            elif message.type is WSMsgType.CLOSE:
                return Close(_sendable(message.data), (message.extra or "").encode()[:120])
            else:
                return _lost(source)
        except ConnectionError:
            return None


def _lost(source: Socket) -> Close:
    if isinstance(source, ClientWebSocketResponse):
        return Close(WSCloseCode.INTERNAL_ERROR, b"the connection to the pod's node was lost")
    return Close(WSCloseCode.GOING_AWAY, b"the client has gone")


def _sendable(code: int) -> int:
    """A close without a code is an ordinary one; 1005 and 1006 may not be sent."""
    return code if 1000 <= code < 5000 and code not in (1004, 1005, 1006, 1015) else WSCloseCode.OK
