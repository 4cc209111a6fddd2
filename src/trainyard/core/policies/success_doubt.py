"""Whether a job that has succeeded has done its work: what became of the pods in which a launcher starts processes.

The exit code of a launcher decides over such a job, and some launchers exit with 0 although the work was not done: that
of Open MPI 5 when it has lost a worker, and one that did not find the workers and started all processes in its own pod.
A launcher may also survive the loss of a worker (elastic Horovod), or have ended its work before. So the job stays
succeeded, and condition SuccessInDoubt says what is known. Nothing here reads an output.

The pods that have run together are remembered in the status (`launch`), so that a pod which was lost and created again
is noticed whenever the operator looks again.
"""

from __future__ import annotations

from trainyard.core.carriers.terminations import main_container, newest_pod, restart_count
from trainyard.core.job_state import (
    SUCCESS_IN_DOUBT,
    WORKER_LOST,
    WORKERS_UNUSED,
    JobStatus,
    Launch,
    OwnedObjects,
    Replica,
)
from trainyard.core.kind import Job
from trainyard.core.model import Child, Condition, Slot
from trainyard.core.names import digest, same_digest
from trainyard.core.policies.failure_policy import MAX_NAMED_REPLICAS
from trainyard.objects.resources import POD

REPORT_SECONDS = 2.0
"""Seconds from the end of a launcher until the loss of a worker that was the cause of it has been reported. A kubelet
looks at its containers once a second, and two kubelets may note the two ends in the other order: in whole seconds, and
by two clocks."""


def next_launch(job: Job, replicas: list[Replica], owned: OwnedObjects, status: JobStatus) -> Launch:
    """JobStatus.launch of the next status. `status`: the job's, as far as it is known."""
    workers = job.worker_slots()
    leader = _leader(job, replicas, owned) if workers else None
    if leader is None or any(_resized(job, status, slot.role) for slot in workers):
        return Launch()
    run = _run(job, next(iter(_leading_slots(job))), leader)
    stored = job.status.launch if job.status.launch.run == run else Launch()
    members = [replica for replica in replicas if replica.slot in workers]
    runs, missing = _running_pods(job, members, owned, _ended_at(job, replicas, leader))
    if not stored.run:
        launcher_runs = any(replica.state == "Running" for replica in replicas if replica.slot not in workers)
        return Launch(run, _digest(runs)) if launcher_runs and runs and not missing else Launch()
    lost = [name for name in missing if name not in stored.lost]
    if not missing and not stored.lost and not same_digest(stored.workers, _digest(runs)):
        lost = [_newest(job, members, owned)]
    return Launch(run, stored.workers, (*stored.lost, *lost)[:MAX_NAMED_REPLICAS])


def success_grace(job: Job, replicas: list[Replica]) -> float:
    """Seconds for which a launcher's success waits for reports of lost workers; 0 if none can come, or one has."""
    if not job.status.launch.run or job.status.launch.lost:
        return 0.0
    children = [replica.child for replica in replicas if replica.child and replica.slot in job.worker_slots()]
    return REPORT_SECONDS if any(child.status.has_runtime for child in children) else 0.0


def condition(job: Job, status: JobStatus, replicas: list[Replica], owned: OwnedObjects) -> Condition:
    """Condition SuccessInDoubt of a job that succeeds in this reconcile. `status`: its next one."""
    if status.launch.lost:
        names = ", ".join(status.launch.lost)
        text = (
            f"{names} ended or was deleted while the launcher ran, which then ended with exit code 0. Open MPI 5 exits "
            "with 0 when it has lost a worker: see whether the output is complete"
        )
        return Condition(SUCCESS_IN_DOUBT, True, WORKER_LOST, text)
    workers = job.worker_slots()
    pods = [pod for replica in replicas if replica.slot in workers for pod in _pods(replica, owned)]
    leaders = [replica.child for replica in replicas if replica.child and replica.slot not in workers]
    in_order = any(child.kind == POD.kind for child in leaders)
    is_unused = [pod.status.had_exec == "False" or (in_order and not _has_started(pod)) for pod in pods]
    if job.kind.lifecycle.workers_reached_by_exec and is_unused and all(is_unused):
        text = (
            "the launcher ended with exit code 0, and has executed no command in any worker (kubectl exec). Unless it "
            "reaches them in another way, such as an ssh of its own, all processes have run in its own pod: see which "
            "MPI its image has (`mpiexec --version`)"
        )
        return Condition(SUCCESS_IN_DOUBT, True, WORKERS_UNUSED, text)
    return Condition(SUCCESS_IN_DOUBT, False, "", "")


