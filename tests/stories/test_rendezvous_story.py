"""Replicas that do not meet: reported by a condition and by `why`, not by a job that hangs silently."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from tests.stories.harness import POD, SERVICE, Harness
from tests.stories.job_fixtures import PLAYS, elastic_job
from trainyard.cli import main
from trainyard.objects import Json, name_of

ELASTIC = PLAYS["ElasticJob"]
UNREACHABLE = "the rendezvous at etcd:2379 cannot be reached: see that an etcd server with the v2 API serves there"
CLOSED = "the rendezvous at etcd:2379 is closed, by a job of this name that has ended: use another name"
SAID_BY_WHY = {
    UNREACHABLE: ("the rendezvous at etcd:2379 cannot be reached", "the rendezvous endpoint of the spec answers"),
    CLOSED: ("is closed, by a job of this name that has ended",),
}
LAST_WORDS = {
    "etcd.EtcdConnectionFailed: No more machines in the cluster": UNREACHABLE,
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection failed": UNREACHABLE,
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError": UNREACHABLE,
    "torch.distributed.elastic.rendezvous.api.RendezvousClosedError": CLOSED,
}


async def why(harness: Harness, *arguments: str) -> str:
    where = ["--kubeconfig", str(harness.cluster.write_kubeconfig()), "--namespace", harness.namespace]
    line = ["why", "story", *where, *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, main, line, prog_name="trainyard")
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("replica", LAST_WORDS)
async def test_workers_that_exit_report_the_endpoint_that_they_could_not_reach(harness: Harness, replica: str) -> None:
    await ELASTIC.begin(harness)
    await (await harness.controlled_pod("worker")).ask(
        f"print('Traceback (most recent call last):\\n{replica}', flush=True)"
    )
    await (await harness.controlled_pod("worker")).exit(1)
    failed = await harness.condition("Failed")
    assert replica in failed["message"] and failed["message"].endswith(LAST_WORDS[replica])
    page = await why(harness)
    assert any(text in page for text in SAID_BY_WHY[LAST_WORDS[replica]]) and "exit code 1" in page


async def test_an_unreachable_endpoint_is_reported_while_the_workers_still_retry(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    page = await why(harness)
    assert f"there is no Service etcd in namespace {harness.namespace}: its replicas cannot meet" in page
    assert "spec.rdzvEndpoint: etcd:2379" in page
    ports = {"ports": [{"port": 2379}], "selector": {"app": "etcd"}}
    await harness.api.create(
        SERVICE, harness.namespace, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"}, "spec": ports}
    )
    assert "no pod behind Service etcd is ready" in await why(harness)
    await harness.visitor(labels={"app": "etcd"})
    await harness.until(_is_ready, POD, "visitor")
    assert "it runs fine" in await why(harness)


@pytest.mark.slow
async def test_too_few_running_workers_are_reported_with_what_blocks_the_others(harness: Harness) -> None:
    """One of two runs; another owner has the name of the other."""
    job = elastic_job(rdzvEndpoint="10.0.0.1:2379", minReplicas=2)
    await harness.api.create(POD, harness.namespace, _taken("story-worker-1"))
    await harness.submit(job)
    await harness.every_replica_runs(worker=1)
    await harness.condition("NameConflict")
    await harness.condition("Running")
    findings = json.loads(await why(harness, "-o", "json"))["findings"]
    messages = {finding["where"]: finding["what"] for finding in findings}
    assert messages["spec.minReplicas"] == "1 of at least 2 replicas run: its rendezvous waits for the others"
    assert any("NameConflict" in where for where in messages)


def _taken(name: str) -> Json:
    """Another owner has the name, on a node that does not exist."""
    spec = {"nodeName": "nobody", "containers": [{"name": "c", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return (
        any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
        and name_of(pod) == "visitor"
    )
