"""A job that runs while the operator is upgraded: its digests have no letter yet, and are the same digests."""

from __future__ import annotations

import re

import pytest

from tests.model.simulated_job import Life, begun
from tests.support.samples import sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json, decode, encode


def without_letters(obj: Json) -> Json:
    """The object as an earlier version stored it."""
    stored: Json = decode(re.sub(rb'"h([0-9a-f]{10})"', rb'"\1"', encode(obj)))
    return stored


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.api.singular)
@pytest.mark.parametrize("suspended", [False, True])
def test_a_running_job_is_not_taken_for_edited(kind: Kind, suspended: bool) -> None:
    life = begun(kind, sample(kind.gvk.kind))
    life.run()
    life.settle()
    if suspended:
        life.edit(suspend=True)
        life.settle()
    status = life.job["status"]
    upgraded = Life(kind, {**life.job, "status": without_letters(status)}, now=life.now)
    upgraded.objects = {ref: without_letters(obj) for ref, obj in life.objects.items()}
    assert upgraded.job["status"] != status
    found = upgraded.look()
    assert found.idle and found.status == upgraded.job["status"], "and it is not rewritten either"


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.api.singular)
def test_an_edit_of_such_a_job_is_seen_all_the_same(kind: Kind) -> None:
    life = begun(kind, sample(kind.gvk.kind))
    life.run()
    life.settle()
    edited = decode(re.sub(rb'"image":"[^"]*"', b'"image":"other"', encode(life.job["spec"])))
    life.job = {**life.job, "spec": edited, "status": without_letters(life.job["status"])}
    found = life.look()
    ignored = {one["type"] for one in found.status["conditions"] if one["status"] == "True"} & {"SpecChangeIgnored"}
    assert ignored or [role["template"][0] for role in found.status["roles"].values()].count("h")


def test_objects_that_follow_the_spec_had_such_a_digest_too() -> None:
    life = begun(kinds.CHAINERJOB, sample("ChainerJob"))
    assert sum(without_letters(obj) != obj for obj in life.objects.values()) >= 2, "the Role and the ConfigMap"
