"""A job's whole life on a real control plane: our operator decides, KWOK's node runs the pods, and a test ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard import kinds
from trainyard.app.config import shipped_config
from trainyard.core import Config, Kind
from trainyard.objects import Json, is_condition_true, labels_of, name_of
from trainyard.objects.structs import replace
from trainyard.operator import Operator

SECONDS = 90.0


@asynccontextmanager
async def operated(plane: ControlPlane, gang_scheduler: str = "") -> AsyncIterator[None]:
    """Our operator, for all kinds and namespaces."""
    async with plane.api() as api:
        config = replace(shipped_config(), gang_scheduler=gang_scheduler)
        operator = Operator(api, kinds.ALL, config)
        await operator.start()
        try:
            yield
        finally:
            await operator.stop()


def path_of(kind: Kind, namespace: str, name: str = "") -> str:
    return f"/apis/{kind.gvk.api_version}/namespaces/{namespace}/{kind.gvk.plural}" + f"/{name}" * bool(name)


async def succeeds(plane: ControlPlane, kind: Kind, namespace: str, name: str) -> Json:
    """Play every pod that decides to its end, until the job has succeeded. The job as it is then."""
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def step() -> Json | None:
        _, job = plane.ask("GET", path_of(kind, namespace, name))
        conditions = (job.get("status") or {}).get("conditions") or []
        assert not is_condition_true(conditions, "Failed"), conditions
        if is_condition_true(conditions, "Succeeded"):
            return job
        for pod in plane.ask("GET", pods)[1]["items"]:
            forever = any(owner["kind"] == "StatefulSet" for owner in pod["metadata"].get("ownerReferences") or ())
            if not forever and pod["status"].get("phase") == "Running":
                end(plane, f"{pods}/{name_of(pod)}", pod)
        return None

    def looks() -> Json:
        _, job = plane.ask("GET", path_of(kind, namespace, name))
        items = plane.ask("GET", pods)[1]["items"]
        return {"status": job.get("status"), "pods": {name_of(pod): pod["status"] for pod in items}}

    return await until_async(
        lambda: asyncio.to_thread(step), f"{name} is Succeeded", context=looks, seconds=SECONDS, pause=SLOW_PAUSE
    )


def end(plane: ControlPlane, path: str, pod: Json) -> None:
    """Every container of it ends with 0."""
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    statuses = [
        {**container_status, "ready": False, "state": ended, "lastState": {}}
        for container_status in pod["status"].get("containerStatuses") or ()
    ]
    plane.ask("PATCH", f"{path}/status", {"status": {"phase": "Succeeded", "containerStatuses": statuses}})


def children(plane: ControlPlane, namespace: str, job: Json) -> list[str]:
    """The kinds of what the operator has made for a job, pods of batch Jobs and StatefulSets left out."""
    kinds_left = []
    for path in ("api/v1", "apis/batch/v1", "apis/apps/v1", "apis/rbac.authorization.k8s.io/v1"):
        _, listed = plane.ask("GET", f"/{path}")
        for resource in listed["resources"]:
            if (
                resource["kind"] not in {gvk.kind for kind in kinds.KINDS for gvk in kind.roles.children_in(Config())}
                or "/" in resource["name"]
            ):
                continue
            items = plane.ask("GET", f"/{path}/namespaces/{namespace}/{resource['name']}")[1].get("items") or []
            owned = [obj for obj in items if _owned(obj, job)]
            kinds_left += [resource["kind"] for obj in owned if labels_of(obj)]
    return kinds_left


def _owned(obj: Json, job: Json) -> bool:
    uids = [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]
    return job["metadata"]["uid"] in uids
