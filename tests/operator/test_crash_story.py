"""An operator is killed at any request, before or after the server handled it, and replaced: the result is the same.

The job has default PS with their ConfigMap, a retryable failure of the master (counted once), success, cleanPodPolicy
All, and the TTL. The test sets the clock forward where the operator would wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.operator.operator_cluster import TFJOB, OperatorCluster, Troubled, replica, running_yard, tf_job
from trainyard import kinds
from trainyard.client import ApiClient, ApiRequest, Unavailable
from trainyard.core import Config
from trainyard.objects import Json, is_condition_true, name_of
from trainyard.objects.labels import OWNER
from trainyard.operator import Operator

MOST_CALLS = 36


class Clock:
    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


class OperatorSeries:
    """Operators one after the other: when `killed` is set, the first is stopped and the next started."""

    def __init__(self, cluster: OperatorCluster, api: Troubled) -> None:
        self.cluster = cluster
        self.api: ApiClient = api
        self.killed = asyncio.Event()
        self.operator = self._new()
        self._watching: asyncio.Task[None] | None = None

    def _new(self) -> Operator:
        return Operator(self.api, (kinds.TFJOB,), Config(), now=self.cluster.clock)

    async def run(self) -> None:
        await self.operator.start()
        await self.killed.wait()
        await self.operator.stop()
        await self.api.close()
        self.api = ApiClient(self.cluster.server.url)
        self.operator = self._new()
        await self.operator.start()


@asynccontextmanager
async def operator_series(cluster: OperatorCluster, api: Troubled) -> AsyncIterator[OperatorSeries]:
    series = OperatorSeries(cluster, api)
    running = asyncio.create_task(series.run())
    try:
        yield series
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await series.operator.stop()
        await series.api.close()


async def run_job(cluster: OperatorCluster, clock: Clock, series: OperatorSeries) -> Json:
    """Run the job until its TTL deletes it. Returns its state before that (see `remains`)."""

    async def later(seconds: float, predicate: Callable[[Json], bool]) -> None:
        """Set the clock forward and wait until `predicate(job)` is true; meanwhile enqueue the job again and again."""
        clock.shift += seconds
        waiting = asyncio.create_task(cluster.until(predicate))
        while not waiting.done():
            series.operator.resync()
            await asyncio.wait((waiting,), timeout=0.1)
        await waiting

    roles = [replica("MASTER"), replica("WORKER", 2), {"replicas": 1, "tfReplicaType": "PS"}]
    await cluster.submit(tf_job(cleanPodPolicy="All", ttlSecondsAfterFinished=1000, replicaSpecs=roles, RuntimeId=None))
    # The clock is set forward below: a pod that the operator has not seen by then would count as missing.
    await cluster.until(all_roles_run)
    cluster.end("MASTER", 137)
    await later(5, lambda job: job["status"]["roles"]["MASTER"]["failures"] == 1)
    cluster.node.ends.clear()
    await later(60, lambda job: job["status"]["roles"]["MASTER"]["attempt"] == 1)
    await later(1, lambda job: is_condition_true(job["status"]["conditions"], "Running"))
    cluster.end("MASTER", 0)
    await later(5, lambda job: is_condition_true(job["status"]["conditions"], "Succeeded"))
    for gvk in kinds.TFJOB.roles.children_in(Config()):
        for obj in (await cluster.api.list(gvk, "default", OWNER))["items"]:
            await cluster.gone(gvk, name_of(obj))
    left = await remains(cluster)
    clock.shift += 2000
    gone = asyncio.create_task(cluster.gone(TFJOB, "mnist"))
    while not gone.done():
        series.operator.resync()
        await asyncio.wait((gone,), timeout=0.1)
    await gone
    return left


def all_roles_run(job: Json) -> bool:
    """Whether the operator has seen a running pod of every role."""
    return {role["state"] for role in job.get("status", {}).get("replicaStatuses", ())} == {"Running"}


async def remains(cluster: OperatorCluster) -> Json:
    """The number of children of each kind, and the job's status without the fields that differ between runs."""
    result: Json = {}
    for gvk in kinds.TFJOB.roles.children_in(Config()):
        listed = await cluster.api.list(gvk, "default", OWNER)
        result[gvk.kind] = len(listed["items"])
    result["status"] = timeless((await cluster.job())["status"])
    return result


def timeless(value: Any) -> Any:
    """Remove times, uids, and the fields that depend on the state of the other replicas when the master ended."""
    if isinstance(value, dict):
        drop = ("Time", "runtimeId", "message", "replicaStatuses")
        return {key: timeless(inner) for key, inner in value.items() if not key.endswith(drop)}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


async def run_with_faults(prepare: Callable[[Troubled, asyncio.Event], None]) -> tuple[Json, int]:
    """Run the job with the faults that `prepare` sets up. Returns the result of `run_job` and the number of requests of
    the first operator."""
    clock = Clock()
    async with running_yard(clock) as cluster:
        api = Troubled(cluster.server.url)
        async with operator_series(cluster, api) as series:
            prepare(api, series.killed)
            left = await asyncio.wait_for(run_job(cluster, clock, series), 60)
            return left, len(api.sent)


@pytest.fixture(scope="module")
def without_faults() -> tuple[Json, int]:
    left, calls = asyncio.run(run_with_faults(lambda api, killed: None))
    assert left["status"]["restarts"] == 1
    assert left["Job"] == left["Pod"] == left["Service"] == 0
    assert calls <= MOST_CALLS, "the life has more requests than are tried below: raise MOST_CALLS"
    return left, calls


@pytest.mark.slow
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, MOST_CALLS + 1))
async def test_an_operator_killed_at_any_request_reaches_the_same_result(
    call: int, applied: bool, without_faults: tuple[Json, int]
) -> None:

    def prepare(api: Troubled, killed: asyncio.Event) -> None:
        def die(request: ApiRequest) -> None:
            if killed.is_set() or len(api.sent) + (0 if applied else 1) >= call:
                killed.set()
                raise asyncio.CancelledError

        def dead(request: ApiRequest) -> None:
            if killed.is_set():
                raise asyncio.CancelledError

        api.before, api.after = (dead, die) if applied else (die, dead)

    left, _ = await run_with_faults(prepare)
    assert left == without_faults[0]


@pytest.mark.slow
@pytest.mark.parametrize("applied", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("every", [3, 5, 7])
async def test_repeated_api_server_errors_do_not_change_the_result(
    every: int, applied: bool, without_faults: tuple[Json, int]
) -> None:
    def prepare(api: Troubled, killed: asyncio.Event) -> None:
        count = 0

        def fail(request: ApiRequest) -> None:
            nonlocal count
            count += 1
            if count % every == 0:
                raise Unavailable(500, "InternalError", "the disk hiccups")

        if applied:
            api.after = fail
        else:
            api.before = fail

    left, _ = await run_with_faults(prepare)
    assert left == without_faults[0]
