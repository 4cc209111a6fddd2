"""The recorded answers: they are of the scenarios that stand in the tables, and their abridged form is read whole."""

from __future__ import annotations

import pytest

from tests.drop_in.recordings import FOLDER, abridged, expanded, load, paths
from tests.drop_in.scenarios import own_scenarios
from trainyard.objects import Json

ANEW = "write testdata/drop_in anew with `make record-drop-in`"


def test_abridged_steps_are_expanded_to_what_they_were() -> None:
    def step(**snapshot: Json | list[str] | None) -> Json:
        return {"do": {}, "snapshot": snapshot}

    pods = {"a": {"spec": 1}, "b": {"spec": 2}}
    steps = [
        step(job={"status": {}}, pods=pods, events=["x"]),
        step(job={"status": {}}, pods={"a": {"spec": 1}}, events=["x", "y"]),
        {"do": {}, "refused": {"code": 422}},
        step(job={"status": {"a": 1}}, pods=pods, events=["x", "y"]),
        step(job=None),
    ]
    short = abridged(steps)
    assert short[1]["snapshot"] == {"job": "=", "pods": {"a": "="}, "events": ["x", "y"]}
    assert short[3]["snapshot"]["pods"] == {"a": "=", "b": {"spec": 2}}
    assert expanded(short) == steps


def test_every_recording_is_of_a_scenario_and_every_scenario_is_recorded() -> None:
    names = {f"{path.parent.name}/{path.stem}" for path in paths()}
    tables = {scenario.path for scenario in own_scenarios()}
    assert {name for name in names if not name.partition("/")[2].startswith("example-")} == tables, ANEW


@pytest.mark.parametrize("kind", sorted({scenario.kind for scenario in own_scenarios()}))
def test_recordings_have_the_manifests_and_steps_of_the_tables(kind: str) -> None:
    for scenario in own_scenarios():
        if scenario.kind == kind:
            recording = load(FOLDER / f"{scenario.path}.json")
            assert (recording.manifest, recording.objects) == (scenario.manifest, list(scenario.objects)), ANEW
            steps = [] if "refused" in recording.steps[0] else list(scenario.steps)  # nothing is done with no job
            assert (recording.acts, recording.gang) == (steps, scenario.gang), ANEW
