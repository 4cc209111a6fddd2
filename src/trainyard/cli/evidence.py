"""Fetches what `why` is told: pods, children, events, nodes, the last lines of what matters, who is at the rendezvous.

Bounded: a few logs, a few lines, a few requests, whatever the size of the job. What may not be seen is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

from trainyard.cli.diagnosis import Endpoint, Facts
from trainyard.cli.diagnosis.facts import key
from trainyard.cli.diagnosis.meeting import address_of
from trainyard.cli.diagnosis.replicas import Container, containers
from trainyard.cli.jobs import POD, Found, family
from trainyard.cli.speaking import Here
from trainyard.client import Api, ApiError, NotFound
from trainyard.objects import GVK, Json, condition, name_of, namespace_of
from trainyard.objects.labels import matches

NODE = GVK("", "v1", "Node", "nodes")
SERVICE = GVK("", "v1", "Service", "services")
LOGS = 8  # containers whose last lines are read
LINES = 12
SECONDS = 10.0


async def gather(here: Here, found: Found) -> Facts:
    """Everything that is to be seen of the job now."""
    within = await family(here, found)
    logs, nodes, endpoint = await asyncio.gather(
        _logs(here.api, within.pods), _nodes(here.api, within.pods), _endpoint(here, found.job)
    )
    return Facts(
        kind=found.kind,
        job=found.job,
        now=time.time(),
        pods=tuple(within.pods),
        children=tuple(within.children),
        events=tuple(within.events),
        logs=logs,
        nodes=nodes,
        endpoint=endpoint,
    )


async def _logs(api: Api, pods: Iterable[Json]) -> dict[tuple[str, str], tuple[str, ...]]:
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
    read = await asyncio.gather(*(_tail(api, pod, one.name, previous) for _, pod, one, previous in wanted[:LOGS]))
    return {key(pod, one.name): lines for (_, pod, one, _), lines in zip(wanted, read, strict=False) if lines}


async def _tail(api: Api, pod: Json, container: str, previous: bool) -> tuple[str, ...]:
    found = b""
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in api.logs(namespace_of(pod), name_of(pod), container, previous=previous, tail=LINES):
                found = (found + chunk)[-65536:]
    except (ApiError, TimeoutError):
        return ()
    lines = (line.rpartition("\r")[2].rstrip() for line in found.decode("utf-8", "replace").split("\n"))
    return tuple(
        "".join(char if char.isprintable() or char == "\t" else "?" for char in line) for line in lines if line
    )


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
