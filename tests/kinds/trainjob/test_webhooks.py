"""What the API server of one machine refuses of TrainJobs and runtimes, in the recorded words, and what it changes."""

from __future__ import annotations

import re

import pytest

from tests.kinds.trainjob.test_recorded import ACCEPTED, REFUSED, STRICTER, recording, runtime_of, schema
from tests.support.builders import NOW
from tests.support.samples import trainjob
from trainyard import kinds
from trainyard.core import violations
from trainyard.kinds.trainjob.definitions import TRAIN_JOB_RULES
from trainyard.kinds.trainjob.shipped_runtimes import shipped_runtimes
from trainyard.objects import GVK, Json, NamespacedName, format_time
from trainyard.objects.review import Review

REVIEWERS = kinds.reviewers(kinds.TRAINJOB)
VALUE = re.compile(r'Invalid value: (null|"[^"]*"|[\[{].*?[\]}]): ')
"""The value is not compared: Go writes its fields in another order, and those that were computed."""


def review(new: Json, old: Json | None = None, *runtimes: Json) -> Review:
    def read(gvk: GVK, key: NamespacedName) -> Json | None:
        named = (item for item in runtimes if (item["kind"], item["metadata"]["name"]) == (gvk.kind, key.name))
        return next(named, None)

    return REVIEWERS["trainer.kubeflow.org", new["kind"]](new, old, read, NOW)


def job(name: str) -> Json:
    """The job of a recording as the webhook gets it."""
    wire = schema("TrainJob").default(recording(name).manifest)
    return {**wire, "metadata": {**wire["metadata"], "namespace": "default"}}


def reaches_the_webhook(name: str) -> bool:
    wire = job(name)
    return not schema("TrainJob").validate(wire) and not violations(TRAIN_JOB_RULES, wire, None)


@pytest.mark.parametrize("name", [name for name in REFUSED if reaches_the_webhook(name)])
def test_a_job_is_refused_in_the_recorded_words(name: str) -> None:
    runtime = runtime_of(recording(name))
    refusal = review(job(name), None, *([runtime] if runtime else ())).refusal
    recorded = recording(name).steps[0]["refused"]["message"]
    assert problems(refusal) == problems(recorded)


@pytest.mark.parametrize("name", [name for name in ACCEPTED if name not in STRICTER])
def test_what_trainer_stores_is_stored(name: str) -> None:
    runtime = runtime_of(recording(name))
    assert runtime is not None
    assert review(job(name), None, runtime).refusal == ""


def problems(message: str) -> set[str]:
    """Without values. Trainer iterates over maps, so that its problems have no order."""
    start, _, rest = VALUE.sub("", message).partition(" denied the request: ")
    rest = rest.removeprefix("[").removesuffix("]" if rest.startswith("[") else "")
    return {start, *(part.removeprefix("spec.") for part in rest.split(", spec."))}


def torch() -> Json:
    return next(item for item in shipped_runtimes() if item["metadata"]["name"] == "torch-distributed")


def patched(**patch: object) -> Json:
    kind = {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    return trainjob(runtimeRef=kind, suspend=True, runtimePatches=[{"manager": "acme.io/team", **patch}])


def test_a_patch_has_the_time_of_its_last_change() -> None:
    (new,) = review(patched(), None, torch()).object["spec"]["runtimePatches"]
    assert new["time"] == format_time(NOW)
    old = patched(time="2020-01-01T00:00:00Z")
    (same,) = review(patched(), old, torch()).object["spec"]["runtimePatches"]
    assert same["time"] == "2020-01-01T00:00:00Z"
    changed = patched(trainingRuntimeSpec={"template": {"metadata": {"labels": {"a": "b"}}}})
    (edited,) = review(changed, old, torch()).object["spec"]["runtimePatches"]
    assert edited["time"] == format_time(NOW)


def test_a_job_that_has_begun_is_compared_with_the_snapshot_of_its_runtime() -> None:
    old = {**patched(), "status": {"trainyard": {"snapshot": torch()}}}
    assert review({**patched(), "status": old["status"]}, old).refusal == ""


def test_a_deprecated_runtime_is_warned_of_once() -> None:
    runtime = torch()
    runtime["metadata"]["labels"]["trainer.kubeflow.org/support"] = "deprecated"
    wire = patched()
    assert "is deprecated" in review(wire, None, runtime).warnings[0]
    assert review(wire, wire, runtime).warnings == ()


def test_a_runtime_that_no_job_could_have_is_refused_unless_its_label_says_otherwise() -> None:
    runtime = torch()
    replicated_job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    replicated_job["replicas"] = 2
    assert review(runtime).refusal == ""
    del runtime["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"]
    path = "spec.template.spec.replicatedJobs[0].replicas: Invalid value: 2: always must be 1"
    start = 'admission webhook "validator.clustertrainingruntime.trainer.kubeflow.org" denied the request: '
    assert review(runtime).refusal == start + path
