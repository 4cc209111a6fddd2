"""MPIJob, v1 of the Training Operator and v2beta1 of the MPI Operator, to TrainJob. Trainer starts processes by ssh, as
v2beta1 does; v1 starts them by `kubectl exec`."""

from __future__ import annotations

from trainyard.conversion.fields import Fields
from trainyard.conversion.template_edits import main_container, take_restart_policy, with_main_container
from trainyard.conversion.trainjob.job_policies import CLEAN_ALL
from trainyard.conversion.trainjob.pod_references import follow_pods
from trainyard.conversion.trainjob.replicated_jobs import (
    ANCESTOR,
    NODE,
    JobSource,
    ReplicaSet,
    check_name,
    job_spec,
    note_backoff,
    open_source,
)
from trainyard.conversion.trainjob.runtimes import train_job, training_runtime
from trainyard.conversion.trainjob.single_role import TRAINER_FIELDS
from trainyard.kinds.kubeflow_v1.framework import WORKER
from trainyard.kinds.pods.templates import has_container, whole_number
from trainyard.objects import Json

LAUNCHER = "launcher"
PLACES = {LAUNCHER: LAUNCHER, WORKER: NODE}
"""Role -> the replicated job of its Pods."""
FIRST = ""  # the main container is the first one, whatever its name
SSHD = ["/usr/sbin/sshd", "-De"]
SSH_PATH = "/root/.ssh"
OPEN_MPI = "OpenMPI"
NEEDS_SSHD = "runs /usr/sbin/sshd -De: the image must have an ssh server"


def convert_v1(root: Fields) -> list[Json]:
    """The runtime and the TrainJob of an MPIJob of the Training Operator."""
    source = open_source(root)
    if source.spec.take("cleanPodPolicy") == "All":
        source.spec.report_unmapped("cleanPodPolicy", CLEAN_ALL)
    container = source.spec.take("mainContainer", FIRST)
    worker = source.spec.peek("mpiReplicaSpecs").get("Worker") or {}
    if container != FIRST and not has_container(worker.get("template"), container):
        source.spec.report_unmapped("mainContainer", f"Worker has no container {container}; name one that it has")
    return _convert(source, "Never", container, runs_sshd=False)


def convert_v2beta1(root: Fields) -> list[Json]:
    """The runtime and the TrainJob of an MPIJob of the MPI Operator."""
    return _convert(open_source(root), "OnFailure", FIRST, runs_sshd=True)


def _convert(source: JobSource, launcher_policy: str, worker_container: str, *, runs_sshd: bool) -> list[Json]:
    ml_policy = _take_ml_policy(source.spec)
    waits = source.spec.take("launcherCreationPolicy") == "WaitForWorkersReady"
    sets = source.spec.child("mpiReplicaSpecs")
    launcher = _replica_set(sets.child("Launcher"), FIRST, launcher_policy, 1)
    worker_fields = sets.child("Worker")
    workers = _replica_set(worker_fields, worker_container, "Never", 0)
    if workers.replicas:
        _run_sshd(worker_fields, main_container(workers.template, NODE), runs_sshd)
    nodes = max(1, workers.replicas + int(ml_policy["mpi"]["runLauncherAsNode"]))
    check_name(source, {LAUNCHER: 1, NODE: nodes})
    note_backoff(source, {LAUNCHER: launcher})
    follow_pods(source, {LAUNCHER: launcher, WORKER: workers}, lambda role, index: (PLACES[role], index))
    launcher_container = main_container(launcher.template, NODE)
    # Of the launcher there is one; numNodes of the TrainJob is the number of workers.
    trainer: Json = {"numNodes": nodes}
    trainer |= {name: launcher_container.pop(name) for name in TRAINER_FIELDS if launcher_container.get(name)}
    launcher_container["image"] = trainer.get("image")
    jobs = _replicated_jobs(source, launcher, workers, waits)
    job_set = {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
    }
    runtime = training_runtime(source, jobs, ml_policy=ml_policy, job_set=job_set, framework="mpi")
    return [runtime, train_job(source, trainer=trainer)]


def _take_ml_policy(spec: Fields) -> Json:
    mpi: Json = {
        "numProcPerNode": spec.take("slotsPerWorker", 1),
        "mpiImplementation": OPEN_MPI,
        "sshAuthMountPath": spec.take("sshAuthMountPath", SSH_PATH),
        "runLauncherAsNode": spec.take("runLauncherAsWorker") is True,
    }
    implementation = spec.take("mpiImplementation", OPEN_MPI)
    if implementation != OPEN_MPI:
        text = f"Trainer starts {OPEN_MPI} only, not {implementation}; build the image with it, or keep the MPIJob"
        spec.report_unmapped("mpiImplementation", text)
    return {"numNodes": 1, "mpi": mpi}


def _replicated_jobs(source: JobSource, launcher: ReplicaSet, workers: ReplicaSet, waits: bool) -> list[Json]:
    """The workers, if there are any, then the launcher. `waits`: it starts when the workers are ready."""
    limit = source.policy.backoff_limit
    launcher_job: Json = {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": job_spec(launcher, limit)}
    if not workers.replicas:
        return [{"name": LAUNCHER, "template": launcher_job}]
    node_job: Json = {"name": NODE, "template": {"spec": job_spec(workers, limit)}}
    depends = {"dependsOn": [{"name": NODE, "status": "Ready"}]} if waits else {}
    return [node_job, {"name": LAUNCHER, **depends, "template": launcher_job}]


def _replica_set(fields: Fields, container: str, default_policy: str, default_replicas: int) -> ReplicaSet:
    template = with_main_container(fields.take("template"), container, NODE)
    take_restart_policy(template)
    policy = fields.take("restartPolicy", default_policy)
    if policy == "Always":
        fields.report_unmapped("restartPolicy", "the Pods of a Job take OnFailure, which is used, or Never")
        policy = "OnFailure"
    replicas = whole_number(fields.take("replicas", default_replicas))
    return ReplicaSet(fields.path, replicas or 0, policy, template, NODE)


def _run_sshd(workers: Fields, container: Json, runs_sshd: bool) -> None:
    """The command of workers, which Trainer's launcher reaches by ssh. Changes the container in place."""
    command = container.get("command")
    if not command and not container.get("args"):
        container["command"] = SSHD
        workers.note("template.spec.containers", NEEDS_SSHD)
    elif not runs_sshd and "sshd" not in " ".join(map(str, command or ())):
        text = f"the launcher of a TrainJob reaches workers by ssh: write command: [{', '.join(SSHD)}]"
        workers.report_unmapped("template.spec.containers", text)
