"""What the fault stories share: an operator with its own account, a kubelet that the test plays, and what must hold.

Rules for this file:
- The operator has exactly the rights that we install, in one namespace, under a user of its own: the audit log then
  says what it asked. It is either `Operating` in this process, or a process (`Program`) that can be stopped.
- Pods name a scheduler that nobody is, so nothing but `Kubelet` starts them, whatever nodes there are.
- Waiting means looking until it is so. The API server may be away meanwhile: that is no answer, not a failure.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support import running_operator
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import AuditedRequest, of
from tests.support.control_plane_process import ControlPlaneProcess
from tests.support.samples import elasticjob, pods
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.app.config import shipped_files
from trainyard.app.install.installation import Install, Names, access
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.operating import OperatorOptions, OperatorProcess, parse_kinds
from trainyard.client import ApiClient, ApiError, NotFound, Unavailable
from trainyard.controller_runtime.controller import Controller, enqueue_object
from trainyard.controller_runtime.reflector import WatchTarget
from trainyard.core import Config
from trainyard.kinds import ELASTICJOB, TFJOB
from trainyard.objects import (
    GVK,
    Json,
    NamespacedName,
    encode,
    find_condition,
    format_time,
    is_condition_true,
    labels_of,
    name_of,
    uid_of,
)
from trainyard.objects.labels import OWNER, ROLE
from trainyard.objects.resources import JOB, POD

PATIENCE = 60.0
NOBODY = "played-by-the-test"


# --- who asks


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount, and a kubeconfig with its token."""

    name: str
    namespace: str
    kubeconfig: Path

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"


