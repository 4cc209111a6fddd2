"""Permissions are revoked while the operator works, and granted again: it reports that, loses nothing, and
continues."""

from __future__ import annotations

import asyncio

import pytest

from tests.control_plane.fault_stories import (
    NOBODY,
    Story,
    apply,
    assert_no_child_created_twice,
    assert_operator_healthy,
    growth,
    has_condition,
    operating,
    options,
    restarts,
    tf_job,
    value,
    writes,
)
from tests.control_plane.test_requests_at_start import watched
from tests.support.samples import chainerjob, pods, worker_set
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.app.operating import OperatorProcess
from trainyard.objects import GVK, Json
from trainyard.objects.resources import ROLE, ROLE_BINDING

pytestmark = pytest.mark.cluster


def forbidden(operator_process: OperatorProcess, **labels: str) -> float:
    return value(operator_process.metrics.render().decode(), "trainyard_api_requests_total", code="403", **labels)


async def held(scenario: Story, resource: str, verb: str) -> None:
    """Wait until the API server's authorizer has the operator's permissions again."""
    review = {
        "user": scenario.account.user,
        "resourceAttributes": {"resource": resource, "verb": verb, "namespace": scenario.namespace},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    body: Json = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": review}
    await until_async(
        lambda: scenario.plane.ask("POST", path, body)[1]["status"]["allowed"], "it may again", pause=SLOW_PAUSE
    )


async def test_all_rights_withdrawn_and_given_back(scenario: Story) -> None:
    """Open watches continue without permission; so the API server is restarted, and then lists are forbidden, too."""
    job, late = tf_job("righ", 2), tf_job("late", 0)
    bindings = (await scenario.api.list(ROLE_BINDING, scenario.namespace))["items"]
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(job)
        await scenario.running(job, MASTER=1, WORKER=2)
        children = await scenario.children()
        for binding in bindings:
            await scenario.api.delete(ROLE_BINDING, scenario.namespace, binding["metadata"]["name"])
        await scenario.submit(late)
        await until_async(
            lambda: (
                forbidden(operator_process, resource="tfjobs/status") + forbidden(operator_process, resource="tfjobs")
                > 0
            ),
            "it is refused",
        )
        scenario.plane.stop()
        await asyncio.to_thread(scenario.plane.begin())
        await until_async(lambda: failing(operator_process) >= 10, "no watch stands any more")
        assert operator_process.alive() == ""  # a new start would not help
        assert await growth(lambda: int(forbidden(operator_process)), 8) < 4 * len(
            watched()
        )  # each watch waits longer each time
        assert (
            value(operator_process.metrics.render().decode(), "trainyard_watch_objects", resource="jobs") == 3
        )  # what it saw, it keeps
        scenario.kubelet.end("MASTER", 0)
        for binding in bindings:
            meta = {key: binding["metadata"][key] for key in ("name", "namespace", "labels")}
            whole = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", **binding, "metadata": meta}
            await asyncio.to_thread(apply, scenario.plane, whole)
        await scenario.condition("Succeeded", job)
        await scenario.condition("Succeeded", late)
        assert restarts(await scenario.until(lambda job_now: True, job)) == 0
        assert set(children.items()) <= set((await scenario.children()).items())
        await assert_operator_healthy(operator_process, scenario)
    assert_no_child_created_twice(scenario.requests())


def failing(operator_process: OperatorProcess) -> float:
    return value(operator_process.metrics.render().decode(), "trainyard_watch_state", state="failing")


async def test_an_operator_without_list_permission_names_it_and_is_ready_once_granted(scenario: Story) -> None:
    role = await scenario.api.get(ROLE, scenario.namespace, scenario.account.name)
    less = [
        rule | {"resources": [resource for resource in rule["resources"] if resource != "pods"]}
        for rule in role["rules"]
    ]
    without = [rule for rule in less if rule["resources"]]
    await scenario.api.patch(ROLE, scenario.namespace, scenario.account.name, {"rules": without})
    async with operating(options(scenario.account, "tfjob")) as operator_process:
        named = "not listed yet: pods: pods is forbidden"
        await until_async(lambda: operator_process.ready().startswith(named), "it says what it may not")
        assert 'cannot list resource "pods"' in operator_process.ready() and operator_process.alive() == ""
        await scenario.api.patch(ROLE, scenario.namespace, scenario.account.name, {"rules": role["rules"]})
        await until_async(lambda: operator_process.ready() == "", "it is ready")
        await scenario.submit(tf_job("list", 1))
        await scenario.running(tf_job("list", 1), MASTER=1, WORKER=1)


async def test_a_role_that_may_not_be_patched_blocks_the_job_until_the_permission_is_granted(scenario: Story) -> None:
    """A ChainerJob grows: its Role, which names its pods, its ConfigMap and its StatefulSet follow."""
    template = pods("chainer", schedulerName=NOBODY)
    job = chainerjob({"ws0": worker_set(1, template=template)}, "grow", {"template": template})
    job = {**job, "metadata": {"name": "grow"}}
    kind = GVK("kubeflow.org", "v1alpha1", "ChainerJob", "chainerjobs")
    role = await scenario.api.get(ROLE, scenario.namespace, f"{scenario.account.name}-jobs-with-roles")
    less = [
        rule | {"verbs": [verb for verb in rule["verbs"] if verb != "patch" or "roles" not in rule["resources"]]}
        for rule in role["rules"]
    ]
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(job)
        await scenario.condition("Running", job)
        await scenario.api.patch(ROLE, scenario.namespace, role["metadata"]["name"], {"rules": less})
        await until_async(lambda: may_not(scenario), "the right is gone", pause=SLOW_PAUSE)
        spec = {"workerSets": {"ws0": {"replicas": 2}}}
        await scenario.api.patch(kind, scenario.namespace, "grow", {"spec": spec})
        condition = await scenario.condition("Blocked", job)
        assert condition["reason"] == "Forbidden" and 'cannot patch resource "roles"' in condition["message"], condition
        sets = GVK("apps", "v1", "StatefulSet", "statefulsets")
        grown = await scenario.api.list(sets, scenario.namespace)
        assert [item["spec"]["replicas"] for item in grown["items"]] == [2]  # the others were patched all the same
        mark = scenario.plane.audit.mark()
        await asyncio.sleep(4)  # a hot loop would be seen
        assert len(writes(scenario.requests(mark))) <= 4
        before = await scenario.api.list(ROLE, scenario.namespace)
        await scenario.api.patch(ROLE, scenario.namespace, role["metadata"]["name"], {"rules": role["rules"]})
        await scenario.until(lambda job: not has_condition(job, "Blocked"), job)
        after = await scenario.api.list(ROLE, scenario.namespace)
        assert [item["rules"] for item in before["items"]] != [item["rules"] for item in after["items"]]
        scenario.kubelet.end("MASTER")
        await scenario.condition("Succeeded", job)
        assert (
            operator_process.alive() == ""
            and value(operator_process.metrics.render().decode(), "trainyard_reconcile_total", outcome="fault") == 0
        )


def may_not(scenario: Story) -> bool:
    attributes = {
        "resource": "roles",
        "group": "rbac.authorization.k8s.io",
        "verb": "patch",
        "namespace": scenario.namespace,
    }
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": scenario.account.user, "resourceAttributes": attributes},
    }
    return not scenario.plane.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)[1]["status"][
        "allowed"
    ]
