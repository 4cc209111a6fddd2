"""Faults that a reader who had not written the core found, each as the small case that shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.simulated_job import Life, begun
from tests.support.builders import NOW, batch_job, look, started
from tests.support.samples import chainerjob, elasticjob, worker_set
from trainyard.core import Kind, Refusal
from trainyard.kinds import CHAINERJOB, ELASTICJOB
from trainyard.objects import Json, Ref, find_condition, format_time, is_condition_true

WORDS = "spec.containers[0].image: Required value"


def blocked(kind: Kind, job: Json, refusal: Refusal, **edit: object) -> Life:
    """A job that runs, and an edit of it from which the API server takes no child."""
    life = begun(kind, job)
    life.run()
    life.settle()
    life.edit(**edit)
    life.refused = {create.ref: refusal for create in life.look().creates if create.slot}
    life.job = {**life.job, "status": life.look().status}
    assert is_condition_true(life.job["status"]["conditions"], "Blocked")
    return life


def elastic(refusal: Refusal) -> Life:
    return blocked(ELASTICJOB, elasticjob(1), refusal, replicaSpecs=elasticjob(2)["spec"]["replicaSpecs"])


def chainer(refusal: Refusal) -> Life:
    return blocked(CHAINERJOB, chainerjob(), refusal, workerSets={"ws0": worker_set(2), "more": worker_set(1)})


@pytest.mark.parametrize("start", [elastic, chainer], ids=lambda one: one.__name__)
def test_to_suspend_a_job_whose_edit_is_refused_does_not_end_it(start: Callable[[Refusal], Life]) -> None:
    """It is what we tell people to do; nothing is asked for while it is suspended."""
    life = start(Refusal(422, "Invalid", WORDS, NOW))
    life.edit(suspend=True)
    found = life.look()
    said = {one["type"]: one["status"] for one in found.status["conditions"]}
    assert said["Suspended"] == "True" and said.get("Failed") is None


def test_a_suspended_job_is_not_called_blocked() -> None:
    life = elastic(Refusal(403, "Forbidden", "exceeded quota", NOW))
    life.edit(suspend=True)
    status = life.settle()
    assert (find_condition(status["conditions"], "Blocked") or {})["status"] == "False"
    assert Ref("Pod", "example-worker-1") in life.refused


@pytest.mark.parametrize("sets", [None, {}], ids=["distributed", "alone"])
def test_nobody_is_made_who_would_run_as_the_account_of_somebody_else(sets: Json | None) -> None:
    life = Life(CHAINERJOB, chainerjob(sets))
    life.step()
    account = Ref("ServiceAccount", "example-launcher")
    life.refused[account] = Refusal(409, "AlreadyExists", "it belongs to nobody", NOW)
    life.objects.clear()
    found = life.look()
    rights = {"Role"} if sets is not None else set()  # without a worker there is nothing that it could name
    assert {one.gvk.kind for one in found.creates} - {"ConfigMap"} == rights and found.requeue_at == NOW + 10
    assert "example-launcher" in (find_condition(found.status["conditions"], "NameConflict") or {})["message"]
    del life.refused[account]
    assert any(one.slot for one in life.look().creates)


def test_a_refusal_from_a_time_that_is_to_come_does_not_wait_for_it() -> None:
    """A clock that was a day ahead must not stop the job for a day."""
    life = elastic(Refusal(403, "Forbidden", "exceeded quota", NOW + 86400))
    assert Ref("Pod", "example-worker-1") in {one.ref for one in life.look().creates}


def test_a_failed_job_without_a_pod_that_ended_in_time_to_come_is_believed() -> None:
    job = batch_job("MASTER", failed="BackoffLimitExceeded")
    (said,) = (one for one in job["status"]["conditions"])
    said["lastTransitionTime"] = format_time(NOW + 86400)
    assert [one.name for one in look(started(), job, batch_job("WORKER")).deletes] == ["master-76no-0"]
