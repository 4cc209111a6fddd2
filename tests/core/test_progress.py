"""Condition Stalled: which jobs are, which replica has stopped first, and what `on-stall` does."""

from __future__ import annotations

import itertools

import pytest

from tests.core.decision_values import every_kind
from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import elasticjob, mx_set, mxjob, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.core.policies.progress import Heartbeat, annotation_problems, find_stall
from trainyard.objects import Json, find_condition
from trainyard.objects.no_progress import NO_PROGRESS, ON_STALL, PROGRESS_DEADLINE, Activity, NoProgress

RUNS = Heartbeat("a")  # it makes steps, or has made none and is alive


def silent(name: str, step: float | None = 5.0, at: float = 100.0, activity: Activity = "waits") -> Heartbeat:
    return Heartbeat(name, NoProgress(at, True, step, activity))


def alive(name: str, step: float = 5.0) -> Heartbeat:
    """No step for the deadline, and another sign of life."""
    return Heartbeat(name, NoProgress(100.0, False, step))


CASES: list[tuple[str, list[Heartbeat], str]] = [
    ("nothing runs", [], ""),
    ("all make steps", [RUNS, RUNS], ""),
    ("alone, without a sign", [silent("a")], "a"),
    ("alone, before its first step", [silent("a", None)], ""),
    ("alone, with output", [alive("a")], ""),
    ("the one that made fewer steps", [silent("a", 6), silent("b", 5), silent("c", 6)], "b"),
    ("the one whose last sign is oldest", [silent("a", at=11), silent("b", at=10), silent("c", at=12)], "b"),
    ("the one that a signal has stopped", [silent("a", 5, 10), silent("b", 6, 11, activity="stopped")], "b"),
    ("the one that sleeps", [silent("a", at=10), silent("b", at=12, activity="sleep")], "b"),
    ("the one that waits for a disk", [silent("a", at=10), silent("b", at=12, activity="disk")], "b"),
    ("all wait by sleeping", [silent(name, at=at, activity="sleep") for name, at in (("a", 12), ("b", 10))], "b"),
    (
        "one computes, and the others wait for it",
        [silent("a", at=10), silent("b", at=12, activity="computes"), silent("c", at=11)],
        "b",
    ),
    (
        "one waits, and the others wait for it at full CPU",
        [silent("a", 5, 10, "computes"), silent("b", 5, 12), silent("c", 5, 11, "computes")],
        "b",
    ),
    (
        "one polls, and two others",
        [silent("a", 5, 10, "computes"), silent("b", 5, 12, "sleep"), silent("c", 5, 11, "sleep")],
        "a",
    ),
    ("fewer steps tell more", [silent("a", 4, 12), silent("b", 5, 10, "sleep"), silent("c", 5, 11)], "a"),
    ("one that makes no steps was stopped", [silent("a"), silent("b", None, activity="stopped")], "b"),
    ("the one that makes steps", [silent("a", None, at=1), silent("b", at=10)], "b"),
    ("one hangs, the others make steps without it", [silent("a"), RUNS], ""),
    ("one writes a checkpoint, the others wait", [alive("a"), silent("b")], ""),
    ("one that makes no steps is alive", [silent("a"), RUNS], ""),
    ("the others say that they wait", [alive("a", 6), silent("b", 5), alive("c", 6)], "b"),
    ("it is not behind each other", [alive("a", 6), silent("b", 5), alive("c", 5)], ""),
    ("the others say that they wait for one that was stopped", [alive("a"), silent("b", activity="stopped")], "b"),
]


