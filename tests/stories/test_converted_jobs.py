"""What `trainyard convert` writes trains for real: the examples of TfJob and ElasticJob as TFJob and PyTorchJob."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.runs import EXAMPLES, Run, run_to_end
from trainyard.objects import is_condition_true

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


def trained(example: str, folder: Path, *replacements: tuple[str, str]) -> Run:
    """The converted example has run, and its job has succeeded."""
    text = (EXAMPLES / example).read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    (folder / "old.yaml").write_text(text)
    line = [sys.executable, "-m", "trainyard", "convert", "old.yaml", "-o", "new.yaml"]
    converted = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert converted.returncode == 0, converted.stderr
    run = run_to_end(str(folder / "new.yaml"), "--network", "namespace")
    assert run.code == 0, run.text
    (job,) = run.jobs
    assert job["apiVersion"] == "kubeflow.org/v1"
    assert is_condition_true(job["status"]["conditions"], "Succeeded"), run.text
    return run


def numbers(run: Run, replica: str, pattern: str) -> list[float]:
    """The first group of the pattern, in each line of the replica that has it."""
    return [float(match[1]) for line in run.of(replica) if (match := re.search(pattern, line))]


def test_a_tf_job_with_default_parameter_servers(tmp_path: Path) -> None:
    run = trained("tf_job_dist_train.yaml", tmp_path)
    assert any(re.search(r"TensorFlow server: grpc://", line) for line in run.of("ps-0")), run.text
    (accuracy,) = numbers(run, "master-0", r"held-out accuracy ([0-9.]+), loss")
    assert accuracy >= 0.9, run.text


def test_an_elastic_job_with_an_etcd(tmp_path: Path) -> None:
    run = trained("elastic_job.yaml", tmp_path, ("--epochs=10", "--epochs=3"), ("--delay=0.1", "--delay=0"))
    for replica in ("worker-0", "worker-1"):
        losses = numbers(run, replica, r"world 2 .*loss ([0-9.]+)")
        assert losses[-1] < losses[0] / 2, run.text


def test_a_chainer_job_of_a_master_and_a_worker_set(tmp_path: Path) -> None:
    run = trained("chainerjob-mn.yaml", tmp_path)
    losses = numbers(run, "launcher-0", r"^\s*\d+ +([0-9.]+) +[0-9.]+ +[0-9.]+ +[0-9.]+")
    assert losses[-1] < losses[0], run.text
