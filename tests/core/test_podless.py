"""Kubernetes makes no pod for a child, and says why in the child's events only: the job says where to look."""

from __future__ import annotations

from tests.model.simulated_job import Life, begun
from tests.support.builders import tfjob
from tests.support.samples import chainerjob
from trainyard.kinds import CHAINERJOB, TFJOB
from trainyard.objects import find_condition

WAITS = "MASTER 0 waits: Job master-76no-0 has no pod, and its events say why"


def said(life: Life) -> str:
    return str((find_condition(life.look().status["conditions"], "Blocked") or {}).get("message", ""))


def test_it_is_said_after_half_a_minute_once_and_taken_back_when_there_is_a_pod() -> None:
    life = begun(TFJOB, tfjob())
    assert life.look().requeue_at == life.now + 30 and "waits" not in said(life)
    life.now += 30
    found = life.step()
    assert found.status_changed and said(life) == WAITS
    assert [(one.type, one.reason) for one in found.events] == [("Warning", "NoPod")]
    assert life.look().idle  # said once
    life.run()
    assert said(life) == "" and find_condition(life.look().status["conditions"], "Blocked")


def test_a_job_whose_pods_come_one_after_the_other_is_not_spoken_of() -> None:
    life = begun(TFJOB, tfjob())
    life.now += 29
    life.run("worker-76no-0")
    life.now += 29
    assert "waits" not in said(life)
    life.now += 1
    assert WAITS in said(life)


def test_a_set_without_pods_is_named_too() -> None:
    life = begun(CHAINERJOB, chainerjob())
    life.run("example-master")
    life.now += 30
    assert "StatefulSet example-workerset-ws0 has no pod" in said(life)
