"""Refusals by the API server (quota, PodSecurity, a terminating namespace): reported, and retried with back-off."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from tests.control_plane.fault_stories import (
    Story,
    assert_no_child_created_twice,
    assert_operator_healthy,
    count_creates,
    elastic_job,
    growth,
    has_condition,
    operating,
    options,
    restarts,
    story,
    tf_job,
    value,
    writes,
)
from tests.support.control_plane_fixtures import create_namespace
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.app.operating import OperatorProcess
from trainyard.objects import GVK, Json
from trainyard.objects.resources import JOB, NAMESPACE, POD

pytestmark = pytest.mark.cluster
QUOTA = GVK("", "v1", "ResourceQuota", "resourcequotas")
QUIET = 6.0  # seconds in which a hot loop would be seen


def passes(operator_process: OperatorProcess) -> int:
    return int(value(operator_process.metrics.render().decode(), "trainyard_reconcile_total"))


async def quota(scenario: Story, **hard: str) -> None:
    """A quota that is in force: its use has been counted."""
    body: Json = {
        "metadata": {"name": "small"},
        "spec": {"hard": {key.replace("__", "/"): amount for key, amount in hard.items()}},
    }
    path = f"/api/v1/namespaces/{scenario.namespace}/resourcequotas"
    code, status = await asyncio.to_thread(scenario.plane.ask, "POST", path, body)
    assert code == 201, status
    await until_async(
        lambda: "used" in scenario.plane.ask("GET", f"{path}/small")[1].get("status", {}),
        "the quota is counted",
        pause=SLOW_PAUSE,
    )


CASES = [
    pytest.param(tf_job("quot", 2), {"count__jobs.batch": "1"}, JOB, id="batch Jobs"),
    pytest.param(elastic_job("quot", 3), {"pods": "1"}, POD, id="Pods"),
]


@pytest.mark.parametrize(("job", "hard", "gvk"), CASES)
async def test_a_job_over_the_quota_is_blocked_and_continues_when_the_quota_grows(
    scenario: Story, job: Json, hard: dict[str, str], gvk: GVK
) -> None:
    await quota(scenario, **hard)
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(job)
        condition = await scenario.condition("Blocked", job)
        assert condition["reason"] == "QuotaExceeded" and "exceeded quota: small" in condition["message"], condition
        mark = scenario.plane.audit.mark()
        assert await growth(lambda: passes(operator_process), QUIET) <= 8
        assert len(writes(scenario.requests(mark))) <= 6
        known = await scenario.until(lambda job: True, job)
        assert not has_condition(known, "Failed") and restarts(known) == 0
        (name,) = {key.replace("__", "/") for key in hard}
        await scenario.api.patch(QUOTA, scenario.namespace, "small", {"spec": {"hard": {name: "10"}}})
        done = await scenario.until(lambda job: not has_condition(job, "Blocked"), job)
        assert restarts(done) == 0
        roles = {"MASTER": 1, "WORKER": 2} if gvk == JOB else {"Worker": 3}
        await scenario.running(job, **roles)
        for role in ("MASTER", "WORKER"):
            scenario.kubelet.end(role)
        await scenario.condition("Succeeded", job)
        await assert_operator_healthy(operator_process, scenario)
    assert_no_child_created_twice(scenario.requests())


def admission_policy(name: str, namespace: str, resource: str, group: str) -> list[Json]:
    """A ValidatingAdmissionPolicy with the default reason: every such object of one namespace is refused by a 422."""
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    meta, version = {"name": name}, "admissionregistration.k8s.io/v1"
    return [
        {
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": meta,
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": "not on a Monday"}],
            },
        },
        {
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta,
            "spec": {
                "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector},
            },
        },
    ]  # fmt: skip


POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.mark.parametrize(
    ("job", "group", "resource"),
    [(tf_job("poli", 1), "batch", "jobs"), (elastic_job("poli", 1), "", "pods")],
    ids=["batch Jobs", "Pods"],
)
async def test_a_child_refused_by_an_admission_policy_is_blocked_with_its_name_and_continues_without_it(
    scenario: Story, job: Json, group: str, resource: str
) -> None:
    name = f"no-{resource}-{scenario.namespace}"
    policy, binding = admission_policy(name, scenario.namespace, resource, group)
    assert scenario.plane.ask("POST", POLICY, policy)[0] == 201
    assert scenario.plane.ask("POST", POLICY_BINDING, binding)[0] == 201
    dry = f"/api/v1/namespaces/{scenario.namespace}/pods?dryRun=All"
    if group:
        dry = f"/apis/batch/v1/namespaces/{scenario.namespace}/jobs?dryRun=All"
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    probe = {"metadata": {"name": "probe"}, "spec": {"template": {"spec": spec}} if group else spec}
    try:
        await until_async(
            lambda: scenario.plane.ask("POST", dry, probe)[0] == 422, "the policy is in force", pause=SLOW_PAUSE
        )
        async with operating(options(scenario.account)) as operator_process:
            await scenario.submit(job)
            condition = await scenario.condition("Blocked", job)
            assert condition["reason"] == "AdmissionPolicy" and name in condition["message"], condition
            scenario.plane.ask("DELETE", f"{POLICY_BINDING}/{name}")
            await scenario.until(
                lambda job: not has_condition(job, "Blocked") and not has_condition(job, "Failed"), job
            )
            await assert_operator_healthy(operator_process, scenario)
    finally:
        scenario.plane.ask("DELETE", f"{POLICY_BINDING}/{name}")
        scenario.plane.ask("DELETE", f"{POLICY}/{name}")


async def test_a_limit_from_a_limit_range_blocks_the_job_and_an_invalid_request_fails_it(
    scenario: Story,
) -> None:
    limits = {"type": "Container", "default": {"cpu": "1"}}
    path = f"/api/v1/namespaces/{scenario.namespace}/limitranges"
    assert scenario.plane.ask("POST", path, {"metadata": {"name": "small"}, "spec": {"limits": [limits]}})[0] == 201
    asks, cannot_be = elastic_job("asks", 1), elastic_job("cann", 1)
    for job, resources in ((asks, {}), (cannot_be, {"limits": {"cpu": "1"}})):
        template = job["spec"]["replicaSpecs"]["Worker"]["template"]
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, **resources}
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(asks)
        condition = await scenario.condition("Blocked", asks)
        assert condition["reason"] == "LimitRange" and "cpu limit of 1" in condition["message"], condition
        await scenario.submit(cannot_be)
        assert (await scenario.condition("Failed", cannot_be))["reason"] == "InvalidChild"
        scenario.plane.ask("DELETE", f"{path}/small")
        await scenario.running(asks, Worker=1)
        await assert_operator_healthy(operator_process, scenario)


async def test_where_pod_security_is_restricted_tensorboard_and_the_default_ps_are_like_the_master(
    scenario: Story,
) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    await scenario.api.patch(NAMESPACE, "", scenario.namespace, {"metadata": {"labels": {enforce: "restricted"}}})
    job = tf_job("rest", 0)
    (master,) = (
        replica_spec for replica_spec in job["spec"]["replicaSpecs"] if replica_spec["tfReplicaType"] == "MASTER"
    )
    spec = master["template"]["spec"]
    spec["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    job["spec"] |= {"replicaSpecs": [master, {"tfReplicaType": "PS"}], "tensorboard": {"logDir": "/logs"}}
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(job)
        pods = f"/api/v1/namespaces/{scenario.namespace}/pods?labelSelector="
        for selector in ("job_type%3DMASTER", "job_type%3DPS", "app%3Dtensorboard"):
            look = partial(scenario.plane.ask, "GET", pods + selector)
            await until_async(
                look, f"a pod has {selector}", accept=lambda answer: answer[1].get("items"), pause=SLOW_PAUSE
            )
        known = await scenario.until(lambda job: True, job)
        assert not has_condition(known, "Blocked") and "FailedCreate" not in str(known["status"]["conditions"])
        await assert_operator_healthy(operator_process, scenario)


async def test_a_pod_refused_by_pod_security_is_reported_and_created_once_allowed(
    scenario: Story,
) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    await scenario.api.patch(NAMESPACE, "", scenario.namespace, {"metadata": {"labels": {enforce: "restricted"}}})
    job = elastic_job("secu", 2)
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(job)
        condition = await scenario.condition("Blocked", job)
        assert (
            condition["reason"] == "PodSecurity" and 'violates PodSecurity "restricted:latest"' in condition["message"]
        ), condition
        mark = scenario.plane.audit.mark()
        assert await growth(lambda: passes(operator_process), QUIET) <= 8
        assert len(writes(scenario.requests(mark))) <= 6
        await scenario.api.patch(NAMESPACE, "", scenario.namespace, {"metadata": {"labels": {enforce: None}}})
        await scenario.running(job, Worker=2)
        assert restarts(await scenario.until(lambda job: not has_condition(job, "Blocked"), job)) == 0
        scenario.kubelet.end("WORKER")
        await scenario.condition("Succeeded", job)
        await assert_operator_healthy(operator_process, scenario)
    assert_no_child_created_twice(scenario.requests())


async def test_a_batch_job_whose_pods_are_refused_is_reported_with_where_the_reason_is(
    scenario: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator creates Jobs, and Kubernetes their pods: the refusal is in the events of the Job."""
    monkeypatch.setattr(import_module("trainyard.core.blocked"), "NO_POD_SECONDS", 2.0)
    enforce = "pod-security.kubernetes.io/enforce"
    await scenario.api.patch(NAMESPACE, "", scenario.namespace, {"metadata": {"labels": {enforce: "restricted"}}})
    job = tf_job("podl", 1)
    async with operating(options(scenario.account)) as operator_process:
        await scenario.submit(job)
        said_by_us = await scenario.condition("Blocked", job)
        assert said_by_us["message"] == "MASTER 0 waits: Job master-podl-0 has no pod, and its events say why"
        answer = await asyncio.to_thread(
            scenario.plane.kubectl, "events", "--for=job/master-podl-0", "-n", scenario.namespace
        )
        assert "violates PodSecurity" in answer
        mark = scenario.plane.audit.mark()
        assert await growth(lambda: passes(operator_process), QUIET) <= 8
        assert not writes(scenario.requests(mark))
        await scenario.api.patch(NAMESPACE, "", scenario.namespace, {"metadata": {"labels": {enforce: None}}})
        await scenario.running(job, MASTER=1, WORKER=1)
        await scenario.until(lambda job: not has_condition(job, "Blocked"), job)
        scenario.kubelet.end("MASTER")
        await scenario.condition("Succeeded", job)
        await assert_operator_healthy(operator_process, scenario)
    assert_no_child_created_twice(scenario.requests())


