"""Reads the Facts for `why`: pods, children, events, nodes, the last log lines, the pods behind the kind's endpoint.

The number of logs, lines and requests is bounded, whatever the size of the job. Objects that the API server refuses to
return (403) are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainyard.cli.cluster_command import ClusterContext
from trainyard.cli.diagnosis import Endpoint, Facts
from trainyard.cli.diagnosis.containers import declared_ports
from trainyard.cli.diagnosis.inputs import log_key
from trainyard.cli.diagnosis.output import port_in_use, ports_in, printable_lines
from trainyard.cli.jobs import JobInfo, get_related_objects
from trainyard.cli.listeners import listeners
from trainyard.cli.modules import look_up_modules
from trainyard.cli.recorded_objects import TAIL_LINES, find_record, gone_pods, kept_logs
from trainyard.cli.replica_view import replica_view
from trainyard.cli.view import job_result
from trainyard.client import ApiClient, ApiError, NotFound
from trainyard.objects import Json, find_condition, name_of, namespace_of, uid_of
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.labels import matches_labels
from trainyard.objects.resources import NODE, POD, SERVICE
from trainyard.objects.structs import replace

MAX_LOGS = 8  # containers whose last lines are read
LOG_TIMEOUT = 10.0  # timeout of one log request
MAX_NODES = 4  # nodes that are read
Logs = Mapping[tuple[str, str], tuple[str, ...]]  # last lines by the pod's uid and the container
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


async def gather_facts(context: ClusterContext, info: JobInfo, deleted: Iterable[Json] = ()) -> Facts:
    """The current objects of the job and, for a failed job, the recorded pods and logs of replicas without a pod.

    deleted: pods from the caller's watch, which may be deleted by now."""
    related = await get_related_objects(context, info)
    logs, nodes, endpoint, process_nodes = await asyncio.gather(
        _read_logs(context.api, related.pods),
        _list_nodes_if_unscheduled(context.api, related.pods),
        _look_up_endpoint(context, info),
        _process_nodes(context.api, related.pods),
    )
    gone, gone_logs = _gone_pods(info, related.pods, deleted)
    logs = {**gone_logs, **logs}
    local_pods = [pod for pod in related.pods if process_nodes.get(_node_of(pod))]
    return Facts(
        kind=info.kind,
        job=info.job,
        now=time.time(),
        pods=tuple(related.pods),
        children=tuple(related.children),
        events=tuple(related.events),
        deleted_pods=gone,
        logs=logs,
        nodes=nodes,
        endpoint=endpoint,
        process_nodes=frozenset(process_nodes),
        listeners=_listeners(local_pods, logs),
        modules=await asyncio.to_thread(look_up_modules, [*local_pods, *gone], logs),
    )


def _gone_pods(info: JobInfo, pods: list[Json], deleted: Iterable[Json]) -> tuple[tuple[Json, ...], Logs]:
    """The last pods, and their logs, of the replicas that have no pod now. Only for a failed job: it deletes pods."""
    if job_result(info.job) != "Failed":
        return (), {}
    record = find_record(uid_of(info.job))
    present = {replica_view(pod).name for pod in pods}
    gone = {replica_view(pod).name: pod for pod in (gone_pods(record, info.kind, info.job, pods) if record else ())}
    gone |= {replica_view(pod).name: pod for pod in deleted if replica_view(pod).name not in present}
    return tuple(gone.values()), kept_logs(record, gone.values())


async def _process_nodes(api: ApiClient, pods: Iterable[Json]) -> dict[str, bool]:
    """The Trainyard nodes among the nodes of these pods: node name -> whether the node is this machine."""
    names = sorted({_node_of(pod) for pod in pods} - {""})[:MAX_NODES]
    process_nodes: dict[str, bool] = {}
    for name in names:
        try:
            node_info = (await api.get(NODE, "", name)).get("status", {}).get("nodeInfo") or {}
        except ApiError:
            continue
        if str(node_info.get("containerRuntimeVersion")).startswith("processes://"):
            process_nodes[name] = bool(node_info.get("bootID")) and node_info["bootID"] == _boot_id()
    return process_nodes


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _node_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _listeners(local: list[Json], logs: Logs) -> dict[int, str]:
    """The listeners on the ports for which pods on this machine logged that the port is in use: port -> program."""
    ports: set[int] = set()
    for pod in local:
        for container in container_statuses(pod.get("status")):
            lines = logs.get(log_key(pod, container.name), ())
            if port_in_use(lines):
                ports.update((*ports_in(lines), *declared_ports(pod, container.name)))
    if not ports:
        return {}
    hosts = {str((pod.get("spec") or {}).get("hostname") or name_of(pod)): name_of(pod) for pod in local}
    return listeners(ports, hosts)


