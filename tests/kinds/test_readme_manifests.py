"""Every YAML of the READMEs of MxJob, ChainerJob and ElasticJob: what is done with it, and where that is shown.

| README | YAML | here |
|---|---|---|
| MxJob | examples/mx_job_local.yaml, mx_job_dist.yaml | trained: stories/test_mxnet_training.py |
| MxJob | the accelerators of a controller config (in a comment) | read, and injected into pods |
| MxJob | a job with GPUs (in a comment) | refused, by both operators: it is a TfJob's |
| ChainerJob | examples/chainerjob.yaml, chainerjob-mn.yaml | trained: stories/test_chainer_training.py |
| ChainerJob | a job with GPUs, broken off | planned; the GPU needs one |
| ElasticJob | config/samples/: etcd, imagenet, classy_vision | trained: stories/test_elastic_samples.py |

What only a cloud can run: `eksctl create cluster` and NVIDIA's device plugin of the ElasticJob README make a cluster
and drivers; the operators' own `deploy/`, kustomize and Helm manifests need a cluster to be installed into.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainyard import core, kinds
from trainyard.app.config import read_config
from trainyard.core import Config, Observed
from trainyard.objects import Json

REPOSITORY = Path(__file__).parents[2]
READMES = REPOSITORY / "testdata" / "readmes"
EXAMPLES = REPOSITORY / "examples"


def manifest(path: Path) -> Json:
    (job,) = yaml.safe_load_all(path.read_text())
    job["metadata"] |= {"uid": "u", "namespace": "default"}
    part: Json = job
    return part


def children(job: Json, config: Config | None = None) -> list[Json]:
    """What the first pass makes."""
    kind = kinds.kind_of(job)
    assert kind is not None
    config = config or Config()
    plan = core.plan(kind, job, Observed(config=config), 0.0)
    stored = {**job, "spec": {**job["spec"], **(plan.spec_patch or {})}, "status": plan.status}
    return [core.render_object(kind, stored, create, config) for create in plan.creates]


def test_the_example_is_the_readmes_chainer_job() -> None:
    ours, theirs = manifest(EXAMPLES / "chainerjob-mn.yaml"), manifest(READMES / "chainerjob-mn.yaml")
    assert ours == theirs


@pytest.mark.parametrize(
    "name",
    ["mx_job_local.yaml", "mx_job_dist.yaml", "chainerjob.yaml", "chainerjob-mn.yaml", "chainerjob-reference.yaml"],
)
def test_an_example_has_no_problem(name: str) -> None:
    job = manifest(EXAMPLES / name)
    kind = kinds.kind_of(job)
    assert kind is not None
    assert kinds.admit(kind, job)[1] == []


@pytest.mark.parametrize("name", ["imagenet.yaml", "classy_vision.yaml"])
def test_a_sample_has_no_problem(name: str) -> None:
    job = manifest(REPOSITORY / "config" / "samples" / name)
    assert kinds.admit(kinds.ELASTICJOB, job)[1] == []


def test_the_gpu_of_a_chainer_job_is_passed_on_and_is_its_slots() -> None:
    job = manifest(READMES / "chainerjob-gpu.yaml")
    assert kinds.admit(kinds.CHAINERJOB, job)[1] == []
    master = next(child for child in children(job) if child["kind"] == "Job")
    (container,) = master["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    workers = {"ws0": {"replicas": 2, "template": job["spec"]["master"]["template"]}}
    files = next(
        child for child in children({**job, "spec": {**job["spec"], "workerSets": workers}}) if "data" in child
    )
    assert files["data"]["statefulsets_and_slots"] == "example-job-mn-workerset-ws0 slots=1 replicas=2\n"


def test_the_accelerators_of_the_mxjob_readme_are_injected_into_the_workers() -> None:
    config = read_config(READMES / "mxjob-accelerators.yaml", warn=pytest.fail)
    workers = [
        child
        for child in children(manifest(EXAMPLES / "mx_job_dist.yaml"), config)
        if "-worker-" in child["metadata"]["name"]
    ]
    assert len(workers) == 3
    for worker in workers:
        spec: Any = worker["spec"]["template"]["spec"]
        assert {volume["name"] for volume in spec["volumes"]} == {"nvidia-libraries", "nvidia-debug-tools"}
        paths = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert paths == {"/usr/local/nvidia/lib64", "/usr/local/bin/nvidia"}


def test_the_mxjob_that_is_a_tfjobs_is_refused_with_the_old_text() -> None:
    texts = [problem.text for problem in kinds.admit(kinds.MXJOB, manifest(READMES / "mxjob-gpu.yaml"))[1]]
    assert any(
        text.startswith("invalid job spec: MxReplicaSpec.MxReplicaType is MASTER but must be one of [SCHEDULER SERVER")
        for text in texts
    ), texts
