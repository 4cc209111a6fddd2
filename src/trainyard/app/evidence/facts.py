"""Reads the Facts for `why`: pods, children, events, nodes, the last log lines, the pods behind the kind's endpoint.

The number of logs, lines and requests is bounded, whatever the size of the job. Objects that the API server refuses to
return (403) are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from trainyard.app.evidence.listeners import boot_id, listeners
from trainyard.app.evidence.log_progress import (
    LOG_TIMEOUT,
    MAX_LOG_BYTES,
    first_container,
    progress_of_log,
    read_tail,
    without_times,
)
from trainyard.app.evidence.modules import look_up_modules
from trainyard.app.evidence.pod_metrics import add_progress, read_usages
from trainyard.app.evidence.related_objects import get_related_objects
from trainyard.app.history.recorded_job import TAIL_LINES, find_record, gone_pods, kept_logs
from trainyard.app.history.recorded_values import recorded_usages
from trainyard.app.job_files import in_thread
from trainyard.client import ApiClient, ApiError, Forbidden, NotFound
from trainyard.core import Config, Kind, parse_job
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.resources import NODE, POD, SERVICE
from trainyard.objects.usage import Progress
from trainyard.views.diagnosis import Endpoint, Facts
from trainyard.views.diagnosis.doubts import may_be_doubted
from trainyard.views.diagnosis.inputs import Logs, log_key
from trainyard.views.diagnosis.lookups import (
    LogToRead,
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
    known_usages = await _usages(api, job, related.pods, usages)
    read_logs, nodes, endpoint, process_nodes, templates = await asyncio.gather(
        _read_logs(api, logs_to_read(related.pods, in_doubt, known_usages), known_usages),
        _list_nodes_if_unscheduled(api, related.pods),
        _look_up_endpoint(api, kind, job),
        _process_nodes(api, related.pods),
        _template_source(api, kind, job),
    )
    read_uids = {uid for uid, _ in read_logs.lines}
    gone, gone_logs = await in_thread(_gone_pods, kind, job, related.pods, deleted, in_doubt, read_uids)
    logs = {**gone_logs, **read_logs.lines}
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
        usages=tuple(add_progress(job, related.pods, known_usages, read_logs.progress)),
        refused=(*(f"list {gvk.plural}" for gvk in related.refused), *read_logs.refused),
        **templates,
        listeners=_listeners(local_pods, logs),
        modules=await asyncio.to_thread(look_up_modules, [*local_pods, *gone], logs),
    )


def _gone_pods(
    kind: Kind, job: Json, listed: list[Json], deleted: Iterable[Json], in_doubt: bool, read_uids: set[str]
) -> tuple[tuple[Json, ...], Logs]:
    """The last pods, and their logs, of the replicas that have no pod now. Only for a job that deletes pods at its end
    and whose end is to be explained: one that has failed, or whose success may be in doubt. In doubt, a listed pod
    whose log was not read may be deleted by now. Reads files."""
    if job_result(job) != "Failed" and not in_doubt:
        return (), {}
    unread = [pod for pod in listed if in_doubt and uid_of(pod) not in read_uids]
    pods = [pod for pod in listed if not in_doubt or uid_of(pod) in read_uids]
    deleted = [*deleted, *unread]
    record = find_record(uid_of(job))
    present = {replica_view(pod).name for pod in pods}
    gone = {replica_view(pod).name: pod for pod in (gone_pods(record, kind, job, pods) if record else ())}
    gone |= {replica_view(pod).name: pod for pod in deleted if replica_view(pod).name not in present}
    cause = parse_job(kind, job, Config()).status.failure_cause
    return tuple(gone.values()), kept_logs(record, gone.values(), not in_doubt, cause)


async def _usages(
    api: ApiClient, job: Json, pods: list[Json], usages: Sequence[ReplicaUsage] | None
) -> Sequence[ReplicaUsage]:
    """The usage of the replicas of a job; of one that has ended the last values in its record."""
    if job_result(job):
        record = await in_thread(find_record, uid_of(job))
        return await in_thread(recorded_usages, record, pods) if record else ()
    return await read_usages(api, job, JobView.of([job], pods, time.time())) if usages is None else usages


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


class _ReadLogs(NamedTuple):
    """`lines`: the last lines of containers; `progress`: by name of the pod, where no Trainyard node measures;
    `refused`: see Facts."""

    lines: Logs
    progress: Mapping[str, Progress]
    refused: tuple[str, ...]


async def _read_logs(api: ApiClient, reads: Sequence[LogToRead], usages: Sequence[ReplicaUsage]) -> _ReadLogs:
    """The last lines of these containers, and the steps in them."""
    lines, progress, refused = dict[tuple[str, str], tuple[str, ...]](), dict[str, Progress](), set[str]()
    measured = {usage.pod for usage in usages if usage.memory_measure}

    async def read(log: LogToRead) -> None:
        name, has_times = name_of(log.pod), not (log.previous or log.whole or name_of(log.pod) in measured)
        try:
            text = await _read_log(api, log, has_times)
        except Forbidden:
            refused.add("get pods/log")
            return
        if has_times and log.container == first_container(log.pod) and (steps := progress_of_log(log.pod, text)):
            progress[name] = steps
        if printed := printable_lines(without_times(text) if has_times else text):
            lines[log_key(log.pod, log.container)] = printed

    await asyncio.gather(*map(read, reads))
    return _ReadLogs(lines, progress, tuple(refused))


async def _read_log(api: ApiClient, log: LogToRead, has_times: bool) -> bytes:
    """The end of a log, and its beginning if it is wanted. Raises Forbidden."""
    head = await _read_head(api, log.pod, log.container) if log.whole else b""
    if log.whole and len(head) < MAX_LOG_BYTES:
        return head
    tail = await read_tail(api, log.pod, log.container, TAIL_LINES, previous=log.previous, timestamps=has_times)
    return head + tail


async def _read_head(api: ApiClient, pod: Json, container: str) -> bytes:
    """The first MAX_LOG_BYTES of a log, or all of it; b"" where it cannot be read. Raises Forbidden."""
    head = b""
    try:
        async with asyncio.timeout(LOG_TIMEOUT), aclosing(api.logs(namespace_of(pod), name_of(pod), container)) as log:
            async for chunk in log:
                head += chunk
                if len(head) >= MAX_LOG_BYTES:
                    break
    except Forbidden:
        raise
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


async def _template_source(api: ApiClient, kind: Kind, job: Json) -> dict[str, Any]:
    """The fields of Facts about the object that has the pod templates of a job that has not ended; {} if the job has
    its templates itself, or if the object cannot be read."""
    reference = kind.template_source.reference(job) if kind.template_source and not job_result(job) else None
    if reference is None:
        return {}
    try:
        return {"template_source": await api.get(reference[0].gvk, reference[1].namespace, reference[1].name)}
    except NotFound:
        return {"template_is_missing": True}
    except ApiError:
        return {}


async def _find_service(api: ApiClient, namespace: str, host: str) -> Json | None:
    """The Service with that name or with that clusterIP; None if there is none."""
    if not host.replace(".", "").isdecimal():
        try:
            return await api.get(SERVICE, namespace, host)
        except NotFound:
            return None
    services = (await api.list(SERVICE, namespace)).get("items") or []
    return next((service for service in services if (service.get("spec") or {}).get("clusterIP") == host), None)
