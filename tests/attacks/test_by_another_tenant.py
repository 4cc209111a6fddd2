"""Another tenant, who may create objects and jobs in a namespace, tries to reach objects that are not his.

He knows the names that the operator will choose, and every uid. What was tried is listed in docs/security.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane import fault_stories
from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.builders import NOW
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import control_plane, installed, namespace
from tests.support.samples import chainerjob, elasticjob, sample, worker_set
from trainyard import kinds
from trainyard.client import Invalid
from trainyard.core import Kind, Refusal, decode_child
from trainyard.core.job_state import OwnedObjects
from trainyard.objects import GVK, Json, Ref, name_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import CONFIG_MAP, JOB, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, STATEFUL_SET

__all__ = ["control_plane", "installed", "namespace"]

RBAC = "rbac.authorization.k8s.io"
STRANGER = {"app": "stranger"}
POD: Json = {"metadata": {"labels": STRANGER}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
HELD: dict[str, tuple[GVK, str, Json]] = {
    "set": (
        STATEFUL_SET,
        "{}-workerset-ws0",
        {"spec": {"replicas": 0, "serviceName": "s", "selector": {"matchLabels": STRANGER}, "template": POD}},
    ),
    "account": (SERVICE_ACCOUNT, "{}-launcher", {}),
    "files": (CONFIG_MAP, "{}-assets", {"data": {"kubexeb.sh": "a program of the stranger's"}}),
    "role": (ROLE, "{}-launcher-role", {"rules": []}),
    "binding": (
        ROLE_BINDING,
        "{}-launcher-rolebinding",
        {"subjects": [], "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "strangers"}},
    ),
}
"""What a ChainerJob has, held by somebody else under the name that the operator will choose."""


# --- without a cluster


@pytest.mark.parametrize("case", HELD)
def test_the_master_of_a_chainer_job_is_not_created_while_another_owner_has_a_name(case: str) -> None:
    simulated = SimulatedJob(kinds.CHAINERJOB, chainerjob(name="mine"))
    gvk, name, _ = HELD[case]
    held = Ref(gvk.kind, name.format("mine"))
    simulated.refused[held] = Refusal(409, "AlreadyExists", "belongs to nobody", NOW)
    simulated.settle()
    assert "mine-master" not in simulated.names("Job")
    if case in ("set", "account"):
        assert not simulated.names("Role") and not simulated.names("RoleBinding")
    del simulated.refused[held]
    simulated.settle()
    assert simulated.names("Job") == ["mine-master"]


def test_a_worker_set_added_to_a_running_job_gets_no_rbac_rules_before_the_job_owns_it() -> None:
    simulated = simulate(kinds.CHAINERJOB, chainerjob(name="mine"))
    role = simulated.get("Role", "mine-launcher-role")["rules"]
    simulated.refused[Ref("StatefulSet", "mine-workerset-theirs")] = Refusal(409, "AlreadyExists", "x", NOW)
    simulated.edit(workerSets={"ws0": worker_set(), "theirs": worker_set()})
    simulated.settle()
    assert simulated.get("Role", "mine-launcher-role")["rules"] == role
    simulated.refused.clear()
    simulated.settle()
    assert "mine-workerset-theirs-0" in simulated.get("Role", "mine-launcher-role")["rules"][0]["resourceNames"]


def test_a_worker_set_whose_name_another_owner_has_taken_loses_its_rbac_rules() -> None:
    simulated = simulate(kinds.CHAINERJOB, chainerjob({"a": worker_set(1), "b": worker_set(1)}, name="mine"))
    simulated.lose("StatefulSet", "mine-workerset-b")
    simulated.refused[Ref("StatefulSet", "mine-workerset-b")] = Refusal(409, "AlreadyExists", "x", NOW)
    simulated.settle()
    (named,) = {tuple(rule["resourceNames"]) for rule in simulated.get("Role", "mine-launcher-role")["rules"]}
    assert named == ("mine-workerset-a-0",)


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")
def test_labels_that_name_another_job_change_nothing(kind: Kind) -> None:
    job = sample(kind.gvk.kind)
    forged = {OWNER: "another", "trainyard.dev/attempt": "7", "trainyard.dev/index": "9"}
    simulated = simulate(
        kind, {**job, "apiVersion": kind.gvk.api_version, "metadata": {**job["metadata"], "labels": forged}}
    )
    for ref, child in simulated.objects.items():
        labels = child["metadata"]["labels"]
        assert labels[OWNER] == simulated.job["metadata"]["uid"], ref
        assert labels.get("trainyard.dev/attempt", "0") == "0", ref


@pytest.mark.parametrize(
    "owners",
    [[], [{"uid": "job"}], [{"uid": "another", "controller": True}]],
    ids=["no owner", "an owner that does not control", "another controller"],
)
def test_an_object_with_only_the_operators_label_is_no_child(owners: list[Json]) -> None:
    meta = {"name": "a", "uid": "a", "labels": {OWNER: "job"}, "ownerReferences": owners}
    family = OwnedObjects.of("job", (decode_child({"kind": "Job", "metadata": meta}),))
    assert not family.by_ref


# --- with one


def fresh(job: Json) -> Json:
    """As a person writes it: neither uid nor namespace."""
    return {**job, "metadata": {"name": name_of(job)}}


@pytest.fixture
async def scenario(installed: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[fault_stories.Story]:
    async with fault_stories.story(installed, namespace, tmp_path) as scenario:
        yield scenario


@pytest.mark.cluster
async def test_no_name_that_is_held_gives_a_chainer_job_a_master_or_rights(scenario: fault_stories.Story) -> None:
    for case, (gvk, name, rest) in HELD.items():
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name.format(case)}, **rest}
        await scenario.api.create(gvk, scenario.namespace, body)
    async with fault_stories.operating(fault_stories.options(scenario.account)) as operator_process:
        jobs = [fresh(chainerjob(name=case)) for case in HELD]
        for job in jobs:
            await scenario.submit(job)
        for job in jobs:
            assert name_of(job) in (await scenario.condition("NameConflict", job))["message"]
        assert await scenario.children(JOB) == {}
        bound = await scenario.api.list(ROLE_BINDING, scenario.namespace, OWNER)
        assert {name_of(role_binding) for role_binding in bound["items"]} <= {"files-launcher-rolebinding"}
        roles = await scenario.api.list(ROLE, scenario.namespace, OWNER)
        named = {pod for role in roles["items"] for rule in role["rules"] or () for pod in rule["resourceNames"]}
        assert not any(pod.startswith(("set-", "account-")) for pod in named)
        await fault_stories.assert_operator_healthy(operator_process, scenario)


@pytest.mark.cluster
async def test_the_api_server_refuses_names_with_which_the_children_of_two_jobs_could_collide(
    scenario: fault_stories.Story,
) -> None:
    for job in (chainerjob({"b-workerset-c": worker_set(1)}, name="a"), elasticjob(name="a-workerset")):
        with pytest.raises(Invalid) as refused:
            await scenario.submit(fresh(job))
        assert "workerset" in refused.value.message
