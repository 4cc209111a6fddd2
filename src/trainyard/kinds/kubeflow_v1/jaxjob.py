"""JAXJob, `kubeflow.org/v1`: processes of jax.distributed, of which the first is the coordinator."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trainyard.core import Job, RestartScope, Slot
from trainyard.kinds.kubeflow_v1 import diagnosis, scripts
from trainyard.kinds.kubeflow_v1.framework import WORKER, Framework, all_of, replica_name, total_replicas
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import ReplicaMap, TrainingSpec
from trainyard.objects import Json

PORT = 6666


class JAXJobSpec(TrainingSpec, kw_only=True):
    """A JAX job: the processes of one jax.distributed cluster."""

    jaxReplicaSpecs: Annotated[ReplicaMap, Meta(description="Worker.")]


def environment(job: Job, slot: Slot) -> list[Json]:
    """The arguments of jax.distributed.initialize, as variables that the program reads."""
    worker = job.role(WORKER)
    return [
        variable("PYTHONUNBUFFERED", 1),
        variable("COORDINATOR_PORT", worker.port if worker else PORT),
        variable("COORDINATOR_ADDRESS", replica_name(job, WORKER, 0)),
        variable("NUM_PROCESSES", total_replicas(job)),
        variable("PROCESS_ID", slot.index),
    ]


FRAMEWORK = Framework(
    kind="JAXJob",
    spec_type=JAXJobSpec,
    replicas_field="jaxReplicaSpecs",
    roles=(WORKER,),
    container="jax",
    port_name="jaxjob-port",
    port=PORT,
    restart_policy="Never",
    environment=environment,
    success_sets=lambda job: (all_of(WORKER, job),),
    leading_role=lambda job: WORKER,
    restart_scope=lambda job: RestartScope.GANG,  # jax.distributed ends all processes when one is lost
    restart_text="all replicas are created again together, as jax.distributed does not take a lost process back",
    scalable=True,
    qualified=lambda job: True,
    diagnosis=diagnosis.JAX,
    scripts=scripts.JAX,
)
JAXJOB = training_job(FRAMEWORK)
