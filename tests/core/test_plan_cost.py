"""The cost of a plan is linear in the replicas, by counts and not by a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import samples
from tests.support.samples import ALL_WITH_TEMPLATES
from trainyard import core
from trainyard.core import Job, Kind, Observed, changes
from trainyard.objects.structs import replace


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
        served = next(candidate for candidate in ALL_WITH_TEMPLATES if candidate.gvk.kind == kind)
        plan = core.plan(served, job, Observed(()), 0.0)
        assert len(plan.creates) >= 2 * replicas
        numbers.append(len(calls))
    assert numbers[0] == numbers[1] > 0


@pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")
def test_what_is_kept_for_the_spec_reads_neither_the_status_nor_the_children(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Job.cached_of_spec` is kept while both of them change."""
    new = samples.sample(kind.gvk.kind)
    started = {**new, "status": core.plan(kind, new, Observed(()), 0.0).status}
    expected = [core.plan(kind, job, Observed(()), 1.0) for job in (new, started)]
    computed = []

    def compute_unobserved(job: Job, name: str, compute: Callable[[Job], Any]) -> Any:
        computed.append(name)
        unreadable: Any = object()
        return compute(replace(job, status=unreadable, owned=unreadable, running=unreadable))

    monkeypatch.setattr(Job, "cached_of_spec", compute_unobserved)
    assert [core.plan(kind, job, Observed(()), 1.0) for job in (new, started)] == expected
    assert {"slots", "success_sets", "running_slots", "supervised_slots"} <= set(computed)
