"""What is left of a job when it has ended, was killed with all the rest, or was deleted: `trainyard history` and
`trainyard logs` as a user has them, with no cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.run_values import Ended, Started, job, private, replicas, run_to_end
from tests.support.waiting import until
from trainyard.objects import Json

pytestmark = pytest.mark.slow
BUFFERED = [sys.executable, "-c"]  # no -u: what is printed must be seen all the same


def run_without_cluster(folder: Path, *line: str, **variables: str) -> Ended:
    """One command in the environment of the run in that folder, with no cluster."""
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    env |= {**private(folder), "HOME": str(folder), **variables}
    command = [sys.executable, "-m", "trainyard", *line]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return Ended(ended.returncode, ended.stdout.splitlines(), ended.stderr, ended.stdout)


def prints(role: str, code: str, count: int = 1) -> Json:
    spec = replicas(role, code, count)
    spec["template"]["spec"]["containers"][0]["command"] = [*BUFFERED, code]
    return spec


def only_record(folder: Path) -> Path:
    (record,) = (path for path in (folder / "state" / "trainyard" / "history").iterdir() if path.name[0] != ".")
    return record


def until_text(folder: Path, text: str) -> None:
    """Wait until a log of the history has this text."""

    def logs() -> dict[str, str]:
        paths = folder.rglob("state/trainyard/history/*/logs/**/*.log")
        return {path.name: path.read_text() for path in paths}

    until(logs, f"{text!r} in a log", accept=lambda texts: any(text in log for log in texts.values()))


def test_everything_of_a_job_is_kept(tmp_path: Path) -> None:
    master = prints("MASTER", "print('hello')")
    ended = run_to_end(tmp_path, [job(master, prints("WORKER", "print('at work', end='')", 2))], "--network", "shared")
    assert ended.code == 0, ended.err
    folder = only_record(tmp_path)
    assert [line for line in ended.err.splitlines() if line.startswith("logs: ")] == [f"logs: {folder}/logs"]
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in folder.iterdir()) == [
        *("events.yaml", "job.yaml", "logs", "manifest.yaml", "result.json")
    ]
    result = json.loads((folder / "result.json").read_text())
    assert (result["result"], result["name"], result["where"]) == ("Succeeded", "story", "run")
    assert {(pod["replica"], pod["containers"][0]["runs"][-1]["exitCode"]) for pod in result["pods"]} == {
        *(("master-0", 0), ("worker-0", 0), ("worker-1", 0))
    }
    events = yaml.safe_load((folder / "events.yaml").read_text())
    assert "JobSucceeded" in [event["reason"] for event in events]
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    assert manifest["spec"]["replicaSpecs"][0]["template"] == master["template"] and "status" not in manifest
    shown = run_without_cluster(tmp_path, "logs", "story")
    assert (shown.code, shown.of("worker-1"), shown.of("master-0")) == (0, ["at work"], ["hello"])
    assert shown.err.startswith("From the history of ") and "the job is gone" in shown.err
    assert run_without_cluster(tmp_path, "logs", "story", "--role", "worker", "--index", "1").out == "at work\n"
    (tmp_path / "again").mkdir()
    again = run_to_end(tmp_path / "again", [manifest], "--network", "shared")
    assert again.code == 0, "the manifest can be run again"


def test_run_and_history_have_one_prefix_and_one_width_for_pods_with_init_containers(tmp_path: Path) -> None:
    master = prints("MASTER", "print('trains')")
    fetch = {"name": "zz-fetch-the-data", "image": "x", "command": [*BUFFERED, "print('fetched')"]}
    master["template"]["spec"]["initContainers"] = [fetch]
    ended = run_to_end(tmp_path, [job(master, prints("WORKER", "print('works')"))], "--network", "shared")
    lines = ["master-0/zz-fetch-the-data | fetched", "master-0 | trains", "worker-0 | works"]
    assert set(ended.lines) >= set(lines), ended.out
    assert run_without_cluster(tmp_path, "logs", "story").lines == lines


def test_the_commands_of_the_history(tmp_path: Path) -> None:
    empty = run_without_cluster(tmp_path, "history")
    assert (empty.code, empty.out) == (0, "") and "No job has run" in empty.err
    assert run_to_end(tmp_path, [job(prints("MASTER", "print('hello')"))], "--network", "shared").code == 0
    head, row = run_without_cluster(tmp_path, "history").lines
    assert head.split() == ["ID", "JOB", "KIND", "AGE", "TOOK", "RESULT", "RESTARTS", "WHERE"]
    ident = row.split()[0]
    assert row.split()[1:3] == ["story", "TfJob"] and row.split()[5:] == ["Succeeded", "0", "run"]
    (listed,) = json.loads(run_without_cluster(tmp_path, "history", "-o", "json").out)
    assert (listed["id"], listed["result"], listed["pods"][0]["replica"]) == (ident, "Succeeded", "master-0")
    assert yaml.safe_load(run_without_cluster(tmp_path, "history", "tfjob/story", "-o", "yaml").out) == listed
    assert run_without_cluster(tmp_path, "history", "-o", "name").lines == [ident]
    page = run_without_cluster(tmp_path, "history", ident).out
    assert "master-0/attempt-0-" in page and "JobSucceeded" in page and "Result:    Succeeded" in page
    for line in (("history", "none"), ("logs", "none"), ("logs", "story", "--attempt", "7"), ("history", "--delete")):
        refused = run_without_cluster(tmp_path, *line)
        assert refused.code in (1, 2, 3) and refused.err and "Traceback" not in refused.err, line
    assert "it has: 0" in run_without_cluster(tmp_path, "logs", "story", "--attempt", "7").err
    assert "it has: master" in run_without_cluster(tmp_path, "logs", "story", "--role", "chief").err
    assert "it has: master-0" in run_without_cluster(tmp_path, "logs", "story", "--index", "1").err
    assert "it has: tensorflow" in run_without_cluster(tmp_path, "logs", "story", "-c", "sidecar").err
    assert run_without_cluster(tmp_path, "history", "--delete", "story").code == 0
    assert run_without_cluster(tmp_path, "history").out == ""


def test_the_verbs_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("story", "rm"):
        assert (
            run_to_end(tmp_path, [job(prints("MASTER", f"print('{name}')"), name=name)], "--network", "shared").code
            == 0
        )
    story, rm = (
        json.loads(run_without_cluster(tmp_path, "history", "show", name, "-o", "json").out) for name in ("story", "rm")
    )
    assert (story["name"], rm["name"], story["kept"]) == ("story", "rm", False), "a job may have the name of a verb"
    assert (
        run_without_cluster(tmp_path, "history", "story", "-o", "json").out
        == run_without_cluster(tmp_path, "history", "-o", "json", "story").out
    )
    kept = run_without_cluster(tmp_path, "history", "keep", "story")
    assert kept.code == 0 and "is kept whatever the limits" in kept.err
    head, *rows = run_without_cluster(tmp_path, "history").lines
    assert head.split()[-1] == "KEPT" and {row.split()[1]: row.split()[-1] for row in rows} == {
        "story": "kept",
        "rm": "run",
    }
    assert "Kept:" in run_without_cluster(tmp_path, "history", "show", "story").out
    refused = run_without_cluster(tmp_path, "history", "rm", "rm", "story")
    assert refused.code == 1 and f"trainyard history keep --undo {story['id']}" in " ".join(refused.err.split())
    assert len(run_without_cluster(tmp_path, "history", "-o", "name").lines) == 2, "none is removed"
    monkeypatch.setenv("TRAINYARD_HISTORY_JOBS", "1")
    assert run_to_end(tmp_path, [job(prints("MASTER", "print('next')"), name="next")], "--network", "shared").code == 0
    left = run_without_cluster(tmp_path, "history", "-o", "name").lines
    assert story["id"] in left and len(left) == 2, "one counts for the limit"
    page = tmp_path / "story.html"
    exported = run_without_cluster(tmp_path, "history", "export", "story", str(page))
    assert (exported.code, exported.lines) == (0, [str(page)]) and "MASTER 0 ended" in page.read_text()
    again = run_without_cluster(tmp_path, "history", "export", "story", str(page))
    assert again.code == 1 and "--force" in again.err
    assert run_without_cluster(tmp_path, "history", "keep", "--undo", "story").code == 0
    assert run_without_cluster(tmp_path, "history", "rm", *left).code == 0
    assert run_without_cluster(tmp_path, "history").out == ""


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_a_kill_of_everything_loses_no_line(tmp_path: Path, network: str) -> None:
    code = "import time; print('one'); print('two', end=''); time.sleep(600)"
    started = Started(tmp_path, [job(prints("MASTER", code), prints("WORKER", code))], "--network", network)
    until_text(tmp_path, "two")
    master = "master-0"

    def printed() -> str:
        assert started.process.poll() is None
        return run_without_cluster(tmp_path, "logs", "story").out

    until(printed, "the log of the master", accept=lambda out: master in out)
    os.kill(started.process.pid, signal.SIGKILL)
    started.end()
    shown = until(
        lambda: run_without_cluster(tmp_path, "logs", "story"),
        "four lines of output",
        accept=lambda ended: len(ended.lines) >= 4,
    )
    assert shown.of("master-0") == shown.of("worker-0") == ["one", "two"]
    assert run_without_cluster(tmp_path, "history").lines[1].split()[5] == "Interrupted"
    assert (only_record(tmp_path) / "recording").exists()
    assert run_to_end(tmp_path, [job(prints("MASTER", "pass"), name="next")], "--network", network).code == 0
    results = [json.loads(path.read_text()) for path in tmp_path.rglob("history/*/result.json")]
    assert {result["name"]: result["result"] for result in results} == {"story": "Interrupted", "next": "Succeeded"}
    assert not list(tmp_path.rglob("history/*/recording"))


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_output_survives_the_timeout_and_every_run_is_kept(tmp_path: Path, network: str) -> None:
    worker = "import os, time; print('before', end=''); time.sleep(.2); os.kill(os.getpid(), 11)"
    master = "import time; print('waiting'); print('still', end=''); time.sleep(600)"
    timeout = ("--network", network, "--timeout", "8")
    ended = run_to_end(tmp_path, [job(prints("MASTER", master), prints("WORKER", worker))], *timeout)
    assert ended.code == 124, ended.err
    assert ended.of("master-0") == ["waiting", "still"]
    assert set(ended.of("worker-0")) == {"before"}
    assert run_without_cluster(tmp_path, "logs", "story", "--role", "master").of("master-0") == ["waiting", "still"]
    runs = run_without_cluster(tmp_path, "logs", "story", "--role", "worker", "--attempt", "0").of("worker-0")
    assert runs == ended.of("worker-0") and len(runs) >= 2
    result = json.loads((only_record(tmp_path) / "result.json").read_text())
    assert (result["result"], result["message"]) == ("Interrupted", "stopped by --timeout")


def test_the_history_says_why_a_job_could_not_run(tmp_path: Path) -> None:
    master = prints("MASTER", "")
    del master["template"]["spec"]["containers"][0]["command"]
    assert run_to_end(tmp_path, [job(master)], "--network", "shared").code == 3
    answer = run_without_cluster(tmp_path, "why", "story")
    assert answer.code == 0 and "it was cut short" in answer.out, answer.err
    assert "seen:  given up: master-0: ErrImageNeverPull" in answer.out


def test_logs_dir_gets_the_logs_and_is_never_cleaned_up(tmp_path: Path) -> None:
    own = tmp_path / "own" / "logs"
    arguments = ("--network", "shared", "--logs-dir", str(own))
    assert run_to_end(tmp_path, [job(prints("MASTER", "print('hello')"))], *arguments).code == 0
    (log,) = own.rglob("*.log")
    assert log.read_text() == "hello\n"
    assert log.relative_to(own).parts[0] == only_record(tmp_path).name
    assert log.relative_to(own).parts[1] == "master-0"
    assert not (only_record(tmp_path) / "logs").exists()
    assert run_without_cluster(tmp_path, "logs", "story").of("master-0") == ["hello"]
    deleted = run_without_cluster(tmp_path, "history", "--delete", "story")
    assert deleted.code == 0 and "--logs-dir" in deleted.err and log.exists()


@pytest.mark.parametrize(
    ("arguments", "variables", "problem"),
    [
        (("--logs-dir", "job.yaml"), {}, "--logs-dir: job.yaml is a file; name a folder"),
        (("--logs-dir", "/proc/none/logs"), {}, "--logs-dir: /proc/none/logs cannot be made: no such file"),
        ((), {"TRAINYARD_HISTORY_JOBS": "many"}, "TRAINYARD_HISTORY_JOBS: 'many' is not a number of jobs; write 200"),
        ((), {"TRAINYARD_HISTORY_SIZE": "1 GB"}, "TRAINYARD_HISTORY_SIZE: '1 GB' is not a size; write bytes"),
    ],
)
def test_invalid_history_options_start_nothing(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(prints("MASTER", "print('hello')"))))
    monkeypatch.chdir(tmp_path)
    for command in (("run", "job.yaml"), ("up",)):
        refused = run_without_cluster(tmp_path, *command, *arguments, **variables)
        assert (refused.code, refused.out) == (2, ""), refused.err
        assert refused.err.startswith(problem) and "Traceback" not in refused.err


@pytest.mark.parametrize("place", ["/proc/none", "a file"])
def test_a_history_that_cannot_be_written_is_reported_once_and_stops_no_job(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("mine")
    state = str(tmp_path / "taken") if place == "a file" else place
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(prints("MASTER", "print('hello')"))))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    ended = run_without_cluster(tmp_path, "run", "job.yaml", "--network", "shared", XDG_STATE_HOME=state)
    assert (ended.code, ended.of("master-0")) == (0, ["hello"]), ended.err
    (text,) = [line for line in ended.err.splitlines() if line.startswith("history: ")]
    assert "set XDG_STATE_HOME" in text
    assert (tmp_path / "taken").read_text() == "mine"


def test_no_history_where_the_user_wants_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_HISTORY_JOBS", "0")
    ended = run_to_end(tmp_path, [job(prints("MASTER", "print('hello')"))], "--network", "shared")
    assert ended.code == 0 and ended.of("master-0") == ["hello"]
    assert not (tmp_path / "state").exists()


def test_the_logs_of_all_attempts_of_a_train_job_are_kept(tmp_path: Path) -> None:
    """Trainer deletes the pods with the attempt, and the others at the end of the TTL, which is at once."""
    code = "import os, sys; attempt = int(os.environ['ATTEMPT']); print('attempt', attempt); sys.exit(1 - attempt)"
    field = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
    env = [{"name": "ATTEMPT", "valueFrom": field}]
    container = {"name": "node", "image": "example.invalid/x", "command": [*BUFFERED, code], "env": env}
    pod = {"restartPolicy": "Never", "containers": [container]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = {"metadata": {"labels": labels}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    job_set = {
        "failurePolicy": {"maxRestarts": 1},
        "ttlSecondsAfterFinished": 0,
        "replicatedJobs": [{"name": "node", "template": template}],
    }
    api = "trainer.kubeflow.org/v1alpha1"
    runtime = {
        "apiVersion": api,
        "kind": "TrainingRuntime",
        "metadata": {"name": "mine"},
        "spec": {"template": {"spec": job_set}},
    }
    reference = {"runtimeRef": {"kind": "TrainingRuntime", "name": "mine"}}
    train_job = {"apiVersion": api, "kind": "TrainJob", "metadata": {"name": "story"}, "spec": reference}
    ended = run_to_end(tmp_path, [runtime, train_job], "--network", "shared")
    assert ended.code == 0, ended.err
    for attempt in ("0", "1"):
        assert run_without_cluster(tmp_path, "logs", "story", "--attempt", attempt).of("node-0") == [
            f"attempt {attempt}"
        ]
    result = json.loads((only_record(tmp_path) / "result.json").read_text())
    assert (result["result"], result["restarts"]) == ("Succeeded", 1)
