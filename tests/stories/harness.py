"""A whole local cluster whose pods are controlled by the test.

Every container runs the same few lines: it connects to the harness and evaluates what it is told, one expression a
line. So a story moves when it wants to, never after a while, and the harness knows every process: a connection is one
that lives, and the kernel says which (SO_PEERCRED), so that a story can kill it as an out-of-memory killer would. A
harness plays jobs of any kind; what it is asked about is a job of the kind that was submitted last.

The clock of the cluster is the real one plus a shift. `later(seconds)` moves it and lets all controllers look.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from ast import literal_eval
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.stories.back_ends import Cluster
from tests.stories.controlled_pods import ControlledPod, controlled_container
from tests.support.waiting import until_async
from tests.support.watched_objects import until_gone, until_object, until_objects
from trainyard import kinds
from trainyard.app.local import NOT_SERVED
from trainyard.client import ApiClient, ApiError, ApiRequest
from trainyard.core import Config
from trainyard.kinds.policies import Policies
from trainyard.objects import (
    GVK,
    Json,
    find_condition,
    is_condition_true,
    labels_of,
    name_of,
    operator_status,
    parse_time,
)
from trainyard.objects.labels import ATTEMPT, INDEX, OWNER, ROLE
from trainyard.objects.resources import CONFIG_MAP, CRD, DEPLOYMENT, JOB, POD, SERVICE, STATEFUL_SET
from trainyard.operator import Operator

LOOK_SECONDS = 60.0
TFJOB = kinds.TFJOB.gvk


class Clock:
    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


class Noted(ApiClient):
    """An Api that records its requests, and can fail before or after a short request is executed."""

    def __init__(self, cluster: Cluster, token: str = "") -> None:
        transport = cluster.in_process() if cluster.in_process else None
        super().__init__(cluster.url, token or cluster.token, cluster.secure, transport=transport)
        self.sent: list[ApiRequest] = []
        self.before: Callable[[ApiRequest], None] = lambda request: None
        self.after: Callable[[ApiRequest], None] = lambda request: None

    async def send(self, request: ApiRequest) -> bytes:
        self.before(request)
        self.sent.append(request)
        body = await super().send(request)
        self.after(request)
        return body

    async def stream(self, request: ApiRequest, *more: Any) -> AsyncGenerator[bytes, None]:
        self.sent.append(request)
        async for chunk in super().stream(request, *more):
            yield chunk

    @property
    def writes(self) -> list[ApiRequest]:
        """What changes objects. Events are for people and counted apart (S17)."""
        return [request for request in self.sent if request.method != "GET" and not request.path.endswith("/events")]


class Harness:
    def __init__(self, cluster: Cluster, clock: Clock, folder: Path) -> None:
        self.cluster, self.clock, self.folder = cluster, clock, folder
        self.namespace = cluster.home
        self.patience = cluster.patience
        self.kind = kinds.TFJOB
        self.entered: list[ControlledPod] = []
        self._door: asyncio.Server | None = None
        self._listening: set[asyncio.Task[None]] = set()
        self._operator_api: Noted | None = None

    @property
    def api(self) -> ApiClient:
        return self.cluster.api

    async def open(self) -> None:
        """The namespace has what every namespace is given: a story counts what is made from now on."""
        await self.until(lambda obj: True, CONFIG_MAP, "kube-root-ca.crt")
        self._door = await asyncio.start_unix_server(self._entrance, self.folder / "door")

    async def close(self) -> None:
        if self._operator_api is not None:
            await self._operator_api.close()
        if self._door is not None:
            self._door.close()
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)

    # --- the controlled pods

    async def _entrance(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock: socket.socket = writer.get_extra_info("socket")
        pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if not (line := await reader.readline()):
            return
        controlled = ControlledPod(literal_eval(line.decode()), pid, reader, writer)
        controlled.patience = self.patience
        self.entered.append(controlled)
        task = asyncio.current_task()
        assert task is not None
        self._listening.add(task)
        await controlled.listen()
        self._listening.discard(task)

    def entrances(self, role: str, index: int = 0) -> list[ControlledPod]:
        """Every process that ever ran in this slot."""
        return [controlled for controlled in self.entered if (controlled.role, controlled.index) == (role, index)]

    def running(self) -> Counter[str]:
        """Living processes of jobs, by role."""
        return Counter(
            controlled.role
            for controlled in self.entered
            if controlled.role != "visitor" and not controlled.gone.is_set()
        )

    async def controlled_pod(self, role: str, index: int = 0) -> ControlledPod:
        """The process of this slot, as soon as one is there."""
        await self.until_holds(lambda: any(not entrance.gone.is_set() for entrance in self.entrances(role, index)))
        return next(entrance for entrance in self.entrances(role, index) if not entrance.gone.is_set())

    async def every_replica_runs(self, **cast: int) -> None:
        """Wait until every replica runs: of the usual TfJob, or as many as are named."""
        await self.until_holds(lambda: self.running() == (cast or {"master": 1, "worker": 2, "ps": 1}))

    async def status_counts_every_replica(self) -> Json:
        """Wait until the status counts every replica as running. From then on the operator has nothing to write."""
        return await self.until(lambda job: "status" in job and tally(job) == ALL_RUN)

    async def until_holds(self, true: Callable[[], object]) -> None:
        """Wait until that holds of the controlled pods."""
        await until_async(true, "a condition of the controlled pods", context=self._diagnosis, seconds=self.patience)

    # --- the objects

    async def submit(self, job: Json) -> Json:
        """Make the job, with the way to the harness in each of its pods."""
        kind = kinds.kind_of(job)
        assert kind is not None
        self.kind = kind
        job = deepcopy(job)  # the same one may be played elsewhere, too
        for template in _templates(job["spec"]):
            template["spec"].setdefault("volumes", []).append(self.way())
        return await self.api.create(kind.gvk, self.namespace, job)

    async def edit(self, spec: Json, name: str = "story") -> Json:
        """A merge patch of the job's spec. Policies are those of the kind's run policy, where it has one."""
        field = self.kind.api.policy_field
        policies = {name: spec[name] for name in spec if field and name in Policies.__struct_fields__}
        spec = {name: value for name, value in spec.items() if name not in policies}
        spec = {**spec, field: policies} if policies else spec
        return await self.api.patch(self.kind.gvk, self.namespace, name, {"spec": spec})

    def way(self) -> Json:
        """The volume that leads to the harness."""
        return {"name": "harness", "hostPath": {"path": str(self.folder)}}

    async def visitor(self, namespace: str = "", labels: Json | None = None, **container: Any) -> ControlledPod:
        """A pod of its own, that belongs to no job."""
        spec = {"containers": [controlled_container(**container)], "volumes": [self.way()], "restartPolicy": "Never"}
        meta = {"name": "visitor", "labels": {ROLE: "visitor", **(labels or {})}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await self.api.create(POD, namespace or self.namespace, pod)
        return await self.controlled_pod("visitor")

    async def another(self, namespace: str) -> str:
        """Create another namespace; its name, a generated one where the given name is taken."""
        return await self.cluster.another(namespace)

    async def job(self, name: str = "story") -> Json:
        return await self.api.get(self.kind.gvk, self.namespace, name)

    async def until(self, true: Callable[[Json], object], gvk: GVK | None = None, name: str = "story") -> Json:
        """Wait until the object, a job by default, exists and fulfils the condition."""
        gvk = gvk or self.kind.gvk
        awaited = f"the condition of {gvk.kind} {name}"
        return await until_object(
            self.api, gvk, self.namespace, name, true, awaited, context=self._diagnosis, seconds=self.patience
        )

    async def condition(self, kind: str, name: str = "story") -> Json:
        """Wait until that condition of the job is true; the condition."""
        job = await self.until(lambda job: is_condition_true(_conditions(job), kind), name=name)
        return find_condition(_conditions(job), kind) or {}

    async def gone(self, gvk: GVK, name: str, uid: str = "") -> None:
        """Wait until there is no such object; with a uid, until it is another one or none."""
        await until_gone(self.api, gvk, self.namespace, name, uid=uid, context=self._diagnosis, seconds=self.patience)

    @property
    def child_resources(self) -> tuple[GVK, ...]:
        """The resources of the job's children that both back ends serve."""
        return self.kind.roles.children_in(Config(missing_resources=NOT_SERVED))

    async def nothing_left(self) -> None:
        """Wait until no child of any job is there."""
        for gvk in self.child_resources:
            for obj in (await self.api.list(gvk, self.namespace, OWNER))["items"]:
                await self.gone(gvk, name_of(obj))

    async def children(self, gvk: GVK) -> dict[str, Json]:
        return {name_of(item): item for item in (await self.api.list(gvk, self.namespace, OWNER))["items"]}

    async def pod(self, role: str, index: int = 0) -> Json:
        """The one pod of this slot that is not on its way out, as soon as there is one."""

        def of_the_slot(pods: list[Json]) -> list[Json]:
            return [
                pod
                for pod in pods
                if (labels_of(pod)[ROLE].lower(), _index(pod)) == (role, index)
                and "deletionTimestamp" not in pod["metadata"]
            ]

        awaited, labels = f"a pod of {role} {index}", f"{OWNER},{ROLE}"
        matching = of_the_slot(
            await until_objects(
                self.api, POD, self.namespace, of_the_slot, awaited, labels=labels, seconds=self.patience
            )
        )
        assert len(matching) == 1, [name_of(child) for child in matching]
        return matching[0]

    async def logs(self, pod: str) -> str:
        return b"".join(
            [chunk async for chunk in self.api.logs(self.namespace, pod, self.kind.roles.container)]
        ).decode()

    async def _diagnosis(self) -> str:
        """The observed objects, for the message of a story that timed out."""
        lines = [f"running: {self.running()}"]
        for gvk in (self.kind.gvk, *self.child_resources):
            for obj in (await self.api.list(gvk, self.namespace))["items"]:
                lines.append(f"{gvk.kind} {name_of(obj)}: {json.dumps(obj.get('status', {}))}")
        return "\n".join(lines)

    # --- the clock and the operator

    async def had_failed(self, name: str = "story") -> None:
        """The attempts of the job before the present one made no progress: its next failure waits for the longest
        back-off, six minutes from its end, or, where replicas restart alone, ten seconds from its start."""
        roles = operator_status(await self.until(lambda job: operator_status(job).get("roles"), name=name))["roles"]
        status = {"roles": {role: {"withoutProgress": 9} for role in roles}}
        await self.api.patch(self.kind.gvk, self.namespace, name, {"status": status}, "status")

    def later(self, seconds: float) -> None:
        self.clock.shift += seconds
        self.cluster.resync()

    def set_to(self, time: object, seconds: float) -> None:
        """So many seconds after that time of the API's, however long the story has taken since."""
        began = parse_time(time)
        assert began is not None, time
        self.later(began + seconds - self.clock())

    async def operator(self, prepare: Callable[[Noted], None] = lambda api: None) -> tuple[Operator, Noted]:
        """A new operator in the place of the one before, and its own connection to the API server."""
        old, self._operator_api = self._operator_api, Noted(self.cluster)
        prepare(self._operator_api)
        operator = await self.cluster.start_operator(self._operator_api)
        if old is not None:
            await old.close()
        async with asyncio.timeout(self.patience):
            await operator.synced
        return operator, self._operator_api


