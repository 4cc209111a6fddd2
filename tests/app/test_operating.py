"""The operator's process against our real server: the kinds and namespaces that it serves, and its few rights."""

from __future__ import annotations

import pytest

from tests.app.operating_setup import metric, options, until_ready
from tests.app.operating_values import NARROW, TFJOB, Site, tf_job, types_of
from tests.support.running_operator import operating
from trainyard import kinds
from trainyard.objects.resources import CRD, EVENT, JOB, NAMESPACE, SERVICE


async def test_in_a_pod_the_operator_uses_only_its_service_accounts_permissions(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.account(NARROW)
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        await site.until(JOB, lambda jobs: len(jobs) == 1)
        await site.until(EVENT, lambda events: bool(events))
    assert not [record for record in caplog.records if "403" in record.getMessage()]
    assert len((await site.api.list(SERVICE, "default"))["items"]) >= 1


async def test_the_operator_sends_no_requests_for_kinds_that_it_does_not_serve(site: Site) -> None:
    await site.account(NARROW)
    before = site.server.verbs.copy()
    async with operating(options(site)) as process:
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        assert process.ready() == ""
    requested = {resource for _, resource in site.server.verbs - before}
    assert "statefulsets" not in requested and "elasticjobs" not in requested


async def test_one_namespace_or_all(site: Site) -> None:
    await site.account(NARROW)
    await site.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await site.api.create(TFJOB, "default", tf_job("here"))
    await site.api.create(TFJOB, "other", tf_job("there", "other"))
    async with operating(options(site, namespace="other")):
        await site.says("there", "Created", "other")
        assert not types_of(await site.api.get(TFJOB, "default", "here"))
    async with operating(options(site)):
        await site.says("here", "Created")


async def test_a_kind_without_its_crd_is_served_once_the_crd_exists(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.controller_runtime.reflector.NOT_SERVED_MAX_DELAY", 0.3)
    await site.api.delete(CRD, "", kinds.crd(kinds.TFJOB)["metadata"]["name"])
    await site.account(NARROW)
    async with operating(options(site)) as process:
        await until_ready(process)
        assert metric(process, 'trainyard_watch_state{group="tensorflow.org",resource="tfjobs",state="missing"}') == 1
        await site.api.create(CRD, "", kinds.crd(kinds.TFJOB))
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        assert metric(process, 'trainyard_watch_state{group="tensorflow.org",resource="tfjobs",state="watching"}') == 1
        assert process.alive() == ""
