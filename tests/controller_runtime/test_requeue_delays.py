"""When a job is looked at again, while somebody sets the wall clock."""

from __future__ import annotations

from typing import Any

from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.core import Config, Plan
from trainyard.kinds import TFJOB
from trainyard.operator.plan_executor import JobState, PlanExecutor, Reconcile
from trainyard.testing.builders import NOW, tfjob


async def test_a_delay_counts_from_the_clock_that_the_decision_was_made_by() -> None:
    """Found by histories whose clocks jump: decided an hour ahead, a pause of ten seconds took an hour and ten."""
    api: Any = None  # an idle plan sends nothing
    shell = PlanExecutor(api, Config(), InFlightWrites({}), EventRecorder(api), now=lambda: NOW)
    decided = NOW + 3600
    idle = Plan(status={}, requeue_at=decided + 10)
    assert await shell.apply(Reconcile(TFJOB, tfjob(), idle, JobState(), decided)) == 10
