"""JAXJob to TrainJob. Trainer calls the variables JAX_COORDINATOR_ADDRESS and so on: the program has both."""

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
from trainyard.kinds.kubeflow_v1.jaxjob import FRAMEWORK
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import port_of
from trainyard.objects import Json


def convert(root: Fields) -> list[Json]:
    """The TrainJob of a JAXJob, after its runtime if it needs one."""
    source = open_source(root)
    replica_sets = take_replica_sets(source.spec, FRAMEWORK, NODE)
    (workers,) = replica_sets.values()
    variables = [
        variable("PYTHONUNBUFFERED", 1),
        variable("COORDINATOR_PORT", port_of(FRAMEWORK, workers.template)),
        variable("COORDINATOR_ADDRESS", address(source.name, NODE, 0)),
        variable("NUM_PROCESSES", workers.replicas),
        index_variable("PROCESS_ID"),
    ]
    return single_role_job(source, replica_sets, TrainerJob("jax-distributed", "jax", variables))
