"""PyTorchJob to TrainJob: Trainer sets the variables of torchrun (PET_), the others stand in the job."""

from __future__ import annotations

from trainyard.conversion.fields import Fields
from trainyard.conversion.programs import runs_torchrun
from trainyard.conversion.template_edits import main_container
from trainyard.conversion.trainjob.replicated_jobs import (
    NODE,
    JobSource,
    ReplicaSet,
    address,
    index_variable,
    open_source,
    take_replica_sets,
)
from trainyard.conversion.trainjob.single_role import TrainerJob, single_role_job
from trainyard.kinds.kubeflow_v1.framework import MASTER
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.pytorchjob import FRAMEWORK
from trainyard.kinds.kubeflow_v1.spec import port_of
from trainyard.objects import Json

RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
TRAINER_PORT = 29500


def convert(root: Fields) -> list[Json]:
    """The TrainJob of a PyTorchJob, after its runtime if it needs one."""
    source = open_source(root)
    replica_sets = take_replica_sets(source.spec, FRAMEWORK, NODE)
    processes = _processes(source.spec)
    variables = [variable("PYTHONUNBUFFERED", 1)]
    first = next(iter(replica_sets.values()))
    if MASTER in replica_sets and not runs_torchrun(main_container(first.template, NODE)):
        variables += _process_group(source, replica_sets, processes or 1)
    elastic = source.spec.child("elasticPolicy")
    if elastic.names:
        processes = elastic.take("nProcPerNode", processes)
        variables += _elastic(source, elastic, first.replicas)
    trainer = TrainerJob("torch-distributed", "torch", variables, RESERVED, processes)
    return single_role_job(source, replica_sets, trainer)


def _processes(spec: Fields) -> int | None:
    """numProcPerNode. Without it Trainer starts a process for each GPU, or for each CPU that the job requests."""
    value = str(spec.take("nprocPerNode", "auto"))
    if value.isdecimal():
        return int(value)
    if value != "auto":
        text = f"a TrainJob takes a number, not {value}; without one there is a process for each GPU or requested CPU"
        spec.report_unmapped("nprocPerNode", text)
    return None


def _process_group(source: JobSource, replica_sets: dict[str, ReplicaSet], processes: int) -> list[Json]:
    """The variables of torch.distributed for a program that torchrun does not start."""
    port = port_of(FRAMEWORK, replica_sets[MASTER].template)
    total = sum(replica_set.replicas for replica_set in replica_sets.values())
    return [
        variable("MASTER_PORT", port),
        variable("MASTER_ADDR", address(source.name, NODE, 0)),
        variable("WORLD_SIZE", total * processes),
        index_variable("RANK"),
    ]


def _elastic(source: JobSource, elastic: Fields, replicas: int) -> list[Json]:
    """The rendezvous as variables. A TrainJob has as many nodes as at its start."""
    for bound in ("minReplicas", "maxReplicas"):
        if elastic.peek(bound) == replicas:
            elastic.take(bound)
        elastic.unmapped(bound, f"a TrainJob always has numNodes nodes, here {replicas}; leave it out")
    elastic.unmapped("metrics", "a TrainJob is not scaled, so it has no HorizontalPodAutoscaler; leave it out")
    host, port = elastic.take("rdzvHost", address(source.name, NODE, 0)), elastic.take("rdzvPort", TRAINER_PORT)
    settings = [f"{entry.get('key', '')}={entry.get('value', '')}" for entry in elastic.take("rdzvConf", [])]
    optional = {
        "PET_MAX_RESTARTS": elastic.take("maxRestarts"),
        "PET_RDZV_ID": elastic.take("rdzvId"),
        "PET_RDZV_CONF": ",".join(settings) or None,
        "PET_STANDALONE": "" if elastic.take("standalone") else None,
    }
    return [
        variable("PET_RDZV_BACKEND", elastic.take("rdzvBackend", "c10d")),
        variable("PET_RDZV_ENDPOINT", f"{host}:{port}"),
        *(variable(name, value) for name, value in optional.items() if value is not None),
    ]
