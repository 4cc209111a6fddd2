"""What a real API server taught us about the decision."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard import kinds
from trainyard.core import Kind, Ref, Refusal, Seen, plan
from trainyard.objects import Json, condition
from trainyard.testing.builders import NOW
from trainyard.testing.life import Life, begun
from trainyard.testing.samples import sample

every_kind = pytest.mark.parametrize("kind", kinds.EACH, ids=lambda kind: kind.gvk.kind)
UNREADABLE = 'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'


def failed(status: Json) -> Json:
    found = condition(status["conditions"], "Failed")
    assert found is not None and found["status"] == "True", status
    return found


@every_kind
@pytest.mark.parametrize("spec", [None, [], "text", 5, True])
def test_a_job_whose_spec_is_no_object_is_told_what_an_api_server_says(kind: Kind, spec: Any) -> None:
    job = {**sample(kind.gvk.kind), "spec": spec}
    found = plan(kind, job, Seen(), NOW)
    (problem,) = kinds.admit(kind, job)[1]
    assert failed(found.status)["message"] == f"{problem.text} (spec)" and not found.creates


@every_kind
def test_a_job_that_has_lost_its_spec_goes_on_and_says_so(kind: Kind) -> None:
    life = begun(kind, sample(kind.gvk.kind))
    life.run()
    life.settle()
    life.job = {**life.job, "spec": None}
    found = life.look()
    assert not (found.deletes or found.patches or found.creates)
    said = condition(found.status["conditions"], "SpecChangeIgnored") or {}
    assert said["status"] == "True" and "Required value: write an object" in said["message"]


@every_kind
def test_a_child_that_the_server_cannot_even_read_ends_the_job_in_its_words(kind: Kind) -> None:
    """A quantity, a number for a text: the answer is 400 BadRequest, today and for ever."""
    life = Life(kind, sample(kind.gvk.kind))
    child = next(create for create in life.look().creates if create.slot is not None)
    refusal = Refusal(400, "BadRequest", UNREADABLE, NOW)
    found = plan(kind, life.job, Seen(refused={Ref(child.gvk.kind, child.name): refusal}), NOW)
    said = failed(found.status)
    assert said["reason"] == "InvalidChild" and UNREADABLE in said["message"]
