"""A resource of a container that is no quantity is refused with its path, before the API server refuses the pods."""

from __future__ import annotations

import copy

import pytest

from tests.support.samples import ALL_WITH_TEMPLATES, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds.pods.templates import containers_of
from trainyard.objects import Json, templates_of


def with_memory(kind: Kind, value: object) -> Json:
    """A sample of the kind, whose first container has this memory limit."""
    job = copy.deepcopy(sample(kind.gvk.kind))
    _, template = next(templates_of(job["spec"], "spec"))
    containers_of(template)[0]["resources"] = {"limits": {"memory": value, "cpu": 1}}
    return job


@pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
@pytest.mark.parametrize("value", ["100mi", "1 Gi", "", "many"])
def test_an_invalid_quantity_is_reported_with_its_path(kind: Kind, value: str) -> None:
    (problem,) = kinds.admit(kind, with_memory(kind, value))[1]
    assert problem.path.endswith(".containers[0].resources.limits.memory") and "is no quantity" in problem.text


@pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
@pytest.mark.parametrize("value", ["100Mi", "1.5Gi", "1e9", 100, 0.5])
def test_a_quantity_is_accepted(kind: Kind, value: object) -> None:
    assert not kinds.admit(kind, with_memory(kind, value))[1]