async def looked(operator: Operator, jobs: int = 1) -> None:
    """Until the operator has had a whole look at every job, begun after this was called, and has sent its events.

    Reconciles of one job follow each other, so when the third has begun, the second is over.
    """
    for _ in range(3):
        before = operator.counts.get("reconciles", 0)
        operator.resync()
        await until_async(
            lambda before=before: operator.counts.get("reconciles", 0) >= before + jobs,
            "every job is reconciled",
            seconds=LOOK_SECONDS,
            pause=0,
        )
    await until_async(lambda: not operator.waiting_events, "no event waits", seconds=LOOK_SECONDS)


def replicas(role: str, count: int = 1, container: Json | None = None, **pod: Any) -> Json:
    """One set of controlled pods."""
    spec = {"restartPolicy": "OnFailure", "containers": [container or controlled_container()], **pod}
    return {"replicas": count, "tfReplicaType": role, "template": {"spec": spec}}


def tf_job(*sets: Json, name: str = "story", **spec: Any) -> Json:
    """A job; without sets: a master, two workers and a PS."""
    role_sets = sets or (replicas("MASTER"), replicas("WORKER", 2), replicas("PS"))
    return {
        "apiVersion": TFJOB.api_version,
        "kind": TFJOB.kind,
        "metadata": {"name": name},
        "spec": {"replicaSpecs": list(role_sets), **spec},
    }


