"""XGBoostJob to TrainJob. Trainer sets DMLC_ variables, the job those of the Training Operator."""

from __future__ import annotations

from trainyard.conversion.fields import Fields
from trainyard.conversion.trainjob.replicated_jobs import (
    NODE,
    address,
    index_variable,
    open_source,
    take_replica_sets,
)
from trainyard.conversion.trainjob.single_role import TrainerJob, single_role_job
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import port_of
from trainyard.kinds.kubeflow_v1.xgboostjob import FRAMEWORK
from trainyard.objects import Json

RESERVED = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")


def convert(root: Fields) -> list[Json]:
    """The TrainJob of an XGBoostJob, after its runtime if it needs one."""
    source = open_source(root)
    replica_sets = take_replica_sets(source.spec, FRAMEWORK, NODE)
    total = sum(replica_set.replicas for replica_set in replica_sets.values())
    master, *workers = (port_of(FRAMEWORK, replica_set.template) for replica_set in replica_sets.values())
    variables = [
        variable("PYTHONUNBUFFERED", 1),
        variable("MASTER_PORT", master),
        variable("MASTER_ADDR", address(source.name, NODE, 0)),
        variable("WORLD_SIZE", total),
        index_variable("RANK"),
    ]
    if workers:
        addresses = ",".join(address(source.name, NODE, index) for index in range(1, total))
        variables += [variable("WORKER_PORT", workers[0]), variable("WORKER_ADDRS", addresses)]
    trainer = TrainerJob("xgboost-distributed", "xgboost", variables, RESERVED)
    return single_role_job(source, replica_sets, trainer)
