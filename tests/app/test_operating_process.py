"""`trainyard operator` as a program of its own, beside the cluster of `trainyard up` that has none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.daemon_values import PATIENCE, Home, at_home
from tests.support.waiting import until

pytestmark = pytest.mark.slow
CODE = "import pathlib, time, sys\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"


def a_job(name: str, until: Path) -> str:
    """It ends well when that file is there."""
    command = [sys.executable, "-c", CODE, str(until)]
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": command}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    job = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}
    return yaml.safe_dump(job)


@contextmanager
def operator(home: Home, log: Path, *arguments: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "trainyard", "operator", "--log-format", "json", *arguments]
    with log.open("w") as out:
        started = subprocess.Popen(line, env={**home.env, **env}, stdin=subprocess.DEVNULL, stderr=out, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def log_record(log: Path, message: str) -> dict[str, Any]:
    """The first log record with this message, waited for."""

    def look() -> dict[str, Any] | None:
        records = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
        return next((fields for fields in records if fields["message"] == message), None)

    return until(look, f"the log record {message!r}", context=log.read_text)


def submit(home: Home, name: str) -> Path:
    """A job; its replica runs until the file that is returned exists."""
    end, manifest = home.folder / f"{name}.end", home.folder / f"{name}.yaml"
    manifest.write_text(a_job(name, end))
    assert home.say("submit", str(manifest))[0] == 0
    return end


def test_it_serves_a_cluster_without_an_operator_of_its_own(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up("--no-operator")[0] == 0
        kubeconfig, log = home.state / "kubeconfig", tmp_path / "log"
        end = submit(home, "a")
        env = {"USE_KUBE_CONFIG": str(kubeconfig), "MY_POD_NAMESPACE": "default", "MY_POD_NAME": "my-pod"}
        with operator(home, log, "--leader-elect", "--metrics-bind-address", "127.0.0.1:0", **env) as running:
            assert log_record(log, "leading")["me"].startswith("my-pod_")
            home.until("Running", "get")
            place = f"http://127.0.0.1:{log_record(log, 'serving health and metrics')['port']}"
            with urllib.request.urlopen(f"{place}/metrics") as answer:  # noqa: S310  (the scheme is in the line above)
                text = answer.read().decode()
            running_jobs = 'trainyard_jobs{job_namespace="default",kind="TfJob",state="Running"} 1.0'
            assert running_jobs in text and "trainyard_leader 1.0" in text
            assert "\ntrainyard_event_loop_longest_stall_seconds{where=" in text
            end.touch()
            home.until("Succeeded", "get")
            began = time.time()
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0
            released = datetime.fromisoformat(log_record(log, "lease released")["time"]).timestamp()
            assert released - began < 1
            assert "Traceback" not in log.read_text()


def test_a_leader_that_is_stopped_and_continued_sends_no_write(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up("--no-operator")[0] == 0
        arguments = ("--kubeconfig", str(home.state / "kubeconfig"), "--leader-elect", "--lease-duration", "3")
        logs = tmp_path / "one", tmp_path / "two"
        with operator(home, logs[0], *arguments, "--log-level", "debug") as leader:
            log_record(logs[0], "leading")
            submit(home, "a")
            home.until("Running", "get")
            with operator(home, logs[1], *arguments):
                leader.send_signal(signal.SIGSTOP)
                log_record(logs[1], "leading")
                submit(home, "b")  # what the first one's watch will tell it when it wakes up
                home.until("Running", "get", "b")
                length = len(logs[0].read_text())
                leader.send_signal(signal.SIGCONT)
                log_record(logs[0], "stopped leading")
                woken = logs[0].read_text()[length:]
                assert (
                    "plan applied" not in woken and "conflict, the store was stale" not in woken
                )  # the two ends of a write
                leader.send_signal(signal.SIGTERM)
                assert leader.wait(PATIENCE) == 0
                assert "lease released" not in logs[0].read_text()
