"""The events of a pod, as a kubelet words them: which ones a step of its lifecycle gives, and how they are written.

Rules:
- Only for pods that belong to no training job (label OWNER): the operator writes the events of a job, and the requests
  of its life are bounded.
- Best effort, in their order, the same words once in ten minutes: a container that fails for ever costs little."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from trainyard.node import lifecycle
from trainyard.node.lifecycle import At

SILENCE = 600.0
_LONGEST_LINE = 100


class PodEvent(NamedTuple):
    type: str
    reason: str
    message: str
    field: str = ""  # `spec.containers{main}`, "" for the pod as a whole


def of_step(
    before: lifecycle.Pod, after: lifecycle.Pod, event: lifecycle.Event, images: Mapping[str, str]
) -> list[PodEvent]:
    """What to say of a step from `before` to `after`; `images` has the image of each container."""
    found: list[PodEvent] = []
    for old in before.containers:
        new = after.named(old.name)
        field = f"spec.{'initContainers' if old.init else 'containers'}{{{old.name}}}"
        found += [PodEvent(*words, field) for words in _of_container(after, old, new, event, images.get(old.name, ""))]
        if before.kill_at is None and after.kill_at is not None and old.at is At.RUNNING:
            found.append(PodEvent("Normal", "Killing", f"Stopping container {old.name}", field))
    return found


def _of_container(
    pod: lifecycle.Pod, old: lifecycle.Container, new: lifecycle.Container, event: lifecycle.Event, image: str
) -> Iterable[tuple[str, str, str]]:
    mine = getattr(event, "container", "") == old.name
    if mine and isinstance(event, lifecycle.Started):
        pulled = old.reason == "PullingImage"
        text = (
            f'Successfully pulled image "{image}"'
            if pulled
            else f'Container image "{image}" already present on machine'
        )
        yield "Normal", "Pulled", text
        yield "Normal", "Created", f"Created container: {old.name}"
        yield "Normal", "Started", f"Started container {old.name}"
    if mine and isinstance(event, lifecycle.Blocked):
        yield _blocked(event, image)
    if mine and isinstance(event, lifecycle.Ended) and old.at is At.STARTING:
        yield "Warning", "Failed", f"Error: {event.message}"
    if new.at is At.PAUSING and old.at is not At.PAUSING and new.due > event.now:
        text = f"Back-off restarting failed container {old.name} in pod {pod.name}({pod.uid})"
        yield "Warning", "BackOff", text


def _blocked(event: lifecycle.Blocked, image: str) -> tuple[str, str, str]:
    if event.reason == "PullingImage":
        return "Normal", "Pulling", event.message
    if event.reason == "ContainerCreating":
        return "Warning", "FailedMount", event.message
    if "Image" in event.reason:
        return "Warning", "Failed", f'Failed to pull image "{image}": {event.message}'
    return "Warning", "Failed", f"Error: {event.message}"


class EventWriter:
    """`put` queues events of one pod, `run` writes what is queued."""

    def __init__(self, write: Callable[[PodEvent], Awaitable[None]], now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        self._line: deque[PodEvent] = deque(maxlen=_LONGEST_LINE)
        self._written: dict[PodEvent, float] = {}
        self._busy = False

    def put(self, events: Iterable[PodEvent]) -> bool:
        """True when `run` must be called."""
        now = self._now()
        for event in events:
            if now - self._written.get(event, -SILENCE) >= SILENCE:
                self._written[event] = now
                self._line.append(event)
        return bool(self._line) and not self._busy

    async def run(self) -> None:
        self._busy = True
        try:
            while self._line:
                await self._write(self._line.popleft())
        finally:
            self._busy = False
