"""A patch or a delete that the API server refuses is said, waits, and keeps nothing else from going on (F10).

And a pod whose node is lost is deleted without it, if that is wanted (F52).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.simulated_job import NOW, Life, begun
from tests.support.samples import chainerjob, elasticjob, worker_set
from trainyard.core import Config, Plan, Refusal
from trainyard.kinds import CHAINERJOB, ELASTICJOB
from trainyard.objects import Json, Ref, find_condition, format_time

WORDS = 'User "operator" cannot patch resource "roles" in API group "rbac.authorization.k8s.io"'


def edited() -> Life:
    """A ChainerJob whose workers have become more: its Role, its ConfigMap and its StatefulSet follow."""
    life = Life(CHAINERJOB, chainerjob())
    life.settle()
    life.run()
    life.settle()
    life.edit(workerSets={"ws0": worker_set(3)})
    return life


def role_patch(plan: Plan) -> Ref:
    (found,) = [one.ref for one in plan.patches if one.ref.kind == "Role"]
    return found


def blocked(plan: Plan) -> Json:
    return find_condition(plan.status["conditions"], "Blocked") or {}


def test_a_refused_patch_is_said_and_the_others_are_sent() -> None:
    life = edited()
    ref = role_patch(life.look())
    others = {one.ref for one in life.look().patches} - {ref}
    life.refused[ref] = Refusal(403, "Forbidden", WORDS, life.now, verb="patch")
    found = life.look()
    said = blocked(found)
    assert (said["status"], said["reason"]) == ("True", "Forbidden") and WORDS in said["message"]
    assert others and {one.ref for one in found.patches} == others
    assert found.requeue_at == life.now + 10 and found.events[0].type == "Warning"


def test_it_is_sent_again_after_its_pause_and_the_condition_goes_with_the_refusal() -> None:
    life = edited()
    ref = role_patch(life.look())
    life.refused[ref] = Refusal(403, "Forbidden", WORDS, life.now, verb="patch")
    life.step()
    life.now += 10
    assert ref in {one.ref for one in life.look().patches}
    del life.refused[ref]
    life.step()
    assert blocked(life.look())["status"] == "False"


def test_a_refusal_of_a_write_that_is_not_wanted_any_more_means_nothing() -> None:
    life = edited()
    life.refused[role_patch(life.look())] = Refusal(403, "Forbidden", WORDS, life.now, verb="patch")
    life.edit(workerSets={"ws0": worker_set(2)})
    assert not blocked(life.look())


def scaled_down() -> Life:
    life = begun(ELASTICJOB, elasticjob(2))
    life.run()
    life.settle()
    life.edit(replicaSpecs=elasticjob(1)["spec"]["replicaSpecs"])
    return life


def over() -> Life:
    """Everything is to go, and nothing has gone."""
    life = begun(ELASTICJOB, elasticjob(1, cleanPodPolicy="All"))
    life.run()
    life.settle()
    life.end(life.names("Pod")[0], 0)
    life.job = {**life.job, "status": life.look().status}
    return life


def expired() -> Life:
    life = begun(ELASTICJOB, elasticjob(1, ttlSecondsAfterFinished=60))
    life.run()
    life.settle()
    life.end(life.names("Pod")[0], 0)
    life.settle()
    life.now += 60
    return life


@pytest.mark.parametrize("start", [scaled_down, over, expired], ids=lambda one: one.__name__)
def test_a_refused_delete_waits_its_pause_and_is_sent_again(start: Callable[[], Life]) -> None:
    life = start()
    ref = life.look().deletes[0].ref
    life.refused[ref] = Refusal(403, "Forbidden", "cannot delete", life.now, 2, verb="delete")
    found = life.look()
    assert ref not in {one.ref for one in found.deletes} and found.requeue_at == life.now + 20
    assert start is not scaled_down or "cannot delete" in blocked(found)["message"]
    life.now += 20
    assert ref in {one.ref for one in life.look().deletes}


def going(seconds: float) -> Life:
    """A worker that should have ended so many seconds ago."""
    life = begun(ELASTICJOB, elasticjob(2), Config(node_lost_timeout=30))
    life.run()
    life.settle()
    pod = life.get("Pod", life.names("Pod")[0])
    pod["metadata"]["deletionTimestamp"] = format_time(life.now - seconds)
    return life


def test_a_pod_on_a_lost_node_is_deleted_without_it_when_its_time_is_up() -> None:
    waiting, due = going(29).look(), going(30).look()
    assert not waiting.deletes and waiting.requeue_at == NOW + 1
    (gone,) = due.deletes
    assert gone.grace_period_seconds == 0 and "--node-lost-timeout" in gone.reason
    assert not due.creates and not due.status["restarts"]  # its name is not free yet, and nobody's fault is counted


def test_without_the_option_a_pod_may_stay_for_ever() -> None:
    life = going(1e6)
    life.config = Config()
    assert not life.look().deletes
