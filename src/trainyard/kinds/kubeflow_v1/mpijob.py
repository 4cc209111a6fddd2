"""MPIJob, `kubeflow.org/v1`: a launcher that starts MPI's processes in the workers with `exec`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trainyard.core import RestartScope
from trainyard.kinds.kubeflow_v1 import mpi, mpi_diagnosis, mpi_exec, scripts
from trainyard.kinds.kubeflow_v1.framework import WORKER, Framework
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.kinds.kubeflow_v1.spec import ReplicaMap, TrainingSpec
from trainyard.kinds.policies import CleanPodPolicyName
from trainyard.objects import Json


class MPIJobSpec(TrainingSpec, kw_only=True):
    """An MPI job: a launcher, which runs mpirun, and workers."""

    mpiReplicaSpecs: Annotated[ReplicaMap, Meta(description="Launcher and Worker.")]
    slotsPerWorker: Annotated[
        Annotated[int, Meta(ge=0, le=2147483647)] | None, Meta(description="Processes in each worker, by default 1.")
    ] = None
    mainContainer: Annotated[str | None, Meta(description="Container of a worker in which MPI runs.")] = None
    cleanPodPolicy: Annotated[
        CleanPodPolicyName | None, Meta(description="An older place of runPolicy.cleanPodPolicy, which overrides it.")
    ] = None


def run_policy(spec: Json) -> object:
    """`runPolicy`, with the cleanPodPolicy of the spec where it has none."""
    policy, clean = spec.get("runPolicy"), spec.get("cleanPodPolicy")
    policies = policy if isinstance(policy, dict) else {}
    own = policies.get("cleanPodPolicy")
    return {**policies, "cleanPodPolicy": clean if own is None else own}


MPIJOB = training_job(
    Framework(
        kind="MPIJob",
        spec_type=MPIJobSpec,
        replicas_field=mpi.REPLICAS,
        roles=(mpi.LAUNCHER, WORKER),
        container="mpi",
        main_is_first=True,
        port_name="",
        port=0,
        restart_policy="Never",
        environment=lambda job, slot: [],
        success_sets=lambda job: (mpi.launcher_slots(job),),
        worker_slots=mpi.worker_slots,
        serving_roles=frozenset({WORKER}),
        workers_reached_by_exec=True,
        leading_role=lambda job: mpi.LAUNCHER,
        restart_scope=lambda job: RestartScope.SLOT,  # workers wait for the launcher, which starts all processes anew
        restart_text="a failed replica is created again alone: the launcher starts MPI's processes anew",
        rules=(mpi.single_launcher_rule(),),
        running_succeed=False,  # workers that are left sleep
        mutate=mpi_exec.mutate,
        in_place_failure_is_final=True,
        selector_in_status=False,
        restarting_text="MPIJob {name} is restarting because {count} {role} replica(s) failed.",
        single_roles=frozenset({mpi.LAUNCHER}),
        default_replicas={WORKER: 0},
        auxiliary=mpi_exec.auxiliary_objects,
        auxiliary_resources=mpi_exec.AUXILIARY_RESOURCES,
        silent_resources=frozenset(mpi_exec.AUXILIARY_RESOURCES),
        patched_resources=mpi_exec.AUXILIARY_RESOURCES[:1] + mpi_exec.AUXILIARY_RESOURCES[2:3],
        dependencies=mpi_exec.dependencies,
        dotted_names=True,
        run_policy=run_policy,
        diagnosis=mpi_diagnosis.EXEC,
        scripts=scripts.MPI,
        has_versions=True,
        further_versions=(MPIJOB_V2BETA1,),
    )
)
