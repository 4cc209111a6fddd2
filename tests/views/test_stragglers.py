from __future__ import annotations

from typing import Any

import pytest

from tests.support.samples import sample
from trainyard import kinds
from trainyard.core.diagnosis import NOTE, WAIT
from trainyard.views.diagnosis.inputs import Facts
from trainyard.views.diagnosis.stragglers import stragglers
from trainyard.views.usage_view import ReplicaUsage

KIND = kinds.PYTORCHJOB


def usage(index: int, step: float | None, **more: Any) -> ReplicaUsage:
    fields = {"state": "Running", "pod": f"a-worker-{index}", "node": "local", "metrics_source": "file"}
    measured: dict[str, Any] = {**fields, "memory_measure": "PSS", **more}
    return ReplicaUsage(replica=f"worker-{index}", role="worker", step=step, **measured)


def facts(*usages: ReplicaUsage) -> Facts:
    return Facts(KIND, {**sample("PyTorchJob"), "metadata": {"name": "a", "namespace": "default"}}, 0.0, usages=usages)


def test_replicas_that_advance_together_are_no_finding() -> None:
    assert list(stragglers(facts())) == []
    assert list(stragglers(facts(usage(0, 100.0)))) == []
    assert list(stragglers(facts(usage(0, 100.0), usage(1, 96.0, lag=4.0), usage(2, 91.0, lag=9.0)))) == []
    assert list(stragglers(facts(usage(0, 3.0), usage(1, 0.0, lag=3.0), usage(2, 4.0)))) == []


def test_a_replica_that_is_behind_is_named_with_its_step() -> None:
    slow = usage(1, 70.0, lag=130.0, steps_per_second=3.5)
    (finding,) = stragglers(facts(slow, usage(0, 200.0), usage(2, 200.0)))
    assert finding.level == WAIT
    assert finding.summary == "worker-1: behind; it is at step 70, the median of the role is 200"
    assert finding.evidence == ("worker-1: 3.50 steps a second",)
    assert "trainyard logs pytorchjob/a --role worker --index 1" in finding.fix


def test_a_replica_without_a_step_is_behind_and_several_are_one_finding() -> None:
    late = [usage(index, None, lag=200.0) for index in (3, 4)]
    (finding,) = stragglers(facts(*late, *(usage(index, 200.0) for index in range(3))))
    assert finding.summary == "worker-3, worker-4: behind; the slowest has no step yet, the median of the role is 200"


def test_steps_that_are_guessed_from_the_output_are_only_a_note() -> None:
    slow = usage(1, 70.0, lag=130.0, metrics_source="pattern")
    (finding,) = stragglers(facts(slow, usage(0, 200.0), usage(2, 200.0)))
    assert finding.level == NOTE


@pytest.mark.parametrize("step", [None, 10.0])
def test_a_stopped_process_is_named_whatever_its_step(step: float | None) -> None:
    (finding,) = stragglers(facts(usage(0, 10.0), usage(1, step, stopped_pid=4711)))
    assert finding.summary.startswith("worker-1: its process is stopped")
    assert "kill -CONT 4711" in finding.fix
