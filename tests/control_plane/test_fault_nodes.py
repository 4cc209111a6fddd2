"""A node is lost: KWOK plays the nodes, and one of its processes dies. Node loss and eviction are Kubernetes' own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_plane.fault_stories import (
    assert_operator_healthy,
    elastic_job,
    operating,
    options,
    restarts,
    story,
    tf_job,
)
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import Options as PlaneOptions
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.client import ApiClient
from trainyard.objects import Json, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
LOST_SECONDS = 2.0


@pytest.fixture
def own() -> Iterator[ControlPlane]:
    with ControlPlane(PlaneOptions(node_loss=True)) as plane:
        install(plane)
        create_namespace(plane, "nodes")
        for name in ("lost", "well"):
            plane.add_node(name)
        yield plane


def placed() -> Json:
    """A pod that would rather be on the node that is lost, and is soon thrown off it."""
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["lost"]}
    prefers = [{"weight": 100, "preference": {"matchExpressions": [hostname]}}]
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    return {
        "schedulerName": "default-scheduler",
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}},
        "tolerations": [{**unreachable, "tolerationSeconds": 1}],
        "terminationGracePeriodSeconds": 1,
    }


async def test_replicas_of_a_lost_node_are_recreated_elsewhere_and_count_as_no_failure(
    own: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Pod keeps its name until it is deleted by force: only --node-lost-timeout does that."""
    tf, elastic = tf_job("lost", 1, **placed()), elastic_job("lost", 2, **placed())
    async with (
        story(own, "nodes", tmp_path) as scenario,
        operating(options(scenario.account, node_lost=LOST_SECONDS)) as operator_process,
    ):
        for job, roles in ((tf, {"MASTER": 1, "WORKER": 1}), (elastic, {"Worker": 2})):
            await scenario.submit(job)
            await scenario.running(job, **roles)
        before = {item["metadata"]["name"]: item for item in (await scenario.api.list(POD, "nodes", OWNER))["items"]}
        gone = {uid_of(pod) for pod in before.values() if pod["spec"]["nodeName"] == "lost"}
        assert len(gone) >= 2, "the scheduler has put too few of them on the node"
        mark, began = own.audit.mark(), time.monotonic()
        own.lose_node("lost")
        await until_async(lambda: elsewhere(scenario.api, gone), "all run elsewhere", seconds=90, pause=SLOW_PAUSE)
        took = time.monotonic() - began
        await scenario.running(tf, MASTER=1, WORKER=1)
        await scenario.running(elastic, Worker=2)
        forced = [
            request for request in scenario.requests(mark) if (request.verb, request.resource) == ("delete", "pods")
        ]
        assert 1 <= len(forced) <= 4, forced
        for role in ("MASTER", "WORKER"):
            scenario.kubelet.end(role)
        for job in (tf, elastic):
            await scenario.condition("Succeeded", job)
            assert restarts(await scenario.until(lambda job_now: True, job)) == 0
        await assert_operator_healthy(operator_process, scenario)
    with capsys.disabled():
        print(f"\nnode lost: {len(gone)} replicas run elsewhere after {took:.1f} s, {len(forced)} deleted by force")


async def elsewhere(api: ApiClient, gone: set[str]) -> bool:
    """All four run, and none of those that were lost."""
    items = (await api.list(POD, "nodes", OWNER))["items"]
    alive = [pod for pod in items if uid_of(pod) not in gone and pod["status"].get("phase") == "Running"]
    return len(alive) == 4
