"""The lifecycle of a pod: the rules for its containers and for the whole pod. Their states, with the table of
transitions, are in pod_state.py, the end of a pod that is being stopped in stop_order.py.

Rules for this file:
- Pure: `step(pod, event) -> (pod, actions)`. Events carry the time; the caller performs the actions and feeds their
  results as new events; `Wake` requests a `Tick` at that time.
- A pair that is missing in TRANSITIONS cannot happen: the KeyError names the bug.

Rules of the kubelet that stand beside the table:
- Init containers run in their order, each after the success of the one before, or, of a native sidecar (restartPolicy
  Always), after its start. After all of them, all other containers are started together. When an init container fails
  and is not restarted, the pod ends.
- `objects/container_restarts.py` says which container is restarted. A container that cannot be started has failed.
- RestartAllContainers has its rules in restart_all.py.
- A native sidecar with a startup probe lets the next container start when that has succeeded.
- A container whose startup or liveness probe has failed gets SIGTERM, and SIGKILL after the grace period of the probe
  or else of the pod. Then it is restarted whatever its exit code is, unless its restartPolicy is Never. The pod is
  stopped, with its own grace period, if none of its containers but the sidecars would go on or be restarted. Probes
  that fail while the pod is being stopped change nothing.
- A postStart hook runs when its container has started. Until it has ended no status shows that the container runs, and
  none after it is started. A container whose hook fails is ended as for a probe, with the grace period of the pod; its
  exit code decides what follows.
- A preStop hook runs before SIGTERM, at the end of the grace period at the longest, and SIGKILL follows SIGTERM after
  two seconds at the earliest. Those of sidecars run while these wait for their turn. With a grace period of 0, and at
  RestartAllContainers, there is no hook.
- Sidecars run until the other containers have ended. Then, and whenever a pod is stopped, they get SIGTERM one after
  the other, the last first, each when those after it have ended.
- The first restart is immediate, the next ones are 10 s, 20 s ... 5 min after the end of the run. A run of ten minutes
  resets the back-off.
- The first `Stop` sends SIGTERM to the running containers and cancels the starts in progress; with a grace period of 0
  no SIGTERM is sent. A later `Stop` can only shorten the grace period. The object is deleted after the pod's end when
  one of them has `deleting`, and the first `failure` remains.
- While the pod is being stopped, no container is started or restarted: those that wait or are in back-off are dropped.
  At the end of the grace period the running containers are killed with SIGKILL, once; a sidecar has two seconds after
  its SIGTERM in any case. A container whose start could no longer be cancelled gets SIGTERM, or SIGKILL after the grace
  period, as soon as it runs.
- activeDeadlineSeconds counts from the first event of the pod. At the deadline a pod that is not being stopped is
  stopped with its own grace period and ends as Failed with the reason DeadlineExceeded.
- A pod is over when each of its containers has ended for good or was dropped: then `Over` is returned, once. Until then
  each step returns `Wake` for the next time at which something is due: a start after back-off, the end of the grace
  period, the deadline.
"""

from __future__ import annotations

from trainyard.node.kubelet.pod_state import (
    DEADLINE_EXCEEDED,
    TERMINAL_STATES,
    Action,
    Blocked,
    Container,
    ContainerState,
    Dropped,
    Ended,
    Event,
    HookEnded,
    HookKind,
    Over,
    Pod,
    Probed,
    ProbeKind,
    Run,
    Start,
    Started,
    Stop,
    Tick,
    Wake,
    transition,
    with_container,
)
from trainyard.node.kubelet.restart_all import is_triggered, step_restart_of_all
from trainyard.node.kubelet.stop_order import begin_stop, end_of_grace, kill_time, step_stopping, terminate
from trainyard.objects import exponential_delay
from trainyard.objects.structs import replace

INITIAL_BACK_OFF, MAX_BACK_OFF = 10.0, 300.0
BACK_OFF_RESET = 600.0  # seconds; a run this long resets the back-off


def back_off(failures: int) -> float:
    """The back-off in seconds before the next start, after so many ended runs in a row."""
    return 0.0 if failures <= 1 else exponential_delay(failures - 1, INITIAL_BACK_OFF, MAX_BACK_OFF)


