"""Conversion of jobs to other APIs, for `trainyard convert`: pure functions of objects.

fields:    the fields of the source object; those that no conversion has taken are reported
documents: the documents of a file, of which only those with a job change
kubeflow/: TfJob, ElasticJob and ChainerJob to TFJob, PyTorchJob and MPIJob of kubeflow.org/v1
trainjob/: the kinds of kubeflow.org to TrainJob and TrainingRuntime of Kubeflow Trainer

Rule for this package: a field of the source is in the result, or the report names it. A conversion takes fields from a
`Fields`; whatever is left at the end is reported as not mapped.
"""

from trainyard.conversion.converter import KUBEFLOW, TARGETS, TRAINJOB, Conversion, convert, is_convertible

__all__ = ["KUBEFLOW", "TARGETS", "TRAINJOB", "Conversion", "convert", "is_convertible"]
