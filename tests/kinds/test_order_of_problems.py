"""The old operators looked at all defaults before any rule, then at one replica set after the other (rules.md I.3)."""

from __future__ import annotations

import pytest

from tests.support.builders import NOW, replicas, template, tfjob
from trainyard.core import Observed, plan
from trainyard.kinds import TFJOB


@pytest.mark.parametrize("spelling", ["replicaSpecs", "replica_specs"])
def test_a_missing_template_of_the_last_set_comes_before_a_wrong_first_set(spelling: str) -> None:
    job = tfjob()
    items = [replicas("MASTER", 2), {"tfReplicaType": "WORKER"}]
    planned = plan(TFJOB, {**job, "spec": {"RuntimeId": "76no", spelling: items}}, Observed(), NOW)
    assert planned.status["reason"].startswith("there was a problem setting defaults for job spec: ReplicaType: WORKER")


def test_then_one_set_after_the_other_each_rule_in_its_order() -> None:
    items = replicas("MASTER", 2, template=template("other")), replicas("CHIEF")
    planned = plan(TFJOB, tfjob(*items), Observed(), NOW)
    assert planned.status["reason"].startswith("invalid job spec: The MASTER must have Replicas = 1")
