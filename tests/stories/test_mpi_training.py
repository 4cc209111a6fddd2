"""MPIJobs train for real with Open MPI: v1 reaches its workers by exec, v2beta1 by ssh."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.node.ordinary_user import ORDINARY, command
from tests.stories.runs import EXAMPLES, REPOSITORY, Run, run_to_end
from tests.stories.test_kubeflow_training import NETWORKS, numbers, trained
from tests.stories.users import UserCluster
from tests.support.matrix import trains
from trainyard.objects import Json, is_condition_true

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

EXEC, SSH = EXAMPLES / "mpi_job.yaml", EXAMPLES / "mpi_job_v2beta1.yaml"
PI = REPOSITORY / "testdata/drop_in/mpijob-v2beta1/example-pi-pi.json"
VERSIONS = pytest.mark.parametrize("example", [EXEC, SSH], ids=["exec", "ssh"])
LINES = 7  # of a rank in a training
FIRST_STEPS = r"rank 1 of 2 on \S+: step 25 "


def assert_trained_on_two_workers(run: Run) -> None:
    """The last training of the run: both ranks, each on its worker, have had the same losses, which have fallen."""
    of_rank = "rank {0} of 2 on mpi-train-worker-{0}: step [0-9]+ loss ([0-9.]+)"
    losses = [numbers(run, "launcher-0", of_rank.format(rank))[-LINES:] for rank in (0, 1)]
    assert losses[0] == losses[1] and losses[0][-1] < losses[0][0] / 4, run.text
    accuracies = numbers(run, "launcher-0", r"held-out accuracy ([0-9.]+)")
    assert len(accuracies) == 2 and min(accuracies) >= 0.9, run.text
    assert sum("all 2 ranks hold the same weights" in line for line in run.of("launcher-0")) == 2, run.text


def edited(manifest: Path, folder: Path, edit: Callable[[Json], object]) -> str:
    """A copy of the job's manifest whose spec is edited."""
    job = yaml.safe_load(manifest.read_text())
    edit(job["spec"])
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return str(folder / "job.yaml")


def slow_and_final(spec: Json) -> None:
    """A training that lasts, and whose end is the end of the job."""
    spec["runPolicy"] = {"backoffLimit": 0}
    for replica_spec in spec["mpiReplicaSpecs"].values():
        replica_spec["restartPolicy"] = "Never"
    launcher_container(spec)["args"].append("--delay=0.3")


def launcher_container(spec: Json) -> Json:
    container: Json = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    return container