def _leader(job: Job, replicas: list[Replica], owned: OwnedObjects) -> Child | None:
    """The pod of the one replica that decides over success."""
    leading = _leading_slots(job)
    leaders = [replica for replica in replicas if replica.slot in leading]
    return newest_pod(_pods(leaders[0], owned)) if len(leaders) == 1 else None


def _leading_slots(job: Job) -> frozenset[Slot]:
    return frozenset().union(*job.success_sets()) - job.worker_slots()


def _pods(replica: Replica, owned: OwnedObjects) -> tuple[Child, ...]:
    child = replica.child
    if child is None:
        return ()
    return (child,) if child.kind == POD.kind else owned.pods_by_owner.get(child.uid, ())


def _has_started(pod: Child) -> bool:
    """Whether the pod has been started, without which nothing is executed in it. That it has not is known for certain
    when a launcher has ended that is a Pod itself: Pods are watched in the order of their changes."""
    return pod.phase not in ("", "Pending")


def _run(job: Job, slot: Slot, pod: Child) -> str:
    """The run of the pod's container: the uid of the pod, and how often the kubelet has started the container again."""
    container = main_container(job, slot, pod)
    return f"{pod.uid}/{container.restart_count}" if container and container.restart_count else pod.uid


def _ended_at(job: Job, replicas: list[Replica], leader: Child) -> float | None:
    """When the launcher ended with 0 (Unix seconds, whole), None while it has not."""
    leading = _leading_slots(job)
    has_succeeded = any(replica.state == "Succeeded" for replica in replicas if replica.slot in leading)
    return leader.finished_at if has_succeeded else None


def _running_pods(
    job: Job, members: list[Replica], owned: OwnedObjects, ended_at: float | None
) -> tuple[list[str], list[str]]:
    """The runs of the workers' pods that run, or ran when the launcher ended, and the names of those that do not."""
    runs: list[str] = []
    missing: list[str] = []
    for replica in members:
        pods = [pod for pod in _pods(replica, owned) if _runs(job, replica, pod, ended_at)]
        runs += [_run(job, replica.slot, pod) for pod in pods]
        running = {pod.name for pod in pods}
        missing += [name for name in _pod_names(job, replica) if name not in running]
    return runs, missing


def _pod_names(job: Job, replica: Replica) -> list[str]:
    name, role = job.kind.pods.name(job, replica.slot), job.role(replica.slot.role)
    if role is None or not job.carrier(role.name).one_object_per_role:
        return [name]
    return [f"{name}-{index}" for index in range(role.replicas)]


def _runs(job: Job, replica: Replica, pod: Child, ended_at: float | None) -> bool:
    container = main_container(job, replica.slot, pod)
    if container is None or pod.deleting:
        return False
    if container.state == "running":
        return pod.phase not in ("Succeeded", "Failed")  # an evicted pod has failed, whatever its containers show
    if container.state != "terminated" or ended_at is None:
        return False
    return pod.finished_at > ended_at + (REPORT_SECONDS if container.exit_code else 0)


def _newest(job: Job, members: list[Replica], owned: OwnedObjects) -> str:
    """The name of the pod that was started again, or was created last: in place of a lost one."""
    pods = [(replica.slot, pod) for replica in members for pod in _pods(replica, owned)]
    return max((restart_count(job, slot, (pod,)), pod.created, pod.name) for slot, pod in pods)[-1]


def _digest(runs: list[str]) -> str:
    return digest(sorted(runs))


def _resized(job: Job, status: JobStatus, role: str) -> bool:
    """Whether an edit has changed the number of replicas: what is gone then was not lost."""
    return job.status.role(role).replicas != status.role(role).replicas
