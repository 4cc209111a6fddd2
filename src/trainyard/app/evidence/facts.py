"""Reads the Facts for `why`: pods, children, events, nodes, the last log lines, the pods behind the kind's endpoint.

The number of logs, lines and requests is bounded, whatever the size of the job. Objects that the API server refuses to
return (403) are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing

from trainyard.app.evidence.listeners import boot_id, listeners
from trainyard.app.evidence.modules import look_up_modules
from trainyard.app.evidence.pod_metrics import read_usages
from trainyard.app.evidence.related_objects import get_related_objects
from trainyard.app.history.recorded_job import TAIL_LINES, find_record, gone_pods, kept_logs
from trainyard.app.history.recorded_values import recorded_usages
from trainyard.app.job_files import in_thread
from trainyard.client import ApiClient, ApiError, NotFound
from trainyard.core import Config, Kind, parse_job
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.resources import NODE, POD, SERVICE
from trainyard.views.diagnosis import Endpoint, Facts
from trainyard.views.diagnosis.doubts import may_be_doubted
from trainyard.views.diagnosis.inputs import Logs, log_key
from trainyard.views.diagnosis.lookups import (
    has_unscheduled,
    logs_to_read,
    node_name_of,
    ports_in_use,
    resolve_endpoint,
)
from trainyard.views.diagnosis.output import printable_lines
from trainyard.views.job_view import JobView, job_result
from trainyard.views.replica_view import replica_view
from trainyard.views.usage_view import ReplicaUsage

LOG_TIMEOUT = 10.0  # timeout of one log request
MAX_LOG_BYTES = 1 << 16  # of the end of a log, and of its beginning
MAX_NODES = 4  # nodes that are read


async def gather_facts(
    api: ApiClient,
    kind: Kind,
    job: Json,
    deleted: Iterable[Json] = (),
    pods: Sequence[Json] = (),
    usages: Sequence[ReplicaUsage] | None = None,
) -> Facts:
    """The current objects of the job and, for a failed job, the recorded pods and logs of replicas without a pod.

    deleted: pods from the caller's watch, which may be deleted by now. pods: those that exist, in the order of their
    names, from the caller's watch, else they are listed. usages: those of the replicas, else they are read."""
    related = await get_related_objects(api, kind, job, pods)
    in_doubt = may_be_doubted(parse_job(kind, job, Config()))
    logs, nodes, endpoint, process_nodes, known_usages = await asyncio.gather(
        _read_logs(api, related.pods, in_doubt),
        _list_nodes_if_unscheduled(api, related.pods),
        _look_up_endpoint(api, kind, job),
        _process_nodes(api, related.pods),
        _usages(api, job, related.pods, usages),
    )
    read_uids = {uid for uid, _ in logs}  # a pod that ends with its job may be deleted after the list
    unread = [pod for pod in related.pods if in_doubt and uid_of(pod) not in read_uids]
    present = [pod for pod in related.pods if not in_doubt or uid_of(pod) in read_uids]
    gone, gone_logs = await in_thread(_gone_pods, kind, job, present, [*deleted, *unread], in_doubt)
    logs = {**gone_logs, **logs}
    local_pods = [pod for pod in related.pods if process_nodes.get(node_name_of(pod))]
    return Facts(
        kind=kind,
        job=job,
        now=time.time(),
        pods=tuple(related.pods),
        children=tuple(related.children),
        events=tuple(related.events),
        deleted_pods=gone,
        logs=logs,
        nodes=nodes,
        endpoint=endpoint,
        process_nodes=frozenset(process_nodes),
        usages=tuple(known_usages),
        refused=tuple(f"list {gvk.plural}" for gvk in related.refused),
        listeners=_listeners(local_pods, logs),
        modules=await asyncio.to_thread(look_up_modules, [*local_pods, *gone], logs),
    )


def _gone_pods(
    kind: Kind, job: Json, pods: list[Json], deleted: Iterable[Json], in_doubt: bool
) -> tuple[tuple[Json, ...], Logs]:
    """The last pods, and their logs, of the replicas that have no pod now. Only for a job that deletes pods at its end
    and whose end is to be explained: one that has failed, or whose success may be in doubt. Reads files."""
    if job_result(job) != "Failed" and not in_doubt:
        return (), {}
    record = find_record(uid_of(job))
    present = {replica_view(pod).name for pod in pods}
    gone = {replica_view(pod).name: pod for pod in (gone_pods(record, kind, job, pods) if record else ())}
    gone |= {replica_view(pod).name: pod for pod in deleted if replica_view(pod).name not in present}
    return tuple(gone.values()), kept_logs(record, gone.values(), failed_only=not in_doubt)


