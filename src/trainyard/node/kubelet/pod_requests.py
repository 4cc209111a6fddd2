"""The requests of the kubelet API to one pod: logs, exec and connections to its ports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from trainyard.node.kubelet import status
from trainyard.node.kubelet.api.container_logs import ContainerLog
from trainyard.node.kubelet.api.handlers import RequestError
from trainyard.node.kubelet.api.pod_logs import PodLogs
from trainyard.node.kubelet.container_runtime import ContainerRuntime
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord
from trainyard.node.kubelet.pod_state import Container, ContainerState
from trainyard.node.kubelet.pod_status_writer import PodStatusWriter
from trainyard.node.network.directory import hostname_of
from trainyard.node.network.proxy import Streams
from trainyard.objects import labels_of, name_of, namespace_of
from trainyard.objects.labels import OWNER

if TYPE_CHECKING:
    from trainyard.node.kubelet.api import exec


class PodRequests:
    """Answers requests for logs and exec of one pod."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        runtime: ContainerRuntime,
        logs: PodLogs,
        status_writer: PodStatusWriter,
    ) -> None:
        self._node_context, self._record, self._runtime, self._logs = node_context, record, runtime, logs
        self._status_writer = status_writer

    def log(self, name: str, previous: bool) -> ContainerLog:
        """The log of the container's current or last run, or (`previous`) of the run before that. Raises
        RequestError."""
        container = self._container(name)
        pod = name_of(self._record.pod)
        if container is None:
            raise RequestError(400, f"container {name} is not valid for pod {pod}")
        run = container.log_run - 1 if previous else container.log_run
        path = self._logs.path(name, run)
        if run < 1 or not path.exists():
            if previous:
                raise RequestError(400, f'previous terminated container "{name}" in pod "{pod}" not found')
            if run >= 1 and self._logs.removed:
                raise RequestError(404, f'the log of container "{name}" in pod "{pod}" was deleted')
            reason = status.waiting_reason(self._record.state, container)
            raise RequestError(400, f'container "{name}" in pod "{pod}" is waiting to start: {reason}')
        return ContainerLog(path, lambda: not self._is_running(name, run))

    def exec(self, name: str, request: exec.ExecRequest) -> exec.Start:
        """A function that starts another program (exec) in the container. Raises RequestError unless the container
        runs."""
        where = f"pod {namespace_of(self._record.pod)}/{name_of(self._record.pod)}"
        container = self._container(name)
        if container is None:
            raise RequestError(404, f'container not found ("{name}"): {where} has no such container')
        if container.state is not ContainerState.RUNNING:
            raise RequestError(
                500, f'cannot exec in the container "{name}" of {where}: it is not running ({container.state})'
            )
        process = self._runtime.exec_process(name, request.command, request.tty)

        async def start(streams: exec.Streams) -> None:
            if OWNER in labels_of(self._record.pod):
                await self._status_writer.record_exec()
            await self._node_context.sandbox.execute(process, streams, request.tty)

        return start

    def dialer(self, port: int) -> Callable[[], Awaitable[Streams]]:
        """A function that connects to a port of the pod. It raises OSError."""
        pod_name = f"{namespace_of(self._record.pod)}/{hostname_of(self._record.pod)}"
        return lambda: self._node_context.network.dial(pod_name, self._record.address, port)

    def _container(self, name: str) -> Container | None:
        return next((candidate for candidate in self._record.state.containers if candidate.name == name), None)

    def _is_running(self, name: str, run: int) -> bool:
        container = self._record.state.container(name)
        return container.run == run and container.state is ContainerState.RUNNING
