"""An operator whose requests and plans are counted, with the embedded API server in the same process.

The pods are changed in the log of the server, in bursts, so that counts depend on no clock and no quiet machine: within
a burst the operator does not run, and between two bursts it has nothing left to do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support import steady_jobs
from tests.support.steady_jobs import NAMESPACE, PYTORCHJOB
from tests.support.waiting import until_async
from trainyard import core, kinds
from trainyard.app.local import NOT_SERVED
from trainyard.client import ApiClient, ApiRequest, request_info
from trainyard.core import Config
from trainyard.core.decide import decide
from trainyard.objects import Json, decode, encode, format_time
from trainyard.objects.resources import POD
from trainyard.operator import Operator, operator
from trainyard.server import Server

STARTED = format_time(1_790_000_000)
URL = "http://in-process"


class CountedOperator:
    """`requests` counts the requests of the operator by (verb, resource), `plans` the calls of `decide`."""

    def __init__(self, server: Server, operator: Operator, api: ApiClient, user: ApiClient) -> None:
        self.server = server
        self.operator = operator
        self.user = user
        self.requests: Counter[tuple[str, str]] = Counter()
        self.plans = 0
        api.before_send = self._count_request

    def _count_request(self, request: ApiRequest) -> None:
        self.requests[request_info(request)] += 1

    def count_plans(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = decide

        def counted(job: core.Job, *arguments: Any) -> core.Plan:
            self.plans += 1
            return original(job, *arguments)

        monkeypatch.setattr(operator, "decide", counted)

    @property
    def creates(self) -> int:
        """The pods and Services that the operator has created."""
        return self.requests["create", "pods"] + self.requests["create", "services"]

    @property
    def events(self) -> int:
        return self.requests["create", "events"] + self.requests["patch", "events"]

    @property
    def writes(self) -> int:
        """All writes but those of events."""
        return sum(count for (verb, _), count in self.requests.items() if verb not in ("list", "watch")) - self.events

    def lists(self, resource: str) -> int:
        return self.requests["list", resource]

    async def until(self, condition: Callable[[], bool], awaited: str) -> None:
        """Wait for what stores and queues tell by no event, for five minutes at most."""
        look_at = 0.0

        def look() -> bool:  # of 10,000 jobs a look takes long: at most a twentieth of the time
            nonlocal look_at
            if time.monotonic() < look_at:
                return False
            start = time.thread_time()
            holds = condition()
            look_at = time.monotonic() + 20 * (time.thread_time() - start)
            return holds

        await until_async(look, awaited, context=lambda: self.requests, seconds=300)

    def jobs_with(self, condition: str) -> int:
        return sum(condition in dict(job.conditions) for job in self.operator.jobs(PYTORCHJOB))

    async def handled(self) -> None:
        """Wait until no job is due now. One whose counts have changed may be due later."""
        await self.until(lambda: {state for _, state in self.operator.queue.states()} <= {"later"}, "no job is due")

    async def settled(self) -> None:
        """Wait until no job is due, now or later, and the stores show every write: a watch event makes its job due."""
        writes, states = self.operator.writes, self.operator._states
        await self.until(
            lambda: not any(self.operator.queue.states()) and not any(map(writes.has_pending, states)),
            "the operator is idle",
        )

    async def events_sent(self) -> None:
        """Wait until the operator has sent every event that it has recorded."""
        await self.until(lambda: not self.operator.waiting_events, "no event waits")
        accepted = self.server.verbs
        await self.until(
            lambda: accepted["create", "events"] + accepted["patch", "events"] == self.events, "each event is accepted"
        )


@asynccontextmanager
async def counted_operator(
    monkeypatch: pytest.MonkeyPatch, jobs: int = 0, pods: int = 1, gang_scheduler: str = ""
) -> AsyncIterator[CountedOperator]:
    """An operator that has listed everything: so many running jobs."""
    server = Server()
    await server.open()
    await steady_jobs.fill(server, jobs, pods)
    server.verbs.clear()
    async with (
        ApiClient(URL, transport=server.in_process()) as api,
        ApiClient(URL, transport=server.in_process()) as user,
    ):
        operator = Operator(api, kinds.ALL, Config(missing_resources=NOT_SERVED, gang_scheduler=gang_scheduler))
        counted = CountedOperator(server, operator, api, user)
        counted.count_plans(monkeypatch)
        await operator.start()
        try:
            await operator.synced
            yield counted
        finally:
            await operator.stop()
    await server.stop()


def small_job(name: str, pods: int) -> Json:
    """A PyTorchJob whose pods have one container and nothing else."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example/train"}]}}
    replicas = {"Master": 1, "Worker": pods - 1} if pods > 1 else {"Master": 1}
    specs = {role: {"replicas": count, "template": template} for role, count in replicas.items()}
    return {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"pytorchReplicaSpecs": specs, "runPolicy": {"cleanPodPolicy": "None"}},
    }


async def set_pods(
    counted: CountedOperator, burst: int, change: Callable[[Json], Json], master_last: bool = False
) -> None:
    """Set the status of every pod to `change(pod)`, so many pods in one burst."""
    log, store = counted.server.log, counted.operator._children[POD]
    pods = log.list("pods")[:: -1 if master_last else 1]
    for number, (key, record) in enumerate(pods, 1):
        revision = log.revision + 1
        pod = decode(record.body)
        pod["metadata"]["resourceVersion"] = str(revision)
        pod["status"] = change(pod)
        log.append("pods", key, record._replace(revision=revision, body=encode(pod)), record.revision)
        if number % burst == 0 or number == len(pods):
            await counted.until(lambda reached=str(revision): store.has_reached(reached), "the stores are up to date")
            await counted.handled()


def running(pod: Json) -> Json:
    return steady_jobs.running_status(pod, STARTED)


def succeeded(pod: Json) -> Json:
    terminated = {"exitCode": 0, "reason": "Completed", "finishedAt": STARTED}
    status: Json = pod["status"]
    ended = [{**container, "state": {"terminated": terminated}} for container in status["containerStatuses"]]
    return {**status, "phase": "Succeeded", "containerStatuses": ended}


async def start(counted: CountedOperator, jobs: int, pods: int) -> None:
    """Create so many jobs with so many pods each, and wait for their pods."""
    for number in range(jobs):
        await counted.user.create(PYTORCHJOB, NAMESPACE, small_job(f"job-{number:05}", pods))
    await counted.until(lambda: counted.requests["create", "pods"] == jobs * pods, "every pod is created")
    await counted.settled()


async def live(counted: CountedOperator, jobs: int, pods: int, burst: int, master_last: bool = False) -> None:
    """The whole life of so many jobs with so many pods each: these run, and then succeed, so many in one burst."""
    await start(counted, jobs, pods)
    await set_pods(counted, burst, running)
    await counted.until(lambda: counted.jobs_with("Running") == jobs, "every job is Running")
    await set_pods(counted, burst, succeeded, master_last)
    await counted.until(lambda: counted.jobs_with("Succeeded") == jobs, "every job is Succeeded")
    await counted.settled()
