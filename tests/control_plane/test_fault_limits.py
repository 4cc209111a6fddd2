"""The API server has no room: real 429s with Retry-After. The operator waits as long as it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.control_plane.fault_stories import (
    Story,
    assert_no_child_created_twice,
    assert_operator_healthy,
    growth,
    operating,
    options,
    restarts,
    story,
    tf_job,
    value,
)
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import Options as PlaneOptions
from tests.support.waiting import until_async
from trainyard.app.operating import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
FULL_SECONDS = 8.0


@pytest.fixture
def own() -> Iterator[ControlPlane]:
    """At most one mutating request at a time, except for the administrator's."""
    with ControlPlane(PlaneOptions(inflight=1)) as plane:
        install(plane)
        create_namespace(plane, "full")
        plane.kubectl("create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user=alice")
        yield plane


@asynccontextmanager
async def full(plane: ControlPlane) -> AsyncIterator[None]:
    """An unfinished request of another client: while the server waits for its end, it accepts no other."""
    secure = plane.identities.secure()
    _, half = await asyncio.open_connection("127.0.0.1", plane.places.api, ssl=secure)
    head = ["POST /api/v1/namespaces/default/configmaps HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 1000"]
    head += [f"Authorization: Bearer {plane.token('alice')}", "Content-Type: application/json"]
    half.write("\r\n".join([*head, "", "{"]).encode())
    await half.drain()
    try:
        yield
    finally:
        half.close()


def refused(operator_process: OperatorProcess) -> int:
    return int(
        value(operator_process.metrics.render().decode(), "trainyard_api_requests_total", code="429", verb="patch")
    )


async def test_a_429_is_retried_after_retry_after_and_nothing_is_lost(own: ControlPlane, tmp_path: Path) -> None:
    job = tf_job("full", 20)
    async with story(own, "full", tmp_path) as scenario, operating(options(scenario.account)) as operator_process:
        await until_async(lambda: operator_process.ready() == "", "everything is listed, one after the other")
        async with full(own):
            await scenario.submit(job)
            await until_async(lambda: refused(operator_process) > 0, "it is refused")
            tries = await growth(lambda: refused(operator_process), FULL_SECONDS)
            assert 1 <= tries <= FULL_SECONDS, tries  # Retry-After: 1, and longer each time
            assert operator_process.alive() == "" and await nobody(scenario)
        await scenario.running(job, MASTER=1, WORKER=20)  # one at a time, so most of them are refused at first
        scenario.kubelet.end("MASTER")
        await scenario.condition("Succeeded", job)
        assert restarts(await scenario.until(lambda job: True, job)) == 0
        await assert_operator_healthy(operator_process, scenario)
        requests = scenario.requests()
        assert sum(request.code == 429 for request in requests) < 200, len(requests)
        assert_no_child_created_twice(requests)


async def nobody(scenario: Story) -> bool:
    return not await scenario.children()
