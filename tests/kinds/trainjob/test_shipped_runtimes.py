"""The shipped runtimes are those that the recorded Trainer has had."""

from __future__ import annotations

import pytest

from tests.drop_in.scenarios_trainjob import job
from tests.kinds.trainjob.test_recorded import pruned, schema
from tests.kinds.trainjob.test_recorded import shipped_runtimes as recorded_runtimes
from trainyard.core import violations
from trainyard.kinds.trainjob import admission
from trainyard.kinds.trainjob.admission import VALIDATION
from trainyard.kinds.trainjob.definitions import RUNTIME_RULES
from trainyard.kinds.trainjob.render import render
from trainyard.kinds.trainjob.shipped_runtimes import public_objects, shipped_runtimes
from trainyard.objects import Json

RUNTIMES = [pytest.param(runtime, id=runtime["metadata"]["name"]) for runtime in shipped_runtimes()]
ON_REQUEST = {"torch-distributed-with-cache"}
"""Shipped runtimes that an installation of Trainer does not have, unless it is asked for them."""


def test_all_are_there() -> None:
    recorded = {name for name, runtime in recorded_runtimes().items() if VALIDATION in runtime["metadata"]["labels"]}
    assert [runtime["metadata"]["name"] for runtime in shipped_runtimes()] == sorted(recorded - ON_REQUEST)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_they_are_stored_as_recorded(runtime: Json) -> None:
    stored = schema("TrainingRuntime").default(runtime)
    assert schema("TrainingRuntime").validate(stored) == []
    assert schema("TrainingRuntime").unknown_fields(stored) == []
    assert violations(RUNTIME_RULES, stored, None) == admission.runtime_refusals(stored) == []
    assert pruned(stored) == pruned(recorded_runtimes()[runtime["metadata"]["name"]])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_sdk_can_list_them(runtime: Json) -> None:
    """It needs a label and a policy, and in the replicated job that trains a container `node` with an image."""
    assert runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"]
    assert runtime["spec"]["mlPolicy"]["numNodes"] == 1
    job_set = render(job(), runtime).job_set
    trainers = [item for item in job_set["spec"]["replicatedJobs"] if "trainer" in labels_of(item).values()]
    assert [container["name"] for container in pod_of(*trainers)["containers"] if container["image"]] == ["node"]


def labels_of(replicated_job: Json) -> Json:
    return dict((replicated_job["template"].get("metadata") or {}).get("labels") or {})


def pod_of(replicated_job: Json) -> Json:
    return dict(replicated_job["template"]["spec"]["template"]["spec"])


def test_every_user_may_read_the_version() -> None:
    namespace, config, role, binding = public_objects()
    assert config["metadata"] == {"name": "kubeflow-trainer-public", "namespace": namespace["metadata"]["name"]}
    assert config["data"] == {"kubeflow_trainer_version": "v2.3.0"}
    assert role["rules"][0]["resourceNames"] == [config["metadata"]["name"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == "system:authenticated"
