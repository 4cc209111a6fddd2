"""What our TensorFlow programs say before they import anything heavy."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys

import pytest

from trainyard.node.images.catalogue import PROGRAMS


def run(program: str, config: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TF_CONFIG": config}
    argv = [sys.executable, str(PROGRAMS / program), *arguments]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("program", ["tf_sample.py", "tf_train.py"])
@pytest.mark.parametrize(
    "config",
    [
        "no json",
        "[]",
        "{}",
        '{"cluster": {"ps": ["a:1"]}}',
        '{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}}',
        '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": "x"}}',
    ],
)
def test_an_invalid_tf_config_is_reported_in_one_sentence(program: str, config: str) -> None:
    done = run(program, config)
    assert done.returncode == 1
    assert done.stderr.startswith("TF_CONFIG does not name this task") and done.stderr.count("\n") == 1


def test_workers_without_a_parameter_server_are_reported_at_once() -> None:
    cluster = {"master": ["a:1"], "worker": ["b:1"]}
    done = run("tf_train.py", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    assert done.returncode == 1 and "give the job a PS" in done.stderr


@pytest.mark.parametrize("program", ["tf_sample.py", "tf_train.py"])
def test_help_needs_no_tensorflow(program: str) -> None:
    done = run(program, "", "--help")
    assert done.returncode == 0 and "--log_dir" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nproc-per-node=2", "train.py", "--batch-size=3"], ["--nproc_per_node=2", "train.py", "--batch-size=3"]),
        (["--nproc-per-node", "2", "train.py"], ["--nproc_per_node", "2", "train.py"]),
        (["--rdzv_id=a", "-m", "train", "--max-restarts"], ["--rdzv_id=a", "-m", "train", "--max-restarts"]),
        (["--not-known=1", "train.py"], ["--not-known=1", "train.py"]),
    ],
)
def test_torchruns_options_are_accepted_in_both_spellings(arguments: list[str], expected: list[str]) -> None:
    module = runpy.run_path(str(PROGRAMS / "spelling.py"))
    assert module["spelled"](arguments, {"--nproc_per_node": True, "--rdzv_id": True, "-m": False}) == expected
