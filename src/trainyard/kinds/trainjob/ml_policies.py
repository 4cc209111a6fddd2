"""What the machine-learning policy of a runtime puts into a TrainJob: the number of nodes, and the variables by which
its processes find each other. They run in one order; Trainer's is random.

Without `spec.trainer` Trainer sets no variables (kubeflow/trainer#4076); ours are set all the same.
"""

from __future__ import annotations

from trainyard.kinds.trainjob import mpi, torchtune
from trainyard.kinds.trainjob.pod_sets import (
    PORT,
    Rendered,
    index_variable,
    open_port,
    set_variables,
    variable,
)
from trainyard.objects import Json


def enforce(rendered: Rendered) -> None:
    """Change the pod sets as the policy says."""
    policy = rendered.policy
    if not {"torch", "mpi", "jax"} & _configured(policy):
        _plain(rendered)
    for name, enforce_policy in (("torch", _torch), ("jax", _jax), ("xgboost", _xgboost), ("mpi", mpi.enforce)):
        if policy.get(name) is not None:
            enforce_policy(rendered)


def _configured(policy: Json) -> set[str]:
    return {name for name, value in policy.items() if value is not None}


def _set_number_of_nodes(rendered: Rendered) -> None:
    trainer_set = rendered.trainer_set()
    if trainer_set is not None and rendered.num_nodes is not None:
        trainer_set.count = rendered.num_nodes


def _number_of_nodes(rendered: Rendered) -> int:
    trainer_set = rendered.trainer_set()
    return trainer_set.count if trainer_set else 1


def _plain(rendered: Rendered) -> None:
    _set_number_of_nodes(rendered)
    if container := rendered.node_container():
        set_variables(container, *rendered.trainer.get("env") or ())


def _torch(rendered: Rendered) -> None:
    _set_number_of_nodes(rendered)
    processes = processes_per_node(rendered)
    variables = (
        variable("PET_NNODES", _number_of_nodes(rendered)),
        variable("PET_NPROC_PER_NODE", processes),
        index_variable("PET_NODE_RANK"),
    )
    master = (variable("PET_MASTER_ADDR", rendered.address()), variable("PET_MASTER_PORT", PORT))
    if container := rendered.node_container():
        set_variables(container, *rendered.trainer.get("env") or (), *variables)
        if torchtune.is_used(rendered.trainer):
            torchtune.complete_command(rendered, _number_of_nodes(rendered), processes)
        else:
            set_variables(container, *master)
        open_port(container)
    for target in (rendered.policy["torch"].get("envInjection") or {}).get("targets") or ():
        pod_set = rendered.named(target["jobName"])
        for name in target["containerNames"] if pod_set else ():
            if pod_set and (other := pod_set.container(name, with_init=True)):
                set_variables(other, *variables, *master)


def processes_per_node(rendered: Rendered) -> int | str:
    """Of torchrun: as the job says; `auto`, one for each GPU, if there are any; else one for each CPU."""
    given = rendered.trainer.get("numProcPerNode")
    if given is not None:
        return int(given)
    return "auto" if rendered.gpus_per_node() else max(1, rendered.cpus_per_node())


def _jax(rendered: Rendered) -> None:
    _set_number_of_nodes(rendered)
    if container := rendered.node_container():
        set_variables(
            container,
            variable("JAX_NUM_PROCESSES", _number_of_nodes(rendered)),
            index_variable("JAX_PROCESS_ID"),
            variable("JAX_COORDINATOR_ADDRESS", f"{rendered.address()}:{PORT}"),
        )
        open_port(container)


def _xgboost(rendered: Rendered) -> None:
    """A worker for each GPU, or one for each node."""
    if container := rendered.node_container():
        workers = _number_of_nodes(rendered) * (rendered.gpus_per_node() or 1)
        set_variables(
            container,
            variable("DMLC_TRACKER_URI", rendered.address()),
            variable("DMLC_TRACKER_PORT", PORT),
            index_variable("DMLC_TASK_ID"),
            variable("DMLC_NUM_WORKER", workers),
        )
        open_port(container)
