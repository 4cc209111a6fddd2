"""Success is compared with the work, as far as conditions and logs tell (views/diagnosis/doubts.py)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.samples import chainerjob, kubeflow_job
from tests.views.mpi_outputs import RECORDED
from tests.views.why_values import at, diagnose, ended, everything, pod
from trainyard.cli.command.codes import FAILED, SUCCEEDED
from trainyard.cli.session.job_watch import exit_code
from trainyard.objects import Json
from trainyard.views.diagnosis import END, FINE
from trainyard.views.job_view import job_message

LISTENING = ("Server listening on 0.0.0.0 port 22.", "Server listening on :: port 22.")
SESSION = "Accepted publickey for root from 10.244.0.2 port 40404 ssh2: ED25519 SHA256:x"
LOST = tuple(RECORDED["Open MPI 5, a worker is lost"][0].splitlines())
TWO_MPIS = (
    "<frozen importlib._bootstrap>:241: RuntimeWarning: suspicious MPI execution environment",
    "Your environment has OMPI_COMM_WORLD_SIZE=2 set, but mpi4py was built with Intel MPI.",
    "You may be using `mpiexec` or `mpirun` from a different MPI implementation.",
)


def succeeded(version: str, *holding: tuple[str, str, str]) -> Json:
    job = kubeflow_job("MPIJob", name="a") if version != "v1alpha1" else chainerjob()
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": text, "lastTransitionTime": at(9)}
        for kind, reason, text in (*holding, ("Succeeded", "JobSucceeded", "Launcher 0 ended with exit code 0"))
    ]
    status = {"startTime": at(60), "completionTime": at(9), "conditions": conditions}
    return {**job, "apiVersion": f"kubeflow.org/{version}", "status": status}


def answer(job: Json, launcher: tuple[str, ...] = (), *workers: tuple[str, ...], **more: Any) -> tuple[int, str]:
    """The level of the first finding, and the texts of all. `workers`: their logs."""
    master = job["kind"] == "ChainerJob"
    container = "chainer" if master else "mpi"
    pods = [pod("master-0" if master else "Launcher-0", {"state": ended(0, "Completed")}, "Succeeded", container)]
    pods += [pod(f"Worker-{index}", container=container) for index, _ in enumerate(workers)]
    logs = {(f"p-{name}", container): lines for name, lines in _logs(pods, [launcher, *workers])}
    findings = diagnose(job, *pods, logs=logs, **more)
    return findings[0].level, everything(findings)


def _logs(pods: list[Json], logs: list[tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (item["metadata"]["uid"].removeprefix("p-"), lines) for item, lines in zip(pods, logs, strict=True) if lines
    ]


@pytest.mark.parametrize("version", ["v1", "v2beta1", "v1alpha1"])
@pytest.mark.parametrize(
    ("launcher", "texts"),
    [
        (LOST, ("Open MPI 5 lost a worker, ended all processes, and exits with 0", "PRTE has lost communication")),
        (TWO_MPIS, ("mpirun and the library of mpi4py are of two MPIs", "OMPI_COMM_WORLD_SIZE=2 set", "which mpiexec")),
    ],
    ids=["a worker is lost", "two MPIs"],
)
def test_the_output_of_a_launcher_that_ended_with_0_is_read(
    version: str, launcher: tuple[str, ...], texts: tuple[str, ...]
) -> None:
    level, text = answer(succeeded(version), ("step 1", *launcher))
    assert level == END and all(part in text for part in texts), text
    assert "it succeeded" not in text


def test_no_session_of_ssh_came_to_a_worker() -> None:
    level, text = answer(succeeded("v2beta1"), ("done",), LISTENING, LISTENING)
    assert level == END and "no worker was used" in text and "set mpiImplementation" in text, text


@pytest.mark.parametrize(
    "workers",
    [
        (LISTENING, (*LISTENING, SESSION)),
        (LISTENING,),  # the log of the other one is not there
        (LISTENING, ("training",)),  # it runs no sshd of ours, or one that logs nothing
        (),
    ],
    ids=["one was used", "a log is missing", "no sshd", "no log"],
)
def test_what_the_logs_of_the_workers_do_not_show_is_no_doubt(workers: tuple[tuple[str, ...], ...]) -> None:
    level, text = answer(succeeded("v2beta1"), ("done",), *workers)
    assert level == FINE and "it succeeded" in text, text


def test_only_ssh_has_these_logs() -> None:
    assert answer(succeeded("v1"), ("done",), LISTENING, LISTENING)[0] == FINE


def test_the_condition_and_the_output_are_one_finding() -> None:
    doubt = ("SuccessInDoubt", "WorkerLost", "a-worker-1 ended or was deleted while the launcher ran")
    level, text = answer(succeeded("v1", doubt), LOST)
    assert level == END and "its launcher ended with exit code 0 after the job had lost a worker" in text, text
    assert doubt[2] in text and "PRTE has lost communication" in text and text.count("make the job again") == 1


def test_an_output_of_another_cause_keeps_its_fix_beside_the_condition() -> None:
    doubt = ("SuccessInDoubt", "WorkerLost", "a-worker-1 ended or was deleted while the launcher ran")
    level, text = answer(succeeded("v1", doubt), TWO_MPIS)
    assert level == END and doubt[2] in text and "which mpiexec" in text and "OMPI_COMM_WORLD_SIZE=2 set" in text, text


def test_a_launcher_that_is_a_worker_may_run_all_processes() -> None:
    job = succeeded("v2beta1")
    job["spec"]["runLauncherAsWorker"] = True
    assert answer(job, ("done",), LISTENING, LISTENING)[0] == FINE


@pytest.mark.parametrize(("doubt", "code"), [((), SUCCEEDED), ((("SuccessInDoubt", "WorkersUnused", "no"),), FAILED)])
def test_a_success_in_doubt_is_no_success_of_a_command(doubt: tuple[tuple[str, str, str], ...], code: int) -> None:
    job = succeeded("v1", *doubt)
    assert exit_code([job]) == code
    assert job_message(job) == (doubt[0][2] if doubt else "Launcher 0 ended with exit code 0")
