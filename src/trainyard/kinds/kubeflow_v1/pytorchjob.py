"""PyTorchJob, `kubeflow.org/v1`: torch.distributed with a master and workers, or an elastic set of workers."""

from __future__ import annotations

from trainyard.core import Job, RestartScope, Slot
from trainyard.kinds.kubeflow_v1 import diagnosis, scripts
from trainyard.kinds.kubeflow_v1.autoscaling import bounds, elastic_policy
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER, Framework, all_of, replica_name, total_replicas
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.master_wait import wait_for_master
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.pytorchjob_spec import RULES, PyTorchJobSpec
from trainyard.kinds.pods.templates import containers_of
from trainyard.kinds.rendezvous_store import SETTINGS, give_each_rendezvous_a_store, name_host_of_store
from trainyard.objects import Json

C10D = "c10d"


def environment(job: Job, slot: Slot) -> list[Json]:
    """The variables of torch.distributed and torchrun, in the order of the Training Operator."""
    elastic, master, total = elastic_policy(job), job.role(MASTER), total_replicas(job)
    processes = job.parsed.spec.get("nprocPerNode")
    if processes is None and (elastic is None or elastic.get("nProcPerNode") is None):
        processes = "auto"
    variables = [variable("PYTHONUNBUFFERED", 1)]
    if master:
        per_node = int(str(processes)) if str(processes).isdecimal() else 1
        rank = slot.index + (slot.role == WORKER)
        address = replica_name(job, MASTER, 0)
        variables += [variable(name, master.port) for name in ("MASTER_PORT", "PET_MASTER_PORT")]
        variables += [variable(name, address) for name in ("MASTER_ADDR", "PET_MASTER_ADDR")]
        variables += [variable("WORLD_SIZE", total * per_node), variable("RANK", rank), variable("PET_NODE_RANK", rank)]
    if processes is not None:
        variables.append(variable("PET_NPROC_PER_NODE", processes))
    return variables + (_elastic(job, elastic) if elastic is not None else [variable("PET_NNODES", total)])


def _elastic(job: Job, policy: Json) -> list[Json]:
    worker = job.role(WORKER)
    low, high = bounds(job)
    host = policy.get("rdzvHost") or replica_name(job, WORKER, 0)
    port = policy.get("rdzvPort") or (worker.port if worker else FRAMEWORK.port)
    optional = {
        "PET_MAX_RESTARTS": policy.get("maxRestarts"),
        "PET_NPROC_PER_NODE": policy.get("nProcPerNode"),
        "PET_RDZV_ID": policy.get("rdzvId"),
        SETTINGS: _settings(policy) or None,
        "PET_STANDALONE": "" if policy.get("standalone") else None,
    }
    return [
        variable("PET_RDZV_ENDPOINT", f"{host}:{port}"),
        variable("PET_RDZV_BACKEND", _backend(policy)),
        variable("PET_NNODES", f"{low}:{high}"),
        *(variable(name, value) for name, value in optional.items() if value is not None),
    ]


def _backend(policy: Json) -> str:
    return str(policy.get("rdzvBackend") or C10D)


def _settings(policy: Json) -> str:
    """The settings of the rendezvous: read_timeout=900,is_host=1."""
    return ",".join(f"{entry.get('key', '')}={entry.get('value', '')}" for entry in policy.get("rdzvConf") or ())


def _hosts_store(job: Job, policy: Json, slot: Slot) -> bool | None:
    """Whether the agent of this pod hosts the c10d store; None: torch decides.

    The default endpoint is Worker 0; programs of a job with a master may name that instead."""
    if _backend(policy) != C10D or policy.get("rdzvHost") or policy.get("standalone"):
        return None
    if slot.role == WORKER and slot.index > 0:
        return False
    return True if job.role(MASTER) is None else None


def mutate(template: Json, job: Job, slot: Slot) -> None:
    """What the pod has beside the variables of the Training Operator, and after them."""
    wait_for_master(template, job, slot)
    policy = elastic_policy(job)
    if policy is None:
        return
    is_host = _hosts_store(job, policy, slot)
    for container in containers_of(template):
        if is_host is not None:
            name_host_of_store(container, _settings(policy), is_host)
        give_each_rendezvous_a_store(container, _backend(policy))


def success_sets(job: Job) -> tuple[frozenset[Slot], ...]:
    """The master; without one all workers, or any worker of an elastic job."""
    workers = all_of(WORKER, job)
    if job.role(MASTER):
        return (all_of(MASTER, job),)
    return tuple(frozenset({slot}) for slot in sorted(workers)) if elastic_policy(job) is not None else (workers,)


FRAMEWORK = Framework(
    kind="PyTorchJob",
    spec_type=PyTorchJobSpec,
    replicas_field="pytorchReplicaSpecs",
    roles=(MASTER, WORKER),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    restart_policy="OnFailure",
    environment=environment,
    success_sets=success_sets,
    leading_role=lambda job: MASTER if job.role(MASTER) else WORKER,
    # A process group of torch.distributed does not take a lost rank back; torchrun's elastic agents form a new group.
    restart_scope=lambda job: RestartScope.GANG if elastic_policy(job) is None else RestartScope.SLOT,
    restart_text=(
        "all replicas are created again together, because a process group does not take a lost rank back; with "
        "`elasticPolicy` the failed replica alone"
    ),
    scalable=True,
    elastic=True,
    rules=RULES,
    mutate=mutate,
    qualified=lambda job: not job.role(MASTER),
    diagnosis=diagnosis.PYTORCH,
    scripts=scripts.TORCH,
)
PYTORCHJOB = training_job(FRAMEWORK)
