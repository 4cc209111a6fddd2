"""The worker of one pod on this node: turns the calls of the node into events of the pod's lifecycle
(lifecycle_runner.py) and contains the pod's errors.

Parts of a worker, which share the pod's record: the lifecycle runner, the starter of its containers, the writer of its
status, its cleanup, the recorder of its Events, and the requests of the kubelet API.

Rule: an exception in the work for a pod ends this pod (`fail`): no watch, timer or other pod is affected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec

from trainyard.node.kubelet import events
from trainyard.node.kubelet.api.pod_logs import PodLogs
from trainyard.node.kubelet.container_runtime import ContainerRuntime
from trainyard.node.kubelet.container_starter import ContainerExit, ContainerStarter
from trainyard.node.kubelet.hooks import HookRunner
from trainyard.node.kubelet.lifecycle_runner import LifecycleRunner
from trainyard.node.kubelet.lost_output import OUTPUT_LOST, LostOutputReport
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_cleanup import PodCleanup
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_requests import PodRequests
from trainyard.node.kubelet.pod_state import DEFAULT_GRACE, ContainerState, Ended, HookEnded, Pod, Probed, Stop, Tick
from trainyard.node.kubelet.pod_status_writer import SHUTDOWN_REASON, PodStatusWriter
from trainyard.node.kubelet.probes.handlers import Handlers
from trainyard.node.kubelet.probes.prober import PodProber
from trainyard.node.kubelet.restore import LOST, as_ended, ended_with_node, initial_state, returned
from trainyard.node.kubelet.usage.stop_report import StopReport
from trainyard.objects import Json, labels_of, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.usage import XID_ERROR, ContainerUsage, PodUsage

log = logging.getLogger(__name__)

# The kubelet's reason for a pod that ends because of an error in the node itself.
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
DEVICE_LOST = "DeviceLost"  # the reason of a pod that is evicted because a device of it is lost
_MAX_NAME_BYTES = 255  # NAME_MAX of the file system, in bytes
P = ParamSpec("P")


def _fail_pod_on_error(handle: Callable[Concatenate[PodWorker, P], None]) -> Callable[Concatenate[PodWorker, P], None]:
    """Decorator: an exception in `handle` ends its pod with `fail`."""

    def contained(worker: PodWorker, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            handle(worker, *args, **kwargs)
        except Exception as error:
            worker.fail(error)

    return contained


class PodTasks:
    """The tasks of one pod. `on_error` is called with the exception of a task."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self.running: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine as a task that ends with the pod; an exception ends the pod."""
        task = asyncio.create_task(coroutine)
        self.running.add(task)
        task.add_done_callback(self._task_done)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self.running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._on_error(error)