async def test_deleting_a_namespace_during_creation_leaves_nothing_and_affects_no_other_job(
    scenario: Story, tmp_path: Path
) -> None:
    """The operator of another namespace continues; for the operator of this one every object is deleted."""
    name = f"{scenario.namespace}-doomed"
    create_namespace(scenario.plane, name)
    path = tmp_path / "doomed"
    path.mkdir()
    async with story(scenario.plane, name, path) as doomed:
        admin = options(scenario.account)
        whole = options(doomed.account)
        async with operating(admin) as first, operating(whole) as two:
            await until_async(lambda: (first.ready(), two.ready()) == ("", ""), "both are ready")
            job = tf_job("doom", 40)
            begun = asyncio.create_task(doomed.first(JOB))
            await doomed.submit(job)
            await begun
            mark = scenario.plane.audit.mark()
            await scenario.api.delete(NAMESPACE, "", name)
            await scenario.submit(tf_job("well", 1))
            await scenario.running(tf_job("well", 1), MASTER=1, WORKER=1)
            await until_async(
                lambda: scenario.plane.ask("GET", f"/api/v1/namespaces/{name}")[0] == 404,
                "the namespace is gone",
                pause=SLOW_PAUSE,
            )
            requests = doomed.requests(mark)
            assert len(writes(requests)) < 3 * 42, len(writes(requests))
            assert max(count_creates(requests).values(), default=1) == 1
            assert value(two.metrics.render().decode(), "trainyard_reconcile_total", outcome="fault") == 0
            scenario.kubelet.end("MASTER")
            await scenario.condition("Succeeded", tf_job("well", 1))
            await assert_operator_healthy(first, scenario)
