"""Which logs of a job with many replicas are read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.views.why_values import ended, pod
from trainyard.objects import name_of
from trainyard.views.diagnosis.lookups import MAX_LOGS, logs_to_read
from trainyard.views.usage_view import ReplicaUsage

PODS = [pod(f"WORKER-{index}") for index in range(MAX_LOGS + 4)]
ALL = {"step": 20.0, "step_time": 1000.5, "cpu": 0.02}
RAISED = MAX_LOGS + 2


def usage(index: int, fields: dict[str, Any]) -> ReplicaUsage:
    return ReplicaUsage(f"worker-{index}", "worker", "Running", name_of(PODS[index]), "here", **fields)


@pytest.mark.parametrize(
    "evidence",
    [
        {"step_time": 1000.0},
        {"cpu": 0.0},
        {"step": None, "step_time": None, "lag": 20.0},
    ],
)
def test_of_many_running_replicas_that_which_may_have_raised_is_read(evidence: dict[str, Any]) -> None:
    """A traceback ends in no exit code while the program waits for the others, which wait for it."""
    usages = [usage(index, ALL | (evidence if index == RAISED else {})) for index in range(len(PODS))]
    reads = logs_to_read(PODS, usages=usages)
    assert (reads[0].pod, len(reads)) == (PODS[RAISED], MAX_LOGS)


def test_without_evidence_the_first_ones_are_read() -> None:
    assert [read.pod for read in logs_to_read(PODS)] == PODS[:MAX_LOGS]


def test_replicas_that_have_failed_come_first() -> None:
    failed = pod("WORKER-99", {"state": ended(1)}, "Failed")
    reads = logs_to_read([*PODS, failed], usages=[usage(3, {"lag": 9.0})])
    assert [read.pod for read in reads[:2]] == [failed, PODS[3]]
