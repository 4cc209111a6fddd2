"""What `why` says of the values that programs report."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.views.test_stragglers import facts, usage
from trainyard.core.diagnosis import BLOCK, NOTE, WAIT
from trainyard.objects.usage import DISK, SLEEP
from trainyard.views.diagnosis import why
from trainyard.views.diagnosis.progress import no_step, not_finite
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


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_says_so_in_a_note(end: str) -> None:
    ended = facts(diverged(0, 21.0))
    condition = {"type": end, "status": "True", "reason": "x", "message": "x"}
    findings = why(replace(ended, job={**ended.job, "status": {"conditions": [condition]}}))
    assert (NOTE, "worker-0: loss was nan since step 21") in [(finding.level, finding.summary) for finding in findings]


def test_finite_values_are_no_finding() -> None:
    assert list(not_finite(facts(usage(0, 3.0, metrics={"loss": 0.5}), usage(1, None)))) == []


NOW = 1_000_000.0


def stalled(
    index: int, seconds: float, pace: float | None = 0.1, cpu: float | None = 0.01, **more: Any
) -> ReplicaUsage:
    return usage(index, 20.0, step_time=NOW - seconds, seconds_per_step=pace, cpu=cpu, **more)


@pytest.mark.parametrize(
    ("usages", "summary"),
    [
        ((stalled(0, 780.0),), "worker-0: no step for 13m (0.1 s a step before); it waits"),
        ((stalled(0, 25.0), stalled(1, 24.0), stalled(2, 26.0, waits_for=SLEEP, waiting_pid=7)),
         "worker-0, worker-1, worker-2: no step for 26s (0.1 s a step before); all replicas wait, worker-2 sleeps"),
        ((stalled(0, 90.0, waits_for=SLEEP), stalled(1, 90.0, waits_for=SLEEP)),
         "worker-0, worker-1: no step for 90s (0.1 s a step before); all replicas wait, worker-0, worker-1 sleep"),
        ((stalled(0, 90.0, waits_for=DISK), stalled(1, 1.0, cpu=0.9)),
         "worker-0: no step for 90s (0.1 s a step before); it waits for a disk"),
        ((stalled(0, 7000.0, 60.0), usage(1, None, cpu=0.0)),
         "worker-0: no step for 116m (60 s a step before); all replicas wait"),
        ((stalled(0, 121.0, cpu=1.0), stalled(1, 121.0, cpu=1.0)),
         "worker-0, worker-1: no step for 2m (0.1 s a step before); their processes compute"),
        ((stalled(0, 121.0, cpu=None),), "worker-0: no step for 2m (0.1 s a step before)"),
        ((stalled(0, 121.0, None),), "worker-0: no step for 2m; it waits"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_come(usages: tuple[ReplicaUsage, ...], summary: str) -> None:
    (finding,) = no_step(replace(facts(*usages), now=NOW))
    assert (finding.level, finding.summary) == (WAIT, summary)
    assert "trainyard logs pytorchjob/a" in finding.fix and "py-spy dump --pid" in finding.fix


@pytest.mark.parametrize(
    "quiet",
    [
        stalled(0, 19.0),  # a pause
        stalled(0, 500.0, 60.0),  # steps are slow
        stalled(0, 100.0, None),
        stalled(0, 500.0, None, cpu=0.9),  # no second step yet: it compiles
        stalled(0, 110.0, cpu=0.5),  # an evaluation
        stalled(0, 110.0, cpu=None),
        stalled(0, 500.0, state="Succeeded"),
        stalled(0, 500.0, stopped_pid=7),  # another finding
        usage(0, 20.0, cpu=0.0),
        usage(0, None, cpu=0.0),  # a server without steps
    ],
)
def test_a_step_that_is_not_overdue(quiet: ReplicaUsage) -> None:
    assert list(no_step(replace(facts(quiet), now=NOW))) == []


def test_the_process_that_sleeps_is_named() -> None:
    (finding,) = no_step(replace(facts(stalled(0, 60.0), stalled(1, 60.0, waits_for=SLEEP, waiting_pid=7)), now=NOW))
    assert finding.evidence[1] == "worker-1: step 20, 60s ago, CPU 10m, process 7 waits for: sleep"
    assert "`py-spy dump --pid 7` on that machine shows" in finding.fix
