"""XGBoostJob, `kubeflow.org/v1`: XGBoost with a tracker on the master, and LightGBM with a list of machines."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trainyard.core import Job, RestartScope, Rule, Slot
from trainyard.kinds.kubeflow_v1 import scripts
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER, Framework, all_of, replica_name, total_replicas
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import ReplicaMap, TrainingSpec
from trainyard.objects import Json

PORT = 9999


class XGBoostJobSpec(TrainingSpec, kw_only=True):
    """An XGBoost or LightGBM job: a master and workers."""

    xgbReplicaSpecs: Annotated[ReplicaMap, Meta(description="Master, exactly one, and Worker.")]


RULES = (
    Rule(
        "spec.xgbReplicaSpecs",
        "self.exists_one(r, r.matches('(?i)^master$'))"
        " && self.all(r, !r.matches('(?i)^master$') || !has(self[r].replicas) || self[r].replicas == 1)",
        lambda roles, old: (
            [
                1 if item.get("replicas") is None else item["replicas"]
                for role, item in roles.items()
                if role.lower() == MASTER.lower()
            ]
            == [1]
        ),
        "there is one master: write Master with replicas: 1",
    ),
)


def environment(job: Job, slot: Slot) -> list[Json]:
    """The tracker's address and the rank, and for LightGBM the addresses of the workers."""
    master, worker, total = job.role(MASTER), job.role(WORKER), total_replicas(job)
    masters = master.replicas if master else 1
    variables = [
        variable("MASTER_PORT", master.port if master else PORT),
        variable("MASTER_ADDR", replica_name(job, MASTER, 0)),
        variable("WORLD_SIZE", total),
        variable("RANK", slot.index + (masters if slot.role == WORKER else 0)),
        variable("PYTHONUNBUFFERED", 1),
    ]
    if total > 1:
        addresses = ",".join(replica_name(job, WORKER, index) for index in range(total - 1))
        variables += [
            variable("WORKER_PORT", worker.port if worker else PORT),
            variable("WORKER_ADDRS", addresses),
        ]
    return variables


FRAMEWORK = Framework(
    kind="XGBoostJob",
    spec_type=XGBoostJobSpec,
    replicas_field="xgbReplicaSpecs",
    roles=(MASTER, WORKER),
    container="xgboost",
    port_name="xgboostjob-port",
    port=PORT,
    restart_policy="Never",
    environment=environment,
    success_sets=lambda job: (all_of(MASTER, job),),
    leading_role=lambda job: MASTER,
    # The tracker of XGBoost 2 waits for all workers at once; a collective that has lost one does not go on.
    restart_scope=lambda job: RestartScope.GANG,
    restart_text="all replicas are created again together, because the tracker does not take a lost worker back",
    rules=RULES,
    is_master=lambda job, slot: slot.role == MASTER,
    in_place_failure_is_final=True,
    selector_in_status=False,
    scripts=scripts.XGBOOST,
)
XGBOOSTJOB = training_job(FRAMEWORK)
