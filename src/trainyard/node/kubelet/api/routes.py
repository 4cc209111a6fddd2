"""The HTTP server of the kubelet API: logs, exec, attach and sockets of pods, and metrics (handlers.py), for
authenticated clients. Any local user may connect: connections without a request of such a client have a limit, at which
the oldest is closed, so that they use up no descriptors and keep no client out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from trainyard.node.kubelet.api import exec
from trainyard.node.kubelet.api.authentication import ClientAuthenticator
from trainyard.node.kubelet.api.container_logs import ContainerLog, LogOptions, flag, read_log
from trainyard.node.kubelet.api.handlers import PodHandlers, RequestError
from trainyard.node.kubelet.api.log_poll import LogPoll
from trainyard.views.device_metrics import CONTENT_TYPE

CLIENT_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
MAX_CONNECTIONS = 128  # at which the oldest that is not in use is closed
HANDSHAKE_SECONDS = 10.0
NO_INPUT = (
    "containers on this node have no standard input to attach to; leave out -i to see what the container prints, "
    "or start a program in it: kubectl exec -it POD -- COMMAND"
)
NOT_SERVED = (
    "this node serves logs, exec and attach of its pods, and the metrics of its GPUs, nothing else; "
    "the embedded cluster of `trainyard up` also reaches their ports, through `kubectl proxy`"
)


class _Connection(web.RequestHandler):
    """A connection to the node. What is no HTTP request is neither logged nor returned: any local user may send it, as
    often as he likes, and it may have part of a token."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer an error of the handler, or what is no request."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        if request.writer.output_size > 0:
            raise ConnectionResetError("part of the response has been sent")
        response = web.Response(status=status, text="this is no HTTP request that the node reads\n")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log an error that no client has caused."""
        if not isinstance(kwargs.get("exc_info"), CLIENT_ERRORS):
            super().log_exception(*args, **kwargs)


class KubeletHttp:
    """The node's HTTP server: logs, exec and proxied ports of its pods."""

    def __init__(self, handlers: PodHandlers, authenticator: ClientAuthenticator) -> None:
        self._handlers, self._authenticator = handlers, authenticator
        self._log_poll = LogPoll()
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", self._exec)
        app.router.add_route("*", "/attach/{namespace}/{pod}/{container}", self._attach)
        app.router.add_get("/sockets/{namespace}/{pod}/{port}", self._pod_socket)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/{other:.*}", self._not_found)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._server: asyncio.Server | None = None
        self._in_use: set[web.RequestHandler] = set()
        """The connections on which an authenticated client is answered."""

    async def serve(self, listener: socket.socket) -> KubeletHttp:
        """Start to serve connections to `listener`."""
        await self._runner.setup()
        context = self._authenticator.ssl_context
        self._server = await asyncio.get_running_loop().create_server(
            self._new_connection,
            sock=listener,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
        )
        return self

    def _new_connection(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the server has stopped")
        connections = server.connections  # the oldest first
        if len(connections) >= MAX_CONNECTIONS:
            unused = (connection.transport for connection in connections if connection not in self._in_use)
            if oldest := next((transport for transport in unused if transport and not transport.is_closing()), None):
                oldest.abort()
        loop = asyncio.get_running_loop()
        return _Connection(server, loop=loop, access_log=None)  # type: ignore[arg-type]  # None means none

    async def stop(self) -> None:
        """Close the listening socket and all connections."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    @web.middleware
    async def _authenticate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if refusal := self._authenticator.refusal(request):
            raise web.HTTPUnauthorized(text=f"{refusal}\n")
        self._in_use.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._in_use.discard(request.protocol)

    async def _not_found(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text=f"{NOT_SERVED}\n")

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._handlers.metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
        try:
            options = LogOptions.read(dict(request.query), time.time())
            log = self._handlers.find_log(namespace, pod, container, flag(dict(request.query), "previous"))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except RequestError as refused:
            return web.Response(status=refused.code, text=f"{refused}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        # A disconnect is not reported while the container writes nothing, so `is_complete` checks the transport, too.
        followed = ContainerLog(log.path, lambda: log.is_complete() or request.transport is None)
        with contextlib.suppress(ConnectionError):  # the client has left
            async for piece in read_log(followed, options, self._log_poll):
                await response.write(piece)
            await response.write_eof()
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        target = [request.match_info[part] for part in ("namespace", "pod", "container")]
        try:
            exec_request = exec.ExecRequest.read(request.query, request.query.getall("command", []))
            start = self._handlers.start_exec(target[0], target[1], target[2], exec_request)
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except RequestError as refused:
            return web.Response(status=refused.code, text=f"{refused}\n")
        _require_websocket(request, "exec")
        return await exec.serve(request, exec_request, start)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
        try:
            if flag(dict(request.query), "input"):
                raise RequestError(400, NO_INPUT)
            log = self._handlers.find_log(namespace, pod, container, False)
            if log.is_complete():
                raise RequestError(400, f"container {container} of pod {pod} is not running; see kubectl logs {pod}")
        except RequestError as refused:
            return web.Response(status=refused.code, text=f"{refused}\n")
        _require_websocket(request, "attach")
        return await exec.stream_output(request, read_log(log, LogOptions(follow=True, tail=0), self._log_poll))

    async def _pod_socket(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, port = (request.match_info[part] for part in ("namespace", "pod", "port"))
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise web.HTTPBadRequest(text=f"port must be a number from 1 to 65535, not {port!r}\n")
        try:
            return web.Response(text=str(await self._handlers.open_socket(namespace, pod, int(port))))
        except RequestError as refused:
            return web.Response(status=refused.code, text=f"{refused}\n")
        except OSError as error:
            return web.Response(status=503, text=f"this node cannot make a socket in its folder: {error}\n")


def _require_websocket(request: web.Request, subresource: str) -> None:
    if not exec.chosen_protocol(request.headers.get("Sec-WebSocket-Protocol", "")):
        protocols = " or ".join(exec.PROTOCOLS)
        text = (
            f"{subresource} needs a WebSocket with the subprotocol {protocols}, which an API server passes on from 1.36"
        )
        raise web.HTTPBadRequest(text=f"{text}\n")
