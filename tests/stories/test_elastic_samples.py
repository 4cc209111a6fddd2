"""Real torch and a real etcd: the samples of the README, torchrun's own arguments, an endpoint where nobody serves."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.stories.runs import EXAMPLES, REPOSITORY, Run, run_to_end
from tests.support.matrix import trains

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

SAMPLES = REPOSITORY / "config" / "samples"


@trains("torch", "ElasticJob", training="elastic", network="namespace")
def test_the_readmes_sample_trains_with_the_endpoint_as_a_service_address(tmp_path: Path) -> None:
    """As the README says, with its address: deploy etcd, put the address of its Service into rdzvEndpoint, submit."""
    etcd = list(yaml.safe_load_all((SAMPLES / "etcd.yaml").read_text()))
    etcd[0]["spec"]["clusterIP"] = "10.100.104.168"
    (job,) = yaml.safe_load_all((SAMPLES / "imagenet.yaml").read_text())
    job["spec"]["rdzvEndpoint"] = "10.100.104.168:2379"
    path = tmp_path / "sample.yaml"
    path.write_text(yaml.safe_dump_all([*etcd, job]))
    assert_trained(run_to_end(str(path), "--network", "namespace"))


@trains("torch", "ElasticJob", training="elastic", network="shared")
def test_the_readmes_other_sample_trains_in_the_shared_network() -> None:
    assert_trained(run_to_end(str(SAMPLES / "etcd.yaml"), str(SAMPLES / "classy_vision.yaml"), "--network", "shared"))


def assert_trained(run: Run) -> None:
    assert run.code == 0, run.text
    job = next(candidate for candidate in run.jobs if candidate["kind"] == "ElasticJob")
    assert job["status"]["replicaStatuses"] == {"Worker": {"succeeded": 2}}
    assert any("world 2" in line for line in run.of("worker-0")), run.text
    (last,) = [line for line in run.of("worker-0") if "done: rank" in line]
    assert float(last.rsplit(" ", 1)[1]) > 0.8, run.text


def test_torchruns_own_arguments_are_served(tmp_path: Path) -> None:
    """An image of today: its command is torchrun, and what the operator adds are arguments that it still knows."""
    documents = list(yaml.safe_load_all((EXAMPLES / "elastic_job.yaml").read_text()))
    worker = documents[-1]["spec"]["replicaSpecs"]["Worker"]
    documents[-1]["spec"] |= {"minReplicas": 2, "maxReplicas": 2}
    (container,) = worker["template"]["spec"]["containers"]
    program = REPOSITORY / "tests" / "stories" / "allreduce.py"
    container |= {
        "image": "pytorch/pytorch:2.1.0",
        "command": ["torchrun"],
        "args": ["--nproc-per-node=1", "--max-restarts=1", str(program)],
    }
    path = tmp_path / "torchrun.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    run = run_to_end(str(path))
    assert run.code == 0, run.text
    assert any("sum over 2: 3.0" in line for line in run.of("worker-0")), run.text


def test_an_endpoint_without_a_server_fails_the_job_with_the_reason(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "elastic_job.yaml").read_text()))
    pod = next(document for document in documents if document["kind"] == "Pod")
    pod["spec"]["containers"][0] |= {"image": "busybox", "command": ["sleep", "1000"]}
    path = tmp_path / "nobody.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    run = run_to_end(str(path))
    assert run.code == 1, run.text
    job = next(candidate for candidate in run.jobs if candidate["kind"] == "ElasticJob")
    (failed,) = [condition for condition in job["status"]["conditions"] if condition["type"] == "Failed"]
    assert "the rendezvous at etcd-service:2379 cannot be reached" in failed["message"], run.text
