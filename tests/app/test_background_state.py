"""The state folder of a background cluster, without a daemon: locks are held by this test."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner

from trainyard.app.background.cluster_folders import BackgroundError, cluster_names, folder_error, state_folder
from trainyard.app.background.clusters import Background
from trainyard.app.background.folder import PREFIX
from trainyard.app.kubeconfig import KubeconfigError, find_cluster
from trainyard.app.watchdog import Stall
from trainyard.cli.doctor import _cluster as check_cluster
from trainyard.cli.down import down
from trainyard.cli.status import State, status
from trainyard.cli.up import up
from trainyard.daemon import _write_stall


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "trainyard"


def held(cluster: Background) -> int:
    """Hold the lock as a daemon does, with a process id that no process has."""
    cluster.folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(cluster.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, b"0\n")
    return lock


def test_a_cluster_is_up_exactly_while_its_lock_is_held(home: Path) -> None:
    cluster = Background()
    assert not cluster.daemon_alive and cluster.facts() is None
    lock = held(cluster)
    (cluster.folder / "cluster.json").write_text('{"network": "shared"}')
    assert cluster.daemon_alive and cluster.facts() == {"network": "shared"}
    os.close(lock)
    assert not cluster.daemon_alive and cluster.facts() is None


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_facts_that_are_half_written_are_none(home: Path, text: str) -> None:
    lock = held(Background())
    (home / "default" / "cluster.json").write_text(text)
    assert Background().facts() is None
    os.close(lock)


def test_stop_removes_what_a_killed_daemon_left(home: Path) -> None:
    cluster = Background()
    left = cluster.folder / f"{PREFIX}old"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    for name in ("cluster.json", "kubeconfig"):
        (cluster.folder / name).write_text("{}")
    messages: list[str] = []
    assert cluster.stop(1, messages.append) is False and cluster.stop(1, messages.append) is False
    assert not left.exists() and not (cluster.folder / "cluster.json").exists() and messages == []
    assert cluster.kubeconfig.exists(), "it is good again when the cluster is up again"
    assert cluster.folder.stat().st_mode & 0o777 == 0o700


def test_down_says_that_the_daemon_was_killed_and_what_is_kept(home: Path) -> None:
    folder = Background().folder
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text("{}")
    code, text = run_in_process(down)
    assert code == 0 and "The cluster is not up: its daemon was killed.\n" in text
    assert "Its jobs and files are kept. Go on: trainyard up\n" in text
    assert run_in_process(down) == (0, "The cluster is not up.\n")


def test_a_stall_is_shown_for_a_minute(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Background()
    lock = held(cluster)
    (cluster.folder / "cluster.json").write_text("{}")
    _write_stall(cluster.folder, Stall(13.25, "logs (api.py:1) > read_log (server.py:175)", 0.0))
    text = "in the last minute it answered nobody for 13.2 s, at logs (api.py:1) > read_log (server.py:175)"
    assert text in " ".join(run_in_process(status)[1].split())
    assert check_cluster().text == f"default: {text}"
    assert State(cluster, {}).data()["longestStall"]["seconds"] == 13.25
    written = time.time()
    monkeypatch.setattr(time, "time", lambda: written + 61)
    assert cluster.longest_stall() is None
    for damaged in ("", "[]", "{}", '{"time": [], "seconds": 1, "where": ""}'):
        (cluster.folder / "stall.json").write_text(damaged)
        assert cluster.longest_stall() is None
    os.close(lock)


def test_stopping_a_cluster_that_never_was_creates_no_folder(home: Path) -> None:
    assert Background().stop(1, print) is False
    assert not home.exists()


def test_the_error_of_a_state_folder_that_cannot_be_created_names_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(BackgroundError, match="set XDG_STATE_HOME") as refused:
        Background().start({}, print)
    assert refused.value.code == 3


@pytest.mark.parametrize("name", ["daemon.log", "daemon.log.1", "lock"])
def test_a_folder_in_the_place_of_a_file_is_named(home: Path, name: str) -> None:
    """The folder of the state is all right."""
    (home / "default" / name).mkdir(parents=True)
    other = {"daemon.log": "daemon.log.1", "daemon.log.1": "daemon.log"}.get(name)
    if other:
        (home / "default" / other).touch()
    with pytest.raises(BackgroundError) as refused:
        Background().start({}, print)
    place = home / "default" / name
    assert str(refused.value) == f"{place}: a folder is in the place of a file of the cluster; move it away"


def test_a_python_that_may_not_be_executed_is_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    python.touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(
        BackgroundError, match="permission denied; Trainyard runs the cluster with it; install"
    ) as refused:
        Background().start({}, print)
    assert str(refused.value).startswith(str(python)) and refused.value.code == 3


def test_a_process_without_descriptors_is_not_told_to_move_its_state(tmp_path: Path) -> None:
    error = folder_error(tmp_path, OSError(errno.EMFILE, "Too many open files"))
    assert str(error).startswith("too many open files; end other programs")


def test_a_state_folder_that_is_a_link_is_not_trusted(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (home / "default").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackgroundError, match="belongs to another user"):
        Background().start({}, print)


@pytest.mark.parametrize("name", ["", "No", "../x", "-a", "a" * 41, "a/b", "a."])
def test_an_invalid_cluster_name_is_refused(name: str) -> None:
    with pytest.raises(BackgroundError, match="--name") as refused:
        Background(name)
    assert refused.value.code == 2


def test_without_xdg_state_home_the_home_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "relative/folder"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert state_folder() == tmp_path / ".local" / "state" / "trainyard"


def test_without_a_home_folder_the_error_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(BackgroundError, match="set XDG_STATE_HOME"):
        state_folder()
    assert cluster_names() == []


def test_the_clusters_of_a_user_are_listed(home: Path) -> None:
    for name in ("default", "other", ".hidden"):
        (home / name).mkdir(parents=True)
    assert cluster_names() == ["default", "other"]
    assert (Background().word("up"), Background("other").word("up")) == ("trainyard up", "trainyard up --name other")


def run_in_process(command: Command, *line: str) -> tuple[int, str]:
    """Run a command about clusters in this process: its exit code, and its output."""
    result = CliRunner().invoke(command, line)
    return result.exit_code, result.output


def test_an_unknown_cluster_name_is_answered_with_the_existing_names(home: Path) -> None:
    assert run_in_process(down, "--name", "tset") == (0, "There is no cluster tset.\n")
    for name in ("prod", "test"):
        (home / name).mkdir(parents=True)
    assert run_in_process(down, "--name", "tset", "--delete") == (
        0,
        "There is no cluster tset; there are: prod, test.\n",
    )
    code, text = run_in_process(status, "--name", "tset")
    assert code == 3 and "not up: there is no cluster tset; there are: prod, test\n" in text
    assert run_in_process(down, "--name", "test") == (0, "The cluster test is not up.\n") and cluster_names() == [
        "prod",
        "test",
    ]


def test_up_does_not_change_a_running_cluster_whatever_its_options(home: Path) -> None:
    lock = held(Background())
    (home / "default" / "cluster.json").write_text('{"network": "shared"}')
    for line in ((), ("--network", "shared"), ("--network", "auto")):
        code, text = run_in_process(up, *line)
        assert code == 0 and "is up already" in text and "It stays" not in text
    code, text = run_in_process(up, "--network", "namespace", "--cache", "x")
    assert code == 0 and text.endswith("trainyard down, then trainyard up --network --cache ...\n")
    os.close(lock)


def test_commands_without_a_cluster_report_whether_there_was_one(home: Path) -> None:
    with pytest.raises(KubeconfigError, match="no cluster: start one with `trainyard up`"):
        find_cluster(env={})
    Background().state.mkdir(parents=True)
    with pytest.raises(KubeconfigError, match="the cluster default is not up: go on with `trainyard up`"):
        find_cluster(env={})
