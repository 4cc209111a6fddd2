"""The starts of one pod's containers: each is a task that ends with the event `Started`, `Ended` or `Dropped`.

Rules:
- A start that is cancelled before the process is spawned ends with `Dropped`; after that the start runs to its end, and
  the container gets the signal as soon as it has started.
- The exit of a run that ends before its `Started` event is fed right after that event."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

from trainyard.node.kubelet import termination_message
from trainyard.node.kubelet.api.pod_logs import PodLogs
from trainyard.node.kubelet.container_runtime import ContainerRuntime
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_state import Blocked, Dropped, Ended, Event, Started, Stop
from trainyard.node.kubelet.spec.interpolation import TooLong
from trainyard.node.kubelet.usage.metric_recorder import metric_recorder
from trainyard.node.kubelet.usage.progress_sampler import ProgressFiles
from trainyard.node.kubelet.volumes.volumes import FatalStartError
from trainyard.node.sandbox.supervisor_client import SandboxError, StartError
from trainyard.objects import Json, annotations_of, pod_containers
from trainyard.objects.no_progress import progress_deadline
from trainyard.objects.usage import METRICS, REPORT_PROGRESS


class ContainerExit(NamedTuple):
    """The exit of one run of a container, as the supervisor reports it. `peak`: of its memory, bytes, 0 if unknown."""

    run: int
    code: int
    reason: str
    peak: int


class ContainerStarter:
    """`feed` applies an event to the pod's lifecycle."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        runtime: ContainerRuntime,
        logs: PodLogs,
        feed: Callable[[Event], None],
        spawn: Spawn,
    ) -> None:
        self._node_context, self._record, self._runtime, self._logs = node_context, record, runtime, logs
        self._feed, self._spawn = feed, spawn
        self._tasks: dict[str, asyncio.Task[None]] = {}  # container -> its last start
        self._spawning: set[str] = set()  # containers whose process is being spawned
        self._early_exits: dict[str, ContainerExit] = {}  # container -> exit of a run before its `Started` event

    def start(self, container: str, run: int) -> None:
        """Start run number `run` of the container in a task; its events are fed to the lifecycle."""
        self._tasks[container] = self._spawn(self._start(container, run))

    def cancel(self, container: str) -> None:
        """Cancel the start of the container, unless its process is being spawned."""
        if container not in self._spawning and self._tasks[container] is not asyncio.current_task():
            self._tasks[container].cancel()
            self._spawn(self._feed_dropped(container))

    def exited_early(self, container: str, ended: ContainerExit) -> None:
        """The run ended before its `Started` event, right after which `_try_start` feeds its end."""
        self._early_exits[container] = ended

    def feed_ended(self, name: str, ended: ContainerExit) -> None:
        """Feed the end of a run, with its termination message."""
        container, folder = self._container(name), self._record.folder
        file = termination_message.message_file(folder, name, ended.run)
        message = termination_message.read(container, file, self._logs.path(name, ended.run), ended.code)
        self._feed(Ended(self._node_context.now(), name, ended.code, ended.reason, message, ended.peak))

    async def _feed_dropped(self, container: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks[container]
        self._feed(Dropped(self._node_context.now(), container))

    async def _start(self, name: str, run: int) -> None:
        now = self._node_context.now
        try:
            await self._try_start(name, run)
        except StartError as failed:
            self._feed(Ended(now(), name, failed.code, failed.reason, failed.message))
        except FatalStartError as fatal:
            self._feed(Stop(now(), 0.0, deleting=False, failure=(fatal.reason, str(fatal))))
            self._feed(Ended(now(), name, 128, "StartError", str(fatal)))
        except (OSError, SandboxError, TooLong) as error:
            self._feed(Ended(now(), name, 128, "StartError", str(error)))
        finally:
            self._spawning.discard(name)

    async def _try_start(self, name: str, run: int) -> None:
        def blocked(reason: str, message: str) -> None:
            self._feed(Blocked(self._node_context.now(), name, reason, message))

        run_id, usage = self._record.run_id(name, run), self._node_context.usage
        async with self._runtime.process(self._container(name), run_id, blocked) as process:
            self._spawning.add(name)
            fd = self._logs.open(name, run, self._node_context.print_once)
            usage.progress.container_starts(run_id, self._progress_files(name, run))  # it may end before `Started`
            try:
                pid = await self._node_context.sandbox.spawn(process, fd)
            except BaseException:
                usage.progress.container_ended(run_id)
                raise
            finally:
                os.close(fd)
        self._feed(Started(self._node_context.now(), name))
        ended = self._early_exits.pop(name, None)
        if ended is not None and ended.run == run:  # not the end of an earlier run whose start failed
            self.feed_ended(name, ended)
        else:
            usage.container_started(run_id, pid)

    def _progress_files(self, name: str, run: int) -> ProgressFiles:
        annotations = annotations_of(self._record.pod)
        return ProgressFiles(
            self._record.folder / "tmp",
            self._logs.path(name, run),
            annotations.get(METRICS) != "off",
            metric_recorder(self._logs.kept_folder, self._record.pod),
            progress_deadline(annotations),
            annotations.get(REPORT_PROGRESS) == "true",
        )

    def _container(self, name: str) -> Json:
        return next(candidate for candidate, _ in pod_containers(self._record.pod) if candidate.get("name") == name)
