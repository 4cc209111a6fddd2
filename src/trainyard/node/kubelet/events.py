"""The Events of a pod, with the kubelet's reasons and messages: which ones result from a lifecycle step, and how they
are written.

Rules:
- Of pods that belong to a training job (label OWNER) only the Events of probes and hooks: the operator writes the
  Events of a job, but sees neither, and the number of requests per job is bounded.
- Best effort, in order, and an equal Event at most once in ten minutes: a container that always fails costs few
  requests.
- Of one pod 25 Events, and then one in five minutes, as by the filter of client-go: the output of a probe may differ
  each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from trainyard.node.kubelet import pod_state
from trainyard.node.kubelet.pod_state import ContainerState

REPEAT_SECONDS = 600.0
FAILED_MOUNT = "FailedMount"  # an event about the pod, which all its containers wait for
_MAX_QUEUED = 100
BURST, REFILL_SECONDS = 25, 300.0


class PodEvent(NamedTuple):
    """An Event about a pod or one of its containers."""

    type: str
    reason: str
    message: str
    field: str = ""  # `spec.containers{main}`, "" for the pod as a whole
    for_jobs: bool = False  # it is written for a pod of a training job, too


def of_step(
    before: pod_state.Pod, after: pod_state.Pod, event: pod_state.Event, images: Mapping[str, str]
) -> list[PodEvent]:
    """The Events of a step from `before` to `after`. `images`: container name -> image."""
    pod_events: list[PodEvent] = []
    for old in before.containers:
        new = after.container(old.name)
        field = field_path(old)
        for parts in _container_events(after, old, new, event, images.get(old.name, "")):
            pod_events.append(PodEvent(*parts, "" if parts[1] == FAILED_MOUNT else field))
        is_running = old.state is ContainerState.RUNNING and new.state is ContainerState.RUNNING
        if before.kill_at is None and after.kill_at is not None and is_running:
            for_jobs = new.failed_probe is not None
            pod_events.append(PodEvent("Normal", "Killing", f"Stopping container {old.name}", field, for_jobs))
        elif new.failed_probe and old.failed_probe is None:
            pod_events.append(PodEvent("Normal", "Killing", _failed_probe(after, new), field, True))
        if after.restarting_all and old.term_at is None and new.term_at is not None:
            pod_events.append(PodEvent("Normal", "Killing", "killing", field))
    if isinstance(event, pod_state.HookEnded) and event.failed:
        field = field_path(after.container(event.container))
        pod_events.append(PodEvent("Warning", f"Failed{event.kind}Hook", f"{event.kind}Hook failed", field, True))
        if event.kind is pod_state.HookKind.POST_START:
            pod_events.append(PodEvent("Normal", "Killing", "FailedPostStartHook", field, True))
    if before.failure is None and after.failure is not None and after.failure[0] == pod_state.DEADLINE_EXCEEDED:
        pod_events.append(PodEvent("Normal", *after.failure))
    return pod_events


def field_path(container: pod_state.Container) -> str:
    """The `fieldPath` of Events about a container."""
    return f"spec.{'initContainers' if container.init else 'containers'}{{{container.name}}}"


def _failed_probe(pod: pod_state.Pod, container: pod_state.Container) -> str:
    text = f"{container.name} failed {str(container.failed_probe).lower()} probe"
    if container.init:
        return f"Init container {text}"  # always restarted, which the kubelet does not say
    return f"Container {text}{'' if pod.restart_policy(container).policy == 'Never' else ', will be restarted'}"


def _container_events(
    pod: pod_state.Pod, old: pod_state.Container, new: pod_state.Container, event: pod_state.Event, image: str
) -> Iterable[tuple[str, str, str]]:
    is_of_container = getattr(event, "container", "") == old.name
    if is_of_container and isinstance(event, pod_state.Started):
        yield _pulled(old, image)
        yield "Normal", "Created", "Container created"
        yield "Normal", "Started", "Container started"
    if is_of_container and isinstance(event, pod_state.Blocked):
        if event.reason == pod_state.CONFIG_ERROR:
            yield _pulled(old, image)
        yield _blocked(event, image)
    if is_of_container and isinstance(event, pod_state.Ended) and old.state is ContainerState.STARTING:
        yield _pulled(old, image)
        yield "Normal", "Created", "Container created"
        yield "Warning", "Failed", f"Error: {event.message}"
    if new.state is ContainerState.PAUSING and old.state is not ContainerState.PAUSING and new.next_start > event.now:
        text = f"Back-off restarting failed container {old.name} in pod {pod.name}({pod.uid})"
        yield "Warning", "BackOff", text


def _pulled(container: pod_state.Container, image: str) -> tuple[str, str, str]:
    if container.reason == "PullingImage":
        return "Normal", "Pulled", f'Successfully pulled image "{image}"'
    text = f'Container image "{image}" already present on machine and can be accessed by the pod'
    return "Normal", "Pulled", text


def _blocked(event: pod_state.Blocked, image: str) -> tuple[str, str, str]:
    if event.reason == "PullingImage":
        return "Normal", "Pulling", event.message
    if event.reason == "ContainerCreating":
        return "Warning", FAILED_MOUNT, event.message
    if "Image" in event.reason:
        return "Warning", "Failed", f'Failed to pull image "{image}": {event.message}'
    return "Warning", "Failed", f"Error: {event.message}"


class EventWriter:
    """Queues the Events of one pod (`enqueue`) and writes them (`run`)."""

    def __init__(self, write: Callable[[PodEvent], Awaitable[None]], now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        self._queue: deque[PodEvent] = deque(maxlen=_MAX_QUEUED)
        self._written: dict[PodEvent, float] = {}
        self._allowed, self._refilled_at = float(BURST), now()
        self._writing = False

    def enqueue(self, events: Iterable[PodEvent]) -> bool:
        """Queue events, except those written recently. Returns True when `run` must be called."""
        now = self._now()
        self._allowed = min(BURST, self._allowed + max(0.0, now - self._refilled_at) / REFILL_SECONDS)
        self._refilled_at = now
        self._written = {event: time for event, time in self._written.items() if now - time < REPEAT_SECONDS}
        for event in events:
            if event not in self._written and self._allowed >= 1:
                self._allowed -= 1
                self._written[event] = now
                self._queue.append(event)
        return bool(self._queue) and not self._writing

    async def run(self) -> None:
        """Send the queued events one after another, and return when the queue is empty."""
        self._writing = True
        try:
            while self._queue:
                await self._write(self._queue.popleft())
        finally:
            self._writing = False


class PodEventRecorder:
    """Records the Events of one pod with `writer`, those for which `accepts` returns True; `spawn` starts the task that
    writes them."""

    def __init__(
        self,
        writer: EventWriter,
        accepts: Callable[[PodEvent], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._writer, self._accepts, self._spawn = writer, accepts, spawn

    def record(self, events: list[PodEvent]) -> None:
        """Queue the events and send them in a task."""
        accepted = list(filter(self._accepts, events))
        if accepted and self._writer.enqueue(accepted):
            self._spawn(self._writer.run())

    def warn(self, reason: str, message: str) -> None:
        """Record one event of type Warning."""
        self.record([PodEvent("Warning", reason, message)])
