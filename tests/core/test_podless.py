"""Kubernetes creates no pod for a child, and reports that in the child's events only: a condition says where to
look."""

from __future__ import annotations

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.builders import tfjob
from tests.support.samples import chainerjob
from trainyard.kinds import CHAINERJOB, TFJOB
from trainyard.objects import Ref, find_condition

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


QUEUE = {"kueue.x-k8s.io/queue-name": "default"}


def hold(simulated: SimulatedJob, kind: str, name: str, **spec: object) -> None:
    """What Kueue's webhook makes of an object that has no queue of its own, where there is a queue for all."""
    ref = Ref(kind, name)
    child = simulated.objects[ref]
    meta = {**child["metadata"], "labels": {**child["metadata"]["labels"], **QUEUE}}
    simulated.objects[ref] = {**child, "metadata": meta, "spec": {**child["spec"], **spec}}


def test_parts_that_kueue_holds_one_by_one_are_named_at_once() -> None:
    simulated = simulate(TFJOB, tfjob())
    hold(simulated, "Job", "master-76no-0", suspend=True)
    planned = simulated.step()
    message = condition_message(simulated)
    assert "Kueue holds this part: Job master-76no-0, in queue default" in message
    assert [(event.type, event.reason) for event in planned.events] == [("Warning", "QueuedAlone")]
    hold(simulated, "Job", "worker-76no-0", suspend=True)
    assert "Job master-76no-0 and 1 more, in queue default" in condition_message(simulated)
    for name in ("master-76no-0", "worker-76no-0"):
        hold(simulated, "Job", name, suspend=False)
    assert "Kueue" not in condition_message(simulated)


def test_a_pod_behind_the_admission_gate_is_held_and_one_of_a_queued_job_is_not() -> None:
    simulated = simulate(CHAINERJOB, chainerjob())
    simulated.run()
    pod = next(name for name in simulated.names("Pod") if "workerset" in name)
    hold(simulated, "Pod", pod, schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])
    assert "Kueue" not in condition_message(simulated)
    hold(simulated, "Pod", pod, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert f"Kueue holds this part: Pod {pod}, in queue default" in condition_message(simulated)