def step(pod: Pod, event: Event) -> tuple[Pod, list[Action]]:
    """Apply one event: returns the new state of the pod and the actions to perform."""
    had_ended = pod.has_ended
    actions: list[Action] = []
    pod = _apply(pod, event, actions)
    if pod.started < 0:
        pod = replace(pod, started=event.now)
    if pod.kill_at is None and pod.deadline is not None and event.now >= pod.started + pod.deadline:
        text = "Pod was active on the node longer than the specified deadline"
        pod = begin_stop(pod, Stop(event.now, pod.grace, False, (DEADLINE_EXCEEDED, text)), actions)
    if pod.kill_at is None and (pod.restarting_all or is_triggered(pod)):
        pod = step_restart_of_all(pod, event.now, actions)
    if pod.kill_at is None and not pod.restarting_all:
        pod = _step_running(pod, event.now, actions)
    if pod.kill_at is not None:
        pod = step_stopping(pod, event.now, actions)
    if pod.has_ended and not had_ended:
        actions.append(Over())
    elif not pod.has_ended and (wake_at := _next_wake(pod, event.now)) is not None:
        actions.append(Wake(wake_at))
    return pod, actions


def _apply(pod: Pod, event: Event, actions: list[Action]) -> Pod:
    """The pod with the effect of the event on its container, or with the stop begun."""
    match event:
        case Blocked(_, name, reason, message):
            container = pod.container(name)
            pod = with_container(pod, replace(transition(container, "blocked"), reason=reason, message=message))
        case Started(now, name):
            container = transition(pod.container(name), "started")
            container = replace(
                container,
                started=now,
                reason="",
                message="",
                removed=False,
                awaits_startup=ProbeKind.STARTUP in container.probes,
                fails_readiness=ProbeKind.READINESS in container.probes,
                awaits_post_start=HookKind.POST_START in container.hooks,
            )
            pod = with_container(pod, container)
        case Probed():
            pod = with_container(pod, _with_probe_result(pod, pod.container(event.container), event))
        case HookEnded():
            pod = with_container(pod, _with_hook_ended(pod, pod.container(event.container), event))
        case Ended():
            pod = with_container(pod, _with_run_ended(pod.container(event.container), event))
        case Dropped(_, name):
            pod = with_container(pod, transition(pod.container(name), "drop"))
        case Stop():
            pod = begin_stop(pod, event, actions)
        case Tick():
            pass
    return pod


def _with_run_ended(container: Container, event: Ended) -> Container:
    started = container.started if container.state is ContainerState.RUNNING else 0.0
    reason = event.reason or ("Completed" if event.code == 0 else "Error")
    last = Run(container.run, event.code, reason, event.message, started, event.now, event.peak)
    forgiven = started and event.now - started >= BACK_OFF_RESET
    container = transition(container, "exited" if container.state is ContainerState.RUNNING else "failed")
    return replace(container, last=last, previous=container.last, failures=1 if forgiven else container.failures + 1)


def _with_probe_result(pod: Pod, container: Container, event: Probed) -> Container:
    if container.state is not ContainerState.RUNNING or container.run != event.run:
        return container
    if event.kind is ProbeKind.READINESS:
        return replace(container, fails_readiness=not event.passed)
    if event.passed:
        return replace(container, awaits_startup=container.awaits_startup and event.kind is not ProbeKind.STARTUP)
    if container.term_at is not None or pod.kill_at is not None:
        return container  # it is being ended already
    return replace(container, failed_probe=event.kind, stop_grace=pod.grace if event.grace is None else event.grace)


def _with_hook_ended(pod: Pod, container: Container, event: HookEnded) -> Container:
    if container.state is not ContainerState.RUNNING or container.run != event.run:
        return container
    if event.kind is HookKind.PRE_STOP:
        return replace(container, pre_stop_ended=True)
    if event.failed:
        return replace(container, failed_post_start=True, stop_grace=pod.grace)
    return replace(container, awaits_post_start=False)


def _step_running(pod: Pod, now: float, actions: list[Action]) -> Pod:
    """Start the containers that are due: the first init container that is not done, or, after all of them, the others.
    The pod begins to end when an init container has failed for good, or all others have ended."""
    for container in pod.init_containers:
        pod = _start_if_due(pod, container, now, actions)
        if not _lets_the_next_start(pod, pod.container(container.name)):
            break
    else:
        for container in pod.main_containers:
            pod = _start_if_due(pod, container, now, actions)
            if _delays_the_next_start(pod.container(container.name)):
                break
    if _has_run_its_course(pod) and not pod.has_ended:
        return begin_stop(pod, Stop(now, pod.grace, deleting=False), actions)
    for container in pod.containers:
        if container.is_ended_early:
            pod = terminate(pod, container, now, actions)
    return pod


