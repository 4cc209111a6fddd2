"""The SDK of the Training Operator works unchanged: its stories beside a local cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainyard.testing import ClusterHandle
from trainyard.testing.plugin import trainyard_cluster, trainyard_cluster_options

__all__ = ["trainyard_cluster", "trainyard_cluster_options"]

pytestmark = [pytest.mark.network, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[2]
SDK = Path(".venv", "kubeflow-training")
PROGRAM = Path(__file__).with_name("client_program.py")
STORIES = ("life_of_a_job", "followed_logs", "suspend_and_resume", "functions", "refusals", "queues")


@pytest.fixture(scope="module")
def sdk_python() -> Path:
    """The interpreter of the SDK's environment, which make installs if it is not there."""
    subprocess.run(["make", "-s", str(SDK / "ready")], cwd=REPOSITORY, check=True)
    return REPOSITORY / SDK / "bin" / "python"


@pytest.mark.parametrize("story", [*STORIES, pytest.param("torchrun", marks=pytest.mark.frameworks)])
def test_the_training_client_works(
    story: str, trainyard_cluster: ClusterHandle, sdk_python: Path, tmp_path: Path
) -> None:
    trainyard_cluster.run(trainyard_cluster.cluster.namespace("team"))
    kubeconfig = trainyard_cluster.kubeconfig(tmp_path / "kubeconfig")
    command = [str(sdk_python), str(PROGRAM), str(kubeconfig), str(tmp_path), story]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert completed.returncode == 0, completed.stdout + completed.stderr
