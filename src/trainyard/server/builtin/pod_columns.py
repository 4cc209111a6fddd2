"""Printer columns of pods: ready containers, status, restarts and others.

The status is the pod's reason or phase, unless a container has a reason for waiting or termination. Until all init
containers have finished, the reason of the init container counts.
"""

from __future__ import annotations

from typing import Any

from trainyard.api_types.defaults import string_or_empty
from trainyard.api_types.pod_defaults import containers_of
from trainyard.objects import Json, is_condition_true, parse_time
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.server.model.resources import Column
from trainyard.server.registry.tables import AGE, NAME, short_duration

ENDED = ("Succeeded", "Failed")
_ENDS = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def _status(pod: Json) -> Json:
    status: Any = pod.get("status")
    return status if isinstance(status, dict) else {}


def _sidecars(pod: Json) -> set[str]:
    """The names of the sidecars: init containers with restartPolicy Always."""
    return {
        str(container.get("name"))
        for container in containers_of(pod.get("spec"), "initContainers")
        if container.get("restartPolicy") == "Always"
    }


def _state_reason(container: ContainerStatus) -> str:
    """The reason of a waiting or terminated container, "" for a running one."""
    if waiting := container.state("waiting"):
        return string_or_empty(waiting.get("reason"))
    if terminated := container.state("terminated"):
        if terminated.get("reason"):
            return string_or_empty(terminated["reason"])
        return (
            f"Signal:{terminated['signal']}"
            if terminated.get("signal")
            else f"ExitCode:{terminated.get('exitCode') or 0}"
        )
    return ""


def _init_reason(pod: Json) -> str:
    """The status text of the first unfinished init container, "" if all have finished or are started sidecars."""
    containers = [container for container in container_statuses(_status(pod)) if container.init]
    total, sidecars = len(containers_of(pod.get("spec"), "initContainers")), _sidecars(pod)
    for index, container in enumerate(containers):
        terminated = container.state("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container.name in sidecars and container.status.get("started") is True:
            continue
        reason = _state_reason(container)
        return f"Init:{reason}" if reason and reason != "PodInitializing" else f"Init:{index}/{total}"
    return ""


def _is_initialized(pod: Json) -> bool:
    return not _init_reason(pod) or is_condition_true(_status(pod).get("conditions"), "Initialized")


def ready(pod: Json, now: float) -> str:
    """The cell READY of a pod: ready containers and all containers; sidecars count, other init containers do not."""
    sidecars, initialized = _sidecars(pod), _is_initialized(pod)
    count = sum(
        container.name in sidecars if container.init else initialized and container.state("running") is not None
        for container in container_statuses(_status(pod))
        if container.status.get("ready") is True
    )
    return f"{count}/{len(containers_of(pod.get('spec'))) + len(sidecars)}"


def restarts(pod: Json, now: float) -> str:
    """The cell RESTARTS of a pod: `3 (5m ago)`; those of the init containers until they have ended."""
    containers, sidecars = container_statuses(_status(pod)), _sidecars(pod)
    if _is_initialized(pod):
        containers = [container for container in containers if not container.init or container.name in sidecars]
    else:
        containers = [container for container in containers if container.init]
    count = sum(container.restarts for container in containers)
    ends = [parse_time((container.previous_terminated or {}).get("finishedAt")) for container in containers]
    finish_times = [end for end in ends if end is not None]
    return f"{count} ({short_duration(now - max(finish_times))} ago)" if count and finish_times else str(count)


def status_text(pod: Json, now: float) -> str:
    """The cell STATUS of a pod: the reason of the container that kubectl would name, else the phase."""
    status = _status(pod)
    conditions = status.get("conditions")
    shown = string_or_empty(status.get("reason")) or string_or_empty(status.get("phase"))
    scheduled = [
        condition
        for condition in conditions or ()
        if isinstance(condition, dict) and condition.get("type") == "PodScheduled"
    ]
    if any(condition.get("reason") == "SchedulingGated" for condition in scheduled):
        shown = "SchedulingGated"
    shown = _init_reason(pod) or shown
    if _is_initialized(pod):
        running = False
        for container in reversed([container for container in container_statuses(status) if not container.init]):
            if reason := _state_reason(container):
                shown = reason
            elif container.status.get("ready") is True and container.state("running") is not None:
                running = True
        if shown == "Completed" and running:
            shown = "Running" if is_condition_true(conditions, "Ready") else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        return shown if status.get("phase") in ENDED else "Terminating"
    return shown


def _pod_ip(pod: Json, now: float) -> str:
    pod_ip: Any = (_status(pod).get("podIPs") or [{}])[0]
    return string_or_empty(pod_ip.get("ip")) or string_or_empty(_status(pod).get("podIP")) or "<none>"


def _readiness_gates(pod: Json, now: float) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    conditions = _status(pod).get("conditions")
    met = sum(is_condition_true(conditions, string_or_empty(gate.get("conditionType"))) for gate in gates)
    return f"{met}/{len(gates)}" if gates else "<none>"


def conditions(pod: Json) -> list[Json]:
    """The row conditions (TableRowCondition) of a pod: `Completed` if it has ended."""
    phase = string_or_empty(_status(pod).get("phase"))
    if phase not in _ENDS:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDS[phase]}]


COLUMNS = (
    NAME,
    Column("Ready", ready),
    Column("Status", status_text),
    Column("Restarts", restarts),
    AGE,
    Column("IP", _pod_ip, priority=1),
    Column("Node", lambda pod, now: string_or_empty((pod.get("spec") or {}).get("nodeName")) or "<none>", priority=1),
    Column(
        "Nominated Node",
        lambda pod, now: string_or_empty(_status(pod).get("nominatedNodeName")) or "<none>",
        priority=1,
    ),
    Column("Readiness Gates", _readiness_gates, priority=1),
)
