"""A scenario of a time limit is run again when its other steps have taken as long as the limit."""

from __future__ import annotations

import pytest

from tests.drop_in.driver import CREATE, _Run
from tests.drop_in.jobs import JAXJOB
from tests.drop_in.scenario import START, wait
from trainyard.client import ApiClient
from trainyard.kinds import JAXJOB as KIND
from trainyard.objects import Json


def is_late(seconds: float, step: Json, *steps: Json) -> bool:
    """Whether a scenario of these steps is late, so many seconds after it began, when it has done `step`."""
    run = _Run(ApiClient("http://localhost"), "n", KIND.gvk, JAXJOB.scenario("s", JAXJOB.job(), *steps))
    run._since -= seconds
    run.answers.append({"do": step})
    run.check_time()
    return run.late


@pytest.mark.parametrize(
    ("seconds", "step", "late"),
    [(8.5, CREATE, False), (9.0, START, True), (60.0, wait(10), False)],
    ids=["in time", "too late", "the wait itself"],
)
def test_steps_before_a_wait_for_a_time_limit_are_timed(seconds: float, step: Json, late: bool) -> None:
    assert is_late(seconds, step, START, wait(10)) is late


def test_a_wait_for_a_controller_is_no_time_limit() -> None:
    assert not is_late(60.0, START, START, wait(2))
