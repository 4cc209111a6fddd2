"""`trainyard.testing`, as users import it: the example of docs/testing.md, failures, manifests, restarts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until
from trainyard.client import ApiError, NotFound
from trainyard.objects import name_of
from trainyard.objects.manifest import ManifestError
from trainyard.testing import ClusterHandle, JobFailed, elastic_job, local_cluster, tf_job
from trainyard.testing.plugin import trainyard_cluster, trainyard_cluster_options

__all__ = ["trainyard_cluster", "trainyard_cluster_options"]

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {rate: "0.1"}
"""


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    plugin, example, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "conftest.py").write_text(plugin)
    (tmp_path / "test_example.py").write_text(example)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    completed = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert completed.returncode == 0 and "1 passed" in completed.stdout, completed.stdout + completed.stderr


def test_a_job_that_fails_is_reported_with_its_conditions(trainyard_cluster: ClusterHandle) -> None:
    (job,) = trainyard_cluster.submit(tf_job("fails", ["sh", "-c", "echo bad data; exit 3"], backoffLimit=0))
    with pytest.raises(JobFailed, match=r"fails ended without Succeeded: .*Failed \("):
        trainyard_cluster.wait_for(job)
    assert trainyard_cluster.logs(job) == {"master-0": "bad data\n"}
    failed = trainyard_cluster.wait_for(job, "Failed")
    assert failed["kind"] == "TfJob" and failed["status"]["state"] == "Failed"


def test_a_job_that_runs_is_waited_for_and_deleted(trainyard_cluster: ClusterHandle) -> None:
    (job,) = trainyard_cluster.submit(elastic_job("runs", ["sh", "-c", "exec sleep 600"], workers=2))
    trainyard_cluster.wait_for(job, "Running")
    assert trainyard_cluster.pods(job).keys() == {"worker-0", "worker-1"}
    with pytest.raises(TimeoutError, match=r"runs is not Succeeded after 0\.1 seconds: .*Running"):
        trainyard_cluster.wait_for(job, timeout=0.1)
    trainyard_cluster.delete(job)
    with pytest.raises(NotFound):
        trainyard_cluster.get(job)


def test_the_log_of_a_container_that_has_not_started_is_empty(trainyard_cluster: ClusterHandle) -> None:
    waits = elastic_job("waits", ["sh", "-c", "echo never"], workers=1)
    spec = waits["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    spec["initContainers"] = [{**spec["containers"][0], "name": "waits", "command": ["sh", "-c", "exec sleep 600"]}]
    (job,) = trainyard_cluster.submit(waits)
    until(lambda: list(trainyard_cluster.pods(job).values()), "the pod is there")
    assert trainyard_cluster.logs(job) == {"worker-0": ""}
    with pytest.raises(ApiError, match="container nothing is not valid"):
        trainyard_cluster.logs(job, "nothing")
    trainyard_cluster.delete(job)


def test_manifests_are_text_files_or_objects(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(CONFIG)
    with local_cluster() as cluster:
        (stored,) = cluster.submit(tmp_path / "settings.yaml", namespace="team")
        assert (name_of(stored), stored["metadata"]["namespace"]) == ("settings", "team")
        assert cluster.get(stored)["data"] == {"rate": "0.1"}
        assert cluster.submit(CONFIG)[0]["metadata"]["namespace"] == "default"
        with pytest.raises(ManifestError):
            cluster.submit("no manifest")
        with pytest.raises(ValueError, match="unknown kind: apiVersion v1, kind Potato"):
            cluster.submit({"apiVersion": "v1", "kind": "Potato", "metadata": {"name": "a"}})
        with pytest.raises(ApiError, match="replicaSpecs"):
            cluster.submit(tf_job("wrong", ["true"], replicaSpecs="none"))
        assert cluster.kubeconfig().is_file()


def test_trainyard_testing_imports_without_pytest() -> None:
    code = "import sys, trainyard.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
