"""The container whose state is the replica's, in a pod of an older template."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.decision_values import begun_job, ended_pod, plan_for
from tests.model.scenarios import pod_template
from tests.support.builders import NOW
from trainyard.kinds import ELASTICJOB
from trainyard.objects import Json, format_time


def spec(container: str) -> Json:
    worker = {"replicas": 1, "restartPolicy": "ExitCode", "template": pod_template(container)}
    return {"rdzvEndpoint": "etcd:2379", "minReplicas": 1, "maxReplicas": 1, "replicaSpecs": {"Worker": worker}}


def running(pod: Json, container: str) -> Json:
    start = format_time(NOW - 50)
    statuses = [{"name": container, "state": {"running": {"startedAt": start}}}]
    return {**pod, "status": {"phase": "Running", "startTime": start, "containerStatuses": statuses}}


@pytest.mark.parametrize(("before", "after"), [("elasticjob-worker", "trainer"), ("trainer", "elasticjob-worker")])
def test_the_container_of_an_older_template_still_determines_the_replicas_state(before: str, after: str) -> None:
    job, children = begun_job(ELASTICJOB, spec(before))
    edited: dict[str, Any] = {**job, "spec": spec(after)}
    pod, service = (
        next(child for name, child in children.items() if name.startswith(kind)) for kind in ("Pod", "Service")
    )
    assert plan_for(ELASTICJOB, edited, running(pod, before), service).status["state"] == "Running"
    assert plan_for(ELASTICJOB, edited, ended_pod(pod, 3, before), service).status["state"] == "Failed"
