"""How the containers of a pod that is being stopped end: who gets SIGTERM when, and SIGKILL when. Pure; the rules are
in the head of lifecycle.py."""

from __future__ import annotations

from trainyard.node.kubelet.pod_state import (
    TERMINAL_STATES,
    Action,
    Cancel,
    Container,
    ContainerState,
    HookKind,
    Pod,
    Signal,
    Stop,
    transition,
    with_container,
)
from trainyard.objects.structs import replace

MINIMUM_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL: of a sidecar also after the pod's grace period, of a container that is restarted
with all others whatever the grace period, of one that is ended for its probe or its hook also with a shorter one,
of one with a preStop hook also when that has taken all of it."""


def begin_stop(pod: Pod, event: Stop, actions: list[Action]) -> Pod:
    """The first Stop cancels the starts in progress; a later one can only shorten the grace period."""
    kill_at = event.now + max(0.0, event.grace)
    if pod.kill_at is None:
        pod = cancel_starts(pod, actions)
    else:
        kill_at = min(kill_at, pod.kill_at)
    # A pod whose containers have ended, and whose sidecars still run, does not fail by being stopped.
    has_finished = all(container.state is ContainerState.ENDED for container in pod.main_containers)
    failure = pod.failure or (None if has_finished else event.failure)
    return replace(
        pod,
        kill_at=kill_at,
        forced=pod.forced or event.grace <= 0,
        deleting=pod.deleting or event.deleting,
        failure=failure,
        restarting_all=False,
        remove_at=None,
    )


def cancel_starts(pod: Pod, actions: list[Action]) -> Pod:
    """Cancel the starts in progress, each once."""
    for container in pod.containers:
        if container.state is ContainerState.STARTING and not container.cancelled:
            actions.append(Cancel(container.name))
            pod = with_container(pod, replace(container, cancelled=True))
    return pod


def step_stopping(pod: Pod, now: float, actions: list[Action]) -> Pod:
    """Signal the containers that run: first all but the sidecars, then the sidecars, the last first. After the grace
    period no sidecar waits for the others any more."""
    for container in pod.containers:
        if container.state in (ContainerState.WAITING, ContainerState.PAUSING):
            pod = with_container(pod, transition(container, "drop"))
    for container in pod.containers:
        pod = with_container(pod, _with_hook_started(pod, container, now))
    sidecars = [[container] for container in reversed(pod.containers) if container.sidecar]
    for group in ([container for container in pod.containers if not container.sidecar], *sidecars):
        alive = [container for container in group if container.state not in TERMINAL_STATES]
        for container in alive:
            pod = terminate(pod, container, now, actions)
        if alive and pod.kill_at is not None and now < pod.kill_at:
            break
    return pod


def terminate(pod: Pod, container: Container, now: float, actions: list[Action]) -> Pod:
    """Start the preStop hook of a running container, after it send SIGTERM, once, and when its time is over SIGKILL,
    once."""
    if not pod.restarting_all:
        container = _with_hook_started(pod, container, now)
        pod = with_container(pod, container)
        waits = container.hook is HookKind.PRE_STOP and container.term_at is None
        if waits and now < end_of_grace(pod, container, now):
            return pod
    kill = now >= kill_time(pod, container, now)
    if (
        container.state is not ContainerState.RUNNING
        or container.killed
        or (container.term_at is not None and not kill)
    ):
        return pod
    actions.append(Signal(container.name, kill))
    term_at = now if container.term_at is None else container.term_at
    return with_container(pod, replace(container, term_at=term_at, killed=kill))


def _with_hook_started(pod: Pod, container: Container, now: float) -> Container:
    """The container with its preStop hook started, if it is to run and has time."""
    is_due = (
        HookKind.PRE_STOP in container.hooks
        and container.state is ContainerState.RUNNING
        and container.pre_stop_at is None
        and container.term_at is None
        and now < end_of_grace(pod, container, now)
    )
    return replace(container, pre_stop_at=now) if is_due else container


def end_of_grace(pod: Pod, container: Container, now: float) -> float:
    """When the grace period of a container that is to end is over; `now`: when it begins, if it has not."""
    if pod.forced:
        return now
    if pod.kill_at is not None:
        return pod.kill_at
    begins = container.term_at if container.pre_stop_at is None else container.pre_stop_at
    return (now if begins is None else begins) + container.stop_grace


def kill_time(pod: Pod, container: Container, now: float) -> float:
    """When a container that is to end gets SIGKILL; `now`: when it gets SIGTERM, if it has not."""
    minimum = (now if container.term_at is None else container.term_at) + MINIMUM_GRACE
    end = end_of_grace(pod, container, now)
    if pod.kill_at is None:  # it is ended with all others, or for its probe or its hook
        return minimum if pod.restarting_all else max(minimum, end)
    has_minimum = container.sidecar or container.pre_stop_at is not None
    return max(end, minimum) if has_minimum and not pod.forced else end
