from __future__ import annotations

from typing import Any, cast

import pytest

from tests.cli.commands import elastic, tfjob
from trainyard.app.job_actions import ActionRefused, ScaleOffer, offered_actions, scale
from trainyard.client import ApiClient
from trainyard.core import Config, Job, parse_job
from trainyard.kinds import kind_of
from trainyard.objects import Json


def stored(job: Json, *conditions: Json, **metadata: Any) -> Job:
    kind = kind_of(job)
    assert kind is not None
    metadata = {**job["metadata"], "namespace": "default", "uid": "u", "generation": 4, **metadata}
    return parse_job(kind, {**job, "metadata": metadata, "status": {"conditions": list(conditions)}}, Config())


def pytorch(**spec: Any) -> Json:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    replicas = {"Master": {"template": template}, "Worker": {"replicas": 3, "template": template}}
    body = {"pytorchReplicaSpecs": replicas, **spec}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": body}


@pytest.mark.parametrize(
    ("job", "scale"),
    [
        (elastic(), ScaleOffer("Worker", 2, 2, 3)),
        (elastic(minReplicas=None, maxReplicas=None), ScaleOffer("Worker", 2, None, None)),
        (pytorch(), ScaleOffer("Worker", 3, None, None)),
        (pytorch(elasticPolicy={"minReplicas": 1, "maxReplicas": 4}), ScaleOffer("Worker", 3, 1, 4)),
        (tfjob(), None),
    ],
    ids=["elastic", "elastic without bounds", "pytorch", "elastic pytorch", "tfjob"],
)
def test_scale_is_offered_where_the_kind_has_it_with_the_bounds_of_the_job(job: Json, scale: ScaleOffer | None) -> None:
    assert offered_actions(stored(job)).scale == scale


def test_a_role_that_the_job_does_not_have_is_not_scaled() -> None:
    job = pytorch()
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert offered_actions(stored(job)).verbs == ("suspend", "delete")


@pytest.mark.parametrize("policy", ["spec", "runPolicy"])
def test_a_suspended_job_is_resumed(policy: str) -> None:
    job = tfjob(suspend=True) if policy == "spec" else pytorch(runPolicy={"suspend": True})
    assert offered_actions(stored(job)).verbs[0] == "resume"


def test_nothing_is_offered_while_the_job_is_deleted() -> None:
    assert offered_actions(stored(tfjob(), deletionTimestamp="2026-01-01T00:00:00Z")).verbs == ()


def test_a_job_that_has_ended_can_only_be_deleted() -> None:
    offered = offered_actions(stored(elastic(), {"type": "Failed", "status": "True"}))
    assert (offered.verbs, offered.scale, offered.generation) == (("delete",), None, 4)


class NoRequests:
    """A client to which nothing may be sent."""


@pytest.mark.parametrize(
    ("job", "replicas", "message"),
    [
        (
            pytorch(elasticPolicy={"minReplicas": 2, "maxReplicas": 4}),
            9,
            "9 replicas must not be above maxReplicas, 4: raise",
        ),
        (
            pytorch(elasticPolicy={"minReplicas": 2, "maxReplicas": 4}),
            1,
            "not be below minReplicas, 2: lower",
        ),
        (pytorch(elasticPolicy={"maxReplicas": 4}), 5, "not be above maxReplicas, 4"),
        (elastic(), 9, "not be above maxReplicas, 3"),
    ],
)
async def test_an_elastic_job_is_not_scaled_out_of_its_bounds(job: Json, replicas: int, message: str) -> None:
    parsed = stored(job)
    with pytest.raises(ActionRefused, match=message):
        await scale(cast(ApiClient, NoRequests()), parsed.kind, parsed.obj, replicas)


class ScaledApi:
    """An API server that takes the patch of a scale subresource."""

    async def get(self, *arguments: object) -> Json:
        return {"spec": {"replicas": 2}}

    async def patch(self, *arguments: object) -> None:
        return None


@pytest.mark.parametrize(
    ("replicas", "end"), [(3, "to 3; its template has WORLD_SIZE=2, which stays: edit it, too"), (2, "to 2")]
)
async def test_a_variable_that_fixes_the_size_is_named_when_the_job_is_scaled(replicas: int, end: str) -> None:
    job = elastic()
    worker = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["env"] = [{"name": "WORLD_SIZE", "value": "2"}]
    parsed = stored(job)
    text = await scale(cast(ApiClient, ScaledApi()), parsed.kind, parsed.obj, replicas)
    assert text == f"elasticjob/{job['metadata']['name']} scaled from 2 {end}"
