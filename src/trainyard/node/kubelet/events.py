"""The Events of a pod, with the kubelet's reasons and messages: which ones result from a lifecycle step, and how they
are written.

Rules:
- Only for pods that belong to no training job (label OWNER): the operator writes the Events of a job, and the number of
  requests per job is bounded.
- Best effort, in order, and an equal Event at most once in ten minutes: a container that always fails costs few
  requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from trainyard.node.kubelet import pod_state
from trainyard.node.kubelet.pod_state import ContainerState

REPEAT_SECONDS = 600.0
_MAX_QUEUED = 100


class PodEvent(NamedTuple):
    """An Event about a pod or one of its containers."""

    type: str
    reason: str
    message: str
    field: str = ""  # `spec.containers{main}`, "" for the pod as a whole


def of_step(
    before: pod_state.Pod, after: pod_state.Pod, event: pod_state.Event, images: Mapping[str, str]
) -> list[PodEvent]:
    """The Events of a step from `before` to `after`. `images`: container name -> image."""
    pod_events: list[PodEvent] = []
    for old in before.containers:
        new = after.container(old.name)
        field = f"spec.{'initContainers' if old.init else 'containers'}{{{old.name}}}"
        pod_events += [
            PodEvent(*parts, field) for parts in _container_events(after, old, new, event, images.get(old.name, ""))
        ]
        if before.kill_at is None and after.kill_at is not None and old.state is ContainerState.RUNNING:
            pod_events.append(PodEvent("Normal", "Killing", f"Stopping container {old.name}", field))
        if after.restarting_all and old.term_at is None and new.term_at is not None:
            pod_events.append(PodEvent("Normal", "Killing", "killing", field))
    return pod_events


def _container_events(
    pod: pod_state.Pod, old: pod_state.Container, new: pod_state.Container, event: pod_state.Event, image: str
) -> Iterable[tuple[str, str, str]]:
    is_of_container = getattr(event, "container", "") == old.name
    if is_of_container and isinstance(event, pod_state.Started):
        pulled = old.reason == "PullingImage"
        text = (
            f'Successfully pulled image "{image}"'
            if pulled
            else f'Container image "{image}" already present on machine'
        )
        yield "Normal", "Pulled", text
        yield "Normal", "Created", f"Created container: {old.name}"
        yield "Normal", "Started", f"Started container {old.name}"
    if is_of_container and isinstance(event, pod_state.Blocked):
        yield _blocked(event, image)
    if is_of_container and isinstance(event, pod_state.Ended) and old.state is ContainerState.STARTING:
        yield "Warning", "Failed", f"Error: {event.message}"
    if new.state is ContainerState.PAUSING and old.state is not ContainerState.PAUSING and new.next_start > event.now:
        text = f"Back-off restarting failed container {old.name} in pod {pod.name}({pod.uid})"
        yield "Warning", "BackOff", text


def _blocked(event: pod_state.Blocked, image: str) -> tuple[str, str, str]:
    if event.reason == "PullingImage":
        return "Normal", "Pulling", event.message
    if event.reason == "ContainerCreating":
        return "Warning", "FailedMount", event.message
    if "Image" in event.reason:
        return "Warning", "Failed", f'Failed to pull image "{image}": {event.message}'
    return "Warning", "Failed", f"Error: {event.message}"


class EventWriter:
    """Queues the Events of one pod (`enqueue`) and writes them (`run`)."""

    def __init__(self, write: Callable[[PodEvent], Awaitable[None]], now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        self._queue: deque[PodEvent] = deque(maxlen=_MAX_QUEUED)
        self._written: dict[PodEvent, float] = {}
        self._writing = False

    def enqueue(self, events: Iterable[PodEvent]) -> bool:
        """Queue events, except those written recently. Returns True when `run` must be called."""
        now = self._now()
        for event in events:
            if now - self._written.get(event, -REPEAT_SECONDS) >= REPEAT_SECONDS:
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
    """Records the Events of one pod with `writer`, while `is_enabled` returns True; `spawn` starts the task that writes
    them."""

    def __init__(
        self, writer: EventWriter, is_enabled: Callable[[], bool], spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._writer, self._is_enabled, self._spawn = writer, is_enabled, spawn

    def record(self, events: list[PodEvent]) -> None:
        """Queue the events and send them in a task; nothing while events are off or no more are accepted."""
        if self._is_enabled() and events and self._writer.enqueue(events):
            self._spawn(self._writer.run())

    def warn(self, reason: str, message: str) -> None:
        """Record one event of type Warning."""
        self.record([PodEvent("Warning", reason, message)])
