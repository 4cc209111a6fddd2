"""Completion as a real shell asks for it: bash sources what `trainyard completion bash` prints, and presses Tab."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import SLEEP, TrainyardCommands, commands_of_cluster, role, run_in_process, tfjob

# What bash does at a Tab: it sets these variables and calls the function that `complete` has named.
PRESS_TAB = """
source "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_trainyard_completion trainyard
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(folder: Path, *line: str, **variables: str) -> list[str]:
    """The candidates for the last word of the line."""
    program = folder / "trainyard"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainyard "$@"\n')
    program.chmod(0o755)
    script = folder / "script"
    script.write_text(run_in_process("completion", "bash").out)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}
    argv = ["bash", "-c", PRESS_TAB, "bash", str(script), "trainyard", *line]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split()


def test_commands_and_options_are_completed(tmp_path: Path) -> None:
    assert completed(tmp_path, "de") == ["describe", "delete"]
    assert "--network" in completed(tmp_path, "run", "--net")


async def test_names_of_jobs_are_completed(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(tfjob(role("MASTER", SLEEP), name="mnist-a"), tfjob(role("MASTER", SLEEP), name="other"))
        assert await names(trainyard, tmp_path, "logs", "mn") == ["mnist-a"]
        assert await names(trainyard, tmp_path, "delete", "") == ["mnist-a", "other"]
        assert await names(trainyard, tmp_path, "why", "tfjob/o") == ["tfjob/other"]


async def names(trainyard: TrainyardCommands, folder: Path, *line: str) -> list[str]:
    variables = {"KUBECONFIG": str(trainyard.kubeconfig), "XDG_STATE_HOME": str(folder / "no-history")}
    return sorted(await asyncio.to_thread(completed, folder, *line, **variables))


def record_of(state: Path, name: str, kind: str, namespace: str = "default") -> None:
    """A job in the history below the state folder of a user."""
    folder = state / "trainyard/history" / f"20260101T000000Z-{namespace}-{name}-{abs(hash(name)):08x}"
    folder.mkdir(parents=True)
    fields = {
        "name": name,
        "kind": kind,
        "namespace": namespace,
        "result": "Succeeded",
        "started": "2026-01-01T00:00:00Z",
    }
    (folder / "result.json").write_text(json.dumps(fields))


def test_without_a_cluster_completion_lists_the_jobs_of_the_history(tmp_path: Path) -> None:
    state = tmp_path / "state"
    record_of(state, "mnist", "TfJob")
    record_of(state, "mnist-b", "ElasticJob", "team")
    variables = {"KUBECONFIG": str(tmp_path / "none"), "XDG_STATE_HOME": str(state)}
    for command in ("logs", "why", "history"):
        assert sorted(completed(tmp_path, command, "mn", **variables)) == ["mnist", "mnist-b"], command
    assert completed(tmp_path, "why", "-n", "team", "", **variables) == ["mnist-b"]
    assert completed(tmp_path, "logs", "tfjob/", **variables) == ["tfjob/mnist"]
    assert completed(tmp_path, "delete", "mn", **variables) == []


def test_without_a_cluster_completion_prints_nothing(tmp_path: Path) -> None:
    assert completed(tmp_path, "logs", "mn", KUBECONFIG=str(tmp_path / "none"), XDG_STATE_HOME=str(tmp_path)) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    assert "_TRAINYARD_COMPLETE" in run_in_process("completion", shell).out
