"""MPIJob, `kubeflow.org/v2beta1`: a launcher, run by a batch Job, that starts MPI's processes in workers with ssh."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainyard.core import RETRYING_JOB_CARRIER, Job, RestartScope, Rule, Slot
from trainyard.core.kind import TRAINYARD_OPERATOR
from trainyard.kinds.kubeflow_v1 import mpi, mpi_diagnosis, mpi_ssh
from trainyard.kinds.kubeflow_v1.framework import WORKER, Framework
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.spec import ReplicaMap, TrainingSpec
from trainyard.kinds.pods.templates import whole_number
from trainyard.objects import Json
from trainyard.objects.resources import CONFIG_MAP, SECRET, SERVICE

LAUNCHER_JOB_FIELDS = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
"""Fields of runPolicy that the launcher's Job has, and that the Job's controller enforces."""


class MPIJobV2Beta1Spec(TrainingSpec, kw_only=True):
    """An MPI job: a launcher, which runs mpirun, and workers, which run sshd."""

    mpiReplicaSpecs: Annotated[ReplicaMap, Meta(description="Launcher and Worker.")]
    slotsPerWorker: Annotated[
        Annotated[int, Meta(ge=0, le=2147483647)] | None, Meta(description="Processes in each worker, by default 1.")
    ] = None
    runLauncherAsWorker: Annotated[bool | None, Meta(description="Start processes in the launcher, too.")] = None
    sshAuthMountPath: Annotated[
        str | None,
        # The only default that is stored: it tells in which version a job was created.
        Meta(description="Where the key pair is mounted.", extra_json_schema={"default": mpi_ssh.ROOT_SSH_PATH}),
    ] = None
    launcherCreationPolicy: Annotated[
        Literal["AtStartup", "WaitForWorkersReady"] | None,
        Meta(description="AtStartup (default), or WaitForWorkersReady: once all workers run."),
    ] = None
    mpiImplementation: Annotated[
        Literal["OpenMPI", "Intel", "MPICH"] | None, Meta(description="OpenMPI (default), Intel or MPICH.")
    ] = None


RULES = (
    mpi.single_launcher_rule(),
    Rule(
        # Of the field alone: an API server then accepts updates that leave it as it is, such as those with which Kueue
        # starts jobs of v1, which it writes in v2beta1.
        f"spec.{mpi.REPLICAS}{{}}.restartPolicy",
        "self in ['Never', 'OnFailure']",
        lambda value, old: value in ("Never", "OnFailure"),
        "is Never or OnFailure in an MPIJob of v2beta1",
    ),
)


def created_in_version(obj: Json) -> bool:
    """Whether a job was created in v2beta1: it has `sshAuthMountPath`, which has a default there and is not in v1."""
    spec = obj.get("spec")
    return isinstance(spec, dict) and "sshAuthMountPath" in spec


def run_policy(spec: Json) -> object:
    """`runPolicy` without the fields of the launcher's Job."""
    policy = spec.get("runPolicy")
    kept = policy if isinstance(policy, dict) else {}
    return {name: value for name, value in kept.items() if name not in LAUNCHER_JOB_FIELDS}


def job_spec_fields(job: Job, slot: Slot) -> Json:
    """The limits of the launcher's Job."""
    policy = job.parsed.spec.get("runPolicy")
    policy = policy if isinstance(policy, dict) else {}
    return {name: limit for name in LAUNCHER_JOB_FIELDS if (limit := whole_number(policy.get(name))) is not None}


MPIJOB_V2BETA1 = training_job(
    Framework(
        kind="MPIJob",
        version="v2beta1",
        spec_type=MPIJobV2Beta1Spec,
        replicas_field=mpi.REPLICAS,
        roles=(mpi.LAUNCHER, WORKER),
        container="mpi",
        main_is_first=True,
        port_name="",
        port=0,
        restart_policy="Never",
        restart_policies={mpi.LAUNCHER: "OnFailure"},
        operator=mpi_ssh.OPERATOR,
        managers=("kubeflow.org/mpi-operator", TRAINYARD_OPERATOR),
        environment=lambda job, slot: [],
        success_sets=lambda job: (mpi.launcher_slots(job),),
        worker_slots=mpi.worker_slots,
        serving_roles=frozenset({WORKER}),
        leading_role=lambda job: mpi.LAUNCHER,
        all_run=True,
        restart_scope=lambda job: RestartScope.SLOT,  # the launcher starts all processes anew
        restart_text="a failed worker is created again alone; the launcher's Job retries the launcher",
        rules=RULES,
        running_succeed=False,  # workers that are left run sshd
        limits_stop_pods=False,  # they are those of the launcher; workers run sshd, also after a success
        mutate=mpi_ssh.mutate,
        ignores_failure=lambda job, slot: slot.role == WORKER,
        selector_in_status=False,
        texts={
            "Created": "{kind} {namespace}/{name} is created.",
            "Running": "{kind} {namespace}/{name} is running.",
            "Succeeded": "{kind} {namespace}/{name} successfully completed.",
            "Suspended": "{kind} suspended",
            "JobResumed": "{kind} resumed",
        },
        single_roles=frozenset({mpi.LAUNCHER}),
        carriers={mpi.LAUNCHER: RETRYING_JOB_CARRIER},
        labels=mpi_ssh.labels,
        awaited_slots=mpi_ssh.awaited_slots,
        job_spec_fields=job_spec_fields,
        run_policy=run_policy,
        diagnosis=mpi_diagnosis.SSH,
        own_network="in each worker sshd listens on port 22; use --network namespace, or MPIJob of kubeflow.org/v1, "
        "which needs no ssh",
        auxiliary=mpi_ssh.auxiliary_objects,
        auxiliary_resources=(CONFIG_MAP, SERVICE),
        created_resources=(SECRET,),
        silent_resources=frozenset({CONFIG_MAP, SECRET, SERVICE}),
        patched_resources=(CONFIG_MAP,),
        has_versions=True,
        created_in_version=created_in_version,
    )
)
