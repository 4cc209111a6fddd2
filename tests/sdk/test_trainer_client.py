"""The Kubeflow SDK, unchanged, finds the runtimes that Trainer ships, submits and runs its jobs, without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.sdk.environments import REPOSITORY, run_story, sdk_python
from tests.support.torch_environments import torch_environment
from trainyard.app.local import LocalClusterOptions
from trainyard.testing import ClusterHandle, local_cluster

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterHandle]:
    with local_cluster(LocalClusterOptions(python=sys.executable)) as handle:
        yield handle


@pytest.mark.parametrize("story", ["runtimes", "submissions", "states"])
def test_the_trainer_client_works(story: str, cluster: ClusterHandle, tmp_path: Path) -> None:
    run_story(sdk_python("kubeflow"), "trainer_program.py", cluster.kubeconfig(tmp_path / "kubeconfig"), story)


def torch_cluster(network: str) -> AbstractContextManager[ClusterHandle]:
    return local_cluster(LocalClusterOptions(network=network, python=str(torch_environment())))


@pytest.mark.frameworks
@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_the_trainer_client_trains_a_function(network: str, tmp_path: Path) -> None:
    with torch_cluster(network) as handle:
        run_story(sdk_python("kubeflow"), "trainer_program.py", handle.kubeconfig(tmp_path / "kubeconfig"), "tour")


@pytest.mark.frameworks
def test_the_program_of_the_page_trains(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "trainjob.md").read_text(), re.S)
    program = tmp_path / "tour.py"
    program.write_text(source)
    with torch_cluster("auto") as handle:
        variables = {**os.environ, "KUBECONFIG": str(handle.kubeconfig(tmp_path / "kubeconfig"))}
        command = [sdk_python("kubeflow"), program]
        completed = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=150)
    assert (completed.returncode, completed.stdout) == (0, "rank 0 of 2\n"), completed.stderr