async def _usages(
    api: ApiClient, job: Json, pods: list[Json], usages: Sequence[ReplicaUsage] | None
) -> Sequence[ReplicaUsage]:
    """The usage of the replicas of a job; of one that has ended the last values in its record."""
    if job_result(job):
        record = await in_thread(find_record, uid_of(job))
        return await in_thread(recorded_usages, record, pods) if record else ()
    return await read_usages(api, job, JobView.of([job], pods, time.time()), pods) if usages is None else usages


async def _process_nodes(api: ApiClient, pods: Iterable[Json]) -> dict[str, bool]:
    """The Trainyard nodes among the nodes of these pods: node name -> whether the node is this machine."""
    names = sorted({node_name_of(pod) for pod in pods} - {""})[:MAX_NODES]
    process_nodes: dict[str, bool] = {}
    for name in names:
        try:
            node_info = (await api.get(NODE, "", name)).get("status", {}).get("nodeInfo") or {}
        except ApiError:
            continue
        if str(node_info.get("containerRuntimeVersion")).startswith("processes://"):
            process_nodes[name] = bool(node_info.get("bootID")) and node_info["bootID"] == boot_id()
    return process_nodes


def _listeners(local: list[Json], logs: Logs) -> dict[int, str]:
    """The listeners on the ports for which pods on this machine logged that the port is in use: port -> program."""
    ports = ports_in_use(local, logs)
    if not ports:
        return {}
    hosts = {str((pod.get("spec") or {}).get("hostname") or name_of(pod)): name_of(pod) for pod in local}
    return listeners(ports, hosts)


async def _read_logs(api: ApiClient, pods: Iterable[Json], doubtful: bool) -> Logs:
    """The last lines of the containers whose logs are evidence."""
    reads = logs_to_read(pods, doubtful)
    tails = await asyncio.gather(*(_read_tail(api, *read) for read in reads))
    return {log_key(read.pod, read.container): lines for read, lines in zip(reads, tails, strict=True) if lines}


async def _read_tail(api: ApiClient, pod: Json, container: str, previous: bool, whole: bool = False) -> tuple[str, ...]:
    head = await _read_head(api, pod, container) if whole else b""
    if whole and len(head) < MAX_LOG_BYTES:
        return printable_lines(head)
    tail = b""
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            async for chunk in api.logs(
                namespace_of(pod), name_of(pod), container, previous=previous, tail_lines=TAIL_LINES
            ):
                tail = (tail + chunk)[-MAX_LOG_BYTES:]
    except (ApiError, TimeoutError):
        return ()
    return (*printable_lines(head), *printable_lines(tail))


async def _read_head(api: ApiClient, pod: Json, container: str) -> bytes:
    """The first MAX_LOG_BYTES of a log, or all of it; b"" where it cannot be read."""
    head = b""
    try:
        async with asyncio.timeout(LOG_TIMEOUT), aclosing(api.logs(namespace_of(pod), name_of(pod), container)) as log:
            async for chunk in log:
                head += chunk
                if len(head) >= MAX_LOG_BYTES:
                    break
    except (ApiError, TimeoutError):
        return b""
    return head[:MAX_LOG_BYTES]


async def _list_nodes_if_unscheduled(api: ApiClient, pods: Iterable[Json]) -> tuple[Json, ...] | None:
    """All nodes, if a pod has PodScheduled=False; None if no pod has, or if the list is refused."""
    if not has_unscheduled(pods):
        return None
    try:
        return tuple((await api.list(NODE)).get("items") or ())
    except ApiError:
        return None


async def _look_up_endpoint(api: ApiClient, kind: Kind, job: Json) -> Endpoint | None:
    """The address that the kind's replicas need; for a Service of this namespace, whether it exists and has ready
    pods."""
    endpoint = kind.diagnosis.endpoint(job)
    if endpoint is None or not endpoint.service:
        return endpoint
    try:
        service = await _find_service(api, namespace_of(job), endpoint.service)
        pods = (await api.list(POD, namespace_of(job))).get("items") or [] if service else []
    except ApiError:
        return endpoint
    return resolve_endpoint(endpoint, service, pods)


async def _find_service(api: ApiClient, namespace: str, host: str) -> Json | None:
    """The Service with that name or with that clusterIP; None if there is none."""
    if not host.replace(".", "").isdecimal():
        try:
            return await api.get(SERVICE, namespace, host)
        except NotFound:
            return None
    services = (await api.list(SERVICE, namespace)).get("items") or []
    return next((service for service in services if (service.get("spec") or {}).get("clusterIP") == host), None)
