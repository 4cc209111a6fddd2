"""The cost of a plan is linear in the replicas, by counts and not by a clock."""

from __future__ import annotations

import pytest

from tests.support import samples
from trainyard import core, kinds
from trainyard.core import Observed, changes


@pytest.mark.parametrize("kind", ["PyTorchJob", "ElasticJob"])
def test_what_blocks_creates_is_worked_out_a_bounded_number_of_times(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at every Service: once for each replica, a job of 10,000 would take minutes to plan."""
    calls, blocking_refs = [], changes.blocking_refs

    def counted(*args: object) -> object:
        calls.append(args)
        return blocking_refs(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(changes, "blocking_refs", counted)
    numbers = []
    for replicas in (3, 30):
        calls.clear()
        job = samples.elasticjob(replicas)
        if kind == "PyTorchJob":
            job = samples.sample(kind)
            job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = replicas - 1
        served = next(each for each in kinds.ALL if each.gvk.kind == kind)
        plan = core.plan(served, job, Observed(()), 0.0)
        assert len(plan.creates) >= 2 * replicas
        numbers.append(len(calls))
    assert numbers[0] == numbers[1] > 0
