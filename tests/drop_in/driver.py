"""Runs scenarios against an API server, and reads what the operator has made after each step.

    async with Driver(api, job_kinds) as driver:
        answers = await driver.run(scenarios)

Rules:
- Each scenario has a namespace of its own, which is left as it is: the server is thrown away. Pods run nowhere; their
  phases are what the steps say.
- The scenarios go in step. After each step the driver waits until nothing has been written anywhere for `settle`
  seconds, events included (quiet.py), and until the operator has answered to a write of the driver's own (canary.py):
  an operator that is slow with one job, or on a busy machine, is waited for.
- A refused write is an answer, too: the step gets `"refused": {"code": ..., "message": ...}`. A step that names pods
  that are not there gets `"absent": [PATTERN, ...]`, and a job that writes for ever `"restless": true`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, TypeVar

from tests.drop_in.canary import canary_for, set_pod_group_phase
from tests.drop_in.quiet import Objects
from tests.drop_in.scenario import Scenario
from tests.drop_in.snapshot import SECTIONS, snapshot
from tests.support.watched_objects import until_object
from trainyard.client import AlreadyExists, ApiClient, ApiError, NotFound
from trainyard.objects import GVK, Json, format_time, name_of
from trainyard.objects.resources import EVENT, NAMESPACE, POD, SERVICE_ACCOUNT

PATIENCE = 10.0  # seconds in which only the same jobs write, until they are taken for ones that never rest
TRIES = 10
SHORTEST_LIMIT = 5.0  # seconds of a wait that is for a time limit of the job, and not for a controller
WIDTH = 16  # requests at one time
REFUSALS = (400, 403, 409, 422)
CREATE: Json = {"create": "job"}
TEMPLATES = "TrainingRuntime"
Value = TypeVar("Value")
_numbers = itertools.count(1)


async def together(calls: Iterable[Callable[[], Awaitable[Value]]]) -> list[Value]:
    """All of them, WIDTH at a time; what they returned, in their order."""
    gate = asyncio.Semaphore(WIDTH)

    async def call(work: Callable[[], Awaitable[Value]]) -> Value:
        async with gate:
            return await work()

    return await asyncio.gather(*map(call, calls))


class Driver:
    """Use as a context. `absent` are then the sections of a snapshot whose resource the server does not have."""

    def __init__(self, api: ApiClient, job_kinds: Sequence[GVK], settle: float) -> None:
        self._api, self._settle = api, settle
        self._kinds = {(gvk.api_version, gvk.kind): gvk for gvk in job_kinds}
        self._sections: dict[str, GVK] = {}
        self.absent: frozenset[str] = frozenset()

    async def __aenter__(self) -> Driver:
        self._sections = {section: gvk for section, gvk in SECTIONS.items() if await self._serves(gvk)}
        self.absent = frozenset(SECTIONS.keys() - self._sections.keys())
        self._objects = Objects(self._api, (*self._kinds.values(), *self._sections.values(), EVENT))
        await self._objects.start()
        namespace = await self._create_namespace("canary")
        self._canary = canary_for(self._api, self._objects, self._kinds, namespace)
        await self._canary.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._objects.stop()

    async def _serves(self, gvk: GVK) -> bool:
        try:
            await self._api.list(gvk, limit=1)
        except NotFound:
            return False
        return True

    async def run(self, scenarios: Sequence[Scenario], pause: float = 0.0) -> list[list[Json]]:
        """For each scenario the steps with what there was after each: `[{"do": STEP, "snapshot": {...}}, ...]`.
        Before each step, and between the pods of one, passes a random time of at most `pause` seconds.

        A scenario of a time limit (`{"wait": SECONDS}`) runs again when its other steps have taken so long.
        """
        answers = dict[int, list[Json]]()
        for _ in range(TRIES):
            left = [number for number in range(len(scenarios)) if number not in answers]
            runs = await self._run([scenarios[number] for number in left], pause)
            answers |= {number: run.answers for number, run in zip(left, runs, strict=True) if not run.late}
            if len(answers) == len(scenarios):
                return [answers[number] for number in range(len(scenarios))]
        late = sorted(scenario.path for number, scenario in enumerate(scenarios) if number not in answers)
        raise AssertionError(f"in {TRIES} tries this machine was too slow for the time limits of {late}")

    async def _run(self, scenarios: Sequence[Scenario], pause: float) -> list[_Run]:
        await self._settled()
        runs = await together(lambda scenario=scenario: self._open(scenario, pause) for scenario in scenarios)
        if any(TEMPLATES in (item["kind"] for item in scenario.objects) for scenario in scenarios):
            await self._settled()  # a webhook reads them from its cache
        while active := [run for run in runs if run.left]:
            await together(run.advance for run in active)
            restless = await self._settled()
            for run in active:
                self._look(run, restless)
        await together(run.delete for run in runs if any("restless" in answer for answer in run.answers))
        return runs

    async def _settled(self) -> frozenset[str]:
        canary = self._canary
        return await self._objects.settled(self._settle, PATIENCE, canary.round_trip, canary.namespace)

    async def _open(self, scenario: Scenario, pause: float) -> _Run:
        namespace = await self._create_namespace("drop-in")
        kind = self._kinds[scenario.manifest["apiVersion"], scenario.manifest["kind"]]
        run = _Run(self._api, namespace, kind, scenario, pause)
        for item in scenario.objects:
            await run.create_object(item, (*self._sections.values(), *self._kinds.values()))
        return run

    def _look(self, run: _Run, restless: Set[str]) -> None:
        """Complete the answer of the last step. Nothing more is done with a job that was not created."""
        if not run.submitted:
            run.left = []
            return
        if run.namespace in restless:
            run.answers[-1]["restless"] = True
        objects = {section: self._objects.items(gvk, run.namespace) for section, gvk in self._sections.items()}
        jobs = [job for job in self._objects.items(run.kind, run.namespace) if name_of(job) == run.name]
        events = self._objects.items(EVENT, run.namespace)
        run.answers[-1]["snapshot"] = snapshot(jobs[0] if jobs else None, run.submitted, objects, events)
        run.check_time()

    async def _create_namespace(self, prefix: str) -> str:
        """A new one, in which pods can be created."""
        namespace = f"{prefix}-{next(_numbers)}-{time.time_ns() % 10**6:06}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await self._api.create(NAMESPACE, "", body)
        await until_object(self._api, SERVICE_ACCOUNT, namespace, "default", bool, "the default ServiceAccount")
        return namespace


class _Run:
    """One job in its namespace."""

    def __init__(self, api: ApiClient, namespace: str, kind: GVK, scenario: Scenario, pause: float = 0.0) -> None:
        self.api, self.namespace, self.kind = api, namespace, kind
        self._pause = pause
        manifest = scenario.manifest
        self.manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
        self.name = name_of(manifest)
        self.submitted: Json = {}
        self.left: list[Json] = [CREATE, *scenario.steps]
        self.answers: list[Json] = []
        limits = [step["wait"] for step in scenario.steps if step.get("wait", 0) >= SHORTEST_LIMIT]
        self._limit = min(limits, default=math.inf)
        policy = {**manifest["spec"], **(manifest["spec"].get("runPolicy") or {})}
        self._counts_from_end = "activeDeadlineSeconds" not in policy  # a TTL
        self._since = time.monotonic()
        self.late = False

    def check_time(self) -> None:
        """After each step: `late` if the steps since the last wait, for a TTL this step, took as long as the limit."""
        now = time.monotonic()
        if "wait" in self.answers[-1]["do"]:
            self._since = now
        elif now - self._since >= self._limit - 1:  # times of the API are whole seconds
            self.late = True

    async def advance(self) -> None:
        """Do the next step, and begin its answer."""
        step = self.left.pop(0)
        if self._counts_from_end:
            self._since = time.monotonic()
        answer: Json = {"do": step}
        self.answers.append(answer)
        try:
            await self._wait_a_random_time()
            await self._act(step)
        except ApiError as error:
            if error.code not in REFUSALS:
                raise
            answer["refused"] = {"code": error.code, "message": error.message.replace(self.namespace, "<namespace>")}
        except AbsentPods as error:
            answer["absent"] = error.args[0]

    async def _wait_a_random_time(self) -> None:
        if self._pause:
            await asyncio.sleep(random.uniform(0, self._pause))

    async def _act(self, step: Json) -> None:
        actions: Mapping[str, Callable[[Json], Any]] = {
            "create": self._create,
            "pods": self._pods,
            "deletePods": self._delete_pods,
            "evictPods": self._evict_pods,
            "patch": self._patch,
            "scale": self._scale,
            "podGroup": self._pod_group,
            "wait": lambda step: asyncio.sleep(step["wait"]),
            "delete": lambda step: self.delete(),
        }
        (action,) = step.keys() & actions.keys()
        await actions[action](step)

    async def delete(self) -> None:
        with contextlib.suppress(NotFound):
            await self.api.delete(self.kind, self.namespace, self.name)

    async def create_object(self, item: Json, resources: Iterable[GVK]) -> None:
        """One that is not in a namespace may be there already, from another run."""
        (gvk,) = (gvk for gvk in resources if (gvk.api_version, gvk.kind) == (item["apiVersion"], item["kind"]))
        if not item["kind"].startswith("Cluster"):
            await self.api.create(gvk, self.namespace, item)
            return
        with contextlib.suppress(AlreadyExists):
            await self.api.create(gvk, "", item)

    async def _create(self, _: Json) -> None:
        self.submitted = await self.api.create(self.kind, self.namespace, self.manifest)

    async def _patch(self, step: Json) -> None:
        self.submitted = await self.api.patch(self.kind, self.namespace, self.name, step["patch"])

    async def _scale(self, step: Json) -> None:
        body = {"spec": {"replicas": step["scale"]}}
        await self.api.patch(self.kind, self.namespace, self.name, body, "scale")
        self.submitted = await self.api.get(self.kind, self.namespace, self.name)

    async def _pod_group(self, step: Json) -> None:
        await set_pod_group_phase(self.api, self.namespace, step["podGroup"])

    async def _matching(self, patterns: Sequence[str]) -> list[Json]:
        """The pods of each pattern, in the order of the patterns. Raises AbsentPods."""
        items = (await self.api.list(POD, self.namespace))["items"]
        matching = [[item for item in items if fnmatchcase(name_of(item), pattern)] for pattern in patterns]
        if absent := [pattern for pattern, group in zip(patterns, matching, strict=True) if not group]:
            raise AbsentPods(absent)
        return [pod for group in matching for pod in group]

    async def _pods(self, step: Json) -> None:
        for pod in await self._matching(step["pods"]):
            if step.get("from", phase := pod["status"].get("phase")) != phase:
                continue
            await self._patch_pod(pod, pod_status(pod, step))
            await self._wait_a_random_time()

    async def _delete_pods(self, step: Json) -> None:
        for pod in await self._matching(step["deletePods"]):
            with contextlib.suppress(NotFound):
                await self.api.delete(POD, self.namespace, name_of(pod), grace_period_seconds=0)
            await self._wait_a_random_time()

    async def _evict_pods(self, step: Json) -> None:
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        for pod in await self._matching(step["evictPods"]):
            await self._patch_pod(pod, status)

    async def _patch_pod(self, pod: Json, status: Json) -> None:
        """The operator may have deleted it meanwhile."""
        with contextlib.suppress(NotFound):
            await self.api.patch(POD, self.namespace, name_of(pod), {"status": status}, "status")


class AbsentPods(Exception):
    """There are no pods of these patterns."""


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
        status["containerStatuses"] = [
            _container_status(container, step, now) for container in pod["spec"]["containers"]
        ]
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
