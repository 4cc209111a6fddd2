"""`trainyard run SCRIPT` with libraries on the torch of PyPI that start or find the other ranks themselves.

Each imports for ten seconds of CPU in every process: they train every night only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.test_script_training import NETWORKS, losses, trained_with
from tests.stories.test_torch_today import ranks
from tests.support.matrix import trains
from tests.support.torch_environments import torch_environment

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.nightly]

TWO_RANKS = [(0, 2), (1, 2)]


@pytest.fixture
def environment() -> Path:
    return torch_environment("torch-libraries")


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where torch compiles C++ for DeepSpeed: once, and not where a killed compiler leaves a lock."""
    return tmp_path_factory.mktemp("extensions")


@NETWORKS
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(f"torch_{name}.py", id=name, marks=trains(name, "PyTorchJob", lock="torch-libraries"))
        for name in ("lightning", "accelerate", "transformers")
    ],
)
def test_ranks_of_a_library_hold_the_same_weights(
    program: str, network: str, environment: Path, tmp_path: Path
) -> None:
    lines = trained_with(environment, tmp_path, program, "--network", network, "--workers", "2")
    first, last = losses(lines, "master-0")
    assert last < first / 5
    assert ranks(lines) == TWO_RANKS


@NETWORKS
@trains("lightning", "ElasticJob", training="without torchrun", lock="torch-libraries")
def test_lightning_finds_the_others_by_variables_alone(network: str, environment: Path, tmp_path: Path) -> None:
    """As a plain program: NODE_RANK is what Lightning reads, and RANK what torch.distributed does."""
    arguments = ("--network", network, "--framework", "plain", "--workers", "2")
    lines = trained_with(environment, tmp_path, "torch_lightning.py", *arguments)
    first, last = losses(lines, "worker-0")
    assert last < first / 5
    assert ranks(lines) == TWO_RANKS


@NETWORKS
@trains("deepspeed", "PyTorchJob", training="ZeRO 1", lock="torch-libraries")
def test_ranks_of_deepspeed_have_shards_of_the_optimizer(
    network: str, environment: Path, extensions: Path, tmp_path: Path
) -> None:
    arguments = ("--network", network, "--workers", "2", "--env", f"TORCH_EXTENSIONS_DIR={extensions}")
    lines = trained_with(environment, tmp_path, "torch_deepspeed.py", *arguments)
    first, last = losses(lines, "master-0")
    assert last < first / 5
    assert ranks(lines) == TWO_RANKS
    assert sum("stage 1" in line for line in lines) == 2
