"""An object that does not run here is answered with what it is, never with the kind whose name looks nearest."""

from __future__ import annotations

import pytest

from trainyard import kinds
from trainyard.kinds.definitions.unknown_kinds import BUILT_IN, WORKLOADS, describe_kind, unknown_kind_message

OPERATOR = "is a kind of the Kubeflow Training Operator, which Trainyard does not run yet"
ROWS = [
    ("kubeflow.org/v1", "MXJob", (OPERATOR, "write it as an MxJob")),
    ("kubeflow.org/v1", "TfJob", ("write apiVersion: kubeflow.org/v1 and kind: TFJob",)),
    ("kubeflow.org/v1beta1", "PyTorchJobs", ("write apiVersion: kubeflow.org/v1 and kind: PyTorchJob",)),
    ("trainer.kubeflow.org/v1", "TrainJob", ("write apiVersion: trainer.kubeflow.org/v1alpha1 and kind: TrainJob",)),
    ("batch.volcano.sh/v1alpha1", "Job", ("is a kind of Volcano",)),
    ("ray.io/v1", "RayJob", ("is a kind of KubeRay",)),
    ("argoproj.io/v1alpha1", "Workflow", ("is a kind of Argo Workflows",)),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", ("is a kind of JobSet",)),
    ("serving.kserve.io/v1beta1", "InferenceService", ("is a kind of KServe",)),
    ("tensorflow.org/v1", "TfJob", ("write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",)),
    ("kubeflow.org/v1", "ChainerJob", ("write apiVersion: kubeflow.org/v1alpha1 and kind: ChainerJob",)),
    ("example.com/v1", "MxJob", ("mlkube.io/v1beta1 and kind: MxJob or apiVersion: mxnet.mlkube.io/",)),
    ("tensorflow.org/v1alpha1", "TFJob", ("write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",)),
    ("tensorflow.org/v1alpha1", "TfJobs", ("write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",)),
    ("tensorflow.org/v1alpha1", "TfJbo", ("write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",)),
    ("tensorfow.org/v1alpha1", "TfJobs", ("write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",)),
    ("tensorflow.org/v1alpha1", "TfJobList", ("has no items; write items",)),
    ("tensorflow.org/v1alpha1", "Estimator", ("of tensorflow.org runs here: TfJob",)),
    ("kubeflow.org/v1", "Trial", ("of kubeflow.org runs here: ", "PaddleJob, JAXJob, MPIJob; kinds that run here")),
    ("elastic.pytorch.org/v1alpha1", "PyTorchJob", ("write apiVersion: kubeflow.org/v1 and kind: PyTorchJob",)),
]


@pytest.mark.parametrize(("api_version", "kind", "parts"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_a_known_foreign_kind_is_reported_with_its_operator(
    api_version: str, kind: str, parts: tuple[str, ...]
) -> None:
    text = unknown_kind_message(api_version, kind, kinds.all_versions())
    assert text.startswith(f"{api_version} {kind} ")
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(("group", "kind"), WORKLOADS, ids=lambda value: str(value))
def test_no_listed_foreign_kind_is_one_of_ours(group: str, kind: str) -> None:
    """A kind that Trainyard runs must leave the table."""
    assert (group, kind) not in {(kind_.gvk.group, kind_.gvk.kind) for kind_ in kinds.ALL}
    assert WORKLOADS[group, kind].replacement in ("", *(kind_.gvk.kind for kind_ in kinds.ALL))


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [(f"{group}/v1".lstrip("/"), kind) for group, names in BUILT_IN.items() for kind in names.split()],
)
def test_a_built_in_kind_is_no_job_and_no_misspelling(api_version: str, kind: str) -> None:
    assert unknown_kind_message(api_version, kind, kinds.ALL) == ""
    assert describe_kind(api_version, kind) == f"{kind} ({api_version}), a built-in kind of Kubernetes"


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_kind_that_has_the_templates_of_jobs_is_no_misspelt_job(kind: str) -> None:
    assert unknown_kind_message("trainer.kubeflow.org/v1alpha1", kind, kinds.ALL) == ""


def test_an_unknown_kind_is_only_named() -> None:
    assert (
        unknown_kind_message("example.com/v1", "Widget", kinds.ALL)
        == ""
        == unknown_kind_message("example.com/v1", "XfJob2", kinds.ALL)
    )
    assert describe_kind("example.com/v1", "Widget") == "Widget (example.com/v1)"
    assert describe_kind("v1", "List") == "a List without items"