def enlist(plane: ControlPlane, namespace: str, folder: Path, name: str = "operator", kinds: str = "all") -> Account:
    """An account with the rights of an operator of this namespace, as `trainyard manifests` says."""
    names = Names(name, name, name, f"{name}-lease", f"{name}-lease")
    install = Install(namespace=namespace, kinds=parse_kinds(kinds), namespaced=True, names=names)
    apply(plane, *access(install))
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    code, answer = plane.ask("POST", path, body)
    assert code == 201, answer
    whole = json.loads(plane.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    whole["users"][0]["user"] = {"token": answer["status"]["token"]}
    whole["contexts"][0]["context"]["namespace"] = namespace
    config = folder / f"{name}.kubeconfig"
    config.touch(mode=0o600)
    config.write_bytes(encode(whole))
    return Account(name, namespace, config)


def apply(plane: ControlPlane, *items: Json) -> str:
    whole = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    return plane.kubectl("apply", "-f", "-", stdin=encode(whole).decode())


def options(account: Account, kinds: str = "all", config: Config | None = None, **more: Any) -> OperatorOptions:
    config = config or Config(program_files=shipped_files())
    return OperatorOptions(
        read_kubeconfig([account.kubeconfig]), parse_kinds(kinds), config, namespace=account.namespace, **more
    )


operating = partial(running_operator.operating, seconds=2.0)  # its API server may be away


class Program:
    """`trainyard operator` as a process."""

    def __init__(self, account: Account, *arguments: str) -> None:
        command = [sys.executable, "-m", "trainyard", "operator", "--kubeconfig", str(account.kubeconfig)]
        command += ["--namespace", account.namespace, "--metrics-bind-address", "127.0.0.1:0", *arguments]
        log = account.kubeconfig.with_suffix(".log")
        self.account = account
        self.process = ControlPlaneProcess(account.name, command, log, {"PATH": "/usr/bin:/bin"})

    def start(self) -> None:
        self.process.start()

    def end(self) -> None:
        self.process.end()

    def output(self) -> str:
        return self.process.log.read_text() if self.process.log.exists() else ""

    def get(self, path: str) -> str:
        """What it serves there; "" before it serves anything."""
        addresses = re.findall(r"serving health and metrics host=(\S+) port=(\d+)", self.output())
        if not addresses:
            return ""
        try:
            with urllib.request.urlopen(f"http://{addresses[-1][0]}:{addresses[-1][1]}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        except OSError:
            return ""

    def leads(self) -> bool:
        return "\ntrainyard_leader 1.0\n" in self.get("/metrics")


# --- jobs


def tf_job(name: str, workers: int = 1, **pod: Any) -> Json:
    """A MASTER and workers; the RuntimeId is given, so that the names of children are known."""
    template = pods("tensorflow", **{"restartPolicy": "OnFailure", "schedulerName": NOBODY, **pod})
    sets = [{"replicas": count, "tfReplicaType": role, "template": template} for role, count in
            (("MASTER", 1), ("WORKER", workers)) if count]  # fmt: skip
    spec = {"RuntimeId": name[-4:].rjust(4, "x"), "replicaSpecs": sets}
    return {"apiVersion": TFJOB.gvk.api_version, "kind": "TfJob", "metadata": {"name": name}, "spec": spec}


def elastic_job(name: str, workers: int = 2, **pod: Any) -> Json:
    """Its workers are Pods that the operator makes itself."""
    template = pods("elasticjob-worker", **{"schedulerName": NOBODY, **pod})
    job = elasticjob(workers, worker={"template": template})
    return {**job, "metadata": {"name": name}}


class Kubelet:
    """Starts every pod of the namespace and ends the roles that the test names. Errors of the API server are
    ignored."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self.ends: dict[tuple[str, str], int] = {}  # uid of a job ("": all), role -> exit code of its pods from now on
        self._api = api
        self.loop: Controller[NamespacedName] = Controller(api, self._reconcile, workers=4)
        self.pods = self.loop.watch(WatchTarget(POD, namespace), enqueue_object)

    def end(self, role: str, code: int = 0, job: str = "") -> None:
        self.ends[job, role] = code
        for pod in self.pods:
            self.loop.queue.add(NamespacedName(pod["metadata"]["namespace"], name_of(pod)))

    async def _reconcile(self, key: NamespacedName) -> float | None:
        pod = self.pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return None
        with suppress(NotFound):
            await self._advance(pod, key)
        return None

    async def _advance(self, pod: Json, key: NamespacedName) -> None:
        labels, phase = labels_of(pod), pod["status"].get("phase", "Pending")
        role = labels.get(ROLE, "").upper()
        code = self.ends.get((labels.get(OWNER, ""), role), self.ends.get(("", role)))
        at = format_time(time.time())
        if phase == "Pending" and pod["spec"].get("schedulerName") == NOBODY:
            await self._say(pod, key, "Running", {"running": {"startedAt": at}})
        elif phase == "Running" and code is not None:
            end = {"exitCode": code, "startedAt": at, "finishedAt": at, "reason": "Error" if code else "Completed"}
            await self._say(pod, key, "Failed" if code else "Succeeded", {"terminated": end})

    async def _say(self, pod: Json, key: NamespacedName, phase: str, state: Json) -> None:
        named = [container["name"] for container in pod["spec"]["containers"]]
        runs = "True" if phase == "Running" else "False"
        status = {
            "phase": phase,
            "startTime": format_time(time.time()),
            "conditions": [{"type": "Ready", "status": runs}],
            "containerStatuses": [
                {"name": name, "state": state, "restartCount": 0, "image": "", "imageID": "", "ready": runs == "True"}
                for name in named
            ],
        }
        await self._api.patch(POD, *key, {"metadata": {"uid": uid_of(pod)}, "status": status}, "status")


# --- one story


class Story:
    """One namespace, its operator's account, and a kubelet."""

    def __init__(self, plane: ControlPlane, namespace: str, account: Account, api: ApiClient, kubelet: Kubelet) -> None:
        self.plane, self.namespace, self.account = plane, namespace, account
        self.api, self.kubelet = api, kubelet
        self._mark = plane.audit.mark()

    async def submit(self, job: Json) -> Json:
        """As soon as the API server serves the kind: just after its definition it does not for a moment."""
        gvk = gvk_of(job)
        return await self.tries(lambda: self.api.create(gvk, self.namespace, job))

    async def tries(self, ask: Callable[[], Awaitable[Json]]) -> Json:
        """The answer, however often the API server is away."""
        return await until_async(ask, "the API server answers", retry_on=(Unavailable, NotFound), pause=SLOW_PAUSE)

    async def until(self, true: Callable[[Json], object], job: Json, seconds: float = PATIENCE) -> Json:
        """Wait until that holds of the job. The API server may be away meanwhile."""
        return await until_async(
            lambda: self.api.get(gvk_of(job), self.namespace, name_of(job)),
            f"the condition of job {name_of(job)}",
            accept=true,
            retry_on=ApiError,
            seconds=seconds,
            pause=SLOW_PAUSE,
        )

    async def condition(self, kind: str, job: Json, seconds: float = PATIENCE) -> Json:
        """Until that condition of the job is true; the condition."""
        ended_job = await self.until(lambda job_now: is_condition_true(conditions(job_now), kind), job, seconds)
        return find_condition(conditions(ended_job), kind) or {}

    async def running(self, job: Json, **roles: int) -> Json:
        """Wait until so many replicas of each role run, by the job's status."""
        return await self.until(lambda job_now: {role: tally(job_now).get(role) for role in roles} == roles, job)

    async def first(self, gvk: GVK) -> None:
        """Until one more of them is made, and then at once: in the midst of whatever is under way."""
        listed = await self.api.list(gvk, self.namespace)
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(self.api.watch(gvk, self.namespace, listed["metadata"]["resourceVersion"])) as lines,
        ):
            async for line in lines:
                if json.loads(line)["type"] == "ADDED":
                    return

    async def fresh_controllers(self) -> None:
        """Kubernetes' own need minutes to notice that a server which was silent is back. They are not what is tried."""
        controllers = "kube-controller-manager"
        self.plane.stop(controllers)
        await asyncio.to_thread(self.plane.begin(controllers))

    async def children(self, gvk: GVK = JOB) -> dict[str, str]:
        """The uids of the children of that kind, by name."""
        listed = await self.api.list(gvk, self.namespace, OWNER)
        return {name_of(item): uid_of(item) for item in listed["items"]}

    def requests(self, mark: int = -1) -> list[AuditedRequest]:
        """The requests of the operator since the mark, or since the story began."""
        return of(self.account.user, self.plane.audit.since(self._mark if mark < 0 else mark))


@asynccontextmanager
async def story(plane: ControlPlane, namespace: str, folder: Path, kinds: str = "all") -> AsyncIterator[Story]:
    account = enlist(plane, namespace, folder, kinds=kinds)
    async with plane.api() as api, plane.api() as other:
        kubelet = Kubelet(other, namespace)
        await kubelet.loop.start()
        try:
            yield Story(plane, namespace, account, api, kubelet)
        finally:
            await kubelet.loop.stop()
            plane.resume()
            plane.up()  # whatever the story has left paused or stopped


# --- what must hold


def count_creates(requests: Iterable[AuditedRequest]) -> Counter[tuple[str, str]]:
    """How often each child was made: by resource and name."""
    return Counter(
        (request.resource, request.name) for request in requests
        if request.verb == "create" and request.code == 201 and request.resource not in ("events", "leases")
    )  # fmt: skip


def writes(requests: Iterable[AuditedRequest]) -> list[AuditedRequest]:
    """What changes objects of jobs."""
    reads = ("get", "list", "watch")
    return [
        request for request in requests if request.verb not in reads and request.resource not in ("events", "leases")
    ]


def assert_no_child_created_twice(requests: Iterable[AuditedRequest]) -> None:
    """Each child was made once, and none was deleted."""
    requests = list(requests)
    twice = {write: count for write, count in count_creates(requests).items() if count > 1}
    assert not twice, twice
    assert not [request for request in requests if request.verb == "delete"]


def gvk_of(job: Json) -> GVK:
    gvk: GVK = next(kind.gvk for kind in parse_kinds("all") if (kind.gvk.kind, kind.gvk.api_version) ==
                      (job["kind"], job["apiVersion"]))  # fmt: skip
    return gvk


def conditions(job: Json) -> list[Json]:
    job_conditions: list[Json] = (job.get("status") or {}).get("conditions") or []
    return job_conditions


def has_condition(job: Json, kind: str) -> bool:
    return is_condition_true(conditions(job), kind)


def tally(job: Json) -> dict[str, int]:
    """How many replicas of each role run, as the status of a TfJob or an ElasticJob says."""
    status = job.get("status") or {}
    if job["kind"] == "TfJob":
        return {
            replica_status["tf_replica_type"]: replica_status["ReplicasStates"].get("Running", 0)
            for replica_status in status.get("replicaStatuses") or ()
        }
    return {
        role: int(replica_status.get("active", 0))
        for role, replica_status in (status.get("replicaStatuses") or {}).items()
    }


def restarts(job: Json) -> int:
    return int(job["status"].get("restarts", 0))


def value(metrics: str, name: str, **labels: str) -> float:
    """The sum over all series of that name which bear these labels."""
    total = 0.0
    for line in metrics.splitlines():
        series, _, number = line.rpartition(" ")
        if series.partition("{")[0] == name and all(f'{key}="{value}"' in series for key, value in labels.items()):
            total += float(number)
    return total


async def assert_operator_healthy(operator_process: OperatorProcess, scenario: Story) -> None:
    """The operator has logged no bug of its own, and its stores have exactly the objects of the server."""
    for gvk, label in ((TFJOB.gvk, ""), (ELASTICJOB.gvk, ""), (JOB, OWNER), (POD, OWNER)):

        async def counts(gvk: GVK = gvk, label: str = label) -> tuple[int, float]:
            there = len((await scenario.api.list(gvk, scenario.namespace, label))["items"])
            text = operator_process.metrics.render().decode()
            return there, value(text, "trainyard_watch_objects", group=gvk.group, resource=gvk.plural)

        await until_async(
            counts,
            f"the operator knows all {gvk.plural}",
            accept=lambda numbers: numbers[0] == numbers[1],
            retry_on=(Unavailable,),  # after a new start: "storage is (re)initializing"
            pause=SLOW_PAUSE,
        )
    text = operator_process.metrics.render().decode()
    assert value(text, "trainyard_reconcile_total", outcome="fault") == 0
    assert operator_process.alive() == "" and operator_process.ready() == ""


async def growth(count: Callable[[], int], seconds: float) -> int:
    """How much that grows in so many seconds: here time itself is what is looked at."""
    before = count()
    await asyncio.sleep(seconds)
    return count() - before
