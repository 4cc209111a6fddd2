"""Output that cannot be written: one line and an exit code, for every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.cli.run_values import job, replicas
from trainyard.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "tf_job_dist_train.yaml")
COMMANDS = (
    ("--help",),
    ("get", "--help"),
    ("--version",),
    ("lint", EXAMPLE),
    ("plan", EXAMPLE),
    ("manifests",),
    ("status",),
    ("status", "-o", "json"),
)
TRAINYARD = (sys.executable, "-m", "trainyard")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(folder), "TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder)}


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_disk_ends_with_3_and_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*TRAINYARD, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
            check=False,
        )
    assert ended.returncode == 3 and ended.stderr.count("\n") == 1, ended.stderr
    assert "the output cannot be written: No space left on device" in ended.stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_closed_pipe_ends_with_141_and_no_message(arguments: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*TRAINYARD, *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.slow
def test_a_run_into_a_full_disk_ends_with_3_and_stops_its_pods(tmp_path: Path) -> None:
    long_job = job(replicas("MASTER", "print('up')\nimport time\ntime.sleep(600)"))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(long_job))

    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*TRAINYARD, "run", "--network", "shared", str(tmp_path / "job.yaml")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
            timeout=60,
            check=False,
        )
    assert ended.returncode == 3 and ended.stderr.count("the output cannot be written") == 1
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("line", [["run", "--workers", "several", "train.py"], ["statsu"], ["get", "--outpt", "json"]])
def test_an_error_of_the_command_line_fits_the_terminal(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("os.isatty", lambda descriptor: descriptor == 2)
    monkeypatch.setattr("os.get_terminal_size", lambda descriptor: os.terminal_size((100, 24)))
    ended = CliRunner().invoke(main, line)
    assert ended.exit_code == 2
    error = ended.output[ended.output.index("Error: ") :]
    assert max(map(len, error.splitlines())) <= 40


def test_stdout_that_was_closed_before_the_start_is_no_traceback(tmp_path: Path) -> None:
    line = [*TRAINYARD, "lint", EXAMPLE]
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *line], stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    assert "Traceback" not in ended.stderr and ended.returncode == 0, ended.stderr


def test_a_current_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "train.py").write_text("print()")
    line = [*TRAINYARD, "run", str(tmp_path / "train.py")]
    ended = subprocess.run(
        ["/bin/sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(tmp_path / "gone"), *line],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
    )
    assert ended.returncode == 2 and "the current folder has been deleted" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
