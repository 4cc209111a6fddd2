"""Edits of the worker sets of a ChainerJob."""

from __future__ import annotations

from tests.core.decision_values import begun_job, plan_for, with_status
from tests.model.scenarios import chainer, pod_template
from trainyard.core import Plan
from trainyard.kinds import CHAINERJOB


def test_the_rights_follow_the_sets_although_an_edit_of_the_master_is_not_followed() -> None:
    job, children = begun_job(CHAINERJOB, chainer(1).spec)
    sets = {"a": {**job["spec"]["workerSets"]["a"], "replicas": 2}}
    master = {"template": pod_template("chainer", image="j")}
    planned = plan_for(
        CHAINERJOB, with_status(job, Plan(job["status"]), workerSets=sets, master=master), *children.values()
    )
    assert {patch.name for patch in planned.patches} == {"small-launcher-role", "small-assets", "small-workerset-a"}


def test_a_restored_worker_set_with_another_template_does_not_adopt_the_old_one() -> None:
    job, children = begun_job(CHAINERJOB, chainer(1).spec)
    gone = plan_for(CHAINERJOB, with_status(job, Plan(job["status"]), workerSets={}), *children.values())
    assert "small-workerset-a" in {delete.name for delete in gone.deletes}
    other = {"a": {"replicas": 1, "template": pod_template("chainer", image="k")}}
    back = plan_for(CHAINERJOB, with_status(job, gone, workerSets=other), *children.values())
    assert [delete.name for delete in back.deletes] == ["small-workerset-a"]
