"""A refused patch or delete is reported and retried, and delays no other write (F10).

And a pod whose node is lost is deleted without it, if that is wanted (F52).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.simulated_job import NOW, SimulatedJob, simulate
from tests.support.samples import chainerjob, elasticjob, sample, worker_set
from trainyard.core import Config, Plan, Refusal
from trainyard.kinds import CHAINERJOB, ELASTICJOB, TFJOB
from trainyard.objects import Json, Ref, find_condition, format_time

WORDS = 'User "operator" cannot patch resource "roles" in API group "rbac.authorization.k8s.io"'


def edited() -> SimulatedJob:
    """A ChainerJob whose workers have become more: its Role, its ConfigMap and its StatefulSet follow."""
    simulated = SimulatedJob(CHAINERJOB, chainerjob())
    simulated.settle()
    simulated.run()
    simulated.settle()
    simulated.edit(workerSets={"ws0": worker_set(3)})
    return simulated


def role_patch(plan: Plan) -> Ref:
    (role,) = [patch.ref for patch in plan.patches if patch.ref.kind == "Role"]
    return role


def blocked(plan: Plan) -> Json:
    return find_condition(plan.status["conditions"], "Blocked") or {}


def test_a_refused_patch_is_reported_and_the_others_are_sent() -> None:
    simulated = edited()
    ref = role_patch(simulated.look())
    other_refs = {patch.ref for patch in simulated.look().patches} - {ref}
    simulated.refused[ref] = Refusal(403, "Forbidden", WORDS, simulated.now, verb="patch")
    planned = simulated.look()
    condition = blocked(planned)
    assert (condition["status"], condition["reason"]) == ("True", "Forbidden") and WORDS in condition["message"]
    assert other_refs and {patch.ref for patch in planned.patches} == other_refs
    assert planned.requeue_at == simulated.now + 10 and planned.events[0].type == "Warning"


def test_a_refused_write_is_retried_after_its_back_off_and_the_condition_ends_with_it() -> None:
    simulated = edited()
    ref = role_patch(simulated.look())
    simulated.refused[ref] = Refusal(403, "Forbidden", WORDS, simulated.now, verb="patch")
    simulated.step()
    simulated.now += 10
    assert ref in {patch.ref for patch in simulated.look().patches}
    del simulated.refused[ref]
    simulated.step()
    assert blocked(simulated.look())["status"] == "False"


def test_a_refusal_of_an_unneeded_write_has_no_effect() -> None:
    simulated = edited()
    simulated.refused[role_patch(simulated.look())] = Refusal(403, "Forbidden", WORDS, simulated.now, verb="patch")
    simulated.edit(workerSets={"ws0": worker_set(2)})
    assert not blocked(simulated.look())


def scaled_down() -> SimulatedJob:
    simulated = simulate(ELASTICJOB, elasticjob(2))
    simulated.run()
    simulated.settle()
    simulated.edit(replicaSpecs=elasticjob(1)["spec"]["replicaSpecs"])
    return simulated


def over() -> SimulatedJob:
    """Everything is to go, and nothing has gone."""
    simulated = simulate(ELASTICJOB, elasticjob(1, cleanPodPolicy="All"))
    simulated.run()
    simulated.settle()
    simulated.end(simulated.names("Pod")[0], 0)
    simulated.job = {**simulated.job, "status": simulated.look().status}
    return simulated


def expired() -> SimulatedJob:
    simulated = simulate(ELASTICJOB, elasticjob(1, ttlSecondsAfterFinished=60))
    simulated.run()
    simulated.settle()
    simulated.end(simulated.names("Pod")[0], 0)
    simulated.settle()
    simulated.now += 60
    return simulated


@pytest.mark.parametrize("start", [scaled_down, over, expired], ids=lambda starter: starter.__name__)
def test_a_refused_delete_waits_its_pause_and_is_sent_again(start: Callable[[], SimulatedJob]) -> None:
    simulated = start()
    ref = simulated.look().deletes[0].ref
    simulated.refused[ref] = Refusal(403, "Forbidden", "cannot delete", simulated.now, 2, verb="delete")
    planned = simulated.look()
    assert ref not in {delete.ref for delete in planned.deletes} and planned.requeue_at == simulated.now + 20
    assert start is not scaled_down or "cannot delete" in blocked(planned)["message"]
    simulated.now += 20
    assert ref in {delete.ref for delete in simulated.look().deletes}


def going(seconds: float) -> SimulatedJob:
    """A worker that should have ended so many seconds ago."""
    simulated = simulate(ELASTICJOB, elasticjob(2), Config(node_lost_timeout=30))
    simulated.run()
    simulated.settle()
    pod = simulated.get("Pod", simulated.names("Pod")[0])
    pod["metadata"]["deletionTimestamp"] = format_time(simulated.now - seconds)
    return simulated


def test_a_refused_delete_does_not_delay_the_force_deletion_on_a_lost_node() -> None:
    waiting, due = going(29).look(), going(30).look()
    assert not waiting.deletes and waiting.requeue_at == NOW + 1
    (gone,) = due.deletes
    assert gone.grace_period_seconds == 0 and "--node-lost-timeout" in gone.reason
    assert not due.creates and not due.status["restarts"]  # its name is not free yet, and nobody's fault is counted


def test_a_pod_that_was_deleted_by_force_is_not_deleted_again() -> None:
    """A finalizer may keep it, such as that of the controller of batch Jobs; a third DELETE changes nothing."""
    simulated = going(30)
    simulated.get("Pod", simulated.names("Pod")[0])["metadata"]["deletionGracePeriodSeconds"] = 0
    assert not simulated.look().deletes


@pytest.mark.parametrize(
    ("grace", "fix"),
    [(30, "see whether its node answers, set --node-lost-timeout"), (0, "only its metadata.finalizers keep it")],
)
def test_the_condition_names_the_terminating_pod_of_an_older_attempt_and_what_keeps_it(grace: int, fix: str) -> None:
    simulated = simulate(TFJOB, sample("TfJob"))
    simulated.run()
    simulated.settle()
    batch_job = simulated.names("Job")[0]
    (pod,) = simulated.pods(batch_job)
    deletion = {"deletionTimestamp": format_time(simulated.now - 40), "deletionGracePeriodSeconds": grace}
    simulated.get("Pod", pod)["metadata"] |= deletion
    del simulated.objects[Ref("Job", batch_job)]
    condition = blocked(simulated.look())
    assert condition["reason"] == "PodTerminating"
    assert f"Pod {pod} of attempt 0" in condition["message"] and fix in condition["message"]


def test_without_node_lost_timeout_a_terminating_pod_may_stay_without_limit() -> None:
    simulated = going(1e6)
    simulated.config = Config()
    assert not simulated.look().deletes
