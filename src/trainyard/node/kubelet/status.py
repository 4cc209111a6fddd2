"""The status of a pod as the API shows it, computed from its lifecycle. Pure.

Rules:
- `status` always returns all fields that the node owns; the caller compares them with the status it last wrote.
- Phase and reasons are the kubelet's. Conditions that the node does not own (PodScheduled, DisruptionTarget) are kept
  as they are on the object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trainyard.node.kubelet.pod_state import CONFIG_ERROR, TERMINAL_STATES, Container, ContainerState, Pod, Run
from trainyard.objects import Json, find_condition, format_time, set_condition
from trainyard.objects.labels import CONTAINER_ID_SCHEME

SANDBOX_READY = "PodReadyToStartContainers"  # type of the condition of a pod whose folders and namespaces exist
_SANDBOX_NOT_READY = "PodSandboxNotReady"
ALL_RESTARTING = "AllContainersRestarting"  # type of the condition of a pod that RestartAllContainers restarts
MAX_MESSAGE_BYTES = 12 << 10  # of the termination messages that a pod's status shows; each container has its share
_END_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}  # phase -> reason of conditions


class StatusInputs(msgspec.Struct, frozen=True):
    """The parts of a pod's status that do not come from its lifecycle. `images`: container name -> image. `qos` never
    changes. `interpreters`: container name -> path of its Python, shown as `imageID`: it identifies what really ran.
    """

    host_ip: str
    pod_ip: str
    images: Mapping[str, str]
    qos: str = "BestEffort"
    interpreters: Mapping[str, str] = msgspec.field(default_factory=dict)


def phase(pod: Pod) -> str:
    """`status.phase`, as the kubelet computes it from the states of the containers."""
    if pod.failure and pod.has_ended:
        return "Failed"
    if not pod.has_ended:
        initializing = any(_is_initializing(pod, container) for container in pod.init_containers)
        return "Pending" if initializing or any(map(_never_ran, pod.main_containers)) else "Running"
    # Without an init container's success the others were dropped. The exit code of a sidecar does not count.
    succeeded = all(
        _exit_code(container) == 0 and container.state is ContainerState.ENDED for container in pod.main_containers
    )
    return "Succeeded" if succeeded else "Failed"


def _exit_code(container: Container) -> int | None:
    return container.last.code if container.last else None


def _never_ran(container: Container) -> bool:
    """Whether the container has not finished any run and is not shown as running."""
    waits = container.state in (ContainerState.WAITING, ContainerState.STARTING) or container.awaits_post_start
    return waits and container.last is None


def _is_initializing(pod: Pod, container: Container) -> bool:
    """Whether the init container keeps its pod Pending: it runs, or has not run yet; of a sidecar: has not started, and
    no container that waits for it had either."""
    if _never_ran(container):
        return True
    if container.sidecar and (container.has_started or not all(map(_never_ran, pod.main_containers))):
        return False
    return container.is_shown_running


def is_ready(pod: Pod) -> bool:
    """Whether every sidecar and every container that is no init container is ready."""
    return not _unready(pod)


def _is_ready(container: Container) -> bool:
    """`ready` in its status. An init container that is no sidecar is ready once it has succeeded."""
    if container.init and not container.sidecar:
        return container.state is ContainerState.ENDED and _exit_code(container) == 0
    return container.is_ready


def _unready(pod: Pod) -> list[str]:
    return [
        container.name
        for container in pod.containers
        if (container.sidecar or not container.init) and not container.is_ready
    ]


def _incomplete(pod: Pod) -> list[str]:
    """The init containers that are not done: without success, or, of sidecars, never started."""
    if any(container.is_shown_running or container.state is ContainerState.ENDED for container in pod.main_containers):
        return []
    return [
        container.name
        for container in pod.init_containers
        if (_is_initializing(pod, container) if container.sidecar else _exit_code(container) != 0)
    ]


def status(pod: Pod, inputs: StatusInputs, conditions: Sequence[Json], now: float) -> Json:
    """The fields of `status` that the node writes. `conditions`: those on the object; `now`: Unix time in seconds."""
    pod_status: Json = {
        "phase": phase(pod),
        "hostIP": inputs.host_ip,
        "startTime": format_time(pod.started),
        "conditions": _conditions(pod, list(conditions), now),
        "containerStatuses": [
            _container_status(pod, container, inputs) for container in pod.containers if not container.init
        ],
        "qosClass": inputs.qos,
    }
    inits = [_container_status(pod, container, inputs) for container in pod.containers if container.init]
    if inits:
        pod_status["initContainerStatuses"] = inits
    if inputs.pod_ip:
        pod_status["podIP"] = inputs.pod_ip
        pod_status["podIPs"] = [{"ip": inputs.pod_ip}]
        pod_status["hostIPs"] = [{"ip": inputs.host_ip}]
    if pod.failure and pod.has_ended:
        pod_status["reason"], pod_status["message"] = pod.failure
    return pod_status


def peaks(pod: Pod) -> dict[str, int]:
    """`CONTAINER/RUN` -> the largest memory in bytes of the runs that the status shows as terminated."""
    runs = [(container.name, run) for container in pod.containers for run in (container.previous, container.last)]
    return {f"{name}/{run.number}": run.peak for name, run in runs if run is not None}


def _conditions(pod: Pod, known: list[Json], now: float) -> list[Json]:
    incomplete, unready = _incomplete(pod), _unready(pod)
    completed = phase(pod) == "Succeeded"
    text = f"containers with incomplete status: [{' '.join(incomplete)}]"
    reason_and_message = ("ContainersNotInitialized", text) if incomplete else ("PodCompleted" if completed else "", "")
    conditions = set_condition(known, "Initialized", not incomplete, *reason_and_message, now)
    reason_and_message = (
        ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]") if unready else ("", "")
    )
    if phase(pod) in _END_REASONS:
        reason_and_message = (_END_REASONS[phase(pod)], "")
    for kind in ("Ready", "ContainersReady"):
        conditions = set_condition(conditions, kind, not unready, *reason_and_message, now)
    if pod.restarting_all:
        text = "container exited with restart policy rule"
        conditions = set_condition(conditions, ALL_RESTARTING, True, "RestartAllContainersStarted", text, now)
    elif find_condition(conditions, ALL_RESTARTING):
        conditions = set_condition(conditions, ALL_RESTARTING, False, _END_REASONS.get(phase(pod), ""), "", now)
    if not any(condition.get("type") == "PodScheduled" for condition in conditions):
        conditions = set_condition(conditions, "PodScheduled", True, "", "", now)
    had_sandbox = any(container.shown_run or container.reason == CONFIG_ERROR for container in pod.containers)
    if had_sandbox and not pod.has_ended:
        return set_condition(conditions, SANDBOX_READY, True, "", "", now)
    text = "pod sandbox is not ready" if had_sandbox else "No sandbox for pod can be found. Need to start a new one"
    return set_condition(conditions, SANDBOX_READY, False, _SANDBOX_NOT_READY, text, now)


def _container_status(pod: Pod, container: Container, inputs: StatusInputs) -> Json:
    image = inputs.images.get(container.name, "")
    container_status: Json = {
        "name": container.name,
        "image": image,
        "imageID": inputs.interpreters.get(container.name) or image,
        "ready": _is_ready(container),
        "started": container.has_started,
        "restartCount": container.restarts,
        "state": _container_state(pod, container),
        "lastState": {},
    }
    if container.shown_run:
        container_status["containerID"] = container_id(pod, container.name, container.shown_run)
    earlier = container.previous if container.state in TERMINAL_STATES else container.last
    if earlier is not None:
        container_status["lastState"] = {"terminated": _terminated(pod, container, earlier)}
    return container_status


def _container_state(pod: Pod, container: Container) -> Json:
    if container.is_shown_running:
        return {"running": {"startedAt": format_time(container.started)}}
    if container.state in TERMINAL_STATES and container.last:
        return {"terminated": _terminated(pod, container, container.last)}
    reason, message = waiting_reason(pod, container), container.message
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def waiting_reason(pod: Pod, container: Container) -> str:
    """`state.waiting.reason`. In a pod with init containers a first start has one reason, whatever it waits for."""
    if container.reason not in ("", "ContainerCreating") or container.message:
        return container.reason
    return "PodInitializing" if pod.init_containers else "ContainerCreating"


def _terminated(pod: Pod, container: Container, run: Run) -> Json:
    terminated: Json = {
        "exitCode": run.code,
        "reason": run.reason,
        "startedAt": format_time(run.started) if run.started else None,
        "finishedAt": format_time(run.finished_at),
        "containerID": container_id(pod, container.name, run.number),
    }
    if run.message:
        share = MAX_MESSAGE_BYTES // len(pod.containers)
        terminated["message"] = run.message.encode()[:share].decode(errors="replace")
    return terminated


def container_id(pod: Pod, container: str, run: int) -> str:
    """The containerID of one run in a status: unique within the cluster."""
    return f"{CONTAINER_ID_SCHEME}{pod.uid}/{container}/{run}"
