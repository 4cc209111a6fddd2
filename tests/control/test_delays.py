"""When a job is looked at again, while somebody sets the wall clock."""

from __future__ import annotations

from typing import Any

from trainyard.control.events import Recorder
from trainyard.control.reconcile import Memory, Pass, Shell
from trainyard.control.writes import Writes
from trainyard.core import Config, Plan
from trainyard.kinds import TFJOB
from trainyard.testing.builders import NOW, tfjob


async def test_a_delay_counts_from_the_clock_that_the_decision_was_made_by() -> None:
    """Found by histories whose clocks jump: decided an hour ahead, a pause of ten seconds took an hour and ten."""
    api: Any = None  # an idle plan sends nothing
    shell = Shell(api, Config(), Writes({}), Recorder(api), now=lambda: NOW)
    decided = NOW + 3600
    idle = Plan(status={}, after=decided + 10)
    assert await shell.obey(Pass(TFJOB, tfjob(), idle, Memory(), decided)) == 10