def _templates(part: Any) -> list[Json]:
    """Every pod template in a spec."""
    if isinstance(part, list):
        return [template for item in part for template in _templates(item)]
    if not isinstance(part, dict):
        return []
    own = [part["template"]] if isinstance(part.get("template"), dict) else []
    return own + [template for key, value in part.items() if key != "template" for template in _templates(value)]


def place_of(refused: ApiError) -> str:
    """What a refusal says, with paths as we write them: a real server puts the key of a map in brackets."""
    return re.sub(r"\[([A-Za-z][\w-]*)\]", r".\1", refused.message)


def _index(pod: Json) -> int:
    """Of the slot, or of the pod in its set."""
    labels = labels_of(pod)
    return int(labels.get("apps.kubernetes.io/pod-index") or labels[INDEX])


def _conditions(job: Json) -> list[Json]:
    conditions: list[Json] = job.get("status", {}).get("conditions") or []
    return conditions


ALL_RUN = {"MASTER": {"Running": 1}, "WORKER": {"Running": 2}, "PS": {"Running": 1}}


def tally(job: Json) -> dict[str, Json]:
    """How many replicas are in which state, by role, as the status says."""
    return {
        replica_status["tf_replica_type"]: replica_status["ReplicasStates"]
        for replica_status in job["status"]["replicaStatuses"]
    }


def restarts(job: Json) -> int:
    return int(job["status"].get("restarts", 0))


def failures(job: Json) -> int:
    """Failed attempts that the operator has counted, whether or not something was started after them."""
    return sum(int(role["failures"]) for role in job["status"].get("roles", {}).values())


def attempt_of(obj: Json) -> str:
    return labels_of(obj)[ATTEMPT]


__all__ = [
    "CONFIG_MAP",
    "CRD",
    "DEPLOYMENT",
    "JOB",
    "POD",
    "SERVICE",
    "STATEFUL_SET",
    "TFJOB",
    "Clock",
    "Cluster",
    "ControlledPod",
    "Harness",
    "Noted",
    "attempt_of",
    "controlled_container",
    "failures",
    "looked",
    "place_of",
    "replicas",
    "restarts",
    "tally",
    "tf_job",
]  # fmt: skip
