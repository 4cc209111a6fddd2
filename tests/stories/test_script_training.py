"""`trainyard run SCRIPT` with every framework: the programs are a user's own, and know nothing of Trainyard."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.stories.runs import processes_of
from tests.support.matrix import IMAGES, trains
from trainyard.node.images.catalogue import SHIPPED

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

SCRIPTS = Path(__file__).with_name("scripts")
PATIENCE = 600
NAMESPACE = ("--network", "namespace")
NETWORKS = pytest.mark.parametrize("network", ["namespace", "shared"])


def environment_of(framework: str, folder: Path) -> Path:
    """A catalogue that gives `trainyard/local` the environment of a shipped image: it is built once for all tests."""
    entries = yaml.safe_load(SHIPPED.read_text())["images"]
    entry = next(candidate for candidate in entries if IMAGES[framework][0] in candidate["match"])
    for provider in entry["providers"]:
        if isinstance(provider.get("requirements"), str):
            provider["requirements"] = str(SHIPPED.with_name(provider["requirements"]))
    own = {"match": "trainyard/local", "providers": entry["providers"], "workdir": "{working-directory}"}
    path = folder / "images.yaml"
    path.write_text(yaml.safe_dump({"images": [own]}))
    return path


def command(folder: Path, framework: str, program: str, *arguments: str) -> list[str]:
    return run_command(folder, ("--images", str(environment_of(framework, folder))), program, *arguments)


def run_command(folder: Path, environment: tuple[str, str], program: str, *arguments: str) -> list[str]:
    """`trainyard run` of a copy of the script, with the option that names its environment."""
    shutil.copy(SCRIPTS / program, folder)
    return [sys.executable, "-m", "trainyard", "run", *environment, *arguments, program]


def trained(folder: Path, framework: str, program: str, *arguments: str) -> list[str]:
    return lines_of(command(folder, framework, program, *arguments), folder, framework)


def trained_with(environment: Path, folder: Path, program: str, *arguments: str) -> list[str]:
    """What a script of torch prints that runs with this virtual environment, and succeeds."""
    return lines_of(run_command(folder, ("--python", str(environment)), program, *arguments), folder, "torch")


def lines_of(line: list[str], folder: Path, framework: str) -> list[str]:
    done = subprocess.run(line, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    guessed = f"{line[-1]}: runs as {framework}: {line[-1]}:"
    decided_by = "torchrun: runs as torch: its launcher" if "--" in line else guessed
    assert "--framework" in line or decided_by in done.stderr
    return done.stdout.splitlines()


def losses(lines: list[str], replica: str) -> tuple[float, float]:
    losses = [float(match[1]) for line in lines if (match := re.match(rf"{replica} .*step \d+ loss (\S+)", line))]
    return losses[0], losses[-1]


@pytest.mark.parametrize(("network", "launcher"), [("namespace", ()), ("shared", ("--", "torchrun"))])
@trains("torch", "PyTorchJob", training="DDP")
def test_torch_meets_without_an_etcd_and_keeps_its_model(network: str, launcher: tuple[str], tmp_path: Path) -> None:
    lines = trained(tmp_path, "torch", "torch_train.py", "--network", network, "--workers", "2", *launcher)
    first, last = losses(lines, "master-0")
    assert last < first / 10
    assert sum("same weights True" in line for line in lines) == 2
    assert (tmp_path / "model.pt").stat().st_size


@trains("torch", "PyTorchJob", training="elastic", network="namespace")
def test_a_killed_elastic_torch_worker_restarts(tmp_path: Path) -> None:
    arguments = ("--network", "namespace", "--workers", "2", "--min", "1", "--max", "2")
    assert_meets_again_after_a_kill(command(tmp_path, "torch", "torch_elastic.py", *arguments), tmp_path)


def assert_meets_again_after_a_kill(line: list[str], folder: Path) -> None:
    """Run torch_elastic.py with two workers, and kill the launcher of the second when both have met."""
    name = f"elastic-{os.getpid()}"  # other tests run on this machine, too
    pipe = subprocess.PIPE
    line = [*line[:-1], "--name", name, "--timeout", str(PATIENCE), line[-1]]
    with subprocess.Popen(line, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True) as started:
        assert started.stdout
        lines: list[str] = []
        for printed in started.stdout:
            lines.append(printed)
            if "of 2 restart 0" in printed and sum("of 2 restart 0" in line_ for line_ in lines) == 2:
                (launcher, *_) = processes_of(f"{name}-worker-1", "torch.distributed.run")
                os.kill(launcher, signal.SIGKILL)
    assert started.returncode == 0, "".join(lines)
    assert any("of 2 restart 1" in line_ for line_ in lines)
    assert {rank for rank in "01" if any(f"done rank {rank} of 2" in line_ for line_ in lines)} == {"0", "1"}


@trains("tensorflow", "TFJob", network="namespace")
def test_tensorflow_trains_in_step_and_the_master_is_the_chief(tmp_path: Path) -> None:
    lines = trained(tmp_path, "tensorflow", "tf_train.py", *NAMESPACE, "--workers", "2")
    first, last = losses(lines, "worker-0")
    assert last < first / 10
    assert any("chief 0 of 2" in line for line in lines)
    assert (tmp_path / "model" / "weights.index").exists()


@trains("tensorflow", "TFJob", training="parameter servers", network="namespace")
def test_tensorflow_trains_with_parameter_servers(tmp_path: Path) -> None:
    lines = trained(tmp_path, "tensorflow", "tf_ps.py", *NAMESPACE, "--workers", "2", "--ps", "1")
    assert any(re.search(r"chief-0 .*first .* on /job:ps/", line) for line in lines)


@trains("jax", "JAXJob", network="namespace")
def test_processes_of_jax_train_together(tmp_path: Path) -> None:
    lines = trained(tmp_path, "jax", "jax_train.py", *NAMESPACE, "--workers", "2")
    assert sum("of 2 weights [1.0, -2.0, 3.0, 0.5]" in line for line in lines) == 2


@trains("xgboost", "XGBoostJob", network="namespace")
def test_ranks_of_xgboost_hold_the_same_model(tmp_path: Path) -> None:
    lines = trained(tmp_path, "xgboost", "xgboost_train.py", *NAMESPACE, "--workers", "2")
    models = [match[1] for line in lines if (match := re.search(r"of 2 model (\w+) error 0\.0", line))]
    assert len(models) == 2 and len(set(models)) == 1


@trains("mxnet", "MxJob", network="namespace")
def test_mxnet_trains_with_a_scheduler_and_a_server(tmp_path: Path) -> None:
    lines = trained(tmp_path, "mxnet", "mx_train.py", *NAMESPACE, "--workers", "2")
    assert sum("of 2 weights [1.0, -2.0, 3.0, 0.5]" in line for line in lines) == 2


@trains("Open MPI", "MPIJob v1", network="namespace")
def test_mpi_processes_train_in_two_workers(tmp_path: Path) -> None:
    lines = trained(tmp_path, "mpi4py", "mpi_train.py", *NAMESPACE, "--workers", "2", "--nproc", "2")
    assert sum("of 4 weights [1.0, -2.0, 3.0, 0.5]" in line for line in lines) == 4


@pytest.mark.parametrize("workers", [("--workers", "2"), ("--workers", "1", "--nproc", "2")], ids=["pods", "one pod"])
def test_an_exception_in_one_rank_of_chainermn_fails_the_job(workers: tuple[str, ...], tmp_path: Path) -> None:
    line = command(tmp_path, "chainer", "chainermn_raises.py", *workers)
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1, text
    assert re.search(r"problem: .*ValueError: the learning rate is negative .*chainermn_raises.py:7", text), text
