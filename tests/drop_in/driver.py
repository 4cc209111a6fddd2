"""Runs a scenario against an API server, and reads what the operator has made after each step.

    async with Driver(api) as driver:
        recording = await driver.run(scenario)

Rules:
- The namespace is the scenario's own; its pods run nowhere. Their phases are what the steps say.
- After each step the driver waits until nothing has been written in the namespace for `settle` seconds, events
  included. An operator that never rests (a status written at each reconcile) is cut off after PATIENCE, and the step
  says so with `"restless": true`.
- A refused write is an answer, too: the step gets `"refused": {"code": ..., "message": ...}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

from tests.drop_in.scenario import Scenario
from tests.drop_in.snapshot import PLUGINS_GROUP, SECTIONS, VOLCANO_GROUP, snapshot
from trainyard.client import ApiClient, ApiError, Gone, NotFound
from trainyard.objects import GVK, Json, decode, format_time, name_of, namespace_of
from trainyard.objects.resources import EVENT, NAMESPACE, POD, SERVICE_ACCOUNT

PATIENCE = 6.0  # seconds after a step until an operator that never rests is cut off
APPEAR = 6.0  # seconds until a pod must be there that a step names
_numbers = itertools.count(1)


class WriteTimes:
    """When something was last written in each namespace, by watches on everything that a snapshot has."""

    def __init__(self, api: ApiClient, resources: Sequence[GVK]) -> None:
        self._api, self._resources = api, resources
        self._last: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        opened = [asyncio.Event() for _ in self._resources]
        for gvk, event in zip(self._resources, opened, strict=True):
            self._tasks.append(asyncio.create_task(self._watch(gvk, event)))
        async with asyncio.timeout(30):
            for event in opened:
                await event.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, gvk: GVK, opened: asyncio.Event) -> None:
        revision = ""
        while True:
            with contextlib.suppress(Gone):
                if not revision:
                    revision = (await self._api.list(gvk))["metadata"]["resourceVersion"]
                async with aclosing(self._api.watch(gvk, "", revision, on_open=opened.set)) as lines:
                    async for line in lines:
                        event = decode(line)
                        if event["type"] == "ERROR":
                            break
                        self._last[namespace_of(event["object"])] = time.monotonic()
            revision = ""

    async def settled(self, namespace: str, seconds: float, patience: float) -> bool:
        """Wait until nothing was written there for so many seconds. False when that did not happen in `patience`."""
        begin = time.monotonic()
        while True:
            now = time.monotonic()
            rest = max(self._last.get(namespace, begin), begin) + seconds - now
            if rest <= 0:
                return True
            if now > begin + patience:
                return False
            await asyncio.sleep(min(rest, 0.2))


class Driver:
    """Use as a context. `absent` are then the sections of a snapshot whose resource the server does not have."""

    def __init__(self, api: ApiClient, job_kinds: Sequence[GVK], settle: float = 1.0) -> None:
        self._api, self._settle = api, settle
        self._kinds = {(gvk.api_version, gvk.kind): gvk for gvk in job_kinds}
        self._sections: dict[str, GVK] = {}
        self.absent: frozenset[str] = frozenset()

    async def __aenter__(self) -> Driver:
        self._sections = {section: gvk for section, gvk in SECTIONS.items() if await self._serves(gvk)}
        self.absent = frozenset(SECTIONS.keys() - self._sections.keys())
        self._writes = WriteTimes(self._api, (*self._kinds.values(), *self._sections.values(), EVENT))
        await self._writes.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._writes.stop()

    async def _serves(self, gvk: GVK) -> bool:
        try:
            await self._api.list(gvk, limit=1)
        except NotFound:
            return False
        return True

    async def run(self, manifest: Json, steps: Sequence[Json], objects: Sequence[Json] = ()) -> list[Json]:
        """The steps with what there was after each: `[{"do": STEP, "snapshot": {...}}, ...]`."""
        namespace = f"drop-in-{next(_numbers)}-{time.time_ns() % 10**6:06}"
        await self._create_namespace(namespace)
        try:
            run = _Run(self._api, namespace, self._kinds[manifest["apiVersion"], manifest["kind"]], manifest)
            for item in objects:
                await run.create_object(item, SECTIONS)
            return [await self._step(run, step) for step in ({"create": "job"}, *steps)]
        finally:
            await self._api.delete(NAMESPACE, "", namespace)

    async def run_scenario(self, scenario: Scenario) -> list[Json]:
        return await self.run(scenario.manifest, scenario.steps, scenario.objects)

    async def _step(self, run: _Run, step: Json) -> Json:
        answer: Json = {"do": step}
        try:
            await run.act(step)
        except ApiError as error:
            if error.code not in (400, 403, 409, 422):
                raise
            answer["refused"] = {"code": error.code, "message": str(error).replace(run.namespace, "<namespace>")}
        if not run.submitted:
            return answer
        if not await self._writes.settled(run.namespace, self._settle, PATIENCE):
            answer["restless"] = True
        answer["snapshot"] = await self._snapshot(run)
        return answer

    async def _snapshot(self, run: _Run) -> Json:
        async def items(gvk: GVK) -> list[Json]:
            return list((await self._api.list(gvk, run.namespace))["items"])

        lists = await asyncio.gather(*(items(gvk) for gvk in (*self._sections.values(), EVENT)))
        objects = dict(zip(self._sections, lists[:-1], strict=True))
        return snapshot(await run.job(), run.submitted, objects, lists[-1])

    async def _create_namespace(self, namespace: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await self._api.create(NAMESPACE, "", body)
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(NotFound):
                    await self._api.get(SERVICE_ACCOUNT, namespace, "default")
                    return
                await asyncio.sleep(0.1)


class _Run:
    """One job in its namespace."""

    def __init__(self, api: ApiClient, namespace: str, kind: GVK, manifest: Json) -> None:
        self.api, self.namespace, self.kind = api, namespace, kind
        self.manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
        self.name = name_of(manifest)
        self.submitted: Json = {}

    async def act(self, step: Json) -> None:
        actions: Mapping[str, Callable[[Json], Any]] = {
            "create": self._create,
            "pods": self._pods,
            "deletePods": self._delete_pods,
            "evictPods": self._evict_pods,
            "patch": self._patch,
            "scale": self._scale,
            "podGroup": self._pod_group,
            "wait": lambda step: asyncio.sleep(step["wait"]),
            "delete": self._delete,
        }
        (action,) = step.keys() & actions.keys()
        await actions[action](step)

    async def job(self) -> Json | None:
        try:
            return await self.api.get(self.kind, self.namespace, self.name)
        except NotFound:
            return None

    async def create_object(self, item: Json, sections: Mapping[str, GVK]) -> None:
        (gvk,) = (gvk for gvk in sections.values() if (gvk.api_version, gvk.kind) == (item["apiVersion"], item["kind"]))
        await self.api.create(gvk, self.namespace, item)

    async def _create(self, _: Json) -> None:
        self.submitted = await self.api.create(self.kind, self.namespace, self.manifest)

    async def _patch(self, step: Json) -> None:
        self.submitted = await self.api.patch(self.kind, self.namespace, self.name, step["patch"])

    async def _delete(self, _: Json) -> None:
        await self.api.delete(self.kind, self.namespace, self.name)

    async def _scale(self, step: Json) -> None:
        body = {"spec": {"replicas": step["scale"]}}
        await self.api.patch(self.kind, self.namespace, self.name, body, "scale")
        self.submitted = await self.api.get(self.kind, self.namespace, self.name)

    async def _pod_group(self, step: Json) -> None:
        for gvk in (VOLCANO_GROUP, PLUGINS_GROUP):
            with contextlib.suppress(NotFound):
                body = {"status": {"phase": step["podGroup"]}}
                groups = (await self.api.list(gvk, self.namespace))["items"]
                for group in groups:
                    await self._patch_status(gvk, name_of(group), body)

    async def _patch_status(self, gvk: GVK, name: str, body: Json) -> None:
        """Through the subresource `status`, or the object itself where its definition has none."""
        try:
            await self.api.patch(gvk, self.namespace, name, body, "status")
        except NotFound:
            await self.api.patch(gvk, self.namespace, name, body)

    async def _matching(self, patterns: Sequence[str]) -> list[Json]:
        """The pods of each pattern, in the order of the patterns, as soon as each has one."""
        deadline = time.monotonic() + APPEAR
        while True:
            items = (await self.api.list(POD, self.namespace))["items"]
            matching = [[item for item in items if fnmatchcase(name_of(item), pattern)] for pattern in patterns]
            if all(matching):
                return [pod for group in matching for pod in group]
            if time.monotonic() > deadline:
                absent = [pattern for pattern, group in zip(patterns, matching, strict=True) if not group]
                raise AbsentPods(
                    f"{self.name}: no pod {', '.join(absent)}; there are {[name_of(item) for item in items]}"
                )
            await asyncio.sleep(0.1)

    async def _pods(self, step: Json) -> None:
        for pod in await self._matching(step["pods"]):
            if step.get("from", phase := pod["status"].get("phase")) != phase:
                continue
            await self.api.patch(POD, self.namespace, name_of(pod), {"status": pod_status(pod, step)}, "status")

    async def _delete_pods(self, step: Json) -> None:
        for pod in await self._matching(step["deletePods"]):
            await self.api.delete(POD, self.namespace, name_of(pod), grace_period_seconds=0)

    async def _evict_pods(self, step: Json) -> None:
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        for pod in await self._matching(step["evictPods"]):
            await self.api.patch(POD, self.namespace, name_of(pod), {"status": status}, "status")


class AbsentPods(Exception):
    """A step names pods that the operator has not made."""


def pod_status(pod: Json, step: Json) -> Json:
    """The status that a kubelet writes in that phase."""
    phase, now = step["phase"], format_time(time.time())
    ready = phase == "Running"
    conditions = [
        {"type": kind, "status": "True" if ready else "False", "lastTransitionTime": now}
        for kind in ("Ready", "ContainersReady")
    ]
    conditions[:0] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
    status: Json = {"phase": phase, "conditions": conditions, "startTime": now}
    if phase != "Pending" and ("exitCode" in step or ready):
        status["containerStatuses"] = [_container_status(each, step, now) for each in pod["spec"]["containers"]]
    return status


def _container_status(container: Json, step: Json, now: str) -> Json:
    code = step.get("exitCode") if step.get("container") in (None, container["name"]) else 0
    if step["phase"] == "Running":
        state: Json = {"running": {"startedAt": now}}
    else:
        reason = "Error" if code else "Completed"
        state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": step["phase"] == "Running",
        "started": step["phase"] == "Running",
        "restartCount": step.get("restarts", 0),
        "state": state,
    }
