"""A world for whole stories: our real server, the controllers, and a test that plays the node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.support.watched_objects import until_object, until_objects
from tests.workloads.workload_values import NOW
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, format_time, name_of
from trainyard.objects.resources import (
    EVENT,
    NODE,
    POD,
)
from trainyard.server import Server
from trainyard.workloads import ControllerManager

TOY = GVK("example.com", "v1", "Toy", "toys")


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class World(NamedTuple):
    api: ApiClient
    clock: Clock
    server: Server

    async def make(self, gvk: GVK, obj: Json, namespace: str = "default") -> Json:
        whole = {"apiVersion": gvk.api_version, "kind": gvk.kind, **obj}
        return await self.api.create(gvk, namespace, whole)

    async def until(self, gvk: GVK, true: Callable[[list[Json]], bool], namespace: str = "default") -> list[Json]:
        """Wait until that holds of the objects of a resource."""
        return await until_objects(self.api, gvk, namespace, true, f"the condition of {gvk.plural}", seconds=10)

    async def pod(self, true: Callable[[Json], bool] = lambda pod: True) -> Json:
        """The one pod for which that holds, once it is there."""
        pods = await self.until(POD, lambda pods: any(true(pod) for pod in pods))
        return next(pod for pod in pods if true(pod))

    async def event(self, reason: str, about: str = "") -> Json:
        """The event of that reason, about the object of that name, once it is there."""

        def is_it(event: Json) -> bool:
            return bool(event["reason"] == reason and about in ("", event["involvedObject"]["name"]))

        return next(filter(is_it, await self.until(EVENT, lambda events: any(map(is_it, events)))))

    async def say(self, pod: Json, phase: str, at: float | None = None) -> None:
        """What the node would say of a pod, after the scheduler: its write of the conditions replaces them all."""
        await until_object(
            self.api,
            POD,
            "default",
            name_of(pod),
            lambda pod: pod["spec"].get("nodeName") or pod["status"].get("conditions"),
            "the scheduler has seen the pod",
        )
        status: Json = {"phase": phase}
        if at is not None:
            ended = {"terminated": {"finishedAt": format_time(at), "exitCode": 1}}
            status["containerStatuses"] = [{"name": "c", "state": ended, "restartCount": 0}]
        if phase == "Running":
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        await self.api.patch(POD, "default", name_of(pod), {"status": status}, "status")


@asynccontextmanager
async def running(
    api: ApiClient, clock: Clock, root_ca: str = "", mounted: Container[str] = (), awaits_node: bool = False
) -> AsyncIterator[ControllerManager]:
    workloads = ControllerManager(api, clock, root_ca, mounted, awaits_node=awaits_node)
    await workloads.start()
    try:
        yield workloads
    finally:
        await workloads.stop()


async def ready_node(api: ApiClient, name: str = "local") -> None:
    await api.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await api.patch(NODE, "", name, ready, "status")


def template(**meta: object) -> Json:
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
