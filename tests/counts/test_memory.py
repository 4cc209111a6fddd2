"""What the stores keep of each steady job: bytes that Python has allocated. `make bench-memory` measures a process."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.counts.counted_operator import counted_operator, running, set_pods, start, succeeded
from tests.support import steady_jobs
from trainyard.controller_runtime import object_adapter
from trainyard.controller_runtime.object_adapter import ObjectAdapter, packed_adapter
from trainyard.controller_runtime.reflector import ListReplaced
from trainyard.controller_runtime.store import Store
from trainyard.objects.resources import POD, SERVICE
from trainyard.operator import operator
from trainyard.server import Server

JOBS, PODS = 200, 10
JOB_STORE = f"{steady_jobs.PYTORCHJOB.plural}.{steady_jobs.PYTORCHJOB.group}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.open()
    await steady_jobs.fill(server, JOBS, PODS)
    yield server
    await server.stop()


def bytes_each(server: Server, store_name: str, adapter: ObjectAdapter[Any]) -> float:
    """The bytes of one object in a store, its share of the tables included, without the texts that others share."""
    bodies = [record.body for key, record in server.log.list(store_name) if key.name.startswith("resnet-")]
    shared = list(map(adapter.decode, bodies))  # Python's table of shared texts grows here, not below
    gc.collect()
    tracemalloc.start()
    try:
        store: Store[Any] = Store(adapter)
        store.apply(ListReplaced(tuple(map(adapter.decode, bodies)), "1"))
        gc.collect()
        assert len(store) == len(bodies) == len(shared)
        return tracemalloc.get_traced_memory()[0] / len(bodies)
    finally:
        tracemalloc.stop()


async def test_a_child_is_less_than_half_a_kibibyte(server: Server) -> None:
    for store_name, gvk in (("pods", POD), ("services", SERVICE)):
        assert bytes_each(server, store_name, operator._child_adapter(gvk.kind)) <= 420


async def test_a_job_is_two_kibibytes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_adapter, "MAX_UNPACKED", 0)  # a number of jobs, however many there are
    adapter = packed_adapter(steady_jobs.PYTORCHJOB.api_version, steady_jobs.PYTORCHJOB.kind)
    assert bytes_each(server, JOB_STORE, adapter) <= 2100


async def test_few_parsed_specs_are_kept_and_none_of_a_job_that_runs_on_or_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "MAX_PARSED_SPECS", 8)
    async with counted_operator(monkeypatch, 20, 1) as counted:
        await counted.until(lambda: counted.operator.counts.get("reconciles") == 20, "each job is reconciled")
        await counted.settled()
        states = counted.operator._states

        def kept() -> list[int]:
            return [len(states), sum(state.parsed is not None for state in states.values())]

        assert kept() == [20, 0]
        await start(counted, 20, 1)
        assert kept() == [40, 8]
        await set_pods(counted, 1000, running)
        await set_pods(counted, 1000, succeeded)
        await counted.settled()
        assert kept() == [40, 0]
