"""Requeue delays while the wall clock is set."""

from __future__ import annotations

from typing import Any

from tests.support.builders import NOW, tfjob
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.core import Config, Plan
from trainyard.kinds import TFJOB
from trainyard.operator.plan_executor import PlanExecutor
from trainyard.operator.reconcile import JobState, ReconcileContext


async def test_a_delay_counts_from_the_clock_that_the_decision_was_made_by() -> None:
    """Found by fault histories in which the wall clock jumps: after a plan made while the clock was an hour ahead, a
    delay of ten seconds took an hour and ten seconds."""
    api: Any = None  # an idle plan sends nothing
    executor = PlanExecutor(api, Config(), InFlightWrites({}), EventRecorder(api), now=lambda: NOW)
    planned_at = NOW + 3600
    idle = Plan(status={}, requeue_at=planned_at + 10)
    assert await executor.apply(ReconcileContext(TFJOB, tfjob(), idle, JobState(), planned_at)) == 10
