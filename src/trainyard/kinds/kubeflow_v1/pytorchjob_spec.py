"""The spec of a PyTorchJob, and its own rules."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core import Rule
from trainyard.kinds.kubeflow_v1.framework import MASTER
from trainyard.kinds.kubeflow_v1.spec import Count, ReplicaMap, TrainingSpec
from trainyard.kinds.pods.templates import NULLABLE, PRESERVE_UNKNOWN


class RendezvousSetting(msgspec.Struct, kw_only=True):
    """One entry of --rdzv_conf."""

    key: str | None = None
    value: str | None = None


class PyTorchElasticPolicy(msgspec.Struct, kw_only=True):
    """Bounds and rendezvous of an elastic job; torchrun reads them from PET_ variables."""

    minReplicas: Annotated[Count | None, Meta(description="Fewest workers, by default maxReplicas.")] = None
    maxReplicas: Annotated[Count | None, Meta(description="Most workers, by default minReplicas.")] = None
    rdzvBackend: Annotated[
        str | None, Meta(description="Backend of the rendezvous: c10d, etcd, etcd-v2 ...; by default c10d.")
    ] = None
    rdzvHost: Annotated[str | None, Meta(description="Host of the store, by default Worker 0.")] = None
    rdzvPort: Annotated[int | None, Meta(description="Port of the store, by default the worker's port.")] = None
    rdzvId: str | None = None
    rdzvConf: list[RendezvousSetting] | None = None
    standalone: bool | None = None
    nProcPerNode: Annotated[int | None, Meta(description="Deprecated: write spec.nprocPerNode.")] = None
    maxRestarts: Annotated[int | None, Meta(description="Restarts of the worker group by torchrun.")] = None
    metrics: Annotated[
        list[Annotated[dict[str, Any], Meta(extra_json_schema=PRESERVE_UNKNOWN)]] | None,
        Meta(description="Metrics of a HorizontalPodAutoscaler for the workers."),
    ] = None


class PyTorchJobSpec(TrainingSpec, kw_only=True):
    """A torch.distributed job: a master and workers, or elastic workers."""

    pytorchReplicaSpecs: Annotated[ReplicaMap, Meta(description="Master, exactly one, and Worker.")]
    elasticPolicy: Annotated[PyTorchElasticPolicy | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = (
        None
    )
    nprocPerNode: Annotated[
        str | None, Meta(description="Processes of a node: auto, cpu, gpu or a number; by default auto.")
    ] = None


RULES = (
    Rule(
        "spec.pytorchReplicaSpecs",
        "self.all(r, !r.matches('(?i)^master$') || !has(self[r].replicas) || self[r].replicas == 1)",
        lambda roles, old: all(
            item.get("replicas") in (None, 1) for role, item in roles.items() if role.lower() == MASTER.lower()
        ),
        "the master is one replica: write replicas: 1",
    ),
    Rule(
        "spec",
        "!has(self.elasticPolicy) || self.elasticPolicy == null"
        " || self.pytorchReplicaSpecs.exists(r, r.matches('(?i)^worker$'))",
        lambda spec, old: (
            spec.get("elasticPolicy") is None or any(role.lower() == "worker" for role in spec["pytorchReplicaSpecs"])
        ),
        "pytorchReplicaSpecs.Worker must be configured if elastic policy is used",
        field="pytorchReplicaSpecs",
    ),
    Rule(
        "spec",
        "!has(self.nprocPerNode) || !has(self.elasticPolicy) || self.elasticPolicy == null"
        " || !has(self.elasticPolicy.nProcPerNode)",
        lambda spec, old: not spec.get("nprocPerNode") or not (spec.get("elasticPolicy") or {}).get("nProcPerNode"),
        "must not be used with spec.nprocPerNode",
        field="elasticPolicy.nProcPerNode",
    ),
)
