"""A job that runs while the operator is upgraded: its digests have no letter yet, and are the same digests."""

from __future__ import annotations

import re

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import KINDS_WITH_TEMPLATES, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json, decode, encode


def without_letters(obj: Json) -> Json:
    """The object as an earlier version stored it."""
    stored: Json = decode(re.sub(rb'"h([0-9a-f]{10})"', rb'"\1"', encode(obj)))
    return stored


@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.api.singular)
@pytest.mark.parametrize("suspended", [False, True])
def test_a_running_job_of_an_earlier_version_does_not_count_as_edited(kind: Kind, suspended: bool) -> None:
    simulated = simulate(kind, sample(kind.gvk.kind))
    simulated.run()
    simulated.settle()
    if suspended:
        simulated.edit(suspend=True)
        simulated.settle()
    status = simulated.job["status"]
    upgraded = SimulatedJob(kind, {**simulated.job, "status": without_letters(status)}, now=simulated.now)
    upgraded.objects = {ref: without_letters(obj) for ref, obj in simulated.objects.items()}
    assert upgraded.job["status"] != status
    planned = upgraded.look()
    assert planned.idle and planned.status == upgraded.job["status"], "and it is not rewritten either"


@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.api.singular)
def test_an_edit_of_a_job_of_an_earlier_version_is_detected(kind: Kind) -> None:
    simulated = simulate(kind, sample(kind.gvk.kind))
    simulated.run()
    simulated.settle()
    edited = decode(re.sub(rb'"image":"[^"]*"', b'"image":"other"', encode(simulated.job["spec"])))
    simulated.job = {**simulated.job, "spec": edited, "status": without_letters(simulated.job["status"])}
    planned = simulated.look()
    ignored = {condition["type"] for condition in planned.status["conditions"] if condition["status"] == "True"} & {
        "SpecChangeIgnored"
    }
    assert ignored or [role["template"][0] for role in planned.status["roles"].values()].count("h")


def test_objects_with_an_old_digest_are_not_patched() -> None:
    simulated = simulate(kinds.CHAINERJOB, sample("ChainerJob"))
    assert sum(without_letters(obj) != obj for obj in simulated.objects.values()) >= 2, "the Role and the ConfigMap"
