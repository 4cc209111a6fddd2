"""`trainyard run SCRIPT` with the torch of PyPI. Debian's, which is older, is in test_script_training.py.

The environment is built once (tests/support/torch_environments.py). What `.ci/run` leaves out runs every night.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stories.test_script_training import (
    NETWORKS,
    assert_meets_again_after_a_kill,
    losses,
    run_command,
    trained_with,
)
from tests.support.matrix import trains
from tests.support.torch_environments import torch_environment

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

PYTHONS = pytest.mark.parametrize("python", ["", pytest.param("3.13", marks=pytest.mark.nightly)])
NAMESPACE_BY_NIGHT = pytest.mark.parametrize(
    "network", [pytest.param("namespace", marks=pytest.mark.nightly), "shared"]
)


@pytest.fixture
def python() -> str:
    """The version of Python, "" for ours."""
    return ""


@pytest.fixture
def environment(python: str) -> Path:
    return torch_environment("torch", python)


@PYTHONS
@NETWORKS
@trains("torch", "PyTorchJob", training="DDP", lock="torch")
def test_ranks_of_ddp_hold_the_same_weights(network: str, environment: Path, tmp_path: Path) -> None:
    lines = trained_with(environment, tmp_path, "torch_train.py", "--network", network, "--workers", "2")
    first, last = losses(lines, "master-0")
    assert last < first / 10
    assert ranks(lines) == [(0, 2), (1, 2)]
    assert (tmp_path / "model.pt").stat().st_size


@NAMESPACE_BY_NIGHT
@trains("torch", "PyTorchJob", training="--nproc", lock="torch")
def test_processes_of_one_worker_are_ranks(network: str, environment: Path, tmp_path: Path) -> None:
    lines = trained_with(environment, tmp_path, "torch_train.py", "--network", network, "--nproc", "2")
    assert {line.partition(" ")[0] for line in lines if "same weights" in line} == {"master-0"}
    assert ranks(lines) == [(0, 2), (1, 2)]


@PYTHONS
@pytest.mark.parametrize(
    ("network", "other"), [("namespace", "shared"), pytest.param("shared", "namespace", marks=pytest.mark.nightly)]
)
@trains("torch", "PyTorchJob", training="FSDP2 with checkpoints", lock="torch")
def test_more_ranks_of_fsdp_go_on_from_a_checkpoint(
    network: str, other: str, environment: Path, tmp_path: Path
) -> None:
    """With the same losses as the first run, which went on, too: the optimizer's moments are in the checkpoint."""
    lines = trained_with(environment, tmp_path, "torch_fsdp.py", "--network", network, "--workers", "2")
    assert shards(lines) == {(0, 2, 0, 64), (1, 2, 0, 64)}
    more = trained_with(environment, tmp_path, "torch_fsdp.py", "--network", other, "--nproc", "3")
    assert shards(more) == {(0, 3, 10, 48), (1, 3, 10, 48), (2, 3, 10, 32)}
    expected = losses_of_steps(lines)
    assert expected[19] < expected[0] / 5
    assert losses_of_steps(more) == pytest.approx({step: expected[step] for step in range(10, 20)}, rel=1e-3)


@pytest.mark.parametrize("network", ["namespace", pytest.param("shared", marks=pytest.mark.nightly)])
@trains("torch", "PyTorchJob", training="elastic", lock="torch")
def test_ranks_meet_again_when_one_is_killed(network: str, environment: Path, tmp_path: Path) -> None:
    """In the network shared all workers have one address, and it is worker 0 that has to hold the store."""
    arguments = ("--network", network, "--workers", "2", "--min", "1", "--max", "2")
    line = run_command(tmp_path, ("--python", str(environment)), "torch_elastic.py", *arguments)
    assert_meets_again_after_a_kill(line, tmp_path)


def ranks(lines: list[str]) -> list[tuple[int, int]]:
    """(rank, world size) of the ranks that hold the same weights as the others."""
    matches = (re.search(r"rank (\d) of (\d) same weights True", line) for line in lines)
    return sorted((int(match[1]), int(match[2])) for match in matches if match)


def shards(lines: list[str]) -> set[tuple[int, ...]]:
    """(rank, world size, first step, weights of the first layer that it holds)."""
    pattern = r"rank (\d) of (\d) from step (\d+) holds (\d+) of 128"
    return {tuple(map(int, match.groups())) for line in lines if (match := re.search(pattern, line))}


def losses_of_steps(lines: list[str]) -> dict[int, float]:
    pattern = r"step (\d+) loss (\S+)"
    return {int(match[1]): float(match[2]) for line in lines if (match := re.search(pattern, line))}
