"""What both versions of MPIJob have in common: roles, names, the ConfigMap with the hostfile (docs/rules.md 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.core import AuxiliaryObject, Job, Rule, Slot
from trainyard.core.names import digest
from trainyard.kinds.kubeflow_v1.framework import WORKER, all_of, replica_name
from trainyard.kinds.pods.templates import containers_of, whole_number
from trainyard.objects import GVK, Json, Ref
from trainyard.objects.resources import CONFIG_MAP

LAUNCHER = "Launcher"
REPLICAS = "mpiReplicaSpecs"
CONFIG_VOLUME, CONFIG_PATH = "mpi-job-config", "/etc/mpi"
HOSTFILE, DISCOVER_HOSTS = "hostfile", "discover_hosts.sh"
SCRIPT_MODE, DATA_MODE = 0o555, 0o444
# Without them the container runtime gives a launcher without a GPU limit all GPUs of its node.
NO_GPU: list[Json] = [{"name": name, "value": ""} for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")]


def launcher_name(job: Job) -> str:
    """The name of the launcher, and in v1 of its ServiceAccount, Role and RoleBinding."""
    return f"{job.key.name}-launcher"


def config_name(job: Job) -> str:
    """The name of the ConfigMap."""
    return f"{job.key.name}-config"


def slots_per_worker(job: Job) -> int:
    """`slotsPerWorker`, by default 1: how many processes MPI starts in a worker."""
    slots = whole_number(job.parsed.spec.get("slotsPerWorker"))
    return 1 if slots is None else slots


def worker_names(job: Job) -> list[str]:
    """The names of the workers' Pods, by index."""
    worker = job.role(WORKER)
    return [replica_name(job, WORKER, index) for index in range(worker.replicas if worker else 0)]


def running_workers(job: Job) -> list[str]:
    """The names of the workers' Pods that run, sorted as texts."""
    return sorted(replica_name(job, WORKER, slot.index) for slot in job.running if slot.role == WORKER)


def auxiliary(job: Job, gvk: GVK, name: str, fields: Json, **options: Any) -> AuxiliaryObject:
    """An object of the job with the label `app`. `fields`: all but apiVersion, kind and metadata."""

    def body() -> Json:
        metadata = {"labels": {"app": job.key.name}}
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **fields}

    return AuxiliaryObject(gvk, name, body, **options)


def config_map(job: Job, files: Mapping[str, str], depends_on: tuple[Ref, ...] = ()) -> AuxiliaryObject:
    """The ConfigMap with the hostfile and further files. It is patched when the running workers change."""
    data = dict(files)
    options: Json = {"digest": digest(data), "deferrable": True, "depends_on": depends_on}
    return auxiliary(job, CONFIG_MAP, config_name(job), {"data": data}, **options)


def config_volume(job: Job, modes: Mapping[str, int]) -> Json:
    """The volume with files of the ConfigMap: name -> mode."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": CONFIG_VOLUME, "configMap": {"name": config_name(job), "items": items}}


def main_container_of(template: Json) -> Json:
    """The container in which MPI runs: the first one. {} when the template has none."""
    return next(iter(containers_of(template)), {})


def single_launcher_rule() -> Rule:
    """There is a launcher, and it is one replica."""
    return Rule(
        f"spec.{REPLICAS}",
        "self.filter(r, r.matches('(?i)^launcher$')).size() == 1"
        " && self.all(r, !r.matches('(?i)^launcher$') || !has(self[r].replicas) || self[r].replicas == 1)",
        lambda roles, old: (
            [value.get("replicas") in (None, 1) for role, value in roles.items() if role.lower() == "launcher"]
            == [True]
        ),
        "must have one Launcher, with one replica",
    )


def worker_slots(job: Job) -> frozenset[Slot]:
    """The slots of the workers; none where the launcher asks for the workers that run, as elastic Horovod does: it goes
    on without a lost one."""
    launcher = job.role(LAUNCHER)
    container = main_container_of((launcher.template if launcher else None) or {})
    words = f"{container.get('command')} {container.get('args')}"
    return frozenset() if DISCOVER_HOSTS in words else all_of(WORKER, job)


def launcher_slots(job: Job) -> frozenset[Slot]:
    """The slot of the launcher, which decides over success and failure."""
    return frozenset(slot for slot in job.slots() if slot.role == LAUNCHER)
