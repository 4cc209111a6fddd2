"""The examples of the kubeflow.org/v1 kinds and of TrainJob train for real, in the environments of the catalogue."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import yaml

from tests.stories.runs import EXAMPLES, Run, process_of, processes_of, run_to_end
from tests.stories.users import UserCluster
from tests.support.matrix import trains
from trainyard.objects import is_condition_true

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

NETWORKS = pytest.mark.parametrize("network", ["namespace", "shared"])


def trained(example: str, network: str) -> Run:
    """The example has run in that network, and its job has succeeded without a restart."""
    run = run_to_end(str(EXAMPLES / example), "--network", network)
    assert run.code == 0, run.text
    (job,) = run.jobs
    conditions = job["status"]["conditions"]
    assert is_condition_true(conditions, "Succeeded"), conditions
    assert not is_condition_true(conditions, "Restarting"), conditions
    return run


def numbers(run: Run, replica: str, pattern: str) -> list[float]:
    """The first group of the pattern, in each line of the replica that has it."""
    return [float(match[1]) for line in run.of(replica) if (match := re.search(pattern, line))]


@NETWORKS
@trains("torch", "PyTorchJob", training="DDP")
def test_a_master_and_workers_of_torch_have_the_same_falling_losses(network: str) -> None:
    run = trained("pytorch_job.yaml", network)
    losses = [numbers(run, replica, r"loss ([0-9.]+)") for replica in ("master-0", "worker-0", "worker-1")]
    assert losses[0] == losses[1] == losses[2], run.text
    assert losses[0][-1] < losses[0][0] / 4, run.text


@NETWORKS
@trains("torch", "TrainJob", training="DDP")
def test_nodes_of_a_train_job_have_the_same_falling_losses(network: str) -> None:
    run = run_to_end(str(EXAMPLES / "trainjob.yaml"), "--network", network)
    assert run.code == 0, run.text
    losses = [numbers(run, replica, r"loss ([0-9.]+)") for replica in ("node-0", "node-1")]
    assert losses[0] == losses[1], run.text
    assert losses[0][-1] < losses[0][0] / 4, run.text
    progress = run.jobs[0]["status"]["trainerStatus"]
    assert progress["progressPercentage"] == 100
    metrics = {metric["name"]: float(metric["value"]) for metric in progress["metrics"]}
    assert metrics == {"step": 40, "loss": losses[0][-1]}


@NETWORKS
def test_all_torch_ranks_restart_when_a_worker_is_killed(network: str, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "pytorch_job.yaml").read_text()))
    for replica_spec in documents[-1]["spec"]["pytorchReplicaSpecs"].values():
        replica_spec["template"]["spec"]["containers"][0]["args"] = ["--delay=0.1"]
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump_all(documents))
    run = Run(str(manifest), "--network", network)
    run.read_until(r"worker-1 +\| .* step 20 ")
    os.kill(process_of("pytorch-train-worker-1", "train.py"), signal.SIGKILL)
    run.end()
    assert run.code == 0, run.text
    assert is_condition_true(run.jobs[0]["status"]["conditions"], "Succeeded"), run.text
    for replica in ("master-0", "worker-0", "worker-1"):
        losses = numbers(run, replica, r"step 0 loss ([0-9.]+)")
        assert len(losses) == 2 and losses[0] == losses[1], run.text
        assert sum("hold the same weights" in line for line in run.of(replica)) == 1, run.text


@NETWORKS
@trains("torch", "PyTorchJob", training="elastic")
def test_elastic_workers_of_torch_meet_at_worker_0(network: str) -> None:
    run = trained("pytorch_job_elastic.yaml", network)
    losses = [numbers(run, replica, r"world 2 rank \d loss ([0-9.]+)") for replica in ("worker-0", "worker-1")]
    assert losses[0] == losses[1], run.text
    assert losses[0][-1] < losses[0][0] / 2, run.text


def test_an_elastic_pytorch_job_scales_up_while_it_trains(user_cluster: UserCluster, tmp_path: Path) -> None:
    (job,) = yaml.safe_load_all((EXAMPLES / "pytorch_job_elastic.yaml").read_text())
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] += ["--delay=0.15"]
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    user_cluster.up("namespace")
    watched = user_cluster.submit(str(manifest))
    watched.read_until(r"step 20 .*world 2 ")
    user_cluster("scale", "pytorchjob/elastic-pytorch", "3")
    watched.read_until(r"worker-2 .*of 3: continues from rank \d's checkpoint, epoch \d+ step [1-9]")
    watched.read_until(r"world 3 rank")
    assert watched.end() == 0, "\n".join(watched.lines)


def test_elastic_workers_of_torch_go_on_when_worker_0_is_killed_with_the_store_of_their_rendezvous(
    tmp_path: Path,
) -> None:
    """Under OnFailure: the launcher of the other worker ends, too, and both are started again in place."""
    (job,) = yaml.safe_load_all((EXAMPLES / "pytorch_job_elastic.yaml").read_text())
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["args"] = [container["args"][0], "--epochs=2", "--batch-size=32", "--delay=0.1"]
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    run = Run(str(manifest), "--network", "namespace")
    run.read_until(r"worker-0 .*epoch 1 step \d+ .*world 2 ")
    os.kill(processes_of("elastic-pytorch-worker-0", "main.py")[0], signal.SIGKILL)  # the launcher; its process follows
    run.end()
    assert run.code == 0, run.text
    assert run.jobs[0]["status"]["restarts"] == 2, run.text
    for worker in ("worker-0", "worker-1"):
        assert any(
            re.search(r"continues from rank \d's checkpoint, epoch \d+ step [1-9]", line) for line in run.of(worker)
        )


@NETWORKS
@trains("tensorflow", "TFJob")
def test_a_chief_and_workers_of_tensorflow_find_each_other_by_tf_config(network: str) -> None:
    run = trained("tfjob.yaml", network)
    for replica in ("chief-0", "worker-0", "worker-1"):
        losses = numbers(run, replica, r"step +\d+ +loss ([0-9.]+)")
        assert losses[-1] < 0.5, run.text
    (accuracy,) = numbers(run, "chief-0", r"held-out accuracy ([0-9.]+), loss")
    assert accuracy >= 0.9, run.text


@NETWORKS
@trains("jax", "JAXJob")
def test_processes_of_jax_have_equal_losses_and_sum_over_all_of_them(network: str) -> None:
    run = trained("jax_job.yaml", network)
    losses = [numbers(run, replica, r"step \d+ loss ([0-9.]+)") for replica in ("worker-0", "worker-1")]
    assert losses[0] == losses[1], run.text
    assert losses[0][-1] < losses[0][0] / 4, run.text
    for replica in ("worker-0", "worker-1"):
        assert numbers(run, replica, r"the sum over all processes is (\d+)") == [3], run.text


@NETWORKS
@trains("xgboost", "XGBoostJob")
def test_ranks_of_xgboost_grow_the_same_trees(network: str) -> None:
    run = trained("xgboost_job.yaml", network)
    ranks = ("master-0", "worker-0", "worker-1")
    losses = [numbers(run, rank, r"round \d+ loss ([0-9.]+)") for rank in ranks]
    assert losses[0] == losses[1] == losses[2], run.text
    assert losses[0][-1] < losses[0][0] / 4, run.text
    models = [numbers(run, rank, r"all 3 ranks hold the same model, (\d+)") for rank in ranks]
    assert models[0] == models[1] == models[2] != [], run.text


@NETWORKS
@trains("paddle", "PaddleJob")
def test_workers_of_paddle_have_the_same_falling_losses(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # by it the launcher of PaddlePaddle for CPUs would believe in a GPU
    run = trained("paddle_job.yaml", network)
    losses = [numbers(run, replica, r"step \d+ loss ([0-9.]+)") for replica in ("worker-0", "worker-1")]
    assert losses[0] == losses[1], run.text
    assert losses[0][-1] < losses[0][0] / 4, run.text
    assert sum("all 2 ranks hold the same weights" in line for line in run.lines) == 2, run.text


def test_one_worker_of_paddle_trains_without_a_group(tmp_path: Path) -> None:
    (job,) = yaml.safe_load_all((EXAMPLES / "paddle_job.yaml").read_text())
    job["spec"]["paddleReplicaSpecs"]["Worker"] |= {"replicas": 1, "restartPolicy": "Never"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    run = run_to_end(str(tmp_path / "job.yaml"))
    assert run.code == 0 and "rank 0 of 1: all 1 ranks hold the same weights" in run.of("worker-0"), run.text


ROLES = """
import os
names = "TRAINING_ROLE", "PADDLE_TRAINERS_NUM", "PADDLE_PSERVERS_IP_PORT_LIST"
print(*(f"{name}={os.environ.get(name)}" for name in names))
"""


@NETWORKS
def test_launchers_of_paddle_with_parameter_servers_meet_at_the_master(network: str, tmp_path: Path) -> None:
    """The wheel of PaddlePaddle has no parameter servers to train with; its launcher gives out their roles."""
    (job,) = yaml.safe_load_all((EXAMPLES / "paddle_job.yaml").read_text())
    program = tmp_path / "roles.py"
    program.write_text(ROLES)
    sets = job["spec"]["paddleReplicaSpecs"]
    sets["Worker"]["template"]["spec"]["containers"][0] |= {
        "command": ["python", "-m", "paddle.distributed.launch", str(program)],
        "args": [],
        "workingDir": str(tmp_path),
    }
    sets["Master"] = {**sets["Worker"], "replicas": 1}
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    run = run_to_end(str(manifest), "--network", network)
    assert run.code == 0, run.text
    for replica in ("master-0", "worker-0", "worker-1"):
        (servers,) = {
            match[1] for line in run.of(replica) if (match := re.search(r"TRAINERS_NUM=3 .*LIST=(\S+)", line))
        }
        assert len(set(servers.split(","))) == 3, run.text


LIGHTGBM = """
import os, socket
members = [f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"]
for host in os.environ["WORKER_ADDRS"].split(","):
    members.append(host if ":" in host else f"{host}:{os.environ['WORKER_PORT']}")
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
server = socket.create_server(("", int(members[rank].rpartition(":")[2])))
print("listens at", members[rank], flush=True)
for member in members:
    host, _, port = member.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 30).close()
            break
        except OSError:
            pass
for _ in range(ranks):
    server.accept()
print("all", ranks, "machines answer", flush=True)
"""


@NETWORKS
def test_every_machine_of_lightgbm_is_reached_by_every_other(network: str, tmp_path: Path) -> None:
    """The list of machines, as LightGBM needs it, from MASTER_ADDR and WORKER_ADDRS of an XGBoostJob."""
    (job,) = yaml.safe_load_all((EXAMPLES / "xgboost_job.yaml").read_text())
    program = tmp_path / "machines.py"
    program.write_text(LIGHTGBM)
    for replica_spec in job["spec"]["xgbReplicaSpecs"].values():
        container = {"name": "xgboost", "image": "python", "command": ["python3", str(program)]}
        replica_spec["template"] = {"spec": {"containers": [container]}}
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    run = run_to_end(str(manifest), "--network", network)
    assert run.code == 0, run.text
    for replica in ("master-0", "worker-0", "worker-1"):
        assert any("all 3 machines answer" in line for line in run.of(replica)), run.text
