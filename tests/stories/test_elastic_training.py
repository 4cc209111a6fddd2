"""Real torch and a real etcd: members come, go and are killed, and no trained step is lost."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import yaml

from tests.stories.runs import EXAMPLES, REPOSITORY, processes_of
from tests.stories.users import UserCluster
from tests.support.matrix import trains

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

SAMPLES = REPOSITORY / "config" / "samples"
STEP = re.compile(r"step (\d+) .*rank \d+ loss ([0-9.]+)")


def manifest(folder: Path, *arguments: str) -> str:
    """The example with other arguments of the program."""
    documents = list(yaml.safe_load_all((EXAMPLES / "elastic_job.yaml").read_text()))
    (container,) = documents[-1]["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["args"] = ["--nproc_per_node=1", "--rdzv_conf=last_call_timeout=3", "--monitor_interval=0.5", *arguments]
    documents[-1]["spec"]["minReplicas"] = 2  # whoever comes first waits for the second
    path = folder / "elastic.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


@trains("torch", "ElasticJob", training="elastic", network="namespace")
def test_two_members_become_three_and_two_again_one_is_killed_and_no_step_is_lost(
    user_cluster: UserCluster, tmp_path: Path
) -> None:
    user_cluster.up("namespace")
    program = ["/workspace/examples/imagenet/main.py", "--epochs=12", "--batch-size=32", "--delay=0.15"]
    watched = user_cluster.submit(manifest(tmp_path, *program))
    watched.read_until(r"rank 0 of 2: continues from the beginning")
    watched.read_until(r"step 20 ")
    user_cluster("scale", "elastic-train", "3")
    watched.read_until(r"worker-2 .*of 3: continues from rank \d's checkpoint, epoch \d+ step [1-9]")
    watched.read_until(r"world 3 rank")
    (agent, *_) = processes_of("elastic-train-worker-1", "torchelastic")
    os.kill(agent, signal.SIGKILL)
    watched.read_until(r"worker-1 .*of 3: continues from rank \d's checkpoint")  # the one that took its place
    watched.read_until(r"world 3 rank")
    user_cluster("scale", "elastic-train", "2")
    watched.read_until(r"of 2: continues from rank \d's checkpoint")
    assert watched.end() == 0, "\n".join(watched.lines)

    job = user_cluster.job("elasticjob", "elastic-train")
    assert job["status"]["replicaStatuses"] == {"Worker": {"succeeded": 2}}
    assert job["status"]["restarts"] == 1  # the one that was killed; neither who came nor who left
    for worker in ("worker-0", "worker-1"):
        assert_no_step_is_lost([line for line in watched.lines if line.startswith(worker)])
    first, *_, last = losses(watched.lines)
    assert last < first / 2, watched.lines


def losses(lines: list[str]) -> list[float]:
    return [float(match[2]) for line in lines if (match := STEP.search(line))]


def assert_no_step_is_lost(lines: list[str]) -> None:
    """After each new rendezvous training goes on from the last step that was told, or a later one."""
    last_step = 0
    for line in lines:
        if match := re.search(r"continues from rank \d's checkpoint, epoch \d+ step (\d+)", line):
            assert int(match[1]) >= last_step, "\n".join(lines)
        elif match := STEP.search(line):
            last_step = int(match[1])
    assert last_step > 100
