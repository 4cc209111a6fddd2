"""PaddleJob, `kubeflow.org/v1`: PaddlePaddle in collective mode (workers) or with parameter servers (Master)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core import Job, RestartScope, Slot
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER, Framework, all_of, replica_name, total_replicas
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import Count, ReplicaMap, TrainingSpec
from trainyard.kinds.pods.templates import NULLABLE, PRESERVE_UNKNOWN
from trainyard.objects import Json

PORT = 36543


class PaddleElasticPolicy(msgspec.Struct, kw_only=True):
    """Bounds of an elastic job."""

    minReplicas: Annotated[Count | None, Meta(description="Fewest workers, by default maxReplicas.")] = None
    maxReplicas: Annotated[Count | None, Meta(description="Most workers, by default minReplicas.")] = None
    maxRestarts: int | None = None
    metrics: Annotated[
        list[Annotated[dict[str, Any], Meta(extra_json_schema=PRESERVE_UNKNOWN)]] | None,
        Meta(description="Metrics of a HorizontalPodAutoscaler for the workers."),
    ] = None


class PaddleJobSpec(TrainingSpec, kw_only=True):
    """A PaddlePaddle job: workers alone, or parameter servers (Master) and workers."""

    paddleReplicaSpecs: Annotated[ReplicaMap, Meta(description="Master and Worker.")]
    elasticPolicy: Annotated[PaddleElasticPolicy | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = (
        None
    )


def environment(job: Job, slot: Slot) -> list[Json]:
    """The variables of `paddle.distributed.launch`. The first replica of the leading role is the rendezvous."""
    leader = leading_role(job)
    role = job.role(leader)
    port = role.port if role else PORT
    variables = [
        variable("PYTHONUNBUFFERED", 1),
        variable("PADDLE_JOB_ID", job.key.name),
        variable("PADDLE_NNODES", total_replicas(job)),
    ]
    if slot == Slot(leader, 0):
        field = {"fieldRef": {"fieldPath": "status.podIP"}}
        variables += [
            {"name": "POD_IP_DUMMY", "valueFrom": field},
            variable("PADDLE_MASTER", f"$(POD_IP_DUMMY):{port}"),
        ]
    else:
        variables.append(variable("PADDLE_MASTER", f"{replica_name(job, leader, 0)}:{port}"))
    if leader == MASTER:
        variables.append(variable("PADDLE_SERVER_NUM" if slot.role == MASTER else "PADDLE_TRAINER_NUM", 1))
    return variables


def leading_role(job: Job) -> str:
    """Master, the parameter servers; in collective mode, without any of them, Worker."""
    return MASTER if (role := job.role(MASTER)) and role.replicas else WORKER


def restart_scope(job: Job) -> RestartScope:
    """A collective does not take a lost worker back, unless it is elastic; parameter servers do."""
    is_collective = leading_role(job) == WORKER and not job.parsed.spec.get("elasticPolicy")
    return RestartScope.GANG if is_collective else RestartScope.SLOT


FRAMEWORK = Framework(
    kind="PaddleJob",
    spec_type=PaddleJobSpec,
    replicas_field="paddleReplicaSpecs",
    roles=(MASTER, WORKER),
    container="paddle",
    port_name="master",
    port=PORT,
    restart_policy="OnFailure",
    environment=environment,
    success_sets=lambda job: (all_of(leading_role(job), job),),
    leading_role=leading_role,
    restart_scope=restart_scope,
    restart_text=(
        "`ExitCode` retries 241, too, with which PaddlePaddle's launcher exits if another process of a worker than its "
        "first fails, whatever the code; workers without `Master` and `elasticPolicy` are created again together, as a "
        "collective does not take a lost worker back; other replicas alone"
    ),
    scalable=True,
    elastic=True,
    is_master=lambda job, slot: slot.role == MASTER,
    qualified=lambda job: not job.role(MASTER),
)
PADDLEJOB = training_job(FRAMEWORK)
