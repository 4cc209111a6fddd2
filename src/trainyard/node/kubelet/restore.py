"""Pods that an earlier process of this node started: their lifecycle state is restored from their status. Pure.

Rules:
- A container whose status is running is lost: its process ended together with the node process that started it. It
  counts as ended with exit code 137, and the pod's restartPolicy decides whether it runs again. So a container that may
  run only once is never run twice.
- The same holds for a run that has a log file on this machine but no entry in the status: the node was killed before it
  wrote the status of that run.
- A terminated container stays terminated, and a container in back-off stays in back-off.
- In a terminated pod no container is started; the pod is kept so that its logs can be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.node.kubelet.lifecycle import TERMINAL_STATES, Container, ContainerState, Pod, Run
from trainyard.objects import Json, parse_time
from trainyard.objects.structs import replace

LOST = ("ContainerStatusUnknown", "the process was lost when its node stopped or was killed")


def returned(state: Pod, status: Json, begun: Mapping[str, int] | None = None) -> tuple[Pod, tuple[str, ...]]:
    """The lifecycle state of a pod with that status, and the names of its lost containers, for which the caller feeds
    `Ended`. Without any started container the state is returned unchanged. `begun`: container name -> number of the
    newest run that has a log on this machine."""
    statuses = {
        str(entry.get("name")): entry
        for field_name in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(field_name) or []
        if isinstance(entry, dict) and entry.get("containerID")
    }
    begun = begun or {}
    if not statuses and not begun:
        return state, ()
    restored = (
        _restored_container(container, statuses[container.name]) if container.name in statuses else container
        for container in state.containers
    )
    containers = tuple(_with_unreported_run(container, begun.get(container.name, 0)) for container in restored)
    began = parse_time(status.get("startTime"))
    state = replace(state, containers=containers, started=state.started if began is None else began)
    return state, tuple(container.name for container in containers if container.state is ContainerState.RUNNING)


def ended(state: Pod, status: Json) -> Pod:
    """The lifecycle state of a pod whose phase is Succeeded or Failed: no container of it runs or will run."""
    state, _ = returned(state, status)
    return replace(
        state,
        containers=tuple(
            container if container.state in TERMINAL_STATES else replace(container, state=ContainerState.DROPPED)
            for container in state.containers
        ),
    )


def _restored_container(container: Container, status: Json) -> Container:
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    number = int(status.get("restartCount") or 0) + 1
    if running := state.get("running"):
        container = replace(
            container, state=ContainerState.RUNNING, run=number, started=parse_time(running.get("startedAt")) or 0.0
        )
        return replace(container, last=_run(number - 1, last) if last else None, failures=number - 1)
    if terminated := state.get("terminated"):
        before = _run(number - 1, last) if last else None
        return replace(
            container,
            state=ContainerState.ENDED,
            run=number,
            last=_run(number, terminated),
            previous=before,
            failures=number,
        )
    if last:
        return replace(container, state=ContainerState.ENDED, run=number, last=_run(number, last), failures=number)
    return container


def _with_unreported_run(container: Container, begun: int) -> Container:
    return (
        replace(container, state=ContainerState.RUNNING, run=begun, started=0.0, failures=begun - 1)
        if begun > container.run
        else container
    )


def _run(number: int, terminated: Json) -> Run:
    code, finished = int(terminated.get("exitCode") or 0), parse_time(terminated.get("finishedAt")) or 0.0
    started = parse_time(terminated.get("startedAt")) or 0.0
    return Run(
        number, code, str(terminated.get("reason") or ""), str(terminated.get("message") or ""), started, finished
    )
