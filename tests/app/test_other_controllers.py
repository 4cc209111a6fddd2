"""The operator beside Kubeflow Trainer, of which the server has what its installation leaves: the definition of a
resource of webhook configurations, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.operating_setup import metric, options, until_metric
from tests.app.operating_values import Site, running_site
from tests.support.running_operator import operating
from tests.support.samples import trainjob
from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.app import other_controllers
from trainyard.app.operating import OperatorProcess, parse_kinds
from trainyard.kinds.trainjob.definitions import CLUSTER_TRAINING_RUNTIME, runtime_definition
from trainyard.kinds.trainjob.shipped_runtimes import shipped_runtimes
from trainyard.objects import Json, name_of, operator_status
from trainyard.objects.resources import CRD, EVENT, POD, VALIDATING_WEBHOOK_CONFIGURATION

EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
NO_WEBHOOKS = [
    {"apiGroups": ["", "apps", "batch", "trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": ["scheduling.x-k8s.io", "scheduling.volcano.sh"], "resources": ["*"], "verbs": ["*"]},
]
TRAINER = "validator.trainer.kubeflow.org"
SERVED = "trainyard_kind_served"
CONFIGURATIONS = {
    "apiVersion": CRD.api_version,
    "kind": CRD.kind,
    "metadata": {
        "name": "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    },
    "spec": {
        "group": VALIDATING_WEBHOOK_CONFIGURATION.group,
        "scope": "Cluster",
        "names": {
            "kind": VALIDATING_WEBHOOK_CONFIGURATION.kind,
            "plural": VALIDATING_WEBHOOK_CONFIGURATION.plural,
            "singular": "validatingwebhookconfiguration",
            "listKind": "ValidatingWebhookConfigurationList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(other_controllers, "POLL_SECONDS", 0.05)
    async with running_site(tmp_path, (kinds.TRAINJOB,)) as server_site:
        api = server_site.api
        await api.create(CRD, "", runtime_definition(CLUSTER_TRAINING_RUNTIME))
        torch = next(item for item in shipped_runtimes() if name_of(item) == "torch-distributed")
        await api.create(CLUSTER_TRAINING_RUNTIME, "", torch)
        await api.create(CRD, "", CONFIGURATIONS)
        yield server_site


async def install_trainer(site: Site) -> None:
    identity = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": VALIDATING_WEBHOOK_CONFIGURATION.kind}
    await site.api.create(VALIDATING_WEBHOOK_CONFIGURATION, "", {**identity, "metadata": {"name": TRAINER}})


async def remove_trainer(site: Site) -> None:
    await site.api.delete(VALIDATING_WEBHOOK_CONFIGURATION, "", TRAINER)


def job(name: str = "tj") -> Json:
    wire = trainjob(name)
    del wire["metadata"]["uid"], wire["metadata"]["resourceVersion"]
    return wire


async def create(site: Site, name: str = "tj") -> None:
    await site.api.create(kinds.TRAINJOB.gvk, "default", job(name))


async def until_seen(process: OperatorProcess, jobs: int, pods: int) -> None:
    """Wait until so many are in the operator's stores, and no job is due."""

    def is_seen() -> bool:
        operator = process._operator
        counts = {watch.gvk: watch.object_count for watch in operator.watches} if operator else {}
        has_counts = (counts.get(kinds.TRAINJOB.gvk), counts.get(POD)) == (jobs, pods)
        return has_counts and operator is not None and all(state == "later" for _, state in operator.queue.states())

    await until_async(is_seen, f"the operator has seen {jobs} jobs with {pods} pods")


async def test_beside_trainer_no_job_is_served_until_it_is_gone(site: Site) -> None:
    await site.account(EVERYTHING)
    await install_trainer(site)
    await create(site)
    async with operating(options(site, kinds=parse_kinds("trainjob"))) as process:
        await until_async(process.checks, "the reason is known", accept=lambda checks: "is installed" in checks[-1][2])
        assert process.checks()[-1] == (
            "trainjobs",
            "",
            f"not served: Kubeflow Trainer is installed (ValidatingWebhookConfiguration {TRAINER})",
        )
        await until_seen(process, jobs=1, pods=0)
        assert metric(process, SERVED) == 0
        assert "status" not in await site.api.get(kinds.TRAINJOB.gvk, "default", "tj")
        assert (await site.api.list(EVENT, "default"))["items"] == []  # Trainer serves it: that is no news
        await remove_trainer(site)
        await site.until(POD, lambda pods: len(pods) == 2)
        assert metric(process, SERVED) == 1 and len(process.checks()) == 1


async def test_a_trainer_that_comes_later_stops_the_writes_and_the_job_has_an_event(site: Site) -> None:
    await site.account(EVERYTHING)
    await create(site)
    async with operating(options(site, kinds=parse_kinds("trainjob"))) as process:
        await site.until(POD, lambda pods: len(pods) == 2)
        await install_trainer(site)
        await until_metric(process, SERVED, 0)
        events = await site.until(EVENT, lambda items: any(item["reason"] == "NotServed" for item in items))
        (event,) = [item for item in events if item["reason"] == "NotServed"]
        assert "restarts and deletes no pod of the job any more" in event["message"]
        await create(site, "later")
        pods = (await site.api.list(POD, "default"))["items"]
        await site.api.delete(POD, "default", name_of(pods[0]))
        await until_seen(process, jobs=2, pods=1)
        assert len((await site.api.list(POD, "default"))["items"]) == 1
        await remove_trainer(site)
        await site.until(POD, lambda pods: len(pods) == 4)


async def test_with_mode_pods_jobs_are_served_beside_it(site: Site) -> None:
    await site.account(EVERYTHING)
    await install_trainer(site)
    await create(site)
    async with operating(options(site, kinds=parse_kinds("trainjob"), beside_other_controllers=True)):
        await site.until(POD, lambda pods: len(pods) == 2)


async def test_an_operator_that_may_not_look_serves_and_says_so(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.account(NO_WEBHOOKS)
    await create(site)
    async with operating(options(site, kinds=parse_kinds("trainjob"))):
        await site.until(POD, lambda pods: len(pods) == 2)
    assert "it is not known whether Kubeflow Trainer is installed" in caplog.text


async def test_a_job_that_trainer_has_begun_is_left_alone_with_an_event(site: Site) -> None:
    await site.account(EVERYTHING)
    await create(site)
    counts = {"ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    status = {"jobsStatus": [{"name": "node", **counts}]}
    await site.api.patch(kinds.TRAINJOB.gvk, "default", "tj", {"status": status}, "status")
    async with operating(options(site, kinds=parse_kinds("trainjob"))):
        (event,) = await site.until(EVENT, lambda items: bool(items))
        assert event["reason"] == "BegunElsewhere" and "has begun this job" in event["message"]
    assert (await site.api.list(POD, "default"))["items"] == []
    stored = await site.api.get(kinds.TRAINJOB.gvk, "default", "tj")
    assert operator_status(stored) == status


async def test_with_trainers_definition_no_job_is_begun(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    definition = kinds.crd(kinds.TRAINJOB)
    del definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"][
        "trainyard"
    ]
    await site.api.patch(CRD, "", name_of(definition), {"spec": definition["spec"]})
    await site.account(EVERYTHING)
    await create(site)
    async with operating(options(site, kinds=parse_kinds("trainjob"))):
        (event,) = await site.until(EVENT, lambda items: bool(items))
        assert event["reason"] == "BegunElsewhere" and "apply the definitions of" in event["message"]
    assert (await site.api.list(POD, "default"))["items"] == []
    assert "the definition of trainjobs drops status.trainyard" in caplog.text
