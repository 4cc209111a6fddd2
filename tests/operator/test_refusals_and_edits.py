"""Refused writes after an edit of the job: refusals of invalid objects belong to the old spec and are dropped."""

from __future__ import annotations

from trainyard.core import Ref, Refusal
from trainyard.core.refusals import write_due_at
from trainyard.operator.plan_executor import JobState

NOW = 1_700_000_000.0
INVALID, QUOTA = Ref("Pod", "worker-1"), Ref("Pod", "worker-2")


def state_with_refusals() -> JobState:
    state = JobState()
    state.observe_generation(1)
    state.refusals[INVALID] = Refusal(422, "Invalid", "image: Required value", NOW, 6)
    state.refusals[QUOTA] = Refusal(403, "Forbidden", "exceeded quota", NOW, 6)
    return state


def test_as_long_as_the_spec_is_the_same_refusals_stand_and_wait() -> None:
    state = state_with_refusals()
    state.observe_generation(1)
    assert set(state.refusals) == {INVALID, QUOTA}
    assert write_due_at(state.refusals[QUOTA], "create", NOW) == NOW + 300


def test_after_an_edit_what_was_wrong_is_forgotten_and_the_rest_is_tried_now() -> None:
    state = state_with_refusals()
    state.observe_generation(2)
    assert set(state.refusals) == {QUOTA} and state.refusals[QUOTA].message == "exceeded quota"
    assert write_due_at(state.refusals[QUOTA], "create", NOW) <= NOW
