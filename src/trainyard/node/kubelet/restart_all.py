"""RestartAllContainers (`restartPolicyRules`): all containers of a pod are restarted in place. Pure.

Rules of the kubelet (1.37):
- The containers that run are ended one after the other: those that are no init containers, the last first, then the
  init containers. Each gets SIGTERM and two seconds, whatever the pod's grace period is.
- Then every container is removed, also one that had ended with 0: its last run is shown with exit code 137 and the
  reason RestartingAllContainers, its restartCount is one higher, and it waits as in a new pod.
- There is no back-off, but one restart a second at most: nothing else bounds a command that cannot be started. The pod
  keeps its address, its volumes and its start time.
- The status with the true exit code of the trigger is to be seen before it is gone: the removal comes a little later.
"""

from __future__ import annotations

from trainyard.node.kubelet.pod_state import Action, Container, ContainerState, Pod, transition
from trainyard.node.kubelet.stop_order import cancel_starts, terminate
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS
from trainyard.objects.structs import replace

REMOVAL_DELAY = 0.1  # seconds after the end of the last container
INTERVAL = 1.0  # seconds between two removals
REMOVED_CODE = 137
_REMOVED_MESSAGE = "The container is removed because RestartAllContainers in place"


def is_triggered(pod: Pod) -> bool:
    """Whether a container has ended with a code whose rule restarts all containers."""
    return any(
        container.state is ContainerState.ENDED
        and container.last is not None
        and pod.action(container, container.last.code) == "RestartAllContainers"
        for container in pod.containers
    )


def step_restart_of_all(pod: Pod, now: float, actions: list[Action]) -> Pod:
    """End the containers that run, then remove all of them. `restarting_all` is False again after the removal."""
    pod = replace(cancel_starts(pod, actions), restarting_all=True)
    for container in (*reversed(pod.main_containers), *reversed(pod.init_containers)):
        if container.state in (ContainerState.STARTING, ContainerState.RUNNING):
            return terminate(pod, container, now, actions)
    remove_at = pod.remove_at
    if remove_at is None:
        remove_at = max(now + REMOVAL_DELAY, now if pod.removed_at is None else pod.removed_at + INTERVAL)
    if now < remove_at:
        return replace(pod, remove_at=remove_at)
    containers = tuple(map(_removed, pod.containers))
    return replace(pod, containers=containers, restarting_all=False, remove_at=None, removed_at=now)


def _removed(container: Container) -> Container:
    if container.state is ContainerState.WAITING:
        return container  # it has not run since the last removal
    last = container.last and replace(
        container.last, code=REMOVED_CODE, reason=RESTARTING_ALL_CONTAINERS, message=_REMOVED_MESSAGE
    )
    return replace(
        transition(container, "remove"),
        run=container.shown_run,  # a run whose start was cancelled has not been
        last=last,
        reason=RESTARTING_ALL_CONTAINERS if last else "",
        message=_REMOVED_MESSAGE if last else "",
        failures=0,
        removed=last is not None,
    )