class PodWorker:
    """`ended` is set when the pod is over and its resources are released, `end_reported` when its end is written to the
    API server, or need not be. `on_gone` is called when nothing of the pod is left. More than 15 methods: one for each
    thing that happens to a pod on its node."""

    def __init__(self, node_context: NodeContext, pod: Json, on_gone: Callable[[PodWorker], None]) -> None:
        self._node_context = node_context
        folder = node_context.state / "pods" / folder_name(namespace_of(pod), name_of(pod), uid_of(pod))
        log_folder = folder / "logs"
        self._logs = logs = PodLogs(log_folder, None if log_folder.is_dir() else node_context.log_folder(pod))
        state, self._lost_containers = returned(initial_state(pod), pod.get("status") or {}, logs.newest_runs())
        self.record = record = PodRecord(pod, state, folder)
        self._tasks = PodTasks(self.fail)
        self._failures = 0  # exceptions in the work for this pod
        spawn = self._tasks.spawn
        self._recorder = recorder = _event_recorder(node_context, record, spawn)
        self._runtime = runtime = ContainerRuntime(node_context, record, recorder.warn)
        self.status_writer = PodStatusWriter(node_context, record, runtime.interpreters, spawn)
        self._lost_output, self._stop_report = LostOutputReport(logs), StopReport()
        self._cleanup = cleanup = PodCleanup(
            node_context,
            record,
            runtime,
            self._lost_output,
            self._stop_report,
            self.status_writer,
            spawn,
            lambda: on_gone(self),
        )
        self.ended, self.end_reported = cleanup.ended, cleanup.end_reported
        starter = ContainerStarter(
            node_context, record, runtime, logs, lambda event: self._lifecycle.feed(event), spawn
        )
        self._lifecycle = LifecycleRunner(
            node_context, record, starter, self.status_writer, cleanup, recorder, spawn, self.tick
        )
        handlers = Handlers(node_context, record, runtime)
        if any(container.probes for container in state.containers):
            self._lifecycle.prober = PodProber(node_context, record, handlers, recorder, self._feed, spawn)
        if any(container.hooks for container in state.containers):
            self._lifecycle.hook_runner = HookRunner(node_context, record, handlers, self._feed, spawn)
        self.requests = PodRequests(node_context, record, runtime, logs, self.status_writer)

    @property
    def state(self) -> Pod:
        """The lifecycle state of the pod and its containers."""
        return self.record.state

    def restore_ended(self) -> bool:
        """Instead of `start`, for a pod that ended under an earlier process of this node: only its logs are served.
        Returns whether there are any."""
        pod = self.record.pod
        self.record.state = as_ended(initial_state(pod), pod.get("status") or {})
        self.ended.set()
        self.end_reported.set()
        return self._logs.exists

    @_fail_pod_on_error
    def start(self) -> None:
        """Allocate the pod's address and start the containers, or continue where an earlier node process stopped."""
        record, now = self.record, self._node_context.now
        record.address = self._node_context.network.allocate_ip(record.pod)
        self._lifecycle.update_peer()
        deleting = bool(record.pod["metadata"].get("deletionTimestamp"))
        if deleting:
            self.object_changed(record.pod)  # before any container is started
        for name in reversed(self._lost_containers):  # sidecars last: they end with the others
            self._lifecycle.feed(Ended(now(), name, 137, *LOST))
        if ended_with_node(record.state):
            self.status_writer.set_disrupted(LOST[1])
        if not self._lost_containers and not deleting:
            self._lifecycle.feed(Tick(now()))
            if record.state.has_ended:  # it ended under an earlier process, which was killed before its write
                self._lifecycle.finish(deletes_object=False)

    @_fail_pod_on_error
    def object_changed(self, pod: Json) -> None:
        """The object has changed. Of a scheduled pod, only changes of its labels and its deletion have an effect."""
        self.record.keep_newer(pod)
        self._lifecycle.update_peer()
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            grace = meta.get("deletionGracePeriodSeconds")
            self._lifecycle.delete(float(grace) if grace is not None else DEFAULT_GRACE)

    @_fail_pod_on_error
    def object_deleted(self) -> None:
        """The object is deleted, so the pod is killed at once."""
        self.record.object_deleted = True
        self._lifecycle.delete(0.0)

    @_fail_pod_on_error
    def tick(self) -> None:
        """Feed a `Tick`: the clock may have been set."""
        if not self.ended.is_set():
            self._lifecycle.feed(Tick(self._node_context.now()))

    @_fail_pod_on_error
    def _feed(self, result: Probed | HookEnded) -> None:
        self._lifecycle.feed(result)

    @_fail_pod_on_error
    def stop(self, kill: bool) -> None:
        """The pod ends within its grace period or (`kill`) at once."""
        self._lifecycle.feed(Stop(self._node_context.now(), _grace(self.state, kill), deleting=False))

    def leave_for_restart(self, kill: bool) -> None:
        """Stop the pod, without further status writes: the next process of the node continues it."""
        self.status_writer.suspend()
        self.stop(kill)

    @_fail_pod_on_error
    def evict(self, kill: bool, failure: tuple[str, str] = SHUTDOWN_REASON) -> None:
        """The node stops, or cannot run the pod any more: the pod ends as Failed with the condition DisruptionTarget,
        so that its controller does not count it as a failure of its own. `failure`: reason and message."""
        if not self.state.has_ended:
            self.status_writer.set_disrupted(failure[1])
            grace = _grace(self.state, kill)
            self._lifecycle.feed(Stop(self._node_context.now(), grace, deleting=False, failure=failure))

    def evict_without_devices(self, source: str = "") -> None:
        """Evict the pod if a device of it is lost, so that it does not start again on it: its controller makes another
        pod, which gets others. `source`: only if this one says so."""
        message = self._node_context.devices.lost_of_pod(self.record.uid, source)
        if message and self.state.kill_at is None:
            self.evict(False, (DEVICE_LOST, message))

    def report_xid(self, text: str) -> None:
        """The driver has reported an error of a device of the pod."""
        self._recorder.record([events.PodEvent("Warning", XID_ERROR, text, for_jobs=True)])

    async def cancel_tasks(self) -> None:
        """The node ends: cancel all tasks of the pod that are left, such as status writes and retries."""
        self._lifecycle.cancel_timer()
        await self._tasks.cancel()

    @_fail_pod_on_error
    def output_lost(self, container: str, run: int, report: dict[str, Any]) -> None:
        """The first output of a container's run could not be written to its log."""
        self._cleanup.report_loss(OUTPUT_LOST, self._lost_output.first_message(container, run, report))

    @_fail_pod_on_error
    def container_exited(self, container: str, run: int, code: int, reason: str, report: dict[str, Any]) -> None:
        """A container's run has ended. `report`: of its init, see SandboxCallbacks."""
        self._runtime.unsaved.add(container, report)
        self._lost_output.add(container, run, report.get("lost_output") or ())
        run_id, max_rss = self.record.run_id(container, run), int(report.get("max_rss") or 0)
        writes = self._node_context.usage.stops.end(run_id)
        if writes and self.state.kill_at is not None and OWNER in labels_of(self.record.pod):
            self._stop_report.add(container, writes)
        peak = self._node_context.usage.container_ended(run_id, max_rss)
        if code:
            self.evict_without_devices()
        self._lifecycle.container_exited(container, ContainerExit(run, code, reason, peak))

    @_fail_pod_on_error
    def supervisor_lost(self) -> None:
        """The supervisor died, and with it all containers."""
        self._runtime.supervisor_lost()
        self._lifecycle.supervisor_lost()

    def usage(self) -> PodUsage | None:
        """The usage of the pod; None when none of its containers runs, or one that runs has not been measured."""
        record, usage = self.record, self._node_context.usage
        containers, samples = [], []
        for container in record.state.containers:
            if container.state is ContainerState.RUNNING:
                sample = usage.of_container(record.run_id(container.name, container.run))
                if sample is None:
                    return None
                samples.append(sample)
                containers.append(
                    ContainerUsage(
                        container.name,
                        container.run,
                        sample.cores,
                        sample.memory,
                        sample.peak,
                        sample.is_proportional,
                        sample.stopped_pid,
                        sample.wait,
                        sample.device_memory,
                        sample.device_peak,
                    )
                )
        if not samples:
            return None
        time, window = min(sample.time for sample in samples), max(sample.window for sample in samples)
        progress = usage.progress.of_pod(record.uid)
        key = namespace_of(record.pod), name_of(record.pod), record.uid
        return PodUsage(*key, time, window, tuple(containers), progress)

    def fail(self, error: BaseException) -> None:
        """An exception in the work for this pod: its containers are killed and the pod ends as Failed with the
        exception as its message. When this fails too, the pod is ended without its lifecycle."""
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        failure = UNEXPECTED_ADMISSION_ERROR, text
        log.error("a pod ends because of an error in the node pod=%s", self.state.name, exc_info=error)
        self._failures += 1
        if self._failures == 1:
            self._node_context.say(f"node: pod {self.state.name} ends: {text}")
            try:
                if not self.state.has_ended:
                    self._lifecycle.feed(Stop(self._node_context.now(), 0.0, deleting=False, failure=failure))
                    return
            except Exception:
                log.exception("a pod's lifecycle failed pod=%s", self.state.name)
            self._failures += 1
        if self._failures == 2:
            self._tasks.spawn(self._lifecycle.end_without_lifecycle(failure))


def _event_recorder(node_context: NodeContext, record: PodRecord, spawn: Spawn) -> events.PodEventRecorder:
    cluster, now = node_context.cluster, node_context.now
    writer = events.EventWriter(lambda event: cluster.write_event(record.pod, event, now()), now)

    def accepts(event: events.PodEvent) -> bool:
        return (event.for_jobs or OWNER not in labels_of(record.pod)) and not node_context.closing

    return events.PodEventRecorder(writer, accepts, spawn)


def _grace(state: Pod, kill: bool) -> float:
    return 0.0 if kill else state.grace


def folder_name(namespace: str, name: str, uid: str) -> str:
    """The name of a pod's folder. The pod's name in it is cut so that the whole fits into NAME_MAX."""
    return f"{namespace}_{name[: _MAX_NAME_BYTES - len(namespace) - len(uid) - 2]}_{uid}"
