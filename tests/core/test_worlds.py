"""Every small world over the real decision and the executor's order holds every rule; every planted bug is caught."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.planted_bugs import MUTANTS, Mutant
from tests.core.planted_bugs_of_kinds import MORE
from tests.core.planted_bugs_of_restarts import RESTARTS
from tests.model import explored_jobs as explored_jobs
from tests.model.executor_model import ExecutorModel
from tests.model.explored_jobs import SMALL, VIEWS, Case
from tests.model.explorer import EVERY, InitialState, RuleBroken, explore
from tests.model.transitions import Bounds

QUICK = (
    "no policy", "backoffLimit 0", "a default PS", "TensorBoard", "gang, people", "one local worker", "elastic, Never",
    "elastic, a foreign name", "chainer, cleanPodPolicy None", "chainer, a foreign StatefulSet",
    "PyTorchJob, two workers", "PyTorchJob, a failure and a lost Pod", "PyTorchJob, a Pod is gone, suspend",
    "TFJob, dynamic workers, old views", "MPIJob, a foreign Role small-launcher", "MPIJob v2beta1, backoffLimit",
    "TrainJob, two troubles", "TrainJob, failurePolicy, two troubles",
)  # fmt: skip
"""All scenes are visited by `make worlds`, and by every run of the CI."""


def chosen() -> list[Case]:
    cases = {case.name: case for case in explored_jobs.small()}
    return [cases[name] for name in QUICK]


@pytest.mark.parametrize("case", chosen(), ids=lambda case: case.name)
def test_every_world_holds_every_rule(case: Case) -> None:
    assert explore(case.initial_state, transitions=case.transitions).worlds > 100


PLANTED = next(
    mutant
    for mutant in MUTANTS
    if mutant.executor == ExecutorModel() and mutant.initial_state is None and not mutant.policies
)


def planted() -> list[Case]:
    return [Case(PLANTED.name, InitialState(bounds=Bounds(PLANTED.trouble, time=1)), frozenset(PLANTED.transitions))]


def test_a_broken_rule_is_reported_across_the_process_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED.patch(monkeypatch)
    with pytest.raises(RuleBroken) as broken:
        explored_jobs.main(planted)
    assert PLANTED.rule in broken.value.rule
    assert str(broken.value.story[-1]) in str(broken.value)


UNAIDED = sorted(EVERY - {*VIEWS, "pass", "unasked"})


@pytest.mark.slow
@pytest.mark.parametrize("left_out", UNAIDED)
def test_dropping_a_move_makes_fewer_worlds(left_out: str) -> None:
    transitions = frozenset(["pass", "unasked", left_out, "fail" if left_out == "time" else left_out])
    initial_state = InitialState(bounds=SMALL)
    assert (
        explore(initial_state, transitions=transitions - {left_out}).worlds
        < explore(initial_state, transitions=transitions).worlds
    )


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["remember", "mixed pass", "restart"])
def test_dropping_a_move_of_old_views_makes_fewer_worlds(left_out: str) -> None:
    transitions = frozenset(["pass", "unasked", "delete job", *VIEWS])
    initial_state = InitialState(bounds=SMALL)
    assert (
        explore(initial_state, transitions=transitions - {left_out}).worlds
        < explore(initial_state, transitions=transitions).worlds
    )


def quick(mutants: list[Mutant], every: int) -> list[Any]:
    """All of them, some of them for the quick run."""
    marks = ([] if at % every == 0 else [pytest.mark.slow] for at in range(len(mutants)))
    return [pytest.param(mutant, id=mutant.name, marks=marked) for mutant, marked in zip(mutants, marks, strict=True)]


@pytest.mark.parametrize("mutant", quick([*MUTANTS, *MORE, *RESTARTS], 6))
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    initial_state = mutant.initial_state or InitialState(mutant.policies, bounds=Bounds(trouble=mutant.trouble, time=1))
    with pytest.raises(RuleBroken) as caught:
        explore(initial_state, mutant.executor, frozenset(mutant.transitions))
    print(caught.value)
    assert mutant.rule in caught.value.rule
    assert len(caught.value.story) < 20


def test_every_move_has_a_name_that_scenes_use() -> None:
    used = frozenset().union(*(case.transitions for case in explored_jobs.small()))
    assert used == EVERY
