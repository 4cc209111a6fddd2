"""Fetches what `why` is told: pods, children, events, nodes, the last lines of what matters, who is at the rendezvous.

Bounded: a few logs, a few lines, a few requests, whatever the size of the job. What may not be seen is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainyard.cli.diagnosis import Endpoint, Facts
from trainyard.cli.diagnosis.facts import key
from trainyard.cli.diagnosis.meeting import address_of
from trainyard.cli.diagnosis.output import port_is_taken, ports_named, printable_lines
from trainyard.cli.diagnosis.replicas import Container, containers, declared_ports
from trainyard.cli.jobs import Found, family
from trainyard.cli.kept import LINES, gone_pods, kept_logs, record_of
from trainyard.cli.listeners import listeners
from trainyard.cli.speaking import Here
from trainyard.cli.view import ended, replica
from trainyard.client import Api, ApiError, NotFound
from trainyard.objects import Json, condition, name_of, namespace_of, uid_of
from trainyard.objects.labels import matches
from trainyard.objects.resources import NODE, POD, SERVICE
from trainyard.objects.values import replace

MOST_LOGS = 8  # containers whose last lines are read
SECONDS = 10.0
NODES = 4  # nodes that are looked at
Logs = Mapping[tuple[str, str], tuple[str, ...]]  # last lines by the pod's uid and the container
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


async def gather(here: Here, found: Found, deleted: Iterable[Json] = ()) -> Facts:
    """Everything that is to be seen of the job now, and of a job that failed what is kept of the pods that are gone.

    deleted: pods that the caller has seen, and that the API may not have any more."""
    within = await family(here, found)
    logs, nodes, endpoint, process_nodes = await asyncio.gather(
        _logs(here.api, within.pods),
        _nodes(here.api, within.pods),
        _endpoint(here, found.job),
        _process_nodes(here.api, within.pods),
    )
    gone, gone_logs = _gone(found, within.pods, deleted)
    return Facts(
        kind=found.kind,
        job=found.job,
        now=time.time(),
        pods=tuple(within.pods),
        children=tuple(within.children),
        events=tuple(within.events),
        gone=gone,
        logs={**gone_logs, **logs},
        nodes=nodes,
        endpoint=endpoint,
        process_nodes=frozenset(process_nodes),
        listeners=_listeners([pod for pod in within.pods if process_nodes.get(_node_of(pod))], logs),
    )


def _gone(found: Found, pods: list[Json], deleted: Iterable[Json]) -> tuple[tuple[Json, ...], Logs]:
    """The last pods of the replicas that have none any more: of a job that failed, which deletes them."""
    if ended(found.kind, found.job) != "Failed":
        return (), {}
    record = record_of(uid_of(found.job))
    there = {replica(pod).name for pod in pods}
    gone = {replica(pod).name: pod for pod in (gone_pods(record, found.kind, found.job, pods) if record else ())}
    gone |= {replica(pod).name: pod for pod in deleted if replica(pod).name not in there}
    return tuple(gone.values()), kept_logs(record, gone.values())


async def _process_nodes(api: Api, pods: Iterable[Json]) -> dict[str, bool]:
    """Of the nodes that these pods are on, those of Trainyard: and whether each is this machine."""
    names = sorted({_node_of(pod) for pod in pods} - {""})[:NODES]
    found: dict[str, bool] = {}
    for name in names:
        try:
            info = (await api.get(NODE, "", name)).get("status", {}).get("nodeInfo") or {}
        except ApiError:
            continue
        if str(info.get("containerRuntimeVersion")).startswith("processes://"):
            found[name] = bool(info.get("bootID")) and info["bootID"] == _boot_id()
    return found


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _node_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _listeners(local: list[Json], logs: Logs) -> dict[int, str]:
    """Who has the ports that programs of this machine found taken."""
    ports: set[int] = set()
    for pod in local:
        for one in containers(pod):
            lines = logs.get(key(pod, one.name), ())
            if port_is_taken(lines):
                ports.update((*ports_named(lines), *declared_ports(pod, one.name)))
    if not ports:
        return {}
    hosts = {str((pod.get("spec") or {}).get("hostname") or name_of(pod)): name_of(pod) for pod in local}
    return listeners(ports, hosts)


async def _logs(api: Api, pods: Iterable[Json]) -> Logs:
    """Of the containers that failed first, then of those that run."""
    wanted: list[tuple[int, Json, Container, bool]] = []
    for pod in pods:
        for one in containers(pod):
            wait = one.state("waiting") or {}
            end = one.state("terminated") or (one.before if wait else None)
            if end is not None and end.get("exitCode"):
                wanted.append((0, pod, one, bool(wait) and wait.get("reason") != "CrashLoopBackOff"))
            elif one.state("running") is not None and not one.init:
                wanted.append((1, pod, one, False))
    wanted.sort(key=lambda one: one[0])
    read = await asyncio.gather(*(_tail(api, pod, one.name, previous) for _, pod, one, previous in wanted[:MOST_LOGS]))
    return {key(pod, one.name): lines for (_, pod, one, _), lines in zip(wanted, read, strict=False) if lines}


async def _tail(api: Api, pod: Json, container: str, previous: bool) -> tuple[str, ...]:
    found = b""
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in api.logs(
                namespace_of(pod), name_of(pod), container, previous=previous, tail_lines=LINES
            ):
                found = (found + chunk)[-65536:]
    except (ApiError, TimeoutError):
        return ()
    return printable_lines(found)


async def _nodes(api: Api, pods: Iterable[Json]) -> tuple[Json, ...] | None:
    """Only where a pod has found none."""
    conditions = [condition((pod.get("status") or {}).get("conditions"), "PodScheduled") for pod in pods]
    if not any(said is not None and said.get("status") == "False" for said in conditions):
        return None
    try:
        return tuple((await api.list(NODE)).get("items") or ())
    except ApiError:
        return None


async def _endpoint(here: Here, job: Json) -> Endpoint | None:
    """Who is at the address that the replicas meet at, where it is a Service of this namespace."""
    at = address_of(job)
    if at is None or not at.service:
        return at
    try:
        service = await _service(here.api, namespace_of(job), at.service)
        if service is None:
            numeric = at.service.replace(".", "").isdecimal()
            return at if numeric else replace(at, known=True, exists=False)  # an address may be anywhere
        selector = (service.get("spec") or {}).get("selector") or {}
        at = replace(at, service=name_of(service), known=bool(selector), exists=True)
        pods = (await here.api.list(POD, namespace_of(job))).get("items") or []
    except ApiError:
        return at
    behind = [pod for pod in pods if matches(selector, pod["metadata"].get("labels") or {})]
    return replace(at, ready=sum(_is_ready(pod) for pod in behind))


async def _service(api: Api, namespace: str, named: str) -> Json | None:
    """By name, or by its cluster address."""
    if not named.replace(".", "").isdecimal():
        try:
            return await api.get(SERVICE, namespace, named)
        except NotFound:
            return None
    listed = (await api.list(SERVICE, namespace)).get("items") or []
    return next((one for one in listed if (one.get("spec") or {}).get("clusterIP") == named), None)


def _is_ready(pod: Json) -> bool:
    said = condition((pod.get("status") or {}).get("conditions"), "Ready")
    return said is not None and said.get("status") == "True"
