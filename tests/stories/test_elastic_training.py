"""Real torch and a real etcd: members come, go and are killed, and no trained step is lost."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import yaml
from persons import Yard
from runs import EXAMPLES, REPOSITORY, Run, processes_of, ran

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

SAMPLES = REPOSITORY / "config" / "samples"
STEP = re.compile(r"step (\d+) .*rank \d+ loss ([0-9.]+)")


def manifest(folder: Path, *arguments: str) -> str:
    """The example with other arguments of the program."""
    documents = list(yaml.safe_load_all((EXAMPLES / "elastic_job.yaml").read_text()))
    (container,) = documents[-1]["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["args"] = ["--nproc_per_node=1", "--rdzv_conf=last_call_timeout=3", "--monitor_interval=0.5", *arguments]
    path = folder / "elastic.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_two_members_become_three_and_two_again_one_is_killed_and_no_step_is_lost(yard: Yard, tmp_path: Path) -> None:
    yard.up("namespace")
    program = ["/workspace/examples/imagenet/main.py", "--epochs=12", "--batch-size=32", "--delay=0.15"]
    watched = yard.submit(manifest(tmp_path, *program))
    watched.until(r"rank 0 of 2: going on from the beginning")
    watched.until(r"step 20 ")
    yard("scale", "elastic-train", "3")
    watched.until(r"worker-2 .*of 3: going on from rank \d's checkpoint, epoch \d+ step [1-9]")
    watched.until(r"world 3 rank")
    (agent, *_) = processes_of("elastic-train-worker-1", "torchelastic")
    os.kill(agent, signal.SIGKILL)
    watched.until(r"worker-1 .*of 3: going on from rank \d's checkpoint")  # the one that took its place
    watched.until(r"world 3 rank")
    yard("scale", "elastic-train", "2")
    watched.until(r"of 2: going on from rank \d's checkpoint")
    assert watched.end() == 0, "\n".join(watched.lines)

    job = yard.job("elasticjob", "elastic-train")
    assert job["status"]["replicaStatuses"] == {"Worker": {"succeeded": 2}}
    assert job["status"]["restarts"] == 1  # the one that was killed; neither who came nor who left
    for worker in ("worker-0", "worker-1"):
        assert_no_step_is_lost([line for line in watched.lines if line.startswith(worker)])
    first, *_, last = losses(watched.lines)
    assert last < first / 2, watched.lines


def losses(lines: list[str]) -> list[float]:
    return [float(found[2]) for line in lines if (found := STEP.search(line))]


def assert_no_step_is_lost(lines: list[str]) -> None:
    """After each new rendezvous training goes on from the last step that was told, or a later one."""
    told = 0
    for line in lines:
        if found := re.search(r"going on from rank \d's checkpoint, epoch \d+ step (\d+)", line):
            assert int(found[1]) >= told, "\n".join(lines)
        elif found := STEP.search(line):
            told = int(found[1])
    assert told > 100


def test_the_readmes_sample_trains_with_the_endpoint_as_a_service_address(tmp_path: Path) -> None:
    """As the README says, with its address: deploy etcd, put the address of its Service into rdzvEndpoint, submit."""
    etcd = list(yaml.safe_load_all((SAMPLES / "etcd.yaml").read_text()))
    etcd[0]["spec"]["clusterIP"] = "10.100.104.168"
    (job,) = yaml.safe_load_all((SAMPLES / "imagenet.yaml").read_text())
    job["spec"]["rdzvEndpoint"] = "10.100.104.168:2379"
    path = tmp_path / "sample.yaml"
    path.write_text(yaml.safe_dump_all([*etcd, job]))
    trained(ran(str(path), "--network", "namespace"))


def test_the_readmes_other_sample_trains_in_the_shared_network() -> None:
    trained(ran(str(SAMPLES / "etcd.yaml"), str(SAMPLES / "classy_vision.yaml"), "--network", "shared"))


def trained(run: Run) -> None:
    assert run.code == 0, run.text
    job = next(one for one in run.jobs if one["kind"] == "ElasticJob")
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
    run = ran(str(path))
    assert run.code == 0, run.text
    assert any("sum over 2: 3.0" in line for line in run.of("worker-0")), run.text


def test_an_endpoint_where_nobody_serves_fails_the_job_and_says_so(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "elastic_job.yaml").read_text()))
    pod = next(one for one in documents if one["kind"] == "Pod")
    pod["spec"]["containers"][0] |= {"image": "busybox", "command": ["sleep", "1000"]}
    path = tmp_path / "nobody.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    run = ran(str(path))
    assert run.code == 1, run.text
    job = next(one for one in run.jobs if one["kind"] == "ElasticJob")
    (failed,) = [one for one in job["status"]["conditions"] if one["type"] == "Failed"]
    assert "the rendezvous at etcd-service:2379 cannot be reached" in failed["message"], run.text
