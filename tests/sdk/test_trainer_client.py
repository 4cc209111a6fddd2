"""The Kubeflow SDK, unchanged, finds the runtimes that Trainer ships and submits its jobs, without a warning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.environments import run_story, sdk_python
from trainyard.testing import ClusterHandle, local_cluster

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterHandle]:
    with local_cluster() as handle:
        yield handle


@pytest.mark.parametrize("story", ["runtimes", "submissions"])
def test_the_trainer_client_works(story: str, cluster: ClusterHandle, tmp_path: Path) -> None:
    run_story(sdk_python("kubeflow"), "trainer_program.py", cluster.kubeconfig(tmp_path / "kubeconfig"), story)
