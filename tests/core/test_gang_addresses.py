"""The addresses and owner references of a gang."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import mxjob
from trainyard.kinds import ALL, MXJOB
from trainyard.objects import Json


def gang_made_again(edit: Json | None = None) -> SimulatedJob:
    """A gang whose first attempt was killed, after its back-off."""
    simulated = simulate(MXJOB, mxjob())
    simulated.run()
    simulated.settle()
    if edit:
        simulated.edit(**edit)
    simulated.end("example-worker-1kkf-0", 137)
    simulated.settle()
    simulated.step(later=11)
    return simulated


@pytest.mark.parametrize("edit", [None, {"backoffLimit": -1}], ids=["", "with an edit that is not understood"])
def test_the_name_of_a_scheduler_does_not_lead_to_the_attempt_before(edit: Json | None) -> None:
    """A terminating pod still has its address: a worker that connects to it waits until it is killed (S33)."""
    simulated = gang_made_again(edit)
    simulated.settle()
    selector = simulated.get("Service", "mxjob-1kkf")["spec"]["selector"]
    jobs = [child for ref, child in simulated.objects.items() if ref.kind == "Job"]
    assert len(jobs) == 4
    for job in jobs:
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert labels["trainyard.dev/attempt"] == "1"
        assert selector.items() <= labels.items()


def test_jobs_of_both_api_groups_own_their_children_under_their_own_group() -> None:
    for group in ("mlkube.io", "mxnet.mlkube.io"):
        kind = next(candidate for candidate in ALL if candidate.gvk.kind == "MxJob" and candidate.gvk.group == group)
        simulated = simulate(kind, {**mxjob(), "apiVersion": f"{group}/v1beta1"})
        owners = {obj["metadata"]["ownerReferences"][0]["apiVersion"] for obj in simulated.objects.values()}
        assert owners == {f"{group}/v1beta1"}
