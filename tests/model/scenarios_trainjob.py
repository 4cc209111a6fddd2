"""What the explorations of TrainJobs start with: an initializer, and a node that waits for its success."""

from __future__ import annotations

from tests.model.scenarios import Scenario
from trainyard.core import Slot
from trainyard.kinds import TRAINJOB
from trainyard.objects import Json

ENDS = ((137, "Error"),)


def ordered_jobs(limit: int = 1, in_place: bool = False) -> Scenario:
    """Pods that restart alone, up to the backoffLimit of their replicated job."""
    return _scenario(limit, in_place, {}, limit=limit)


def restarted_jobs(most: int = 1, in_place: bool = False) -> Scenario:
    """A failurePolicy: every failure restarts both, `most` times."""
    policy = {"maxRestarts": most, "restartStrategy": "Recreate"}
    return _scenario(0, in_place, {"failurePolicy": policy}, gang=True, limit=most)


def _scenario(backoff_limit: int, in_place: bool, fields: Json, gang: bool = False, limit: int = 0) -> Scenario:
    first = _replicated_job("first", backoff_limit, in_place)
    node = {
        **_replicated_job("node", backoff_limit, in_place),
        "dependsOn": [{"name": "first", "status": "Complete"}],
    }
    job_set = {**fields, "replicatedJobs": [first, node]}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "own"},
        "spec": {"template": {"spec": job_set}},
    }
    return Scenario(
        kind=TRAINJOB,
        spec={"runtimeRef": {"name": "own", "kind": "TrainingRuntime"}, "trainer": {}, "suspend": False},
        source=runtime,
        slots=(Slot("first", 0), Slot("node", 0)),
        styles=("alone", "alone"),
        ends=ENDS,
        permanent=lambda code, reason: False,
        deciding=frozenset({0, 1}),
        awaits=lambda slot: frozenset({0}) if slot == 1 else frozenset(),
        gang=gang,
        limit=limit,
        reasons={"ReachedMaxRestarts": "BackoffLimitExceeded"},
        clean="Running",
        wants=lambda spec: frozenset({0, 1}),
        in_place=lambda spec, slot: in_place,
        one_service=True,
    )


def _replicated_job(name: str, backoff_limit: int, in_place: bool) -> Json:
    pod = {"containers": [{"name": "node", "image": "i"}], "restartPolicy": "OnFailure" if in_place else "Never"}
    spec = {"backoffLimit": backoff_limit, "template": {"spec": pod}}
    return {"name": name, "replicas": 1, "groupName": "default", "template": {"spec": spec}}
