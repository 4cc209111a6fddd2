"""The container statuses of a pod: `status.initContainerStatuses` and `status.containerStatuses`, read tolerantly."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS
from trainyard.objects.meta import Json


class ContainerStatus(msgspec.Struct, frozen=True):
    """The ContainerStatus of one container. `status` is the entry as the API has it; `init`: an init container, also
    one that runs on as a sidecar."""

    name: str
    status: Json
    init: bool

    def state(self, name: Literal["waiting", "running", "terminated"]) -> Json | None:
        """The details of the container's state if it is that one, else None."""
        return _object_at(self.status.get("state"), name)

    @property
    def last_terminated(self) -> Json | None:
        """The terminated state of the last run: `state.terminated`, else `lastState.terminated`; None without one."""
        return self.state("terminated") or self.previous_terminated

    @property
    def previous_terminated(self) -> Json | None:
        """`lastState.terminated`: how the run before the present one ended; None without one."""
        return _object_at(self.status.get("lastState"), "terminated")

    @property
    def ended_run(self) -> Json | None:
        """The terminated state of a container that does not run now: of its last run, also in back-off; else None."""
        return self.state("terminated") or (self.previous_terminated if self.state("waiting") else None)

    @property
    def last_terminated_run(self) -> int:
        """The number of the run that `last_terminated` describes, from 1."""
        is_last = self.state("terminated") is not None or self.state("waiting") is not None
        return self.restarts + (1 if is_last and not self.removed else 0)

    @property
    def removed(self) -> bool:
        """Whether RestartAllContainers has removed its last run, and the next one has not started: the restart is
        counted already."""
        last = self.previous_terminated or {}
        return self.state("waiting") is not None and last.get("reason") == RESTARTING_ALL_CONTAINERS

    @property
    def restarts(self) -> int:
        """`restartCount`, 0 when unset."""
        return int(self.status.get("restartCount") or 0)


def container_statuses(status: object) -> list[ContainerStatus]:
    """The containers in the `status` of a pod, init containers first. Entries that are no objects are left out."""
    fields = status if isinstance(status, dict) else {}
    return [
        ContainerStatus(str(entry.get("name")), entry, init)
        for field, init in (("initContainerStatuses", True), ("containerStatuses", False))
        for entry in fields.get(field) or ()
        if isinstance(entry, dict)
    ]


def _object_at(value: object, name: str) -> Json | None:
    part = value.get(name) if isinstance(value, dict) else None
    return part if isinstance(part, dict) else None
