"""Forwards WebSockets (exec, attach) between client and kubelet, message by message.

    client <--messages--> API server <--messages--> kubelet

Rules for this file:
- The kubelet is dialed first. Its error response becomes a Status for the client, which is not upgraded yet.
- The next message is read from one end only after the other end has accepted the last one (backpressure).
- Messages are not interpreted: channels, half-closes and exit codes pass through.
- When one end closes, the other is closed with the same code; when one end is lost, the other gets a close code that
  says so.
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

from trainyard.server.model import errors
from trainyard.server.model.errors import StatusError
from trainyard.server.model.requests import Tunnel

LARGEST_MESSAGE = 16 * 1024 * 1024
LARGEST_REFUSAL = 64 * 1024
CONNECT_SECONDS, CLOSE_SECONDS = 10.0, 2.0

Socket = ClientWebSocketResponse | web.WebSocketResponse


class Close(NamedTuple):
    """The close code and reason of one end."""

    code: int
    reason: bytes


class _Trace(TraceConfig):
    """Keeps the response body of a kubelet that does not upgrade: aiohttp discards it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_request_end.append(self._keep)

    async def _keep(self, session: ClientSession, context: SimpleNamespace, end: TraceRequestEndParams) -> None:
        if end.response.status != 101:
            body = await end.response.content.read(LARGEST_REFUSAL)
            _refused.set(body.decode("utf-8", "replace").strip())


_refused: ContextVar[str] = ContextVar("refused", default="")


class Tunnels:
    """The open tunnels and the connections to kubelets. `token` is the bearer token for kubelets."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: ClientSession | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    def cancel_all(self) -> None:
        """Cancel all open tunnels without waiting for them."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel all open tunnels and close the connections to the kubelets."""
        self.cancel_all()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def serve(self, request: web.BaseRequest, tunnel: Tunnel) -> web.StreamResponse:
        """Forward until one end closes. Raises StatusError as long as the client has not been upgraded."""
        kubelet = await self._dial(tunnel)
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        client = web.WebSocketResponse(
            protocols=(kubelet.protocol or tunnel.protocols[-1],),
            max_msg_size=LARGEST_MESSAGE,
            timeout=CLOSE_SECONDS,
            autoclose=False,
            compress=False,
        )
        try:
            await client.prepare(request)
            await forward(client, kubelet)
        finally:
            if task is not None:
                self._tasks.discard(task)
            with contextlib.suppress(ConnectionError, RuntimeError):
                await kubelet.close(code=WSCloseCode.GOING_AWAY)
        return client

    async def _dial(self, tunnel: Tunnel) -> ClientWebSocketResponse:
        """Open the WebSocket to the kubelet. Raises StatusError with the kubelet's error response."""
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
            raise errors.kubelet_error(error.status, _refused.get()) from None
        except (ClientError, TimeoutError, OSError) as error:
            text = f"error dialing backend: the kubelet of the pod's node does not answer: {type(error).__name__}"
            raise StatusError(500, "InternalError", text) from None


async def forward(client: web.WebSocketResponse, kubelet: ClientWebSocketResponse) -> None:
    """Forward in both directions until one end closes or is lost, then close both."""
    to_kubelet = asyncio.create_task(_pump(client, kubelet))
    to_client = asyncio.create_task(_pump(kubelet, client))
    try:
        await asyncio.wait((to_kubelet, to_client), return_when=asyncio.FIRST_COMPLETED)
        # An end that cannot be written to is lost, but its last message (the exit code) may still have to be read.
        if all(task.result() is None for task in (to_kubelet, to_client) if task.done()):
            await asyncio.wait((to_kubelet, to_client))
        from_client = to_kubelet.result() if to_kubelet.done() else None
        from_kubelet = to_client.result() if to_client.done() else None
    finally:
        for task in (to_kubelet, to_client):
            task.cancel()
        await asyncio.gather(to_kubelet, to_client, return_exceptions=True)
    first_close = from_kubelet or from_client
    if first_close is not None:
        closes = (socket.close(code=first_close.code, message=first_close.reason) for socket in (client, kubelet))
        await asyncio.gather(*closes, return_exceptions=True)


async def _pump(source: Socket, sink: Socket) -> Close | None:
    """Forward in one direction. Returns how the source closed; None when the sink is lost."""
    while True:
        message = await source.receive()
        try:
            if message.type is WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            elif message.type is WSMsgType.TEXT:
                await sink.send_str(message.data)
            elif message.type is WSMsgType.CLOSE:
                return Close(_sendable_code(message.data), (message.extra or "").encode()[:120])
            else:
                return _lost_connection_close(source)
        except ConnectionError:
            return None


def _lost_connection_close(source: Socket) -> Close:
    if isinstance(source, ClientWebSocketResponse):
        return Close(WSCloseCode.INTERNAL_ERROR, b"the connection to the pod's node was lost")
    return Close(WSCloseCode.GOING_AWAY, b"the client has gone")


def _sendable_code(code: int) -> int:
    """A close code that may be sent: reserved codes (1004, 1005, 1006, 1015) and invalid ones become 1000."""
    return code if 1000 <= code < 5000 and code not in (1004, 1005, 1006, 1015) else WSCloseCode.OK
