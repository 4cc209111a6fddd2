"""Refused writes after an edit of the job: refusals of invalid objects belong to the old spec and are dropped."""

from __future__ import annotations

from tests.support.builders import tfjob
from trainyard.core import ParsedSpec, Refusal
from trainyard.core.refusals import write_due_at
from trainyard.kinds import TFJOB
from trainyard.objects import Json, Ref
from trainyard.objects.structs import replace
from trainyard.operator.reconcile import JobState

NOW = 1_700_000_000.0
INVALID, QUOTA = Ref("Pod", "worker-1"), Ref("Pod", "worker-2")


def state_with_refusals() -> JobState:
    state = JobState()
    state.observe_generation(1)
    state.refusals[INVALID] = Refusal(422, "Invalid", "image: Required value", NOW, 6)
    state.refusals[QUOTA] = Refusal(403, "Forbidden", "exceeded quota", NOW, 6)
    return state


def test_refusals_keep_their_back_off_while_the_spec_is_unchanged() -> None:
    state = state_with_refusals()
    state.observe_generation(1)
    assert set(state.refusals) == {INVALID, QUOTA}
    assert write_due_at(state.refusals[QUOTA], "create", NOW) == NOW + 300


def test_an_edit_resets_invalid_refusals_and_retries_the_others_at_once() -> None:
    state = state_with_refusals()
    state.observe_generation(2)
    assert set(state.refusals) == {QUOTA} and state.refusals[QUOTA].message == "exceeded quota"
    assert write_due_at(state.refusals[QUOTA], "create", NOW) <= NOW


def test_a_spec_is_parsed_once_for_each_generation() -> None:
    parsed: list[Json] = []

    def read(spec: Json, name: str) -> ParsedSpec:
        parsed.append(spec)
        return TFJOB.api.read(spec, name)

    kind, job, state = replace(TFJOB, api=replace(TFJOB.api, read=read)), tfjob(), JobState()
    for generation in (1, 1, 2):
        state.observe_generation(generation)
        state.parse(kind, job)
        state.parse(kind, job)
    assert len(parsed) == 2
