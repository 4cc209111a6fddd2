"""The Training Operator's own examples, unchanged, run in the environments that the shipped catalogue names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.stories.runs import REPOSITORY, Run, run_to_end

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

EXAMPLES = REPOSITORY / "testdata" / "drop_in"


def run_of(example: str, folder: Path) -> Run:
    """The example has run, and its job has succeeded."""
    manifest = json.loads((EXAMPLES / f"{example}.json").read_text())["manifest"]
    (folder / "job.yaml").write_text(yaml.safe_dump(manifest))
    run = run_to_end(str(folder / "job.yaml"))
    assert run.code == 0, run.text
    return run


def numbers(run: Run, replica: str, pattern: str) -> list[float]:
    """The first group of the pattern, in each line of the replica that has it."""
    return [float(match[1]) for line in run.of(replica) if (match := re.search(pattern, line))]


@pytest.mark.parametrize("example", ["pytorchjob/example-simple", "pytorchjob/example-mnist-v1-pytorch-job-mnist-gloo"])
def test_ranks_of_torch_learn_the_digits_together(example: str, tmp_path: Path) -> None:
    run = run_of(example, tmp_path)
    for replica in ("master-0", "worker-0"):
        losses = numbers(run, replica, r"loss=([0-9.]+)")
        (accuracy,) = numbers(run, replica, r"accuracy=([0-9.]+)")
        assert losses[-1] < losses[0] / 1.7 and accuracy > 0.4, run.text  # one pass; guessing gives 0.1


def test_the_master_of_torch_gets_the_square_of_its_matrix_from_each_worker(tmp_path: Path) -> None:
    run = run_of("pytorchjob/example-smoke-dist-pytorch-job-sendrecv", tmp_path)
    ranks = numbers(run, "master-0", r"Result from worker (\d)")
    assert ranks == [1, 2, 3], run.text


def test_workers_of_tensorflow_learn_the_digits_each_for_itself(tmp_path: Path) -> None:
    run = run_of("tfjob/example-simple", tmp_path)
    for replica in ("worker-0", "worker-1"):
        assert numbers(run, replica, r"val_accuracy: ([0-9.]+)")[-1] > 0.9, run.text


def test_a_chief_and_workers_of_tensorflow_learn_through_a_parameter_server(tmp_path: Path) -> None:
    run = run_of("tfjob/example-dist-mnist-tf-job-mnist", tmp_path)
    (accuracy,) = numbers(run, "chief-0", r"held-out accuracy ([0-9.]+)")
    assert accuracy > 0.9, run.text


def test_processes_of_jax_add_the_ones_of_all_devices(tmp_path: Path) -> None:
    run = run_of("jaxjob/example-cpu-demo-demo", tmp_path)
    assert "[2.]" in run.of("worker-0") and "[2.]" in run.of("worker-1"), run.text


def test_the_launcher_of_paddle_checks_two_workers(tmp_path: Path) -> None:
    run = run_of("paddlejob/example-simple-cpu", tmp_path)
    for replica in ("worker-0", "worker-1"):
        assert "Distributed training completed" in run.of(replica), run.text