def _has_run_its_course(pod: Pod) -> bool:
    """Whether all containers but the sidecars have ended for good or are to, or an init container failed for good."""
    return all(
        container.state in TERMINAL_STATES or _ends_for_its_probe(pod, container) for container in pod.main_containers
    ) or any(
        container.state is ContainerState.ENDED and not container.sidecar and not _succeeded(container)
        for container in pod.init_containers
    )


def _ends_for_its_probe(pod: Pod, container: Container) -> bool:
    """Whether the container is ended for a failed probe, and no exit code with which it may end restarts it."""
    policy = pod.restart_policy(container)
    return container.failed_probe is not None and policy.policy == "Never" and not policy.rules


def _delays_the_next_start(container: Container) -> bool:
    """Whether the containers after it are not started yet: its postStart hook is to run, or runs. One whose start waits
    for something, such as its image, delays none."""
    will_run = container.state is ContainerState.STARTING and HookKind.POST_START in container.hooks
    return (will_run and (container.removed or not container.message)) or container.hook is HookKind.POST_START


def _lets_the_next_start(pod: Pod, container: Container) -> bool:
    """Whether the containers after this init container may start: it has succeeded, or, of a sidecar, it has started,
    or had until they were started."""
    if not container.sidecar:
        return _succeeded(container)
    after = pod.containers[pod.containers.index(container) + 1 :]
    return container.has_started or any(other.state is not ContainerState.WAITING for other in after)


def _start_if_due(pod: Pod, container: Container, now: float, actions: list[Action]) -> Pod:
    if (
        container.state is ContainerState.ENDED
        and container.last is not None
        and pod.action(container, container.last.code)
    ):
        delay = back_off(container.failures)
        message = (
            f"back-off {_go_duration(delay)} restarting failed container={container.name} pod={pod.name}({pod.uid})"
        )
        container = replace(
            transition(container, "again"),
            next_start=container.last.finished_at + delay,
            reason="CrashLoopBackOff",
            message=message,
        )
    if container.state is ContainerState.WAITING or (
        container.state is ContainerState.PAUSING and now >= container.next_start
    ):
        container = replace(
            transition(container, "start"),
            run=container.run + 1,
            reason=container.reason if container.removed else "ContainerCreating",
            message=container.message if container.removed else "",
            term_at=None,
            killed=False,
            cancelled=False,
            failed_probe=None,
            awaits_post_start=False,
            failed_post_start=False,
            pre_stop_at=None,
            pre_stop_ended=False,
        )
        actions.append(Start(container.name, container.run))
    return with_container(pod, container)


def _succeeded(container: Container) -> bool:
    return container.state is ContainerState.ENDED and container.last is not None and container.last.code == 0


def _next_wake(pod: Pod, now: float) -> float | None:
    """When something is due: SIGTERM after a hook, SIGKILL, a start after back-off, a removal, the deadline."""
    times = [
        kill_time(pod, container, now)
        for container in pod.containers
        if container.state is ContainerState.RUNNING and container.term_at is not None and not container.killed
    ]
    times += [
        end
        for container in pod.containers
        if container.hook is HookKind.PRE_STOP and container.term_at is None
        if (end := end_of_grace(pod, container, now)) > now  # else it waits for its turn
    ]
    if pod.kill_at is not None:
        return min([*times, *([pod.kill_at] if pod.kill_at > now else [])], default=None)
    if pod.restarting_all:
        times += [] if pod.remove_at is None else [pod.remove_at]
    else:
        times += [container.next_start for container in pod.containers if container.state is ContainerState.PAUSING]
    times += [] if pod.deadline is None else [pod.started + pod.deadline]
    return min(times, default=None)


def _go_duration(seconds: float) -> str:
    """The duration as Go prints it: 10s, 1m20s, 5m0s."""
    total = int(seconds)
    return f"{total // 60}m{total % 60}s" if total >= 60 else f"{total}s"
