"""The kubelet API of the node: finds the pod of each request and passes the request on to its worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.node.kubelet.api.authentication import ClientAuthenticator
from trainyard.node.kubelet.api.container_logs import ContainerLog
from trainyard.node.kubelet.api.handlers import PodHandlers, RequestError
from trainyard.node.kubelet.api.listener import KubeletListener
from trainyard.node.kubelet.api.pod_sockets import PodSockets
from trainyard.node.kubelet.pod_worker import PodWorker

if TYPE_CHECKING:
    from trainyard.node.kubelet.api import exec


class KubeletApi:
    """`find` returns the worker of the pod with that namespace and name, and raises RequestError without one.
    `metrics`: the text of /metrics."""

    def __init__(
        self,
        find: Callable[[str, str], PodWorker],
        sockets: PodSockets,
        authenticator: ClientAuthenticator,
        metrics: Callable[[], str],
    ) -> None:
        self._find, self._sockets = find, sockets
        self._server = KubeletListener(PodHandlers(self._log, self._exec, self._socket, metrics), authenticator)

    @property
    def port(self) -> int:
        """The port on loopback, 0 before the start."""
        return self._server.port

    async def start(self) -> None:
        """Raises OSError."""
        await self._server.start()

    async def stop(self) -> None:
        """Close the HTTPS server and the sockets of the pods."""
        await self._server.stop()
        self._sockets.close()

    def logs(self, url: str, disconnected: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """See KubeletListener.logs."""
        return self._server.logs(url, disconnected)

    def _log(self, namespace: str, pod: str, container: str, previous: bool) -> ContainerLog:
        return self._find(namespace, pod).requests.log(container, previous)

    def _exec(self, namespace: str, pod: str, container: str, request: exec.ExecRequest) -> exec.Start:
        return self._find(namespace, pod).requests.exec(container, request)

    async def _socket(self, namespace: str, pod: str, port: int) -> Path:
        worker = self._find(namespace, pod)
        if worker.ended.is_set():
            raise RequestError(503, f"pod {namespace}/{pod} has ended")
        return await self._sockets.open(worker.record.uid, port, worker.requests.dialer(port))
