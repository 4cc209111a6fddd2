"""`trainyard up`, `status` and `down` with a real daemon: locks, and what is left after each kind of death."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.app.daemon_values import Home, at_home, kill, until_process_ended
from tests.support.loop_stalls import is_watched_daemon

pytestmark = pytest.mark.slow  # each starts a whole cluster in a process of its own

MARK = "import time\ntime.sleep(600)  # mark-{}"
NOISE = "import time\nwhile True: print('noise', flush=True); time.sleep(.05)  # mark-{}"


def job(folder: Path, mark: str, name: str = "mnist", code: str = MARK) -> str:
    container = {"name": "tensorflow", "image": "x", "command": [sys.executable, "-c", code.format(mark)]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 2, "restartPolicy": "OnFailure"}}
    spec = {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": template}]}
    obj = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(obj))
    return str(path)


def pods(mark: str) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"mark-{mark}".encode() in path.read_bytes():
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def test_up_run_down_leaves_no_process(tmp_path: Path) -> None:
    mark = f"{os.getpid()}-life"
    with at_home(tmp_path) as home:
        assert home.say("status")[0] == 3
        code, out, err = home.up()
        assert (code, out) == (0, f"export KUBECONFIG={home.state / 'kubeconfig'}\n"), err
        assert "The cluster is up (network: shared" in err and "trainyard down" in err
        assert home.state.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o077 for path in home.state.rglob("*") if not path.is_symlink()} == {0}
        again = home.up()
        assert again[:2] == (0, out) and "is up already, since" in again[2] and "It stays" not in again[2]
        assert (
            "--cache has no effect on a cluster that is up; to apply it: trainyard down, then"
            in home.up("--cache", "x")[2]
        )
        assert home.say("submit", job(tmp_path, mark))[:2] == (0, "tfjob/mnist created\n")
        home.until("1/1", "get")
        data = json.loads(home.say("status", "-o", "json")[1])
        assert data["state"] == "up" and data["pid"] == home.pid and data["network"] == "shared"
        assert data["jobs"] == {"total": 1, "byKind": {"TfJob": {"Running": 1}}}
        assert yaml.safe_load(home.say("status", "-o", "yaml")[1]).keys() == data.keys()
        code, out, _ = home.say("status")
        assert code == 0 and out.startswith("State        up") and "TfJob: 1 Running" in out and "daemon.log" in out
        assert len(pods(mark)) == 1
        pid = home.pid
        assert is_watched_daemon(pid), "its loop is not measured"
        code, out, err = home.say("down")
        assert (code, out) == (
            0,
            "The cluster is down.\n",
        ) and "It keeps its jobs: TfJob default/mnist (Running)" in err
        until_process_ended(pid)
        assert not pods(mark) and home.left() == set()
        assert home.say("down")[:2] == (0, "The cluster is not up.\n")
        assert home.say("get")[0] == 3


def test_the_daemon_has_a_session_and_files_of_its_own(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        ours, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        started = home.start("up", "--network", "shared", close_fds=False)
        _out, err = started.communicate(timeout=60)
        os.close(theirs)
        assert started.returncode == 0, err
        assert os.read(ours, 1) == b"", "the daemon holds a pipe of its parent"
        os.close(ours)
        pid = home.pid
        assert os.getsid(pid) == pid != os.getsid(0)
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)] == [
            "/dev/null",
            *[str(home.state / "daemon.log")] * 2,
        ]
        os.kill(pid, signal.SIGHUP)
        assert home.say("status")[0] == 0


def test_a_killed_daemon_leaves_no_process_and_its_jobs_go_on_with_the_next_up(tmp_path: Path) -> None:
    mark = f"{os.getpid()}-killed"
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        assert home.say("submit", job(tmp_path, mark))[0] == 0
        home.until("1/1", "get")
        kill(home.pid)
        for pid in pods(mark):
            until_process_ended(pid)
        assert "its daemon was killed" in home.say("status")[1]
        assert json.loads(home.say("status", "-o", "json")[1])["state"] == "killed"
        code, out, err = home.say("get", "--kubeconfig", str(home.state / "kubeconfig"))
        assert (code, out) == (3, "") and "the daemon of the cluster default was killed; its jobs" in err
        assert "go on with `trainyard up`" in err
        code, out, err = home.say("why", "mnist")  # answered from the history
        assert code == 0 and "cut short" in out and "was killed; its jobs" in err and "go on with `trainyard up`" in err
        assert home.left() - {"stall.json"} == {"cluster.json"}  # the watchdog's, where the machine was busy
        code, _, err = home.up()
        assert code == 0 and "The cluster is up, where it was stopped (" in err
        home.until("mnist", "get")


def test_a_daemon_that_does_not_end_is_made_to(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        pid = home.pid
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        code, out, err = home.say("down", "--grace", "1")
        assert (code, out) == (0, "The cluster is down.\n") and "not ended within 1 seconds" in err
        until_process_ended(pid)
        assert home.left() == set() and time.monotonic() - began < 50


def test_of_two_concurrent_ups_one_starts_the_cluster_and_both_succeed(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        both = [home.start("up", "--network", "shared") for _ in range(3)]
        ended = [(*process.communicate(timeout=60), process.returncode) for process in both]
        assert [code for _, _, code in ended] == [0, 0, 0], ended
        assert len({out for out, _, _ in ended}) == 1
        assert sum("is up already" in err for _, err, _ in ended) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, number: int) -> None:
    """The daemon blocks while it reads a catalogue: a pipe without a writer."""
    pipe = tmp_path / "images.yaml"
    os.mkfifo(pipe)
    with at_home(tmp_path) as home:
        started = home.start("up", "--network", "shared", "--images", str(pipe))
        daemon = home.locked_by()
        started.send_signal(number)
        started.communicate(timeout=60)
        if number == signal.SIGINT:
            assert started.returncode == 130
        else:
            with pipe.open("w"):  # it goes on, and finds that nobody wants it any more
                pass
        until_process_ended(daemon)
        assert home.left() == set()
        assert home.say("down")[0] == 0 and home.left() == set()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--images", "missing.yaml"), 2, "missing.yaml"),
        (("--mount", "data=/nonexistent"), 2, "/nonexistent"),
        (("--controller-config-file", "missing.yaml"), 2, "missing.yaml"),
        (("--name", "No"), 2, "--name"),
    ],
)
def test_an_invalid_option_is_named_and_nothing_is_left(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    home = Home(tmp_path)
    exit_code, out, err = home.up(*arguments)
    assert (exit_code, out) == (code, "") and message in err and "Traceback" not in err
    assert home.left() == set() and home.say("status")[0] == 3


def test_a_place_that_cannot_be_written_ends_with_3(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.env["XDG_STATE_HOME"] = "/proc/none"
    code, out, err = home.up()
    assert (code, out) == (3, "") and "set XDG_STATE_HOME" in err and "Traceback" not in err


def test_two_clusters_run_side_by_side(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        try:
            assert home.up()[0] == 0
            code, out, _ = home.up("--name", "second")
            assert code == 0 and "trainyard/second/kubeconfig" in out
            assert home.say("submit", job(tmp_path, f"{os.getpid()}-two"))[0] == 0
            home.env["KUBECONFIG"] = out.strip().partition("=")[2]
            assert "no jobs" in home.say("get")[2]
        finally:
            assert home.say("down", "--name", "second")[0] == 0
        code, _, err = home.say("get")
        assert code == 3 and "trainyard up --name second" in err, "the cluster that $KUBECONFIG names is down"
        del home.env["KUBECONFIG"]
        code, out, _ = home.say("status")
        first, second = out.splitlines()[1:]
        assert code == 0 and first.split()[:2] == ["default", "up"] and second.split()[:3] == ["second", "not", "up"]


def test_a_closed_pipe_of_the_reader_is_no_error(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        assert home.say("submit", job(tmp_path, f"{os.getpid()}-pipe", code=NOISE))[0] == 0
        home.until("1/1", "get")
        for line in (("get",), ("logs", "-f", "mnist"), ("describe", "mnist")):
            started = home.start(*line)
            assert started.stdout and started.stderr
            started.stdout.close()
            assert started.wait(30) == 141 and started.stderr.read() == "", line


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        watching = home.start("get", "-w")
        waiting = home.start("submit", job(tmp_path, f"{os.getpid()}-stop"), "--wait")
        try:
            assert waiting.stdout and waiting.stdout.readline() == "tfjob/mnist created\n"
            assert watching.stdout
            for line in watching.stdout:
                if line.split()[2:4] == ["Running", "1/1"]:
                    break
            for started, message in ((waiting, "interrupted; the jobs go on: tfjob/mnist\n"), (watching, "")):
                started.send_signal(signal.SIGINT)
                out, err = started.communicate(timeout=30)
                assert (started.returncode, err) == (130, message), (started.args, out)
        finally:
            for started in (waiting, watching):
                started.kill()
                started.wait()


def test_the_options_of_up_are_kept_until_others_are_given(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with at_home(tmp_path) as home:
        assert home.say("up", "--network", "shared", "--logs-dir", str(logs))[0] == 0
        assert home.say("down")[0] == 0
        code, _, err = home.say("up")
        assert code == 0 and "network: shared" in err and "As before: --network, --logs-dir." in err
        assert home.say("submit", job(tmp_path, f"{os.getpid()}-kept", code="print('kept')"), "--wait")[0] == 0
        home.until("Succeeded", "get")
        assert "kept" in "".join(path.read_text() for path in logs.rglob("*.log"))
        assert home.say("down")[0] == 0
        other = tmp_path / "other"
        err = home.say("up", "--logs-dir", str(other))[2]
        assert "As before: --network." in err
        assert home.say("down")[0] == 0
        assert json.loads((home.state / "options.json").read_text()) == {"network": "shared", "logs_dir": str(other)}
        (home.state / "options.json").write_text("{")
        code, _, err = home.say("up")
        assert code == 3 and "options.json cannot be read: remove it, and give the options again" in err
        assert "As before" not in home.say("up", "--fresh", "--network", "shared")[2]
        assert home.say("down")[0] == 0
        assert json.loads((home.state / "options.json").read_text()) == {"network": "shared"}
