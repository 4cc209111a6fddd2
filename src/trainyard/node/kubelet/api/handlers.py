"""What the kubelet API calls for the pods of its node: functions that find a log, start a program and open a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from trainyard.node.kubelet.api.container_logs import ContainerLog
from trainyard.node.kubelet.api.pod_sockets import SocketOpener

if TYPE_CHECKING:
    from trainyard.node.kubelet.api import exec  # it imports aiohttp


class RequestError(Exception):
    """The pod, container or log does not exist, or is not available now. `code` is the HTTP status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


LogFinder = Callable[[str, str, str, bool], ContainerLog]  # namespace, pod, container, previous
ExecStarter = Callable[[str, str, str, "exec.ExecRequest"], "exec.Start"]  # namespace, pod, container
"""Returns a function that starts a program in that container. Both `LogFinder` and `ExecStarter` raise RequestError."""


class PodHandlers(NamedTuple):
    """Each function raises RequestError for a pod or container that does not exist."""

    find_log: LogFinder
    start_exec: ExecStarter
    open_socket: SocketOpener
    metrics: Callable[[], str]  # Prometheus metrics
