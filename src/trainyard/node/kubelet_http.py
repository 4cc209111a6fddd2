"""The kubelet's paths by HTTP: logs, exec, attach and sockets of pods (kubelet.py), for those whom the door lets in."""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from trainyard.node import exec
from trainyard.node.doors import Door
from trainyard.node.inlets import Open
from trainyard.node.kubelet import NO_INPUT, NOT_SERVED, Enter, Find, Log, Refused, Wanted, flag, read


class KubeletHttp:
    def __init__(self, find: Find, enter: Enter, open_: Open, door: Door) -> None:
        self._find, self._enter, self._open, self._door = find, enter, open_, door
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", self._exec)
        app.router.add_route("*", "/attach/{namespace}/{pod}/{container}", self._attach)
        app.router.add_get("/sockets/{namespace}/{pod}/{port}", self._socket)
        app.router.add_route("*", "/{other:.*}", self._nothing)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def serve(self, listener: socket.socket) -> KubeletHttp:
        """Serve those who connect to `listener`, from now on."""
        await self._runner.setup()
        await web.SockSite(self._runner, listener, ssl_context=self._door.secure).start()
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if why := self._door.refusal(request):
            raise web.HTTPUnauthorized(text=f"{why}\n")
        return await handler(request)

    async def _nothing(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text=f"{NOT_SERVED}\n")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
        try:
            wanted = Wanted.read(dict(request.query), time.time())
            log = self._find(namespace, pod, container, flag(dict(request.query), "previous"))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        # Nobody tells of a client who goes while a container is silent: for him nothing more will be written.
        told = Log(log.path, lambda: log.done() or request.transport is None)
        async for piece in read(told, wanted):
            await response.write(piece)
        await response.write_eof()
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        where = [request.match_info[part] for part in ("namespace", "pod", "container")]
        try:
            asked = exec.Asked.read(request.query, request.query.getall("command", []))
            start = self._enter(where[0], where[1], where[2], asked)
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        _must_be_a_socket(request, "exec")
        return await exec.serve(request, asked, start)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
        try:
            if flag(dict(request.query), "input"):
                raise Refused(400, NO_INPUT)
            log = self._find(namespace, pod, container, False)
            if log.done():
                raise Refused(400, f"container {container} of pod {pod} does not run; see kubectl logs {pod}")
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        _must_be_a_socket(request, "attach")
        return await exec.show(request, read(log, Wanted(follow=True, tail=0)))

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, port = (request.match_info[part] for part in ("namespace", "pod", "port"))
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise web.HTTPBadRequest(text=f"port must be a number from 1 to 65535, not {port!r}\n")
        try:
            return web.Response(text=str(await self._open(namespace, pod, int(port))))
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        except OSError as error:
            return web.Response(status=503, text=f"this node cannot make a socket in its folder: {error}\n")


def _must_be_a_socket(request: web.Request, what: str) -> None:
    if not exec.chosen_protocol(request.headers.get("Sec-WebSocket-Protocol", "")):
        known = " or ".join(exec.PROTOCOLS)
        text = f"{what} needs a WebSocket with the subprotocol {known}, which an API server passes on from 1.36"
        raise web.HTTPBadRequest(text=f"{text}\n")
