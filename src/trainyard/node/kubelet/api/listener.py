"""The node's kubelet API: logs, exec and attach over HTTP on loopback, for authenticated clients.

Rules:
- Attach follows the log from its current end: containers on this node have no standard input to attach to.
- `/sockets` is no path of the kubelet. It returns to the embedded API server, on the same machine, the path of the Unix
  socket that forwards to a port of a pod (pod_sockets.py)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from trainyard.node.kubelet.api.authentication import ClientAuthenticator
from trainyard.node.kubelet.api.container_logs import ContainerLog, LogOptions, flag, read_log
from trainyard.node.kubelet.api.handlers import PodHandlers, RequestError
from trainyard.node.kubelet.api.log_poll import LogPoll

if TYPE_CHECKING:
    from trainyard.node.kubelet.api.routes import KubeletHttp

_BACKLOG = 128


class KubeletListener:
    """Listens from `start` on. The HTTP server is imported at the first connection: most `trainyard run` processes end
    without one."""

    def __init__(self, handlers: PodHandlers, authenticator: ClientAuthenticator) -> None:
        self._handlers, self._authenticator = handlers, authenticator
        self._log_poll = LogPoll()
        self._listener: socket.socket | None = None
        self._http: asyncio.Task[KubeletHttp] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises OSError."""
        self._listener = listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        listener.setblocking(False)
        self.port = int(listener.getsockname()[1])
        asyncio.get_running_loop().add_reader(listener, self._accept_first)

    def _accept_first(self) -> None:
        from trainyard.node.kubelet.api.routes import KubeletHttp

        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            http = KubeletHttp(self._handlers, self._authenticator)
            self._http = asyncio.create_task(http.serve(listener))

    async def stop(self) -> None:
        """Stop listening, and close the HTTP server if a request has started it."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._http is not None:
            await (await self._http).stop()
            self._http = None

    def logs(self, url: str, disconnected: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """Status code and body of the response to a GET of that URL, for the API server in this process.

        disconnected: returns True when the client has disconnected; then the body ends.
        """
        parts = urlsplit(url)
        namespace, pod, container = (unquote(part) for part in parts.path.split("/")[2:5])
        query = dict(parse_qsl(parts.query))
        try:
            options = LogOptions.read(query, time.time())
            log = self._handlers.find_log(namespace, pod, container, flag(query, "previous"))
        except ValueError as error:
            return 400, _body(f"{error}\n")
        except RequestError as refused:
            return refused.code, _body(f"{refused}\n")
        return 200, read_log(
            ContainerLog(log.path, lambda: log.is_complete() or disconnected()), options, self._log_poll
        )


async def _body(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
