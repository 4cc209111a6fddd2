"""What a background cluster keeps over a restart: jobs continue, logs and kubeconfigs stay valid; and its errors."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.daemon_values import Home, at_home, kill, until_process_ended
from tests.support.waiting import SLOW_PAUSE, until, until_async
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.client import ApiClient, ApiError
from trainyard.objects import GVK, Json, find_condition
from trainyard.objects.resources import JOB, POD
from trainyard.server.storage.database import FORMAT, NAME

pytestmark = pytest.mark.slow  # each starts a whole cluster in a process of its own, several times

SLEEPS = "import time\nprint('hello', flush=True)\ntime.sleep(600)"
ENDS = "print('I was here', flush=True)"
# Trains in two lives: what it has done is in its claim.
TRAINS = """
import pathlib, time
done = pathlib.Path('/data/epoch')
if not done.exists():
    done.write_text('1')
    print('epoch 1', flush=True)
    time.sleep(600)
print('epoch 2', flush=True)
"""


def template(code: str, policy: str, **more: Any) -> Json:
    container = {"name": "main", "image": "x", "command": [sys.executable, "-c", code]}
    container |= more.pop("container", {})
    return {"restartPolicy": policy, "terminationGracePeriodSeconds": 1, "containers": [container], **more}


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "mine"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def trained() -> Json:
    container = {"name": "tensorflow", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]
    spec = template(TRAINS, "Never", container=container, volumes=volumes)
    replica = {"tfReplicaType": "MASTER", "template": {"spec": spec}}
    return {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "metadata": {"name": "mnist"},
        "spec": {"replicaSpecs": [replica]},
    }


def ask(home: Home, work: Callable[[ApiClient], Awaitable[Any]]) -> Any:
    async def connect() -> Any:
        async with read_kubeconfig([home.state / "kubeconfig"]).api() as api:
            return await work(api)

    return asyncio.run(connect())


def until_answer(
    home: Home, look: Callable[[ApiClient], Awaitable[Any]], awaited: str, accept: Callable[[Any], bool] = bool
) -> Any:
    """The answer of the API server as soon as it is acceptable."""
    return ask(home, lambda api: until_async(lambda: look(api), awaited, accept=accept, pause=SLOW_PAUSE))


def pod_of(home: Home, name: str, accept: Callable[[Json], bool]) -> Json:
    """The pod, as soon as its status is acceptable."""
    pod = until_answer(
        home,
        lambda api: api.get(POD, "default", name),
        f"the status of pod {name}",
        lambda pod: accept(pod.get("status") or {}),
    )
    return dict(pod)


def runs(status: Json, restarts: int) -> bool:
    states = status.get("containerStatuses") or [{}]
    return states[0].get("restartCount") == restarts and "running" in (states[0].get("state") or {})


def log_of(home: Home, name: str, previous: bool = False) -> str:
    async def look(api: ApiClient) -> str:
        pieces = [piece async for piece in api.logs("default", name, "main", previous=previous)]
        return b"".join(pieces).decode()

    return str(ask(home, look))


def test_jobs_and_logs_survive_down_up_and_a_killed_daemon(tmp_path: Path) -> None:
    async def submit(api: ApiClient) -> None:
        for name, code, policy in (("always", SLEEPS, "Always"), ("never", SLEEPS, "Never"), ("done", ENDS, "Never")):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template(code, policy)}
            await api.create(POD, "default", pod)

    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        ask(home, submit)
        (tmp_path / "job.yaml").write_text(yaml.safe_dump_all([CLAIM, trained()]))
        assert home.say("submit", str(tmp_path / "job.yaml"))[0] == 0
        for name in ("always", "never"):
            pod_of(home, name, lambda status: runs(status, 0))
            until(lambda name=name: log_of(home, name), f"the log of {name}", accept=lambda log: log == "hello\n")
        pod_of(home, "done", lambda status: status.get("phase") == "Succeeded")
        home.until("epoch 1", "logs", "mnist")
        written = (home.state / "kubeconfig").read_bytes()

        assert home.say("down")[:2] == (0, "The cluster is down.\n")
        code, out, err = home.say("get")
        assert code == 3, (out, err)
        code, _, err = home.up()
        assert code == 0 and "The cluster is up, where it was stopped (" in err
        assert (home.state / "kubeconfig").read_bytes() == written, "a kubeconfig of before does not work any more"

        always = pod_of(home, "always", lambda status: runs(status, 1))
        state = always["status"]["containerStatuses"][0]["lastState"]["terminated"]
        assert (state["exitCode"], state["reason"]) == (137, "ContainerStatusUnknown")
        assert log_of(home, "always", previous=True) == "hello\n"
        never = pod_of(home, "never", lambda status: status.get("phase") == "Failed")
        assert find_condition(never["status"]["conditions"], "DisruptionTarget")
        assert log_of(home, "never") == "hello\n" and log_of(home, "done") == "I was here\n"
        home.until("Succeeded", "get")
        home.until("epoch 2", "logs", "mnist")
        job = json.loads(home.say("get", "-o", "json", "mnist")[1])
        assert not (job["status"].get("restarts") or 0), "to be stopped was counted as a failure"

        uid = always["metadata"]["uid"]
        kill(home.pid)
        assert home.up()[0] == 0
        again = pod_of(home, "always", lambda status: runs(status, 2))
        assert again["metadata"]["uid"] == uid
        assert log_of(home, "done") == "I was here\n" and "Succeeded" in home.say("get")[1]

        code, out, err = home.say("down", "--delete", "--grace", "5")
        assert (code, out) == (0, "The cluster is down.\nThe cluster is deleted.\n")
        for part in ("1 job: TfJob default/mnist", "logs and files of pods", "volumes of claims", str(home.state)):
            assert part in err, part
        assert not home.state.exists()
        assert not list(home.state.parent.rglob("default.json")), "the port and the key of its page are left"
        assert home.say("down", "--delete")[:2] == (0, "The cluster is not up.\nThe cluster has nothing to delete.\n")


def test_a_batch_job_with_restart_policy_on_failure_continues_in_its_pod(tmp_path: Path) -> None:
    spec = template(TRAINS.replace("/data", str(tmp_path)), "OnFailure")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "trains"},
        "spec": {"template": {"spec": spec}},
    }

    def complete(job: Json) -> bool:
        return find_condition((job.get("status") or {}).get("conditions"), "Complete") is not None

    async def pods(api: ApiClient) -> list[Json]:
        return list((await api.list(POD, "default"))["items"])

    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        ask(home, lambda api: api.create(JOB, "default", job))
        (pod,) = until_answer(home, pods, "there is a pod")
        pod_of(home, pod["metadata"]["name"], lambda status: runs(status, 0) and (tmp_path / "epoch").exists())
        assert home.say("down")[0] == 0 and home.up()[0] == 0
        obj = until_answer(home, lambda api: api.get(JOB, "default", "trains"), "the Job is complete", complete)
        assert obj["status"]["succeeded"] == 1 and not obj["status"].get("failed")
        (same,) = ask(home, pods)
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert same["status"]["containerStatuses"][0]["restartCount"] == 1


def test_a_state_that_cannot_be_used_is_named_and_kept(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        code, _, err = home.up("--fresh")
        assert code == 3 and "stop it first" in err
        assert home.say("down")[0] == 0
        path = home.state / "state" / "log" / NAME
        with sqlite3.connect(path) as file:
            file.execute(f"PRAGMA user_version = {FORMAT + 1}")
        file.close()
        before = path.read_bytes()
        code, out, err = home.up()
        assert (code, out) == (3, "") and "Traceback" not in err, err
        assert f"{path}: it was written by a newer trainyard" in err and "trainyard up --fresh" in err
        path.write_bytes(b"something else" * 99)
        code, _, err = home.up()
        assert code == 3 and f"{path}: it is broken" in err and path.read_bytes() == b"something else" * 99
        path.write_bytes(before)
        code, _, err = home.up("--fresh")
        assert code == 0 and "its old state was moved to" in err
        (aside,) = (home.state / "aside").iterdir()
        assert (aside / "log" / NAME).read_bytes() == before
        assert "no jobs" in home.say("get")[2]
        code, out, err = home.say("down", "--delete")
        assert code == 0 and f"what was put aside in {aside.name}" in err


def test_a_full_disk_is_named_at_the_start_and_later(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def limit(size: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    started = subprocess.run(
        [sys.executable, "-m", "trainyard", "up", "--network", "shared"],
        env=home.env,
        capture_output=True,
        text=True,
        preexec_fn=limit(64 * 1024),
    )
    assert started.returncode == 3 and NAME in started.stderr and "full" in started.stderr, started.stderr
    with at_home(tmp_path):
        assert home.up()[0] == 0, "it does not start when there is room again"
        resource.prlimit(home.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        content = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y" * 900_000}}
        config_map = GVK("", "v1", "ConfigMap", "configmaps")

        async def fill(api: ApiClient) -> str:
            for at in range(9):
                try:
                    await api.create(config_map, "default", {**content, "metadata": {"name": f"large-{at}"}})
                except ApiError as error:
                    return str(error)
            return ""

        answer = ask(home, fill)
        assert "nothing of this write is stored" in answer and "the server goes on when that is cured" in answer
        assert home.say("status")[0] == 0
        resource.prlimit(home.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert ask(home, fill) == "" or "already exists" in ask(home, fill)


def test_the_persons_own_kubeconfig_is_written_kept_right_and_cleaned(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        own = tmp_path / "own"
        own.write_text("kind: Config\ncurrent-context: work\nx-mine: 1\nclusters: {}\n")
        home.env["KUBECONFIG"] = str(own)
        code, out, err = home.up("--merge-kubeconfig")
        assert (code, out) == (3, "") and "clusters is not a list" in err and not home.state.exists()
        own.write_text("kind: Config\ncurrent-context: work\nx-mine: 1\n")
        code, _, err = home.up("--merge-kubeconfig")
        assert code == 0 and "kubectl --context trainyard-default" in err
        first = read_kubeconfig([own], "trainyard-default")
        assert yaml.safe_load(own.read_text())["current-context"] == "work"
        assert "trainyard-default in" in home.say("status")[1]
        assert home.say("down")[0] == 0

        port = int(first.server.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", port)):
            code, _, err = home.up()
        assert code == 0 and f"port {port} is in use by another program" in err
        second = read_kubeconfig([own], "trainyard-default")
        assert second.server != first.server and (second.token, second.ca) == (first.token, first.ca)
        assert json.loads((home.state / "cluster.json").read_text())["server"] == second.server
        pid = home.pid
        code, _, err = home.say("down", "--delete")
        assert code == 0 and f"the context trainyard-default in {own}" in err
        until_process_ended(pid)
        left = yaml.safe_load(own.read_text())
        assert left["x-mine"] == 1 and left["current-context"] == "work" and left["users"] == []
