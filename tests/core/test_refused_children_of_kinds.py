"""Objects that the API server refuses, or that belong to others."""

from __future__ import annotations

import pytest

from tests.core.decision_values import every_kind, failed_condition
from tests.model.simulated_job import SimulatedJob
from tests.support.builders import NOW, batch_job, look, pod_of, started
from tests.support.samples import chainerjob, sample
from trainyard.core import Kind, Observed, Refusal, decode_child, plan
from trainyard.kinds import CHAINERJOB, TFJOB
from trainyard.objects import Json, Ref, find_condition

UNREADABLE = 'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'


@pytest.mark.parametrize("sets", [None, {}], ids=["distributed", "alone"])
def test_no_pod_is_created_with_another_owners_service_account(sets: Json | None) -> None:
    simulated = SimulatedJob(CHAINERJOB, chainerjob(sets))
    simulated.step()
    account = Ref("ServiceAccount", "example-launcher")
    simulated.refused[account] = Refusal(409, "AlreadyExists", "it belongs to nobody", NOW)
    simulated.objects.clear()
    planned = simulated.look()
    rights = {"Role"} if sets is not None else set()  # without a worker there is nothing that it could name
    assert {create.gvk.kind for create in planned.creates} - {"ConfigMap"} == rights and planned.requeue_at == NOW + 10
    assert "example-launcher" in (find_condition(planned.status["conditions"], "NameConflict") or {})["message"]
    del simulated.refused[account]
    assert any(create.slot for create in simulated.look().creates)


@pytest.mark.parametrize(("has_run", "phase"), [(False, "Failed"), (True, "Done")])
def test_a_child_that_is_refused_fails_the_setup_or_a_job_that_ran(has_run: bool, phase: str) -> None:
    job = started()
    worker = batch_job("WORKER")
    if has_run:
        job["status"] = look(job, batch_job("MASTER"), worker, pod_of(worker)).status
    refused = {Ref("Job", "master-76no-0"): Refusal(422, "Invalid", "no such priority class", NOW)}
    planned = plan(TFJOB, job, Observed((decode_child(worker),), refused=refused), NOW)
    assert (planned.status["phase"], planned.status["state"]) == (phase, "Failed")
    assert "no such priority class" in planned.status["reason"]


@every_kind
def test_a_child_that_the_server_cannot_decode_fails_the_job_with_its_message(kind: Kind) -> None:
    """A quantity or number of a wrong type: the response is 400 BadRequest, and a retry would get the same."""
    simulated = SimulatedJob(kind, sample(kind.gvk.kind))
    child = next(create for create in simulated.look().creates if create.slot is not None)
    refusal = Refusal(400, "BadRequest", UNREADABLE, NOW)
    planned = plan(kind, simulated.job, Observed(refused={Ref(child.gvk.kind, child.name): refusal}), NOW)
    condition = failed_condition(planned.status)
    assert condition["reason"] in ("InvalidChild", f"{kind.gvk.kind}Failed") and UNREADABLE in condition["message"]
    assert planned.status["cause"] == "InvalidChild"
