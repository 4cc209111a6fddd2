"""The worker of one pod on this node: performs the actions of the pod's lifecycle and feeds it the results as events.

Rules:
- Only `feed` changes the lifecycle state, and it never waits: a slow action is a task that feeds an event at its end.
- An exception in the work for a pod ends this pod (`fail`): no watch, timer or other pod is affected.
- Status writes are sequential, and a status equal to the last one is not written; changes during a write are in the
  next one.
- A pod that is over releases its address and processes at once; its logs stay until its object is deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from trainyard.client import ApiError, Conflict
from trainyard.controller_runtime import Backoff
from trainyard.node.kubelet import events, lifecycle, status, termination_message
from trainyard.node.kubelet.container_runtime import ContainerRuntime, NodeContext
from trainyard.node.kubelet.interpolation import TooLong
from trainyard.node.kubelet.lifecycle import (
    Blocked,
    Cancel,
    Dropped,
    Ended,
    Over,
    Signal,
    Start,
    Started,
    Stop,
    Tick,
    Wake,
)
from trainyard.node.kubelet.pod_logs import PodLogs
from trainyard.node.kubelet.pod_spec import containers
from trainyard.node.kubelet.removal import remove
from trainyard.node.kubelet.restore import LOST, ended, returned
from trainyard.node.kubelet.server import Log, RequestError
from trainyard.node.kubelet.supervisor_client import SandboxError, StartError
from trainyard.node.kubelet.unsaved_files import FILES_LOST, replica_name
from trainyard.node.kubelet.volumes import FatalStartError
from trainyard.node.network.directory import peer_of
from trainyard.objects import Json, labels_of, name_of, namespace_of, resource_version_of, set_condition, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.node.kubelet import exec

log = logging.getLogger(__name__)

_DEFAULT_GRACE_SECONDS = 30.0
_EVENT_TIMEOUT = 2.0
_STATUS_RETRY_SECONDS = 0.5, 8.0  # first and longest delay before a refused status is written again
SHUTDOWN_REASON = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
DISRUPTION_TARGET = "DisruptionTarget"
_NODE_CONDITIONS = frozenset(
    {"Initialized", "Ready", "ContainersReady", "PodScheduled"}
)  # types of the conditions that a node writes


UNEXPECTED_ADMISSION_ERROR = (
    "UnexpectedAdmissionError"  # the kubelet's reason for a pod that ends because of an error in the node itself
)
_MAX_NAME_BYTES = 255  # NAME_MAX of the file system, in bytes
P = ParamSpec("P")


def _fail_pod_on_error(handle: Callable[Concatenate[PodWorker, P], None]) -> Callable[Concatenate[PodWorker, P], None]:
    """Decorator: an exception in `handle` ends its pod with `fail`."""

    def contained(running: PodWorker, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            handle(running, *args, **kwargs)
        except Exception as error:
            running.fail(error)

    return contained


class PodWorker:
    def __init__(self, node_context: NodeContext, pod: Json, on_gone: Callable[[PodWorker], None]) -> None:
        self.node_context, self.pod, self._on_gone = node_context, pod, on_gone
        self.uid = uid_of(pod)
        self.folder = node_context.state / "pods" / folder_name(namespace_of(pod), name_of(pod), self.uid)
        pod_log_folder = self.folder / "logs"
        self.logs = PodLogs(pod_log_folder, None if pod_log_folder.is_dir() else node_context.log_folder(pod))
        self.state, self._lost_containers = returned(
            _initial_state(pod), pod.get("status") or {}, self.logs.newest_runs()
        )
        self.ended = asyncio.Event()
        self.end_reported = asyncio.Event()  # the pod's end is written to the API server, or need not be
        self.address = ""
        self._runtime = ContainerRuntime(node_context, pod, self.folder, "", self._record_warning)
        self._start_tasks: dict[str, asyncio.Task[None]] = {}
        self._spawning: set[str] = set()
        self._early_exits: dict[
            str, tuple[int, str]
        ] = {}  # container -> exit code and reason of a run that ended before its
        # `Started` event
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._written_status: Json = {}
        self._status_write: asyncio.Task[None] | None = None
        self._unsaved_report: asyncio.Task[None] | None = None  # reports the files that are removed with the pod
        self._unsaved_event: asyncio.Task[None] | None = None
        self._object_deleted = False
        self._disrupted = False
        self.keep_status = False  # no more status writes: the next process of the node continues the pod
        self._deleting = False
        self._failures = 0  # exceptions in the work for this pod
        self._events = events.EventWriter(
            lambda event: node_context.cluster.write_event(self.pod, event, node_context.now()), node_context.now
        )

    # Calls from the node.

    def restore_ended(self) -> bool:
        """Instead of `start`, for a pod that ended under an earlier process of this node: only its logs are served.
        Returns whether there are any."""
        self.state = ended(_initial_state(self.pod), self.pod.get("status") or {})
        self.ended.set()
        self.end_reported.set()
        return self.logs.exists

    @property
    def status_write(self) -> asyncio.Task[None] | None:
        """The status write in progress; None when there is none."""
        return self._status_write if self._status_write and not self._status_write.done() else None

    @_fail_pod_on_error
    def start(self) -> None:
        self.address = self.node_context.network.allocate_ip(self.pod)
        self._runtime = ContainerRuntime(self.node_context, self.pod, self.folder, self.address, self._record_warning)
        self._update_peer()
        deleting = bool(self.pod["metadata"].get("deletionTimestamp"))
        if deleting:
            self.object_changed(self.pod)  # before any container is started
        for name in self._lost_containers:
            self.feed(Ended(self.node_context.now(), name, 137, *LOST))
        if not self._lost_containers and not deleting:
            self.feed(Tick(self.node_context.now()))
            if self.state.over:  # it ended under an earlier process, which was killed before its write
                self._finish(deleting=False)

    @_fail_pod_on_error
    def object_changed(self, pod: Json) -> None:
        """The object has changed. Of a scheduled pod, only changes of its labels and its deletion have an effect."""
        self._keep_newer(pod)
        self._update_peer()
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            grace = meta.get("deletionGracePeriodSeconds")
            self._stop(float(grace) if grace is not None else _DEFAULT_GRACE_SECONDS)

    @_fail_pod_on_error
    def object_deleted(self) -> None:
        """The object is deleted, so the pod is killed at once."""
        self._object_deleted = True
        self._stop(0.0)

    @_fail_pod_on_error
    def tick(self) -> None:
        """Feed a `Tick`: the clock may have been set."""
        if not self.ended.is_set():
            self.feed(Tick(self.node_context.now()))

    @_fail_pod_on_error
    def stop(self, kill: bool) -> None:
        self.feed(Stop(self.node_context.now(), 0.0 if kill else self.state.grace, deleting=False))

    @_fail_pod_on_error
    def evict(self, kill: bool) -> None:
        """The node stops: the pod ends as Failed with the condition DisruptionTarget, so that its controller does not
        count it as a failure of its own."""
        if not self.state.over:
            self._disrupted = True
            self.feed(
                Stop(
                    self.node_context.now(), 0.0 if kill else self.state.grace, deleting=False, failure=SHUTDOWN_REASON
                )
            )

    async def cancel_tasks(self) -> None:
        """The node ends: cancel all tasks of the pod that are left, such as status writes and retries."""
        if self._timer:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @_fail_pod_on_error
    def container_exited(self, container: str, run: int, code: int, reason: str, unsaved: dict[str, Any]) -> None:
        self._runtime.unsaved.add(container, unsaved)
        container_state = self.state.container(container)
        if container_state.run != run:
            return
        if container_state.state is lifecycle.ContainerState.RUNNING:
            self._feed_ended(container, run, code, reason)
        else:
            self._early_exits[container] = code, reason  # `_try_start` feeds it right after `Started`

    def _feed_ended(self, name: str, run: int, code: int, reason: str) -> None:
        container = next(candidate for candidate, _ in containers(self.pod) if candidate.get("name") == name)
        message = termination_message.read(
            container, termination_message.message_file(self.folder, name, run), self.logs.path(name, run), code
        )
        self.feed(Ended(self.node_context.now(), name, code, reason, message))

    @_fail_pod_on_error
    def helper_lost(self) -> None:
        """The helper process died, and with it all containers."""
        self._runtime.helper_lost()
        for container in self.state.containers:
            if container.state is lifecycle.ContainerState.RUNNING:
                message = "the process that holds this node's pods was killed"
                self.feed(Ended(self.node_context.now(), container.name, 137, "Error", message))

    def _stop(self, grace: float) -> None:
        if not self.state.over:
            self.feed(Stop(self.node_context.now(), grace))
        elif not self._deleting:
            self._finish(deleting=True)

    def fail(self, error: BaseException) -> None:
        """An exception in the work for this pod: its containers are killed and the pod ends as Failed with the
        exception as its message. When this fails too, the pod is ended without its lifecycle."""
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        log.error("a pod ends because of an error in the node pod=%s", self.state.name, exc_info=error)
        self._failures += 1
        if self._failures == 1:
            self.node_context.say(f"node: pod {self.state.name} ends: {text}")
            try:
                if not self.state.over:
                    self.feed(
                        Stop(self.node_context.now(), 0.0, deleting=False, failure=(UNEXPECTED_ADMISSION_ERROR, text))
                    )
                    return
            except Exception:
                log.exception("a pod's lifecycle does not go on pod=%s", self.state.name)
            self._failures += 1
        if self._failures == 2:
            self._create_task(self._fail_without_lifecycle((UNEXPECTED_ADMISSION_ERROR, text)))

    async def _fail_without_lifecycle(self, failure: tuple[str, str]) -> None:
        """Kill the running containers, release the pod's resources, write the status Failed."""
        state = self.state
        self.state = replace(
            state,
            containers=tuple(
                container
                if container.state in lifecycle.TERMINAL_STATES
                else replace(container, state=lifecycle.ContainerState.DROPPED)
                for container in state.containers
            ),
            failure=state.failure or failure,
        )
        self.node_context.network.directory.peers.pop(self.uid, None)
        if self._timer:
            self._timer.cancel()
        for container in state.containers:
            if container.state is lifecycle.ContainerState.RUNNING:
                await self.node_context.sandbox.signal(self._run_id(container.name, container.run), True)
        with contextlib.suppress(OSError, SandboxError, StartError):
            await self._runtime.remove_pod()
        self._release_address()
        try:
            if self._status_write and not self._status_write.done():
                await asyncio.wait([self._status_write])
            if self._object_deleted:
                self._on_gone(self)
            elif self._deleting or self.state.deleting or self.pod["metadata"].get("deletionTimestamp"):
                await self.node_context.cluster.delete_pod(self.pod)
                self._on_gone(self)
            elif self._written_status.get("phase") not in ("Succeeded", "Failed") and not self.node_context.closing:
                await self.node_context.cluster.end_pod(self.pod, *failure)
        finally:
            self.end_reported.set()

    def _release_address(self) -> None:
        """Release the address, once; then the pod is over."""
        if self.address and not self.ended.is_set():
            self.node_context.network.release(self.pod, self.address)
        self.ended.set()

    # The lifecycle and its actions.

    def feed(self, event: lifecycle.Event) -> None:
        before = self.state
        self.state, actions = lifecycle.step(self.state, event)
        for action in actions:
            self._perform(action)
        self._record_events(events.of_step(before, self.state, event, self.status_inputs().images))
        self._update_peer()
        if not isinstance(event, Tick) or self.state.over:
            self._ensure_status_write()

    def _perform(self, action: lifecycle.Action) -> None:
        match action:
            case Start(container, run):
                task = self._create_task(self._start(container, run))
                self._start_tasks[container] = task
            case Cancel(container):
                if container not in self._spawning and self._start_tasks[container] is not asyncio.current_task():
                    self._start_tasks[container].cancel()
                    self._create_task(self._feed_dropped(container))
            case Signal(container, kill):
                run = self.state.container(container).run
                self._create_task(self.node_context.sandbox.signal(self._run_id(container, run), kill))
            case Wake(at):
                if self._timer:
                    self._timer.cancel()
                delay = max(0.0, at - self.node_context.now())
                self._timer = asyncio.get_running_loop().call_later(delay, self.tick)
            case Over():
                self._finish(self.state.deleting)

    def _record_warning(self, reason: str, message: str) -> None:
        self._record_events([events.PodEvent("Warning", reason, message)])

    def _record_events(self, pod_events: list[events.PodEvent]) -> None:
        is_recorded = OWNER not in labels_of(self.pod) and not self.node_context.closing
        if is_recorded and pod_events and self._events.enqueue(pod_events):
            self._create_task(self._events.run())

    def _create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    async def _feed_dropped(self, container: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._start_tasks[container]
        self.feed(Dropped(self.node_context.now(), container))

    def _update_peer(self) -> None:
        """Update the pod's entry in the directory: its name resolves from its address on until it is over. A pod that
        is being stopped is not ready, so Services do not forward to it."""
        peers = self.node_context.network.directory.peers
        if self.state.over:
            peers.pop(self.uid, None)
        else:
            ready = status.is_ready(self.state) and self.state.kill_at is None
            peers[self.uid] = peer_of(self.pod, self.address, ready)

    def _finish(self, deleting: bool) -> None:
        self._deleting = self._deleting or deleting
        if self._timer:
            self._timer.cancel()
        self._create_task(self._clean_up(deleting))

    async def _clean_up(self, deleting: bool) -> None:
        await self._runtime.remove_pod()
        if self._unsaved_report is None:
            self._unsaved_report = self._create_task(self._report_unsaved())
        await asyncio.wait([self._unsaved_report])
        self._release_address()
        if self.node_context.closing:
            return
        while self._status_write and not self._status_write.done():
            await asyncio.wait([self._status_write])
        if deleting:
            if self._unsaved_event:  # the event is written before the node deletes the object
                await asyncio.wait([self._unsaved_event], timeout=_EVENT_TIMEOUT)
            if not self._object_deleted:
                await self.node_context.cluster.delete_pod(self.pod)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove, self.folder)
            self._on_gone(self)
        self.end_reported.set()

    async def _report_unsaved(self) -> None:
        """Print, and write as an Event, which files of the pod's programs are removed with it."""
        if message := await asyncio.to_thread(self._runtime.unsaved.message, whole_pod=not self.keep_status):
            self.node_context.say(f"{replica_name(self.pod)}: {message}")
            if not self.node_context.closing:
                event = events.PodEvent("Normal", FILES_LOST, message)
                self._unsaved_event = self._create_task(
                    self.node_context.cluster.write_event(self.pod, event, self.node_context.now())
                )

    # Status.

    def status_inputs(self) -> status.StatusInputs:
        images = {
            str(container.get("name")): str(container.get("image") or "") for container, _ in containers(self.pod)
        }
        qos = str((self.pod.get("status") or {}).get("qosClass") or "BestEffort")
        return status.StatusInputs(
            self.node_context.network.host_ip, self.address, images, qos, self._runtime.interpreters
        )

    def _ensure_status_write(self) -> None:
        if (self._status_write is None or self._status_write.done()) and not (
            self._object_deleted or self.keep_status or self.node_context.closing
        ):
            self._status_write = self._create_task(self._write_until_current())

    async def _write_until_current(self) -> None:
        backoff, refusal = Backoff(*_STATUS_RETRY_SECONDS), ""
        while not self.node_context.closing:
            desired = status.status(self.state, self.status_inputs(), self._conditions(), self.node_context.now())
            if desired == self._written_status:
                return
            try:
                written = await self.node_context.cluster.write_status(self.pod, desired)
            except Conflict:  # another client changed the object: get it and write again
                written = await self.node_context.cluster.pod(self.pod)
            except ApiError as error:  # refused; a later status may be accepted, or the admission rule may change
                if str(error) != refusal:
                    refusal = str(error)
                    self.node_context.say(f"node: pod {self.state.name}: the API server refuses its status: {refusal}")
                if self._deleting:
                    return
                await asyncio.sleep(backoff.next_delay())
                continue
            else:
                self._written_status = desired
            if written is None:
                self._object_deleted = True
                return
            self._keep_newer(written)

    def _conditions(self) -> list[Json]:
        """The pod's conditions: those of the node as it last wrote them, those of others as last seen on the object."""
        seen_conditions = (self.pod.get("status") or {}).get("conditions") or []
        own_types = _NODE_CONDITIONS | {DISRUPTION_TARGET} if self._disrupted else _NODE_CONDITIONS
        own_conditions = [
            condition
            for condition in self._written_status.get("conditions") or seen_conditions
            if condition.get("type") in own_types
        ]
        conditions = [
            *own_conditions,
            *(condition for condition in seen_conditions if condition.get("type") not in own_types),
        ]
        if self._disrupted:
            conditions = set_condition(
                conditions, DISRUPTION_TARGET, True, "TerminationByKubelet", SHUTDOWN_REASON[1], self.node_context.now()
            )
        return conditions

    def _keep_newer(self, pod: Json) -> None:
        """Keep the newer version of the object: the response to a write may arrive before or after the watch event."""
        if int(resource_version_of(pod) or 0) >= int(resource_version_of(self.pod) or 0):
            self.pod = pod

    # Starting a container.

    async def _start(self, name: str, run: int) -> None:
        try:
            await self._try_start(name, run)
        except StartError as failed:
            self.feed(Ended(self.node_context.now(), name, failed.code, failed.reason, failed.message))
        except FatalStartError as hopeless:
            self.feed(Stop(self.node_context.now(), 0.0, deleting=False, failure=("StartError", str(hopeless))))
            self.feed(Ended(self.node_context.now(), name, 128, "StartError", str(hopeless)))
        except (OSError, SandboxError, TooLong) as error:
            self.feed(Ended(self.node_context.now(), name, 128, "StartError", str(error)))
        finally:
            self._spawning.discard(name)

    async def _try_start(self, name: str, run: int) -> None:
        def blocked(reason: str, message: str) -> None:
            self.feed(Blocked(self.node_context.now(), name, reason, message))

        container = next(candidate for candidate, _ in containers(self.pod) if candidate.get("name") == name)
        process = await self._runtime.process(container, self._run_id(name, run), blocked)
        self._spawning.add(name)
        fd = self.logs.open(name, run, self.node_context.print_once)
        try:
            await self.node_context.sandbox.spawn(process, fd)
        finally:
            os.close(fd)
        self.feed(Started(self.node_context.now(), name))
        if name in self._early_exits:
            self._feed_ended(name, run, *self._early_exits.pop(name))

    def _run_id(self, container: str, run: int) -> str:
        return f"{self.uid}/{container}/{run}"

    # Logs.

    def log(self, name: str, previous: bool) -> Log:
        container = next((candidate for candidate in self.state.containers if candidate.name == name), None)
        pod = name_of(self.pod)
        if container is None:
            raise RequestError(400, f"container {name} is not valid for pod {pod}")
        run = container.log_run - 1 if previous else container.log_run
        path = self.logs.path(name, run)
        if run < 1 or not path.exists():
            if previous:
                raise RequestError(400, f'previous terminated container "{name}" in pod "{pod}" not found')
            if run >= 1 and self.logs.removed:
                raise RequestError(404, f'the log of container "{name}" in pod "{pod}" is no longer kept')
            raise RequestError(
                400, f'container "{name}" in pod "{pod}" is waiting to start: {container.reason or "no log yet"}'
            )
        return Log(path, lambda: not self._is_running(name, run))

    # Further programs (exec).

    def exec(self, name: str, request: exec.ExecRequest) -> exec.Start:
        """A function that starts another program (exec) in the container. Raises RequestError unless the container
        runs."""
        where = f"pod {namespace_of(self.pod)}/{name_of(self.pod)}"
        container = next((candidate for candidate in self.state.containers if candidate.name == name), None)
        if container is None:
            raise RequestError(404, f'container not found ("{name}"): {where} has no such container')
        if container.state is not lifecycle.ContainerState.RUNNING:
            raise RequestError(
                500, f'cannot exec in the container "{name}" of {where}: it is not running ({container.state})'
            )
        process = self._runtime.exec_process(name, request.command, request.tty)
        return lambda streams: self.node_context.sandbox.execute(process, streams, request.tty)

    def _is_running(self, name: str, run: int) -> bool:
        container = self.state.container(name)
        return container.run == run and container.state is lifecycle.ContainerState.RUNNING


def _initial_state(pod: Json) -> lifecycle.Pod:
    spec = pod.get("spec") or {}
    grace = spec.get("terminationGracePeriodSeconds")
    deadline = spec.get("activeDeadlineSeconds")
    return lifecycle.Pod(
        name=f"{name_of(pod)}_{namespace_of(pod)}",
        uid=uid_of(pod),
        policy=str(spec.get("restartPolicy") or "Always"),
        containers=tuple(lifecycle.Container(str(container.get("name")), init) for container, init in containers(pod)),
        grace=float(grace) if grace is not None else _DEFAULT_GRACE_SECONDS,
        deadline=float(deadline) if deadline is not None else None,
    )


def folder_name(namespace: str, name: str, uid: str) -> str:
    """The name of a pod's folder. The pod's name in it is cut so that the whole fits into NAME_MAX."""
    return f"{namespace}_{name[: _MAX_NAME_BYTES - len(namespace) - len(uid) - 2]}_{uid}"
