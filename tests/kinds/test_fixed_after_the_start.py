"""What the transition rule refuses and what it lets through, once a job has started (S11, S29)."""

from __future__ import annotations

import pytest

from tests.support.builders import replicas, template, tfjob
from trainyard import kinds
from trainyard.kinds import TFJOB
from trainyard.objects import Json

OWN = replicas("PS", template=template(), tfPort=2222, IsDefaultPS=False)
DEFAULT = replicas("PS", template=template(), tfPort=2222, IsDefaultPS=True)
BARE = replicas("PS", tfPort=2222, IsDefaultPS=False)


def refused(before: Json, after: Json) -> list[str]:
    old = tfjob(replicas("MASTER"), before, status={"roles": {"MASTER": {}}})
    new = tfjob(replicas("MASTER"), after, status={"roles": {"MASTER": {}}})
    return [problem.path for problem in kinds.rules_check(TFJOB)(new, old)]


@pytest.mark.parametrize(("before", "after"), [(DEFAULT, BARE), (BARE, DEFAULT), (OWN, OWN)])
def test_a_default_ps_stays_one_whether_its_template_is_stored_or_not(before: Json, after: Json) -> None:
    assert refused(before, after) == []


@pytest.mark.parametrize(("before", "after"), [(OWN, BARE), (BARE, OWN), (OWN, DEFAULT), (DEFAULT, OWN)])
def test_a_users_ps_and_the_default_ps_do_not_replace_each_other(before: Json, after: Json) -> None:
    assert refused(before, after) == ["spec.replicaSpecs"]
