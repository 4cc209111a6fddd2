"""What a template says about the Pods of its own job: their host names and labels, which are others in a TrainJob."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainyard.conversion.trainjob.replicated_jobs import INDEX_PATH, JobSource, ReplicaSet, address
from trainyard.kinds.kubeflow_v1.pods import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE
from trainyard.objects import Json, Problem

JOB_SET_LABELS = "jobset.sigs.k8s.io"
TEXTS = ("command", "args", "value", "host")
"""Fields of containers, variables and probes that may name a host. A claim's name, for example, may look like one."""
Place = Callable[[str, int], tuple[str, int]]
"""(role, index) of a Pod -> the replicated job that it is in, and its index there."""


def follow_pods(source: JobSource, replica_sets: Mapping[str, ReplicaSet], place: Place) -> None:
    """Replace, in templates that are copies, the host names of the job's Pods in TEXTS, and the labels of the
    Training Operator in a fieldPath. A label that Pods of a TrainJob have nothing for is reported."""
    hosts = {
        f"{source.name}-{role.lower()}-{index}": address(source.name, *place(role, index))
        for role, replica_set in replica_sets.items()
        for index in range(replica_set.replicas)
    }
    names = "|".join(map(re.escape, hosts))
    pattern = re.compile(rf"(?<![\w.-])({names})(\.[a-z0-9-]+\.svc(\.cluster\.local)?)?(?![\w-]|\.\w)")

    for role, replica_set in replica_sets.items():
        _rewrite_texts(replica_set.template, lambda text: pattern.sub(lambda match: hosts[match[1]], text))
        labels = _labels(role, replica_set, place, is_alone=len(replica_sets) == 1)
        for reference in _field_references(replica_set.template):
            label = reference["fieldPath"].removeprefix("metadata.labels['").removesuffix("']")
            if label in labels:
                reference["fieldPath"] = labels[label]
            elif label in (JOB_NAME, REPLICA_INDEX, REPLICA_TYPE):
                text = f"Pods of a TrainJob have no label {label}; name one of those that JobSet and Job set"
                source.spec.report.unmapped.append(Problem(f"{replica_set.path}.template.spec", text))


def _labels(role: str, replica_set: ReplicaSet, place: Place, is_alone: bool) -> dict[str, str]:
    """Label of the Training Operator -> the fieldPath with the same value in a TrainJob."""
    indexes = range(replica_set.replicas)
    places = [place(role, index) for index in indexes]
    labels = {JOB_NAME: f"metadata.labels['{JOB_SET_LABELS}/jobset-name']"}
    if [index for _, index in places] == list(indexes) and (is_alone or {job for job, _ in places} == {role.lower()}):
        labels[REPLICA_INDEX] = INDEX_PATH
    if {job for job, _ in places} == {role.lower()}:
        labels[REPLICA_TYPE] = f"metadata.labels['{JOB_SET_LABELS}/replicatedjob-name']"
    return labels


def _rewrite_texts(value: Any, rewrite: Callable[[str], str], field: str = "") -> Any:
    """The value, whose objects and lists are changed in place, with the texts of TEXTS rewritten."""
    if isinstance(value, dict):
        value.update({name: _rewrite_texts(part, rewrite, name) for name, part in value.items()})
    elif isinstance(value, list):
        value[:] = [_rewrite_texts(part, rewrite, field) for part in value]
    return rewrite(value) if isinstance(value, str) and field in TEXTS else value


def _field_references(value: Any) -> Iterator[Json]:
    """All objects of a document with a fieldPath."""
    if isinstance(value, dict):
        if isinstance(value.get("fieldPath"), str):
            yield value
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from _field_references(part)
