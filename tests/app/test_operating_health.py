"""The probes and metrics of the operator's process, and a config that changes while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.app.operating_setup import options, until_metric, until_ready
from tests.app.operating_values import NARROW, TFJOB, Site, tf_job
from tests.support.running_operator import operating
from tests.support.waiting import until_async
from trainyard.app.health import HealthServer
from trainyard.app.operating import follow_config
from trainyard.objects.resources import JOB


async def test_probes_and_metrics_are_served(site: Site) -> None:
    await site.account(NARROW)
    async with operating(options(site, bind=("127.0.0.1", 0))) as process, aiohttp.ClientSession() as http:
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        creates = 'trainyard_api_requests_total{code="201",resource="jobs",verb="create"}'
        await until_metric(process, creates, 1)  # it is sent after the status
        place = f"http://127.0.0.1:{process.health.port}"
        for path in ("/healthz", "/readyz"):
            async with http.get(place + path) as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
        async with http.get(place + "/metrics") as answer:
            text = await answer.text()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        async with http.get(place + "/other") as answer:
            assert answer.status == 404
    ours = ("# TYPE trainyard_", "# TYPE training_operator_")
    names = {line.split(" ")[2] for line in text.splitlines() if line.startswith(ours)}
    page = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| `trainyard_", "| `training_operator_"))]
    assert names == {line.split("`")[1] for line in rows}
    assert f"{creates} 1.0" in text
    assert 'trainyard_api_requests_total{code="200",resource="tfjobs",verb="watch"} 1.0' in text
    assert 'trainyard_reconcile_total{kind="TfJob",outcome="done"}' in text
    assert "mnist" not in text


async def test_the_second_address_has_the_probes_alone(site: Site) -> None:
    await site.account(NARROW)
    async with operating(options(site, probe_bind=("127.0.0.1", 0))) as process, aiohttp.ClientSession() as http:
        await until_async(lambda: process.probes.port, "the probes are served")
        await until_ready(process)
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 404)):
            async with http.get(f"http://127.0.0.1:{process.probes.port}{path}") as answer:
                assert answer.status == status
        assert process.health.port == 0


async def test_readyz_fails_before_all_lists_have_completed(site: Site) -> None:
    await site.account([rule for rule in NARROW if "deployments" not in rule["resources"]])
    async with operating(options(site)) as process:
        named = "not listed yet: deployments: deployments.apps is forbidden"
        await until_async(process.ready, "the resource is named", accept=lambda missing: missing.startswith(named))
        assert 'cannot list resource "deployments"' in process.ready() and ";" not in process.ready()
        assert process.alive() == ""


async def test_a_changed_config_holds_for_the_next_pass_and_a_broken_one_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow_config, "__defaults__", (0.02,))
    await site.account(NARROW)
    file = tmp_path / "config.yaml"
    file.write_text("accelerators: {}\n")
    async with operating(options(site, config_file=file)) as process:
        await until_ready(process)
        file.write_text("accelerators: 7\n")
        await until_metric(process, 'trainyard_config_reloads_total{outcome="refused"}', 1)
        assert "accelerators: is not a mapping" in caplog.text
        file.write_text("accelerators: {example.com/gpu: {envVars: [{name: SEEN, value: yes}]}}\n")
        await until_metric(process, 'trainyard_config_reloads_total{outcome="used"}', 1)
        job = tf_job()
        container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
        container["resources"] = {"limits": {"example.com/gpu": 1}}
        await site.api.create(TFJOB, "default", job)
        created_jobs = await site.until(JOB, lambda jobs: bool(jobs))
        env = created_jobs[0]["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "SEEN", "value": "true"} in env


async def test_a_config_that_appears_later_is_used(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_config, "__defaults__", (0.02,))
    await site.account(NARROW)
    file = tmp_path / "config.yaml"
    async with operating(options(site, config_file=file)) as process:
        await until_ready(process)
        file.write_text("accelerators: {}\n")
        await until_metric(process, 'trainyard_config_reloads_total{outcome="used"}', 1)


async def test_what_is_no_request_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reaches the port may send it, as often as he likes."""
    server = HealthServer(lambda: "", lambda: "", None)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n")
    assert b" 400 " in await reader.read()
    writer.close()
    await server.stop()
    assert not caplog.records
