"""Kubernetes creates no pod for a child, and reports that in the child's events only: a condition says where to
look."""

from __future__ import annotations

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.builders import tfjob
from tests.support.samples import chainerjob
from trainyard.kinds import CHAINERJOB, TFJOB
from trainyard.objects import find_condition

WAITS = "MASTER 0 waits: Job master-76no-0 has no pod, and its events say why"


def condition_message(simulated: SimulatedJob) -> str:
    return str((find_condition(simulated.look().status["conditions"], "Blocked") or {}).get("message", ""))


def test_a_missing_pod_is_reported_after_30_seconds_and_no_longer_once_it_exists() -> None:
    simulated = simulate(TFJOB, tfjob())
    assert simulated.look().requeue_at == simulated.now + 30 and "waits" not in condition_message(simulated)
    simulated.now += 30
    planned = simulated.step()
    assert planned.status_changed and condition_message(simulated) == WAITS
    assert [(event.type, event.reason) for event in planned.events] == [("Warning", "NoPod")]
    assert simulated.look().idle  # said once
    simulated.run()
    assert condition_message(simulated) == "" and find_condition(simulated.look().status["conditions"], "Blocked")


def test_pods_that_are_created_one_after_another_are_not_reported() -> None:
    simulated = simulate(TFJOB, tfjob())
    simulated.now += 29
    simulated.run("worker-76no-0")
    simulated.now += 29
    assert "waits" not in condition_message(simulated)
    simulated.now += 1
    assert WAITS in condition_message(simulated)


def test_a_set_without_pods_is_named_too() -> None:
    simulated = simulate(CHAINERJOB, chainerjob())
    simulated.run("example-master")
    simulated.now += 30
    assert "StatefulSet example-workerset-ws0 has no pod" in condition_message(simulated)
