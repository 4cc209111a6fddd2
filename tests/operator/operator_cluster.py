"""A control plane for tests: the embedded API server, the real batch Job controller, and a node that follows a script.

`OperatorCluster` is the cluster; operators are started and stopped in it, each with its own Api, which may inject
faults (`Troubled`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.support.watched_objects import until_gone, until_object
from trainyard import kinds
from trainyard.app.local import NOT_SERVED
from trainyard.client import ApiClient, ApiRequest, NotFound
from trainyard.client.request import create
from trainyard.controller_runtime.controller import Controller, enqueue_object
from trainyard.controller_runtime.reflector import WatchTarget
from trainyard.core import Config
from trainyard.objects import GVK, Json, NamespacedName, format_time, is_condition_true, labels_of, name_of, uid_of
from trainyard.objects.resources import CRD, NODE, POD
from trainyard.operator import Operator
from trainyard.server import Server
from trainyard.workloads import ControllerManager

TFJOB = kinds.TFJOB.gvk


def replica(role: str, count: int = 1) -> Json:
    container = {"name": "tensorflow", "image": "example/train", "command": ["train"]}
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    return {"replicas": count, "tfReplicaType": role, "template": template}


def tf_job(name: str = "mnist", namespace: str = "default", workers: int = 1, **spec: Any) -> Json:
    roles = [replica("MASTER"), replica("WORKER", workers), replica("PS")]
    return {
        "apiVersion": TFJOB.api_version,
        "kind": TFJOB.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"RuntimeId": name[:4], "replicaSpecs": roles, **spec},
    }


class ScriptedNode:
    """Sets bound pods to Running, ends the pods of the roles in `ends`, and removes pods that have a
    deletionTimestamp."""

    def __init__(self, api: ApiClient, now: Callable[[], float]) -> None:
        self.ends: dict[str, int] = {}  # role -> exit code of its pods from now on
        self.holds = False  # while true, no pod is started
        self._api = api
        self._now = now
        self.controller: Controller[NamespacedName] = Controller(api, self._reconcile, workers=4)
        self.pods = self.controller.watch(WatchTarget(POD), enqueue_object)

    def enqueue_all(self) -> None:
        for pod in self.pods:
            self.controller.queue.add(NamespacedName(pod["metadata"]["namespace"], name_of(pod)))

    async def _reconcile(self, key: NamespacedName) -> float | None:
        pod = self.pods.get(key)
        if pod is None or not pod["spec"].get("nodeName"):
            return None
        with suppress(NotFound):
            await self._advance(pod, key)
        return None

    async def _advance(self, pod: Json, key: NamespacedName) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            await self._api.delete(POD, *key, uid=uid_of(pod), grace_period_seconds=0)
            return
        phase = pod.get("status", {}).get("phase", "Pending")
        code = self.ends.get(labels_of(pod).get("trainyard.dev/role", "").upper())
        if phase == "Pending" and not self.holds:
            await self._patch_status(pod, key, "Running", {"running": {"startedAt": format_time(self._now())}})
        elif phase == "Running" and code is not None:
            terminated = {
                "exitCode": code,
                "finishedAt": format_time(self._now()),
                "reason": "Error" if code else "Completed",
            }
            await self._patch_status(pod, key, "Failed" if code else "Succeeded", {"terminated": terminated})

    async def _patch_status(self, pod: Json, key: NamespacedName, phase: str, state: Json) -> None:
        names = [container["name"] for container in pod["spec"]["containers"]]
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
            "containerStatuses": [{"name": name, "state": state, "restartCount": 0} for name in names],
        }
        await self._api.patch(POD, *key, {"status": status}, "status")


class OperatorCluster:
    def __init__(self, server: Server, api: ApiClient, node: ScriptedNode, clock: Callable[[], float]) -> None:
        self.server = server
        self.api = api
        self.node = node
        self.clock = clock

    async def submit(self, job: Json) -> Json:
        return await self.api.create(TFJOB, job["metadata"]["namespace"], job)

    async def job(self, name: str = "mnist", namespace: str = "default") -> Json:
        return await self.api.get(TFJOB, namespace, name)

    async def until(self, predicate: Callable[[Json], bool], name: str = "mnist", namespace: str = "default") -> Json:
        """Wait until `predicate(job)` is true, and return the job."""
        return await until_object(
            self.api, TFJOB, namespace, name, predicate, f"the condition of job {name}", seconds=20
        )

    async def gone(self, gvk: GVK, name: str, namespace: str = "default") -> None:
        await until_gone(self.api, gvk, namespace, name, seconds=20)

    async def condition(self, kind: str, name: str = "mnist", namespace: str = "default") -> Json:
        """Wait until this condition of the job is true, and return the job."""
        return await self.until(
            lambda job: is_condition_true(job.get("status", {}).get("conditions"), kind), name, namespace
        )

    def end(self, role: str, code: int = 0) -> None:
        """From now on the pods of this role end with this exit code."""
        self.node.ends[role] = code
        self.node.enqueue_all()

    @asynccontextmanager
    async def operator(self, api: ApiClient | None = None) -> AsyncIterator[Operator]:
        """An operator that runs within the block."""
        operator_api = api or ApiClient(self.server.url)
        operator = Operator(operator_api, kinds.ALL, Config(missing_resources=NOT_SERVED), now=self.clock)
        await operator.start()
        try:
            yield operator
        finally:
            await operator.stop()
            await operator_api.close()


@asynccontextmanager
async def running_yard(clock: Callable[[], float], install: bool = True) -> AsyncIterator[OperatorCluster]:
    server = Server(now=clock)
    await server.start()
    async with ApiClient(server.url) as api, ApiClient(server.url) as node_api, ApiClient(server.url) as workloads_api:
        if install:
            for kind in kinds.ALL:
                await api.send(create(CRD, "", kinds.crd(kind)))
        await api.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "scripted"}})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await api.patch(NODE, "", "scripted", ready, "status")
        workloads, node = ControllerManager(workloads_api, clock), ScriptedNode(node_api, clock)
        await workloads.start()
        await node.controller.start()
        try:
            yield OperatorCluster(server, api, node, clock)
        finally:
            await node.controller.stop()
            await workloads.stop()
    await server.stop()


class Troubled(ApiClient):
    """An Api that calls `before(request)` before each request other than a watch, and `after(request)` after it; either
    may raise. `sent` has those requests."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sent: list[ApiRequest] = []
        self.before: Callable[[ApiRequest], None] = lambda request: None
        self.after: Callable[[ApiRequest], None] = lambda request: None

    async def send(self, request: ApiRequest) -> bytes:
        self.before(request)
        self.sent.append(request)
        body = await super().send(request)
        self.after(request)
        return body

    @property
    def writes(self) -> list[ApiRequest]:
        return [request for request in self.sent if request.method != "GET" and "/events" not in request.path]
