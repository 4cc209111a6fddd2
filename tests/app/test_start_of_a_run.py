"""How `run` starts fast: certificates are made by another process, and CRDs of other kinds are installed later."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.builders import replicas, tfjob
from tests.support.waiting import until_async
from tests.support.watched_objects import until_object, until_objects
from trainyard.app.background import certificate_process
from trainyard.app.background.certificate_process import CertificateProcess
from trainyard.app.background.early_start import EarlyStart
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiClient, NotFound
from trainyard.core import Kind
from trainyard.kinds import ELASTICJOB, TFJOB
from trainyard.node.kubelet.node import Node
from trainyard.objects import Json
from trainyard.objects.resources import EVENT, JOB, NODE
from trainyard.objects.structs import replace


def options(folder: Path, **more: object) -> LocalClusterOptions:
    return LocalClusterOptions(network="shared", cache=folder / "cache", say=lambda text: None, parent=folder, **more)  # type: ignore[arg-type]


async def test_a_client_that_trusts_the_authority_reaches_the_cluster(tmp_path: Path) -> None:
    with EarlyStart("shared") as early:
        async with LocalCluster(options(tmp_path, early=early)) as cluster:
            trusted = ssl.create_default_context(cadata=cluster.root_ca)
            async with ApiClient(cluster.server.tls_url, cluster.token, trusted) as api:
                assert (await api.list(TFJOB.gvk))["items"] == []
            for secret in cluster.folder.glob("apiserver.*"):
                assert secret.stat().st_mode & 0o777 == 0o600


def test_a_certificate_process_that_is_not_needed_ends() -> None:
    with CertificateProcess() as certificates:
        pid = certificates._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_closing_while_a_thread_waits_for_the_certificates_raises_nothing(tmp_path: Path) -> None:
    """Found by Ctrl-C a third of a second after the start of `run`: a traceback instead of exit code 130."""
    with ThreadPoolExecutor(1) as threads:
        for _ in range(10):
            with CertificateProcess() as certificates:
                waiting = threads.submit(certificates.make_certificates, tmp_path)
                while not (waiting.running() or waiting.done()):
                    pass
            with suppress(OSError):  # it was killed, or was done before
                waiting.result(timeout=20)


def test_the_error_of_a_certificate_that_cannot_be_created_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('no random numbers')")
    monkeypatch.setattr(certificate_process, "PROGRAM", program)
    with CertificateProcess() as certificates, pytest.raises(OSError, match="can be made: no random numbers"):
        certificates.make_certificates(tmp_path)


def test_a_warning_of_a_library_does_not_spoil_the_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "warning.py"
    run = f"runpy.run_path({str(certificate_process.PROGRAM)!r}, run_name='__main__')"
    program.write_text(f"import runpy\nprint('this Python is old', flush=True)\n{run}\n")
    monkeypatch.setattr(certificate_process, "PROGRAM", program)
    with CertificateProcess() as certificates:
        assert "BEGIN CERTIFICATE" in certificates.make_certificates(tmp_path)[1]


async def test_a_kind_that_was_not_submitted_is_served_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the operator, too: a program of a job may make jobs of another kind."""
    submitted, looked = asyncio.Event(), asyncio.Event()
    install_later = LocalCluster._install_later

    async def held(cluster: LocalCluster, kinds: Iterable[Kind]) -> None:
        await looked.wait()  # on a busy machine the start takes longer than INSTALL_DELAY
        await install_later(cluster, kinds)

    monkeypatch.setattr(LocalCluster, "_install_later", held)

    async def submit() -> None:
        assert (await cluster.api.list(ELASTICJOB.gvk))["items"] == []
        submitted.set()

    cluster = LocalCluster(options(tmp_path, served_first=frozenset({ELASTICJOB.gvk})))
    try:
        await cluster.start(submit)
        assert submitted.is_set()
        with pytest.raises(NotFound):
            await cluster.api.list(TFJOB.gvk)
        looked.set()
        job = tfjob(replicas("MASTER")) | {"metadata": {"name": "made-by-a-program"}}
        await until_async(lambda: cluster.api.create(TFJOB.gvk, "default", job), "TfJobs are served", retry_on=NotFound)
        await until_object(
            cluster.api, TFJOB.gvk, "default", "made-by-a-program", lambda job: job.get("status"), "it has a status"
        )
    finally:
        await cluster.stop(kill=True)


async def test_pods_that_are_created_before_the_node_is_ready_record_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every `run` recorded a warning: FailedScheduling, no node is ready."""
    start_node = Node.start
    container = {"name": "c", "image": "x", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "early"}, "spec": {"template": template}}

    async def submit() -> None:
        await cluster.api.create(JOB, "default", job)

    async def start_after_the_pod_was_created(node: Node) -> None:
        await until_event(cluster.api, "SuccessfulCreate")
        await start_node(node)

    monkeypatch.setattr(Node, "start", start_after_the_pod_was_created)
    cluster = LocalCluster(options(tmp_path))
    try:
        await cluster.start(submit)
        reasons = await until_event(cluster.api, "Scheduled")
        assert "FailedScheduling" not in reasons
    finally:
        await cluster.stop(kill=True)


async def until_event(api: ApiClient, reason: str) -> list[str]:
    """Waits for an event of this reason; returns the reasons of all events."""

    def has_reason(events: list[Json]) -> bool:
        return any(event["reason"] == reason for event in events)

    events = await until_objects(api, EVENT, "default", has_reason, f"an event {reason}")
    return [event["reason"] for event in events]


def test_an_early_start_that_no_cluster_takes_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with EarlyStart("shared") as early:
        pid, folder = early.supervisor.pid, early.supervisor.log.parent
        assert folder.is_dir()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_during_imports_ends_the_program_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")  # as Ctrl-C does to the import that it meets
    path = f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"
    argv = [sys.executable, "-m", "trainyard", "run", "train.py"]
    ended = subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


async def test_a_cluster_stopped_while_it_installs_crds_reports_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installation sends requests to a server that stops: its error was a traceback behind the job's result."""
    messages: list[str] = []
    served_first = frozenset({ELASTICJOB.gvk})
    cluster = LocalCluster(replace(options(tmp_path, served_first=served_first), say=messages.append))
    installing = asyncio.Event()

    async def install_for_ever(later_kinds: object) -> None:
        while True:
            await cluster.api.list(NODE)
            installing.set()
            await asyncio.sleep(0)

    monkeypatch.setattr(cluster, "_install_later", install_for_ever)
    await cluster.start()
    await installing.wait()
    await cluster.stop()
    assert not [text for text in messages if "install kinds" in text]
