"""The operator stores the defaults of a job in its spec, and goes on with the spec that the server has stored."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.operator.operator_cluster import OperatorCluster, Troubled, running_yard, tf_job
from trainyard.client import ApiRequest
from trainyard.objects import decode, encode
from trainyard.objects.structs import replace

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster() -> AsyncIterator[OperatorCluster]:
    async with running_yard(time.time) as cluster:
        yield cluster


async def test_a_spec_patch_without_effect_does_not_delay_the_job(cluster: OperatorCluster) -> None:
    """A server with an older CRD prunes the stored defaults: the object does not change, so there is no watch event."""

    class Pruning(Troubled):
        async def send(self, request: ApiRequest) -> bytes:
            if request.method == "PATCH" and request.path.endswith("/tfjobs/mnist"):
                return await super().send(replace(request, method="GET", body=None, content_type=""))
            return await super().send(request)

    job = tf_job()
    del job["spec"]["RuntimeId"]
    async with cluster.operator(Pruning(cluster.server.url)):
        await cluster.submit(job)
        running = await cluster.condition("Running")
        assert "RuntimeId" not in running["spec"]


class Mutating(Troubled):
    """A server that edits what the spec patch stores, as a mutating webhook does."""

    async def send(self, request: ApiRequest) -> bytes:
        if request.method == "PATCH" and request.path.endswith("/tfjobs/mnist"):
            body: Any = decode(request.body or b"")
            request = replace(request, body=encode({**body, "spec": {**body["spec"], "backoffLimit": 3}}))
        return await super().send(request)


@pytest.mark.parametrize("client", [Troubled, Mutating])
async def test_a_job_starts_with_the_defaults_that_it_was_planned_with(
    cluster: OperatorCluster, client: type[Troubled]
) -> None:
    """In the reconcile that stores them, unless the server has stored another spec."""
    job = tf_job()
    del job["spec"]["RuntimeId"]
    api, methods = client(cluster.server.url), list[list[str]]()
    async with cluster.operator(api) as operator:
        await operator.synced
        operator.set_reconcile_callback(lambda *_: methods.append([request.method for request in api.writes]))
        await cluster.submit(job)
        running = await cluster.condition("Running")
    assert methods[0][:3] == (["PATCH"] if client is Mutating else ["PATCH", "PATCH", "POST"])
    assert ("backoffLimit" in running["spec"]) == (client is Mutating) and running["spec"]["RuntimeId"]
    assert running["status"]["observedGeneration"] == running["metadata"]["generation"] == 2
