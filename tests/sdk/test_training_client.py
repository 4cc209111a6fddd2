"""The SDK of the Training Operator works unchanged: its stories beside a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sdk.environments import run_story, sdk_python
from trainyard.testing import ClusterHandle
from trainyard.testing.plugin import trainyard_cluster, trainyard_cluster_options

__all__ = ["trainyard_cluster", "trainyard_cluster_options"]

pytestmark = [pytest.mark.network, pytest.mark.slow]

STORIES = ("life_of_a_job", "followed_logs", "suspend_and_resume", "functions", "refusals", "queues")


@pytest.fixture(scope="module")
def python() -> Path:
    return sdk_python("kubeflow-training")


@pytest.mark.parametrize("story", [*STORIES, pytest.param("torchrun", marks=pytest.mark.frameworks)])
def test_the_training_client_works(story: str, trainyard_cluster: ClusterHandle, python: Path, tmp_path: Path) -> None:
    trainyard_cluster.run(trainyard_cluster.cluster.namespace("team"))
    kubeconfig = trainyard_cluster.kubeconfig(tmp_path / "kubeconfig")
    run_story(python, "client_program.py", kubeconfig, tmp_path, story)
