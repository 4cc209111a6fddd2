"""A number of processes in the template does not follow when the job is scaled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.samples import elasticjob, kubeflow_job, pods
from trainyard import kinds
from trainyard.core import Config, parse_job
from trainyard.kinds.definitions.size_variables import size_variables
from trainyard.objects import Json


def elastic(replicas: int, name: str = "WORLD_SIZE", **entry: Any) -> Json:
    return elasticjob(replicas, worker={"template": with_variable("elasticjob-worker", name, **entry)})


def workers(kind: str, container: str, name: str, **roles: Any) -> Json:
    return kubeflow_job(kind, Worker={"replicas": 3, "template": with_variable(container, name, value="2")}, **roles)


def with_variable(container: str, name: str, **entry: Any) -> Json:
    template = pods(container)
    template["spec"]["containers"][0]["env"] = [{"name": "LOCAL_RANK", "value": "0"}, {"name": name, **entry}]
    return template


CASES: dict[str, tuple[Json, list[tuple[str, int]], str]] = {
    # job, variables that do not follow, the warning
    "as many": (elastic(2, value="2"), [("WORLD_SIZE", 2)], ""),
    "two in each replica": (elastic(2, value="4"), [("WORLD_SIZE", 4)], ""),
    "too few": (elastic(3, value="2"), [("WORLD_SIZE", 2)], "WORLD_SIZE is 2 for 3 replicas: write 3, or leave it out"),
    "no number": (elastic(3, value="$(SIZE)"), [], ""),
    "of a field": (elastic(3, valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}), [], ""),
    "another variable": (elastic(3, "SIZE", value="2"), [], ""),
    "PyTorchJob without master": (
        workers("PyTorchJob", "pytorch", "WORLD_SIZE"),
        [("WORLD_SIZE", 2)],
        "WORLD_SIZE is 2 for 3 replicas: write 3, or leave it out",
    ),
    "overridden by the operator": (workers("PyTorchJob", "pytorch", "WORLD_SIZE", Master=1), [], ""),
    "overridden with the same number": (
        kubeflow_job("PyTorchJob", Master=1, Worker={"template": with_variable("pytorch", "WORLD_SIZE", value="2")}),
        [],
        "",
    ),
    "JAXJob": (
        workers("JAXJob", "jax", "JAX_NUM_PROCESSES"),
        [("JAX_NUM_PROCESSES", 2)],
        "JAX_NUM_PROCESSES is 2 for 3 replicas: write 3, or leave it out",
    ),
    "no scale subresource": (workers("XGBoostJob", "xgboost", "WORLD_SIZE", Master=1), [], ""),
}


@pytest.mark.parametrize(("job", "variables", "warning"), CASES.values(), ids=CASES)
def test_the_variables_that_fix_the_size(job: Json, variables: list[tuple[str, int]], warning: str) -> None:
    kind = kinds.kind_of(job)
    assert kind is not None
    sizes = size_variables(parse_job(kind, job, Config()))
    assert [(size.name, size.processes) for size in sizes] == variables
    warnings = {problem.path: problem.text for problem in kinds.warnings(kind, job)}
    assert [warnings.get(size.path, "") for size in sizes] == [warning] * len(sizes)
