"""The history of a cluster of `trainyard up`: over `down`, over a kill, over the deletion of a job."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.daemon_values import Home, at_home, until_process_ended

pytestmark = pytest.mark.slow


def submit(home: Home, name: str, code: str, restart: str = "OnFailure") -> None:
    container = {"name": "tensorflow", "image": "example.invalid/none", "command": [sys.executable, "-c", code]}
    template = {"spec": {"restartPolicy": restart, "containers": [container]}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    job = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}
    path = home.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    assert home.say("submit", str(path))[0] == 0


def record(home: Home, name: str) -> dict[str, Any]:
    code, out, err = home.say("history", name, "-o", "json")
    assert code == 0, err
    record_fields: dict[str, Any] = json.loads(out)
    return record_fields


def test_logs_and_result_of_a_deleted_job_are_there_with_the_cluster_up_and_down(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        submit(home, "short", "print('hello')")
        home.until("Succeeded", "get", "short")
        assert home.say("delete", "short")[0] == 0
        home.until('"deleted": "2', "history", "short", "-o", "json")  # it is written a moment later
        code, out, err = home.say("logs", "short")
        assert (code, out) == (0, "master-0 | hello\n"), err
        assert err.startswith("From the history of ") and "the job is gone" in err
        answers = {"describe": "Result:    Succeeded", "why": "fine: it succeeded", "events": "JobSucceeded"}
        for command, text in answers.items():
            code, out, err = home.say(command, "short")
            assert code == 0 and text in out and err.startswith("From the history of "), err
        submit(home, "short", "print('hello again')")
        home.until("Succeeded", "get", "short")
        assert home.say("logs", "short")[1] == "master-0 | hello again\n", "the cluster's job comes first"
        first = home.say("history", "-o", "name")[1].split()[-1]
        home.until('"deleted": "2', "history", first, "-o", "json")
        assert home.say("down")[0] == 0
        code, out, err = home.say("logs", "short")
        assert (code, out) == (0, "master-0 | hello again\n") and "1 more of that name" in err
        assert "the job has ended" in err and "is gone" not in err, "its cluster is down and has it"
        assert home.say("logs", first)[1] == "master-0 | hello\n"
        assert [row.split()[5:] for row in home.say("history")[1].splitlines()[1:]] == [
            ["Succeeded", "0", "default"]
        ] * 2
        code, _, err = home.say("logs", "none")
        assert code == 3 and "Traceback" not in err, "without a cluster and without a history the cluster is missed"


@pytest.mark.parametrize("how", ["down", "kill"])
def test_the_record_of_a_job_continues_when_its_cluster_restarts(tmp_path: Path, how: str) -> None:
    code = "import os, sys, time; print('run', os.path.exists('/tmp/b'), end=''); time.sleep(600)"
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        submit(home, "long", code)
        home.until("run", "logs", "long")
        if how == "down":
            assert home.say("down")[0] == 0
        else:
            pid = home.pid
            os.kill(pid, signal.SIGKILL)
            until_process_ended(pid)
        was = record(home, "long")
        assert was["result"] == "Interrupted" and was["where"] == "default"
        assert home.say("logs", "long")[1].startswith("master-0 | run"), "nothing that was printed is lost"
        assert home.up()[0] == 0
        home.until('"result": ""', "history", "long", "-o", "json")
        home.until('"attempt": 1', "history", "long", "-o", "json")
        again = record(home, "long")
        assert (again["id"], again["restarts"]) == (was["id"], 0), "who stops the cluster restarts no job"
        home.until("run", "logs", "long")
        assert home.say("logs", "long", "--attempt", "0")[1].count("run") >= 1
        assert home.say("suspend", "long")[0] == 0
        home.until("Suspended", "get", "long")
        home.until('"deleted": true', "history", "long", "-o", "json")  # its pod is gone
        status, out, err = home.say("logs", "long")
        assert status == 0 and out.startswith("master-0 | run") and "tfjob/long is suspended" in err
        assert home.say("delete", "long")[0] == 0
        home.until('"result": "Deleted"', "history", "long", "-o", "json")
        files = record(home, "long")["logs"]
        assert len(list(Path(files).rglob("*.log"))) == 2, "each run of the container has its log"
