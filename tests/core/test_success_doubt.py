"""A launcher's exit code 0 is compared with what became of the workers while it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import chainerjob, kubeflow_job
from trainyard import kinds
from trainyard.kinds import CHAINERJOB
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.objects import Json, find_condition, is_condition_true
from trainyard.objects.structs import replace

MPI_V1 = next(kind for kind in kinds.KINDS if kind.gvk.kind == "MPIJob")
SETS: dict[str, Any] = {
    role: {"replicas": count, "restartPolicy": "ExitCode"} for role, count in (("Launcher", 1), ("Worker", 2))
}


def exec_job() -> SimulatedJob:
    return simulate(MPI_V1, kubeflow_job("MPIJob", **SETS))


def ssh_job() -> SimulatedJob:
    job = kubeflow_job("MPIJob", Launcher=1, Worker=2, sshAuthMountPath="/root/.ssh")
    return simulate(MPIJOB_V2BETA1, {**job, "apiVersion": "kubeflow.org/v2beta1"})


def chainer_job() -> SimulatedJob:
    return simulate(CHAINERJOB, chainerjob())


def run(simulated: SimulatedJob) -> SimulatedJob:
    """All pods run."""
    simulated.run()
    simulated.settle()
    return simulated


def launcher(simulated: SimulatedJob) -> str:
    return "example-master" if simulated.kind is CHAINERJOB else "example-launcher"


def worker_pod(simulated: SimulatedJob) -> str:
    return next(name for name in reversed(simulated.names("Pod")) if "worker" in name)


def doubt(simulated: SimulatedJob) -> Json | None:
    """Condition SuccessInDoubt after the launcher has ended with 0."""
    simulated.end(launcher(simulated), 0)
    simulated.now += 2  # the loss of a worker would be reported by now
    events = simulated.look().events
    status = simulated.settle()
    assert find_condition(status["conditions"], "Succeeded")["status"] == "True"  # type: ignore[index]
    condition = find_condition(status["conditions"], "SuccessInDoubt")
    warnings = [event.reason for event in events if event.type == "Warning"]
    assert warnings == ([condition["reason"]] if condition else [])
    return condition


def lose_pod(simulated: SimulatedJob) -> str:
    name = worker_pod(simulated)
    simulated.lose("Pod", name)
    return name


def delete_pod(simulated: SimulatedJob) -> str:
    """The pod is in Terminating when the launcher ends."""
    name = worker_pod(simulated)
    simulated.get("Pod", name)["metadata"]["deletionTimestamp"] = "2026-11-29T00:00:00Z"
    return name


def evict(simulated: SimulatedJob) -> str:
    name = worker_pod(simulated)
    simulated.evict(name)
    return name


def end_with_0(simulated: SimulatedJob) -> str:
    name = worker_pod(simulated)
    simulated.end(name, 0)
    return name


def replace_pod(simulated: SimulatedJob) -> str:
    """It runs again when the operator looks again: no reconcile has seen that it was gone."""
    name = worker_pod(simulated)
    pod = simulated.get("Pod", name)
    pod["metadata"] = {**pod["metadata"], "uid": "another", "creationTimestamp": "2033-11-14T22:13:20Z"}
    return name


def restart(simulated: SimulatedJob) -> str:
    """Its node has started the container again, and all that was executed in it has ended."""
    name = worker_pod(simulated)
    simulated.restart(name, 137)
    return name


def replace_pod_step_by_step(simulated: SimulatedJob) -> str:
    """It is created again, and runs again, before the launcher ends."""
    name = lose_pod(simulated)
    simulated.settle()
    run(simulated)
    return name


JOBS = (exec_job, ssh_job, chainer_job)
LOSSES = (lose_pod, delete_pod, evict, end_with_0, restart, replace_pod, replace_pod_step_by_step)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("job", JOBS)
def test_a_worker_lost_while_the_launcher_ran_puts_its_success_in_doubt(
    job: Callable[[], SimulatedJob], loss: Callable[[SimulatedJob], str]
) -> None:
    simulated = run(job())
    name = loss(simulated)
    condition = doubt(simulated)
    assert condition is not None and (condition["status"], condition["reason"]) == ("True", "WorkerLost")
    assert condition["message"].startswith(f"{name} ended or was deleted while the launcher ran"), condition
    assert simulated.job["status"]["launch"]["lost"] == [name]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_whose_workers_ran_to_its_end_has_succeeded(job: Callable[[], SimulatedJob]) -> None:
    assert doubt(run(job())) is None


@pytest.mark.parametrize(
    ("code", "seconds", "is_lost"), [(0, 1, False), (137, 1, True), (137, 2, True), (143, 3, False)]
)
@pytest.mark.parametrize("job", JOBS)
def test_a_worker_that_fails_just_after_the_launcher_has_ended_was_lost(
    job: Callable[[], SimulatedJob], code: int, seconds: int, is_lost: bool
) -> None:
    """The kill of a worker ends the launcher: their nodes may note the two ends in the other order."""
    simulated = run(job())
    simulated.end(launcher(simulated), 0)
    simulated.now += seconds
    simulated.end(worker_pod(simulated), code)
    assert (find_condition(simulated.settle()["conditions"], "SuccessInDoubt") is not None) is is_lost


def with_runtime(simulated: SimulatedJob) -> SimulatedJob:
    """The pods' containers have IDs, as those of a real kubelet."""
    for name in simulated.names("Pod"):
        simulated.get("Pod", name)["status"]["containerStatuses"][0]["containerID"] = "containerd://1"
    return simulated


