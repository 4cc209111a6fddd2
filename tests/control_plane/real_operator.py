"""The operator beside a real API server: as the ServiceAccount that we install, with a clock that a test may move.

    async with serving(plane, namespace) as one:
        mark = await one.mark()
        ...
        asked = await one.asked(mark)            what the audit log has of it
        one.passes()                             trainyard_reconcile_total

Rules:
- It is installed for the one namespace of the test, as `trainyard manifests --namespace` says, with every kind.
- The audit log counts. What our client has sent only tells what the log does not: the body of a request.
- KWOK plays the node, and the ends of pods are written by `end_pods`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import AuditedRequest, of
from tests.support.samples import sample
from tests.support.waiting import SLOW_PAUSE, until_async
from tests.support.watched_objects import until_object
from trainyard import kinds
from trainyard.app.config import shipped_files
from trainyard.app.install.installation import Install, access
from trainyard.client import ApiClient, ApiRequest, Forbidden, NotFound
from trainyard.core import Config, Kind
from trainyard.objects import Json, encode, is_condition_true, name_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD, ROLE
from trainyard.operator import Operator
from trainyard.operator.metrics import Metrics

PATIENCE = 30.0
EVENT = "events"


def installation(namespace: str) -> Install:
    return Install(namespace=namespace, kinds=kinds.KINDS, namespaced=True)


async def account(plane: ControlPlane, namespace: str) -> tuple[str, str]:
    """Install the operator's rights; the name of its user and a token, once the API server lets it in."""
    install = installation(namespace)
    items = {"apiVersion": "v1", "kind": "List", "items": access(install)}
    await asyncio.to_thread(lambda: plane.kubectl("apply", "-f", "-", stdin=encode(items).decode()))
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{install.names.operator}/token"
    code, answer = await asyncio.to_thread(plane.ask, "POST", path, {"spec": {"expirationSeconds": 3600}})
    assert code == 201, answer
    token = str(answer["status"]["token"])
    async with plane.api(token=token) as api:
        for gvk in (*(kind.gvk for kind in kinds.ALL), ROLE):
            # The API server learns of a binding, and of a definition, a moment after they are made.
            await until_async(
                lambda gvk=gvk: api.list(gvk, namespace, limit=1),
                f"the operator may list {gvk.plural}",
                retry_on=(Forbidden, NotFound),
                pause=SLOW_PAUSE,
            )
    return f"system:serviceaccount:{namespace}:{install.names.operator}", token


class Clock:
    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


class Served:
    """One operator that runs, and what it has asked."""

    def __init__(self, plane: ControlPlane, user: str, api: ApiClient, namespace: str) -> None:
        self.plane, self.user, self.clock = plane, user, Clock()
        self.sent: list[ApiRequest] = []
        self.metrics = Metrics(kinds.ALL, lambda: True)
        api.on_response = self._observed
        self.operator = Operator(api, kinds.ALL, Config(program_files=shipped_files()), namespace, self.clock)
        self.metrics.observe_operator(self.operator)

    def _observed(self, request: ApiRequest, code: int, seconds: float) -> None:
        self.sent.append(request)
        self.metrics.observe_request(request, code, seconds)

    async def mark(self) -> int:
        return await asyncio.to_thread(self.plane.audit.mark)

    async def requests(self, mark: int) -> list[AuditedRequest]:
        """Its requests since then, as the API server has written them down."""
        return of(self.user, await asyncio.to_thread(self.plane.audit.since, mark))

    def passes(self) -> float:
        return passes(self.metrics)

    async def looked(self) -> None:
        """A whole look at every job, begun after this was called: the second pass over a job follows the first. The
        events are sent then, too."""
        jobs = sum(len(self.operator.jobs(kind.gvk)) for kind in kinds.ALL)
        for _ in range(2):
            before = self.passes()
            self.operator.resync()

            def is_reconciled(count: float = before + jobs) -> bool:
                return self.passes() >= count and idle(self.operator)

            await until_async(is_reconciled, "every job is reconciled")
        await until_async(lambda: not self.operator.waiting_events, "no event waits")

    async def quiet(self) -> None:
        """Until there is nothing more to do: no pass for two seconds. Kubernetes' own controllers tell of pods once a
        second, and counts are written once a second."""
        counts = [-1.0]

        def is_quiet() -> bool:
            counts.append(self.passes())
            return counts[-1] == counts[-2] and idle(self.operator)

        await until_async(is_quiet, "there is no pass for two seconds", pause=2.0)


