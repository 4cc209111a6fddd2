"""What `why` says of the values that programs report."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.views.test_stragglers import facts, usage
from trainyard.core.diagnosis import BLOCK, NOTE, WAIT
from trainyard.views.diagnosis.progress import not_finite
from trainyard.views.usage_view import ReplicaUsage


def diverged(index: int, since: float | None, name: str = "loss", value: float = math.nan, **more: Any) -> ReplicaUsage:
    return usage(index, 30.0, metrics={name: value}, not_finite_since={name: since}, **more)


@pytest.mark.parametrize(
    ("usages", "level", "summary"),
    [
        ((diverged(0, 21.0),), BLOCK, "worker-0: loss is nan since step 21"),
        ((diverged(0, None, "val/Loss", math.inf),), BLOCK, "worker-0: val/Loss is inf"),
        (
            (diverged(0, 22.0), usage(1, 9.0), diverged(2, 21.0)),
            BLOCK,
            "worker-0, worker-2: loss is nan since step 21",
        ),
        ((diverged(0, 21.0, metrics_source="pattern"),), WAIT, "worker-0: loss is nan since step 21"),
        ((diverged(0, 21.0, "grad_norm", -math.inf),), NOTE, "worker-0: grad_norm is -inf since step 21"),
    ],
)
def test_a_value_that_is_not_finite(usages: tuple[ReplicaUsage, ...], level: int, summary: str) -> None:
    (finding,) = not_finite(facts(*usages))
    assert (finding.level, finding.summary) == (level, summary)
    assert finding.where.startswith(f"metrics.k8s.io, pod {usages[0].pod}: ")
    assert ("learning rate" in finding.fix) == (level != NOTE)


def test_finite_values_are_no_finding() -> None:
    assert list(not_finite(facts(usage(0, 3.0, metrics={"loss": 0.5}), usage(1, None)))) == []