@pytest.mark.parametrize("job", [exec_job, ssh_job])
def test_a_success_waits_until_the_loss_of_a_worker_would_be_reported(job: Callable[[], SimulatedJob]) -> None:
    simulated = with_runtime(run(job()))
    simulated.end("example-launcher", 0)
    assert not is_condition_true(simulated.settle()["conditions"], "Succeeded")
    assert simulated.look().requeue_at == simulated.now + 2  # the kubelets' next reports
    simulated.end(worker_pod(simulated), 137)
    conditions = simulated.settle()["conditions"]
    assert is_condition_true(conditions, "Succeeded") and is_condition_true(conditions, "SuccessInDoubt")


def test_a_success_without_a_lost_worker_waits_for_no_more_than_the_reports() -> None:
    simulated = with_runtime(run(exec_job()))
    simulated.end("example-launcher", 0)
    simulated.settle()
    simulated.now += 2
    conditions = simulated.settle()["conditions"]
    assert is_condition_true(conditions, "Succeeded") and find_condition(conditions, "SuccessInDoubt") is None


def test_an_attempt_after_the_loss_of_a_worker_is_not_in_doubt() -> None:
    """As with Open MPI 4, which ends with 205: launcher and worker are created again."""
    simulated = run(exec_job())
    lose_pod(simulated)
    simulated.end("example-launcher", 205)
    simulated.settle()
    simulated.step(later=60)
    simulated.settle()
    assert doubt(run(simulated)) is None


def test_a_launcher_that_its_node_has_started_again_is_not_in_doubt() -> None:
    simulated = run(ssh_job())
    lose_pod(simulated)
    simulated.settle()
    simulated.restart("example-launcher", 205)
    assert doubt(run(simulated)) is None


def test_elastic_horovod_survives_the_loss_of_a_worker() -> None:
    """Its launcher names the script that lists the workers that run."""
    job = kubeflow_job("MPIJob", **SETS)
    container = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    container["command"] = ["horovodrun", "--host-discovery-script", "/etc/mpi/discover_hosts.sh", "python", "t.py"]
    simulated = run(simulate(MPI_V1, job))
    lose_pod(simulated)
    assert doubt(simulated) is None


def test_a_worker_that_an_edit_takes_away_is_not_lost() -> None:
    simulated = run(exec_job())
    sets = simulated.job["spec"]["mpiReplicaSpecs"]
    simulated.edit(mpiReplicaSpecs={**sets, "Worker": {**sets["Worker"], "replicas": 1}})
    simulated.settle()
    assert doubt(run(simulated)) is None


def with_exec_condition(simulated: SimulatedJob, *used: bool | None) -> SimulatedJob:
    """Whether a command was executed in each worker's pod; None: its node does not tell, as one of an older version."""
    workers = [name for name in simulated.names("Pod") if "worker" in name]
    for name, was_used in zip(workers, used, strict=True):
        status = simulated.get("Pod", name)["status"]
        status["containerStatuses"][0]["containerID"] = "trainyard://uid/mpi/1"
        if was_used is not None:
            status["conditions"] = [{"type": "trainyard.dev/ExecSession", "status": str(was_used)}]
    return simulated


@pytest.mark.parametrize("job", [exec_job, chainer_job])
def test_a_launcher_that_used_no_worker_puts_its_success_in_doubt(job: Callable[[], SimulatedJob]) -> None:
    simulated = run(job())
    count = sum("worker" in name for name in simulated.names("Pod"))
    condition = doubt(with_exec_condition(simulated, *[False] * count))
    assert condition is not None and condition["reason"] == "WorkersUnused"
    assert "executed no command in any worker" in condition["message"]


@pytest.mark.parametrize(("first", "second"), [(True, False), (True, True), (None, False), (None, None)])
def test_a_worker_that_was_used_is_no_doubt(first: bool | None, second: bool | None) -> None:
    assert doubt(with_exec_condition(run(exec_job()), first, second)) is None


def test_a_launcher_that_ends_before_its_workers_start_has_used_none() -> None:
    """The Pods of a cluster come in their order; a batch Job may be seen before the Pods of its workers."""
    simulated = exec_job()
    simulated.run(launcher(simulated))
    condition = doubt(simulated)
    assert condition is not None and condition["reason"] == "WorkersUnused"
    chainer = chainer_job()
    chainer.run(launcher(chainer))
    assert doubt(chainer) is None


def test_ssh_needs_no_exec() -> None:
    assert doubt(with_exec_condition(run(ssh_job()), False, False)) is None


def test_the_operator_reads_its_own_status_back() -> None:
    simulated = run(exec_job())
    launch = simulated.job["status"]["launch"]
    assert launch["run"] == simulated.get("Pod", "example-launcher")["metadata"]["uid"] and "lost" not in launch
    simulated.job["status"]["launch"] = ["malformed"]
    assert simulated.look().status["launch"] == launch
    assert replace(simulated.look(), status_changed=True).deferrable
