"""`convert`: the one conversion of each kind, and how two of them are chained."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainyard import kinds
from trainyard.conversion.fields import Fields, Report
from trainyard.conversion.kubeflow import from_chainerjob, from_elasticjob, from_tfjob
from trainyard.conversion.trainjob import jax, open_mpi, paddle, pytorch, tensorflow, xgboost
from trainyard.objects import Json, Problem

KUBEFLOW, TRAINJOB = "kubeflow", "trainjob"
TARGETS = (KUBEFLOW, TRAINJOB)
ToKubeflow = Callable[[Fields], Json]
ToTrainJob = Callable[[Fields], list[Json]]
TO_KUBEFLOW: dict[str, ToKubeflow] = {
    "TfJob": from_tfjob.convert,
    "ElasticJob": from_elasticjob.convert,
    "ChainerJob": from_chainerjob.convert,
}
TO_TRAINJOB: dict[tuple[str, str], ToTrainJob] = {
    ("kubeflow.org/v1", "TFJob"): tensorflow.convert,
    ("kubeflow.org/v1", "PyTorchJob"): pytorch.convert,
    ("kubeflow.org/v1", "XGBoostJob"): xgboost.convert,
    ("kubeflow.org/v1", "PaddleJob"): paddle.convert,
    ("kubeflow.org/v1", "JAXJob"): jax.convert,
    ("kubeflow.org/v1", "MPIJob"): open_mpi.convert_v1,
    ("kubeflow.org/v2beta1", "MPIJob"): open_mpi.convert_v2beta1,
}
WITHOUT_TARGET = {
    "MxJob": "kubeflow.org/v1 and Kubeflow Trainer have no kind for MXNet: keep the MxJob, which Trainyard serves, or "
    "move the program to another framework",
}


class Conversion(NamedTuple):
    """The objects in place of one job, and what to tell its user. `objects` is empty when the job stays as it is."""

    objects: list[Json]
    unmapped: list[Problem]
    notes: list[Problem]


def is_convertible(obj: Json, target: str) -> bool:
    """Whether `convert` has a conversion of the object, or says why there is none."""
    return _old_name(obj) != "" or (target == TRAINJOB and _type_of(obj) in TO_TRAINJOB)


def convert(obj: Json, target: str) -> Conversion:
    """Convert a valid job for which `is_convertible` holds. `target`: one of TARGETS."""
    report = Report()
    name = _old_name(obj)
    if name in WITHOUT_TARGET:
        return Conversion([], [Problem("kind", WITHOUT_TARGET[name])], [])
    converted = _to_kubeflow(obj, name, report) if name else obj
    if target == KUBEFLOW:
        return Conversion([converted], report.unmapped, report.notes)
    second = Report()
    source = Fields(converted, "", second)
    source.take_known(("apiVersion", "kind"))
    objects = TO_TRAINJOB[_type_of(converted)](source)
    source.report_rest("Kubeflow Trainer has no such field; leave it out, or keep the job as it is")
    # The paths of the second step are those of the object in between, which the user does not have.
    prefix = f"{converted['kind']} " if name else ""
    return Conversion(
        objects,
        [*report.unmapped, *(Problem(f"{prefix}{problem.path}", problem.text) for problem in second.unmapped)],
        [*report.notes, *(Problem(f"{prefix}{problem.path}", problem.text) for problem in second.notes)],
    )


def _to_kubeflow(obj: Json, name: str, report: Report) -> Json:
    source = Fields(obj, "", report)
    source.take_known(("apiVersion", "kind"))
    converted = TO_KUBEFLOW[name](source)
    source.report_rest(f"a {converted['kind']} has no such field; leave it out, or keep the {name}")
    if kind := kinds.kind_of(converted):
        report.unmapped += [
            Problem(f"{converted['kind']} {problem.path}", problem.text) for problem in kinds.admit(kind, converted)[1]
        ]
    return converted


def _type_of(obj: Json) -> tuple[str, str]:
    return str(obj.get("apiVersion")), str(obj.get("kind"))


def _old_name(obj: Json) -> str:
    """TfJob, MxJob, ChainerJob or ElasticJob, in whichever API group; "" for every other object."""
    kind = kinds.kind_of(obj)
    name = kind.gvk.kind if kind else ""
    return name if name in TO_KUBEFLOW or name in WITHOUT_TARGET else ""
