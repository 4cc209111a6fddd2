"""Pods on a node that does not exist: the story writes their status. A disrupted pod is replaced and never counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stories.harness import POD, Harness, attempt_of, restarts
from tests.stories.job_fixtures import elastic_job, mx_job, mx_local, mx_set, template
from trainyard.objects import Json, is_condition_true, name_of, uid_of

NOWHERE: dict[str, Any] = {"nodeName": "of-the-story"}


def elastic() -> Json:
    job = elastic_job(backoffLimit=0)
    job["spec"]["replicaSpecs"]["Worker"]["template"] = template("elasticjob-worker", **NOWHERE)
    return job


JOBS = {
    "MxJob": lambda: mx_job(mx_set("SCHEDULER", **NOWHERE), mx_set("SERVER"), mx_set("WORKER"), backoffLimit=0),
    "MxJob-local": lambda: mx_local(backoffLimit=0, replicaSpecs=[mx_set("WORKER", **NOWHERE)]),
    "ElasticJob": elastic,
}
ROLES = {"MxJob": "scheduler", "MxJob-local": "worker", "ElasticJob": "worker"}
REASONS: dict[str, Json] = {
    "DisruptionTarget": {
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    },
    "Evicted": {"reason": "Evicted", "message": "The node was low on resource: memory."},
    "NodeLost": {"reason": "NodeLost"},
    "Shutdown": {"reason": "Shutdown", "message": "Pod was terminated in response to imminent node shutdown."},
}


async def says(harness: Harness, pod: Json, phase: str, state: Json, **more: Any) -> None:
    containers = [{"name": harness.kind.roles.container, "restartCount": 0, "state": state}]
    status = {"phase": phase, "containerStatuses": containers, **more}
    await harness.api.patch(POD, harness.namespace, name_of(pod), {"status": status}, "status")


async def begun(harness: Harness, name: str) -> Json:
    """The pod whose status the story writes, running."""
    await harness.submit(JOBS[name]())
    pod = await harness.pod(ROLES[name])
    await says(harness, pod, "Running", {"running": {}})
    await harness.condition("Running")
    return pod


@pytest.mark.slow
@pytest.mark.parametrize("why", REASONS)
@pytest.mark.parametrize("name", JOBS)
async def test_a_disrupted_pod_is_replaced_and_not_counted(harness: Harness, name: str, why: str) -> None:
    first = await begun(harness, name)
    await says(harness, first, "Failed", {"terminated": {"exitCode": 1, "reason": "Error"}}, **REASONS[why])
    harness.later(10)
    await harness.gone(POD, name_of(first)) if name != "ElasticJob" else await _other(harness, first)
    second = await harness.pod(ROLES[name])
    assert uid_of(second) != uid_of(first)
    assert attempt_of(second) == ("0" if name == "ElasticJob" else "1")
    job = await harness.job()
    assert restarts(job) == 0 and not is_condition_true(job["status"]["conditions"], "Failed")


async def _other(harness: Harness, pod: Json) -> None:
    """Until another pod has that name."""
    await harness.until(lambda replacement: uid_of(replacement) != uid_of(pod), POD, name_of(pod))


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
async def test_out_of_memory_is_permanent_where_not_the_code_alone_decides(harness: Harness, name: str) -> None:
    await says(harness, await begun(harness, name), "Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    failed = await harness.condition("Failed")
    assert "137 (OOMKilled)" in failed["message"]
    if name == "ElasticJob":  # its codes alone decide (docs/rules.md S23), and this one counts
        assert "reached the specified backoff limit" in failed["message"]
    else:
        assert failed["reason"] == "PermanentFailure" and "memory limit" in failed["message"]