@asynccontextmanager
async def serving(plane: ControlPlane, namespace: str) -> AsyncIterator[Served]:
    """An operator of that namespace, from the time when it has listed and watches everything."""
    user, token = await account(plane, namespace)
    async with again(plane, namespace, user, token) as served:
        yield served


@asynccontextmanager
async def again(plane: ControlPlane, namespace: str, user: str, token: str) -> AsyncIterator[Served]:
    """The same with rights that are there already."""
    async with plane.api(token=token) as api:
        served = Served(plane, user, api, namespace)
        await served.operator.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await served.operator.synced
            await until_async(
                lambda: sum("watch" in dict(request.query) for request in served.sent) >= len(served.operator.watches),
                "every watch is open",
            )
            yield served
        finally:
            await served.operator.stop()


def passes(metrics: Metrics) -> float:
    """The sum of trainyard_reconcile_total."""
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("trainyard_reconcile_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def idle(operator: Operator) -> bool:
    """No job is due or looked at."""
    return all(state == "later" for _, state in operator.queue.states())


# --- jobs


def bare(kind: Kind, name: str, **spec: Any) -> Json:
    """The sample of that kind as a person sends it, without a RuntimeId."""
    job = sample(kind.gvk.kind)
    whole = {**job["spec"], **spec}
    whole.pop("RuntimeId", None)
    return {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": {"name": name}, "spec": whole}


async def until_condition(api: ApiClient, kind: Kind, namespace: str, name: str, condition: str) -> Json:
    """Wait until there is such a job, and that condition of it is true."""

    accept = partial(has_condition, condition)
    return await until_object(api, kind.gvk, namespace, name, accept, f"{name} is {condition}")


def has_condition(condition: str, job: Json) -> bool:
    return is_condition_true((job.get("status") or {}).get("conditions"), condition)


async def children(api: ApiClient, kind: Kind, namespace: str, uid: str) -> list[Json]:
    """What the operator has made for the job."""
    owned = []
    for gvk in kind.roles.children_in(Config()):
        for item in (await api.list(gvk, namespace, f"{OWNER}={uid}"))["items"]:
            owners = item["metadata"].get("ownerReferences") or [{}]
            owned += [item] if owners[0].get("uid") == uid else []
    return owned


@asynccontextmanager
async def ending(api: ApiClient, namespace: str, uids: Iterable[str]) -> AsyncIterator[None]:
    """Meanwhile every pod of these jobs that runs succeeds."""
    tasks = [asyncio.create_task(end_pods(api, namespace, uid)) for uid in uids]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def end_pods(api: ApiClient, namespace: str, uid: str) -> None:
    """Every pod of the job that runs succeeds, its containers with 0, until this is cancelled."""
    label = f"{OWNER}={uid}"
    while True:
        items = await api.list(POD, namespace, label)
        for pod in items["items"]:
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                with contextlib.suppress(NotFound):  # it went with its job
                    await api.patch(POD, namespace, name_of(pod), {"status": succeeded(pod)}, "status")
        async with aclosing(api.watch(POD, namespace, items["metadata"]["resourceVersion"], label)) as lines:
            await anext(lines, None)


def succeeded(pod: Json) -> Json:
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    ends = [
        {"name": container["name"], "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": done}
        for container in pod["spec"]["containers"]
    ]
    return {"phase": "Succeeded", "containerStatuses": ends}


async def together(calls: Iterable[Callable[[], Any]], width: int = 16) -> list[Any]:
    """All of them, a few at a time; what they answered, in their order."""
    gate = asyncio.Semaphore(width)

    async def limited(call: Callable[[], Any]) -> Any:
        async with gate:
            return await call()

    return await asyncio.gather(*(limited(call) for call in calls))
