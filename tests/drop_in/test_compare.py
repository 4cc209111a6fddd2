"""How two runs of a scenario are compared, and which differences are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drop_in.accepted import Accepted
from tests.drop_in.compare import Difference, common_differences, covers, differences, unstable_paths
from tests.drop_in.differences import unaccepted
from trainyard.objects import Json


def step(**snapshot: Any) -> Json:
    return {"do": {"create": "job"}, "snapshot": {"job": {"status": {}}, **snapshot}}


def pod(*env: tuple[str, str]) -> Json:
    return {
        "j-0": {"spec": {"containers": [{"name": "c", "env": [{"name": name, "value": value} for name, value in env]}]}}
    }


CASES: dict[str, tuple[Json, Json, list[str]]] = {
    "nothing": (step(pods=pod(("A", "1"))), step(pods=pod(("A", "1"))), []),
    "a value": (
        step(pods=pod(("A", "1"))),
        step(pods=pod(("A", "2"))),
        ["step 0: pods/j-0 .spec.containers[c].env[A].value: '1' != '2'"],
    ),
    "the order of a list with names": (
        step(pods=pod(("A", "1"), ("B", "2"))),
        step(pods=pod(("B", "2"), ("A", "1"))),
        ["step 0: pods/j-0 .spec.containers[c].env order: ['A', 'B'] != ['B', 'A']"],
    ),
    "one member more": (
        step(pods=pod(("A", "1"))),
        step(pods=pod(("A", "1"), ("B", "2"))),
        ["step 0: pods/j-0 .spec.containers[c].env[B]: absent != {'name': 'B', 'value': '2'}"],
    ),
    "an object that ours has not made": (
        step(services={"s": {"spec": {}}}),
        step(),
        ["step 0: services/s: {'spec': {}} != absent"],
    ),
    "events": (
        step(events=["Normal A Job/j: a", "Normal B Job/j: b"]),
        step(events=["Normal A Job/j: a", "Normal C Job/j: c"]),
        [
            "step 0: events Normal B Job/j: b: 'sent' != 'absent'",
            "step 0: events Normal C Job/j: c: 'absent' != 'sent'",
        ],
    ),
    "the order of conditions": (
        {"do": {}, "snapshot": {"job": {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}}}},
        {"do": {}, "snapshot": {"job": {"status": {"conditions": [{"type": "B"}, {"type": "A"}]}}}},
        ["step 0: job .status.conditions order: ['A', 'B'] != ['B', 'A']"],
    ),
    "a job that is gone": (
        {"do": {}, "snapshot": {"job": None}},
        step(),
        ["step 0: job: None != {'status': {}}"],
    ),
    "a message of ours that goes on after the recorded one": (
        step(job={"conditions": [{"type": "Failed", "message": "a failed."}]}, events=["Normal A Job/j: a failed."]),
        step(
            job={"conditions": [{"type": "Failed", "message": "a failed. Exit code 1"}]},
            events=["Normal A Job/j: a failed.; code 1"],
        ),
        [],
    ),
    "a message of ours that begins with another word": (
        step(job={"message": "a fail"}, events=["Normal A Job/j: a fail"]),
        step(job={"message": "a failed"}, events=["Normal A Job/j: a failed"]),
        [
            "step 0: job .message: 'a fail' != 'a failed'",
            "step 0: events Normal A Job/j: a fail: 'sent' != 'absent'",
            "step 0: events Normal A Job/j: a failed: 'absent' != 'sent'",
        ],
    ),
    "a text that is no message and goes on": (
        step(job={"reason": "a"}),
        step(job={"reason": "a b"}),
        ["step 0: job .reason: 'a' != 'a b'"],
    ),
    "a refusal with another message": (
        {"do": {}, "refused": {"code": 422, "message": "a"}},
        {"do": {}, "refused": {"code": 422, "message": "b"}},
        [],
    ),
    "a refusal by a webhook, where ours has a rule in the definition": (
        {"do": {}, "refused": {"code": 403, "message": 'admission webhook "x" denied the request: no'}},
        {"do": {}, "refused": {"code": 422, "message": "no"}},
        [],
    ),
    "a refusal with another code": (
        {"do": {}, "refused": {"code": 409, "message": "a"}},
        {"do": {}, "refused": {"code": 422, "message": "a"}},
        ["step 0: refused .code: 409 != 422"],
    ),
    "a refusal that ours has not made": (
        {"do": {}, "refused": {"code": 403, "message": "a"}},
        {"do": {}},
        ["step 0: refused: {'code': 403, 'message': 'a'} != None"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_differences_are_listed_by_path(case: str) -> None:
    left, right, expected = CASES[case]
    assert [str(difference) for difference in differences([left], [right])] == expected


def test_a_run_with_fewer_steps_is_a_difference() -> None:
    assert [str(difference) for difference in differences([step(), step()], [step()])] == ["step 1: steps: 2 != 1"]


def test_where_two_runs_of_the_recorded_operator_differ_anything_is_accepted() -> None:
    first, second, ours = (step(pods=pod(("A", value))) for value in "123")
    unstable = unstable_paths([[first], [second]])
    assert unstable == ["step 0: pods/j-0 .spec.containers[c].env[A].value"]
    assert differences([first], [ours], unstable) == []


def test_a_pattern_covers_a_path_with_brackets() -> None:
    assert covers("pods/* .spec.containers[*].env*", "pods/j-0 .spec.containers[c].env[A].value")
    assert not covers("pods/* .spec.containers[c]", "pods/j-0 .spec.containers[c].env")


def test_one_star_covers_no_space_and_two_cover_any_text() -> None:
    assert covers("pods/*", "pods/j-0")
    assert not covers("pods/*", "pods/j-0 .spec")
    assert covers("events * Failed **", "events Warning Failed Job/j: it has failed")


def test_an_accepted_difference_is_left_out_and_each_other_one_is_a_line() -> None:
    listed = [Difference(0, "job .status.a", "1", "2"), Difference(1, "job .status.b", "1", "2")]
    accepted = [Accepted("tfjob/*", "job .status.a", "because")]
    assert unaccepted("tfjob/x", listed, accepted) == ["tfjob/x step 1: job .status.b: 1 != 2"]
    assert len(unaccepted("jaxjob/x", listed, accepted)) == 2


def test_what_one_run_has_as_it_is_recorded_is_a_race_of_theirs() -> None:
    recorded, late, changed = (
        [step(events=["Normal A Job/j: a"], phases={"j-0": phase})] for phase in ("Running", "Running", "Failed")
    )
    late[0]["snapshot"]["events"] = []
    changed[0]["snapshot"]["events"] = []
    sometimes = [step(events=["Normal A Job/j: a"], phases={"j-0": "Failed"})]
    assert [str(difference) for difference in common_differences(recorded, [changed, sometimes])] == [
        "step 0: phases/j-0: 'Running' != 'Failed'"
    ]
    assert common_differences(recorded, [changed, late, sometimes]) == []
    assert len(common_differences(recorded, [changed, changed])) == 2


@pytest.mark.parametrize(
    ("ours", "paths"),
    [
        ("ABA", []),
        ("AXBA", ["env[X]"]),
        ("ABAX", ["env[X]"]),
        ("AB", ["env[A 2]"]),
        ("AAB", ["env order"]),
        ("XAAB", ["env order", "env[X]"]),
    ],
)
def test_a_list_is_compared_by_names_that_may_occur_again_and_by_the_order_of_those_of_both(
    ours: str, paths: list[str]
) -> None:
    def snapshot(names: str) -> list[Json]:
        return [{"snapshot": {"job": {"env": [{"name": name, "value": "v"} for name in names]}}}]

    reported = [difference.path.removeprefix("job .") for difference in differences(snapshot("ABA"), snapshot(ours))]
    assert sorted(reported) == paths
