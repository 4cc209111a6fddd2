"""Every small world over the real decision and the shell's order holds every rule; every planted bug is caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from planted_bugs import MUTANTS, Mutant
from planted_bugs_of_kinds import MORE

from trainyard.testing import scenes
from trainyard.testing.moves import Bounds
from trainyard.testing.scenes import SMALL, VIEWS, Case
from trainyard.testing.worlds import EVERY, Broken, Scene, explore

QUICK = {
    "every trouble", "old views, failures", "old views, suspend", "old views, the rest", "no policy", "backoffLimit 0",
    "cleanPodPolicy Running, ttlSecondsAfterFinished 5", "cleanPodPolicy All, backoffLimit 0, activeDeadlineSeconds 30",
    "a deadline and suspend", "restarts in place", "a default PS", "TensorBoard", "a foreign name",
    "gang, failures", "gang, people", "gang, a failure and a drain", "gang, old views, failures", "one local worker",
    "gang, cleanPodPolicy All", "elastic, every trouble", "elastic, Never", "elastic, scaled while it is suspended",
    "elastic, suspended after a failure", "elastic, old views", "elastic, cleanPodPolicy None",
    "chainer, every trouble", "chainer, two edits", "chainer, cleanPodPolicy None",
    "chainer, a foreign StatefulSet", "elastic, a foreign name", "elastic, restarts in place",
}  # fmt: skip


def marked(case: Case) -> Any:
    return pytest.param(case, id=case.name, marks=[] if case.name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("case", [marked(case) for case in scenes.small()])
def test_every_world_holds_every_rule(case: Case, record_property: Callable[[str, object], None]) -> None:
    found = explore(case.scene, moves=case.moves)
    record_property("worlds", found.worlds)
    print(f"{found.worlds} worlds, {found.plans} plans")
    assert found.worlds > 100


UNAIDED = sorted(EVERY - {*VIEWS, "pass", "unasked"})


@pytest.mark.parametrize("left_out", UNAIDED)
def test_dropping_a_move_makes_fewer_worlds(left_out: str) -> None:
    moves = frozenset(["pass", "unasked", left_out, "fail" if left_out == "time" else left_out])
    scene = Scene(bounds=SMALL)
    assert explore(scene, moves=moves - {left_out}).worlds < explore(scene, moves=moves).worlds


@pytest.mark.parametrize("left_out", ["remember", "mixed pass", "restart"])
def test_dropping_a_move_of_old_views_makes_fewer_worlds(left_out: str) -> None:
    moves = frozenset(["pass", "unasked", "delete job", *VIEWS])
    scene = Scene(bounds=SMALL)
    assert explore(scene, moves=moves - {left_out}).worlds < explore(scene, moves=moves).worlds


@pytest.mark.parametrize("mutant", [pytest.param(one, id=one.name) for one in (*MUTANTS, *MORE)])
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    scene = mutant.scene or Scene(mutant.policies, bounds=Bounds(trouble=mutant.trouble, time=1))
    with pytest.raises(Broken) as caught:
        explore(scene, mutant.shell, frozenset(mutant.moves))
    print(caught.value)
    assert mutant.rule in caught.value.rule
    assert len(caught.value.story) < 20


def test_every_move_has_a_name_that_scenes_use() -> None:
    used = frozenset().union(*(case.moves for case in scenes.small()))
    assert used == EVERY