async def _read_logs(api: ApiClient, pods: Iterable[Json]) -> Logs:
    """The last lines of at most MAX_LOGS containers: failed ones first, then running ones."""
    candidates: list[tuple[int, Json, ContainerStatus, bool]] = []
    for pod in pods:
        for container in container_statuses(pod.get("status")):
            waiting = container.state("waiting") or {}
            terminated = container.ended_run
            if terminated is not None and terminated.get("exitCode"):
                candidates.append((0, pod, container, bool(waiting) and waiting.get("reason") != "CrashLoopBackOff"))
            elif container.state("running") is not None and not container.init:
                candidates.append((1, pod, container, False))
    candidates.sort(key=lambda candidate: candidate[0])
    tails = await asyncio.gather(
        *(_read_tail(api, pod, container.name, previous) for _, pod, container, previous in candidates[:MAX_LOGS])
    )
    return {
        log_key(pod, container.name): lines
        for (_, pod, container, _), lines in zip(candidates, tails, strict=False)
        if lines
    }


async def _read_tail(api: ApiClient, pod: Json, container: str, previous: bool) -> tuple[str, ...]:
    tail = b""
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            async for chunk in api.logs(
                namespace_of(pod), name_of(pod), container, previous=previous, tail_lines=TAIL_LINES
            ):
                tail = (tail + chunk)[-65536:]
    except (ApiError, TimeoutError):
        return ()
    return printable_lines(tail)


async def _list_nodes_if_unscheduled(api: ApiClient, pods: Iterable[Json]) -> tuple[Json, ...] | None:
    """All nodes, if a pod has PodScheduled=False; None if no pod has, or if the list is refused."""
    conditions = [find_condition((pod.get("status") or {}).get("conditions"), "PodScheduled") for pod in pods]
    if not any(scheduled is not None and scheduled.get("status") == "False" for scheduled in conditions):
        return None
    try:
        return tuple((await api.list(NODE)).get("items") or ())
    except ApiError:
        return None


async def _look_up_endpoint(context: ClusterContext, info: JobInfo) -> Endpoint | None:
    """The address that the kind's replicas need; for a Service of this namespace, whether it exists and has ready
    pods."""
    endpoint, job = info.kind.diagnosis.endpoint(info.job), info.job
    if endpoint is None or not endpoint.service:
        return endpoint
    try:
        service = await _find_service(context.api, namespace_of(job), endpoint.service)
        if service is None:
            is_address = endpoint.service.replace(".", "").isdecimal()
            # An IP address need not be a Service's.
            return endpoint if is_address else replace(endpoint, looked_up=True, exists=False)
        selector = (service.get("spec") or {}).get("selector") or {}
        endpoint = replace(endpoint, service=name_of(service), looked_up=bool(selector), exists=True)
        pods = (await context.api.list(POD, namespace_of(job))).get("items") or []
    except ApiError:
        return endpoint
    selected = [pod for pod in pods if matches_labels(selector, pod["metadata"].get("labels") or {})]
    return replace(endpoint, ready_pods=sum(_is_ready(pod) for pod in selected))


async def _find_service(api: ApiClient, namespace: str, host: str) -> Json | None:
    """The Service with that name or with that clusterIP; None if there is none."""
    if not host.replace(".", "").isdecimal():
        try:
            return await api.get(SERVICE, namespace, host)
        except NotFound:
            return None
    services = (await api.list(SERVICE, namespace)).get("items") or []
    return next((service for service in services if (service.get("spec") or {}).get("clusterIP") == host), None)


def _is_ready(pod: Json) -> bool:
    ready = find_condition((pod.get("status") or {}).get("conditions"), "Ready")
    return ready is not None and ready.get("status") == "True"
