"""What has to be read for the `Facts` about a job, worked out from its pods: which logs, nodes and ports, and what a
Service means for the kind's endpoint. The caller reads it: `app/evidence/facts.py` by requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainyard.core.diagnosis import Endpoint
from trainyard.objects import Json, find_condition, is_condition_true, name_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.labels import matches_labels
from trainyard.objects.structs import replace
from trainyard.views.diagnosis.containers import declared_ports
from trainyard.views.diagnosis.inputs import Logs, log_key
from trainyard.views.diagnosis.output import port_in_use, ports_in
from trainyard.views.usage_view import ReplicaUsage

MAX_LOGS = 8  # containers whose last lines are read
_NEVER = float("inf")
_UNKNOWN = (0.0, _NEVER, _NEVER)


class LogToRead(NamedTuple):
    """A container whose last lines are read. `previous`: those of its run before the present one. `whole`: the first
    lines, too."""

    pod: Json
    container: str
    previous: bool
    whole: bool = False


def suspicion(usage: ReplicaUsage) -> tuple[float, float, float]:
    """The order in which running replicas are looked at: those that are behind, then those whose last step was first,
    then those that compute least. A replica that has raised and waits for the others is among them."""
    step_time = _NEVER if usage.step_time is None else usage.step_time
    return -usage.lag, step_time, _NEVER if usage.cpu is None else usage.cpu


def logs_to_read(pods: Iterable[Json], may_doubt: bool = False, usages: Iterable[ReplicaUsage] = ()) -> list[LogToRead]:
    """At most MAX_LOGS containers: failed ones first, then running ones by their usage. `may_doubt`: the logs may put
    the success of the job in doubt, so that those of containers that ended with 0 are read first, and the beginnings of
    all."""
    failed, running = [], []
    if may_doubt:
        names = [
            (pod, container.name, container.ended_run)
            for pod in pods
            for container in container_statuses(pod.get("status"))
            if not container.init
        ]
        names.sort(key=lambda entry: entry[2] is None)
        return [LogToRead(pod, name, False, True) for pod, name, _ in names][:MAX_LOGS]
    for pod in pods:
        for container in container_statuses(pod.get("status")):
            waiting = container.state("waiting") or {}
            terminated = container.ended_run
            if terminated is not None and terminated.get("exitCode"):
                previous = bool(waiting) and waiting.get("reason") != "CrashLoopBackOff"
                failed.append(LogToRead(pod, container.name, previous))
            elif container.state("running") is not None and not container.init:
                running.append(LogToRead(pod, container.name, False))
    order = {usage.pod: suspicion(usage) for usage in usages}
    running.sort(key=lambda log: order.get(name_of(log.pod), _UNKNOWN))
    return [*failed, *running][:MAX_LOGS]


def has_unscheduled(pods: Iterable[Json]) -> bool:
    """Whether a pod has PodScheduled=False, so that the nodes are evidence."""
    conditions = [find_condition((pod.get("status") or {}).get("conditions"), "PodScheduled") for pod in pods]
    return any(scheduled is not None and scheduled.get("status") == "False" for scheduled in conditions)


def node_name_of(pod: Json) -> str:
    """The node of a pod; "" while it has none."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def ports_in_use(pods: Iterable[Json], logs: Logs) -> set[int]:
    """The ports of which the logs of these pods say that they are in use."""
    ports: set[int] = set()
    for pod in pods:
        for container in container_statuses(pod.get("status")):
            lines = logs.get(log_key(pod, container.name), ())
            if port_in_use(lines):
                ports.update((*ports_in(lines), *declared_ports(pod, container.name)))
    return ports


def resolve_endpoint(endpoint: Endpoint, service: Json | None, pods: Iterable[Json]) -> Endpoint:
    """The endpoint, with what its Service tells. `service`: None when there is none; `pods`: those of its namespace."""
    if service is None:
        is_address = endpoint.service.replace(".", "").isdecimal()  # an IP address need not be a Service's
        return endpoint if is_address else replace(endpoint, looked_up=True, exists=False)
    selector = (service.get("spec") or {}).get("selector") or {}
    ready_pods = sum(
        is_condition_true((pod.get("status") or {}).get("conditions"), "Ready")
        for pod in pods
        if matches_labels(selector, pod["metadata"].get("labels") or {})
    )
    endpoint = replace(endpoint, service=name_of(service), looked_up=bool(selector), exists=True)
    return replace(endpoint, ready_pods=ready_pods)