@pytest.mark.parametrize(("heartbeats", "first"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_who_has_stopped_first(heartbeats: list[Heartbeat], first: str) -> None:
    for order in itertools.permutations(heartbeats):
        stall = find_stall(order)
        assert (stall.replica if stall else "") == first


SOME_ACTIVITIES: tuple[Activity, ...] = ("stopped", "sleep", "waits")
STATES = [
    None,
    *(
        NoProgress(0.0, is_silent, step, activity)
        for is_silent, step, activity in itertools.product((False, True), (None, 5.0, 6.0), SOME_ACTIVITIES)
        if is_silent or step is not None
    ),
]


@pytest.mark.parametrize("first", STATES, ids=str)
def test_every_small_world_of_three_replicas(first: NoProgress | None) -> None:
    """Whatever the replicas do: no alarm while one makes steps, before the first step, and while all are alive; always
    one when all are silent and one has made steps. The replica that is named is silent, and no other silent one has
    made fewer steps, unless a signal has stopped it."""
    for world in ((first, *others) for others in itertools.product(STATES, repeat=2)):
        stall = find_stall([Heartbeat(str(place), state) for place, state in enumerate(world)])
        overdue = [state for state in world if state]
        silent_states = [state for state in overdue if state.silent]
        may_be_stalled = len(overdue) == 3 and silent_states and any(state.step is not None for state in overdue)
        if not may_be_stalled or len(silent_states) == 3:
            assert (stall is not None) == bool(may_be_stalled), world
        if stall:
            named = stall.no_progress
            assert named in silent_states and named.stopped == any(state.stopped for state in silent_states), world
            steps = [state.step for state in silent_states if state.step is not None]
            assert named.stopped or named.step == min(steps), world


def stalling(job: Json, kind: Kind, **annotations: str) -> SimulatedJob:
    annotations = {PROGRESS_DEADLINE: "10m", **annotations}
    job = {**job, "metadata": {**job["metadata"], "annotations": annotations}}
    simulated = simulate(kind, job)
    simulated.run()
    simulated.settle()
    return simulated


def note(simulated: SimulatedJob, *states: NoProgress | None) -> list[Json]:
    """The node writes that of its pods; the last state is that of all others."""
    pods = [obj for ref, obj in sorted(simulated.objects.items()) if ref.kind == "Pod"]
    for place, pod in enumerate(pods):
        state = states[min(place, len(states) - 1)]
        pod["metadata"].setdefault("annotations", {})[NO_PROGRESS] = state.text if state else ""
    return pods


SILENT, LATER = NoProgress(1_800_000_000.0, True, 41.0), NoProgress(1_800_000_001.0, True, 42.0)


def stalled(status: Json) -> tuple[str, str]:
    condition = find_condition(status["conditions"], "Stalled") or {"status": "none", "message": ""}
    return condition["status"], condition["message"]


def test_a_stalled_job_says_so_until_it_makes_steps_again() -> None:
    simulated = stalling(elasticjob(3), kinds.ELASTICJOB)
    assert stalled(simulated.settle()) == ("none", "")
    first, *_ = note(simulated, SILENT, LATER)
    looked = simulated.look()
    status, message = stalled(looked.status)
    assert status == "True" and message == (
        f"pod {first['metadata']['name']} stopped first: no step after 41, and no output and no write to a file since "
        "2027-01-15T08:00:00Z (trainyard.dev/progress-deadline: 10m); 2 others wait"
    )
    assert [event.type for event in looked.events if event.reason == "ProgressDeadlineExceeded"] == ["Warning"]
    assert not (looked.deletes or looked.creates)
    simulated.settle()
    note(simulated, None)
    assert stalled(simulated.settle())[0] == "False"


def test_a_job_without_the_annotation_has_no_such_condition() -> None:
    simulated = stalling(elasticjob(3), kinds.ELASTICJOB)
    simulated.job["metadata"]["annotations"] = {PROGRESS_DEADLINE: "soon"}
    note(simulated, SILENT)
    assert stalled(simulated.settle()) == ("none", "")


def test_a_replica_that_does_not_run_is_told_by_others() -> None:
    simulated = stalling(elasticjob(2), kinds.ELASTICJOB)
    pods = note(simulated, SILENT)
    pods[0]["status"] = {"phase": "Pending"}
    assert stalled(simulated.settle()) == ("none", "")


@every_kind
def test_on_stall_restart_starts_all_replicas_again_that_have_not_ended(kind: Kind) -> None:
    simulated = stalling(sample(kind.gvk.kind), kind, **{ON_STALL: "restart"})
    before = {obj["metadata"]["uid"] for obj in note(simulated, SILENT)}
    status = simulated.look().status
    assert stalled(status)[0] == "True"
    assert {role["attempt"] for role in status["roles"].values()} == {1}
    restarting = find_condition(status["conditions"], "Restarting")
    assert restarting and restarting["status"] == "True" and "all replicas restart" in restarting["message"]
    status = simulated.settle()
    simulated.now += 60
    simulated.run()
    status = simulated.settle()
    after = {obj["metadata"]["uid"] for ref, obj in simulated.objects.items() if ref.kind == "Pod"}
    assert not before & after and len(after) == len(before)
    assert {role["attempt"] for role in status["roles"].values()} == {1}
    assert stalled(status)[0] == "False" and find_condition(status["conditions"], "Failed") is None


def test_a_stall_of_an_earlier_attempt_restarts_nothing() -> None:
    simulated = stalling(mxjob(*map(mx_set, ("SCHEDULER", "SERVER", "WORKER"))), kinds.MXJOB, **{ON_STALL: "restart"})
    note(simulated, SILENT)
    looked = simulated.look()
    simulated.job = {**simulated.job, "status": looked.status}  # and the operator is killed before it deletes
    again = simulated.look()
    assert {role["attempt"] for role in again.status["roles"].values()} == {1} and again.deletes


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({}, ""),
        ({PROGRESS_DEADLINE: "10m", ON_STALL: "restart"}, ""),
        ({PROGRESS_DEADLINE: "1h30m", ON_STALL: "report"}, ""),
        ({PROGRESS_DEADLINE: "10"}, "is '10': write a duration such as 10m or 1h30m, of at least 5s"),
        ({PROGRESS_DEADLINE: ""}, "is '': write"),
        ({PROGRESS_DEADLINE: "4s"}, "is '4s': write"),
        ({PROGRESS_DEADLINE: "0m"}, "is '0m': write"),
        ({PROGRESS_DEADLINE: "10m", ON_STALL: "Restart"}, "is 'Restart': write report or restart"),
        ({ON_STALL: "restart"}, "has no effect without the annotation trainyard.dev/progress-deadline: add it"),
    ],
)
def test_values_that_are_not_understood(annotations: dict[str, str], problem: str) -> None:
    problems = annotation_problems(annotations)
    assert len(problems) == bool(problem)
    for entry in problems:
        assert problem in entry.text and entry.path.startswith("metadata.annotations[trainyard.dev/")


@every_kind
def test_lint_and_submit_refuse_a_value_that_is_not_understood(kind: Kind) -> None:
    job = sample(kind.gvk.kind)
    annotated = {**job, "metadata": {**job["metadata"], "annotations": {PROGRESS_DEADLINE: 10, ON_STALL: None}}}
    before = kinds.admit(kind, job)[1]
    (problem,) = [entry for entry in kinds.admit(kind, annotated)[1] if entry not in before]
    assert str(problem).startswith("metadata.annotations[trainyard.dev/progress-deadline]: is 10: write a duration")