def kill(run: Run, variable: str, *words: str) -> None:
    """Kill those processes of the run that have the variable (NAME=VALUE) and whose command line has these words."""
    killed = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables, words_of = (path / "environ").read_bytes().split(b"\0"), (path / "cmdline").read_bytes()
            matches = (not variable or variable.encode() in variables) and all(
                word.encode() in words_of for word in words
            )
            if matches and descends_from(int(path.name), run.process.pid):
                os.kill(int(path.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    assert killed


def descends_from(process: int, ancestor: int) -> bool:
    while process > 1 and process != ancestor:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process == ancestor


@NETWORKS
@trains("Open MPI", "MPIJob v1")
def test_ranks_that_exec_has_started_train_on_two_workers(network: str) -> None:
    assert_trained_on_two_workers(trained(EXEC.name, network))


@trains("Open MPI", "MPIJob v2beta1", network="namespace")
def test_ranks_that_ssh_has_started_train_on_two_workers() -> None:
    run = trained(SSH.name, "namespace")
    assert_trained_on_two_workers(run)
    for worker in ("worker-0", "worker-1"):
        assert sum("Accepted publickey" in line for line in run.of(worker)) == 1, run.text


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that an ordinary user may read."""
    folder = Path(tempfile.mkdtemp(prefix="trains-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@VERSIONS
def test_an_ordinary_user_trains(example: Path, home: Path) -> None:
    argv, env = command(ordinary=True)
    user = os.getuid()
    if user == 0:  # ssh wants a user with a name
        user = pwd.getpwnam("www-data").pw_uid if example == SSH else ORDINARY
        os.chown(home, user, user)
        argv = [word.replace(f"={ORDINARY}", f"={user}") for word in argv]
    shutil.copy(example, home)
    env = {**env, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}
    program = (*argv, "-m", "trainyard")
    run = run_to_end(example.name, "--network", "namespace", program=program, env=env, cwd=home)
    assert run.code == 0, run.text
    assert_trained_on_two_workers(run)


def test_the_job_is_refused_where_its_workers_share_port_22() -> None:
    run = run_to_end(str(SSH), "--network", "shared")
    assert run.code == 2 and "Pending" not in run.text, run.text
    assert "use --network namespace, or MPIJob of kubeflow.org/v1" in " ".join(run.text.split())


def test_the_job_is_refused_by_submit_as_well(tmp_path: Path) -> None:
    cluster = UserCluster(tmp_path)
    cluster.up("shared")
    try:
        submit = cluster.start("submit", str(SSH))
        _, text = submit.communicate(timeout=60)
        assert submit.returncode == 2 and "use --network namespace" in " ".join(text.split()), text
    finally:
        cluster.down()


def test_mpi_operators_pi_is_computed_on_two_workers(tmp_path: Path) -> None:
    job = json.loads(PI.read_text())["manifest"]
    (tmp_path / "pi.yaml").write_text(yaml.safe_dump(job))
    run = run_to_end(str(tmp_path / "pi.yaml"), "--network", "namespace")
    assert run.code == 0, run.text
    assert {f"Rank {rank} on host pi-worker-{rank}" for rank in (0, 1)} <= set(run.of("launcher-0")), run.text
    (pi,) = numbers(run, "launcher-0", r"pi is approximately ([0-9.]+)")
    assert abs(pi - 3.14159) < 0.005


def test_the_settings_of_another_mpi_put_the_success_in_doubt(tmp_path: Path) -> None:
    """The launcher does not find the workers, and runs all ranks itself."""
    run = run_to_end(
        edited(SSH, tmp_path, lambda spec: spec.update(mpiImplementation="MPICH")), "--network", "namespace"
    )
    assert "rank 1 of 2 on mpi-train-launcher: all 2 ranks hold the same weights" in run.of("launcher-0"), run.text
    text = " ".join(run.text.split())
    assert run.code == 1 and "MPIJob default/mpi-train succeeded, which is in doubt:" in text, run.text
    assert "no worker was used" in text and "set mpiImplementation to the MPI of the launcher's image" in text


def test_a_launcher_that_waits_for_its_workers_and_is_one(tmp_path: Path) -> None:
    job = json.loads(PI.read_text())["manifest"]
    job["spec"].update(runLauncherAsWorker=True, launcherCreationPolicy="WaitForWorkersReady")
    launcher_container(job["spec"])["args"][1] = "3"
    (tmp_path / "pi.yaml").write_text(yaml.safe_dump(job))
    run = run_to_end(str(tmp_path / "pi.yaml"), "--network", "namespace")
    assert run.code == 0, run.text
    hosts = ("pi-launcher", "pi-worker-0", "pi-worker-1")
    assert {f"Rank {rank} on host {host}" for rank, host in enumerate(hosts)} <= set(run.of("launcher-0")), run.text


@VERSIONS
def test_the_launcher_starts_again_when_a_rank_is_killed(example: Path, tmp_path: Path) -> None:
    manifest = edited(example, tmp_path, lambda spec: launcher_container(spec)["args"].append("--delay=0.1"))
    run = Run(manifest, "--network", "namespace")
    run.read_until(FIRST_STEPS)
    kill(run, "OMPI_COMM_WORLD_RANK=1", "mpi-train/train.py")
    run.end()
    assert run.code == 0, run.text
    assert is_condition_true(run.jobs[0]["status"]["conditions"], "Succeeded"), run.text
    assert sum(bool(re.search(r"rank 0 .* step 0 ", line)) for line in run.of("launcher-0")) == 2, run.text
    assert_trained_on_two_workers(run)


@VERSIONS
def test_why_names_the_rank_that_was_killed(example: Path, tmp_path: Path) -> None:
    run = Run(edited(example, tmp_path, slow_and_final), "--network", "namespace")
    run.read_until(FIRST_STEPS)
    kill(run, "OMPI_COMM_WORLD_RANK=1", "mpi-train/train.py")
    run.end()
    assert run.code == 1, run.text
    text = " ".join(run.text.split())
    assert re.search(r"process rank 1 with PID \d+ on node mpi-train-worker-1\S* exited on signal 9", text), run.text
    assert "problem: launcher-0 ended with exit code 137" in text and "killed with SIGKILL" not in text


def test_why_names_the_worker_of_exec_that_ended(tmp_path: Path) -> None:
    run = Run(edited(EXEC, tmp_path, slow_and_final), "--network", "namespace")
    run.read_until(FIRST_STEPS)
    kill(run, "HOSTNAME=mpi-train-worker-1", "sleep\x00365d")
    run.end()
    assert run.code == 1, run.text
    assert "problem: worker-1 ended with exit code 137" in " ".join(run.text.split()), run.text


def test_why_names_the_worker_whose_sshd_was_lost(tmp_path: Path) -> None:
    run = Run(edited(SSH, tmp_path, slow_and_final), "--network", "namespace")
    run.read_until(FIRST_STEPS)
    kill(run, "", "sshd: /usr/lib/openssh/sshd", "[listener]")
    run.end()
    assert run.code == 1, run.text
    text = " ".join(run.text.split())  # which of both lines is there depends on whether mpirun or ssh notices first
    lost = r"problem: launcher-0 ended .*: (?:MPI lost|the connection to) the worker mpi-train-worker-\d"
    assert re.search(lost, text), run.text
