"""What `trainyard why` says about a PyTorchJob: all replicas form the process group, or at least
elasticPolicy.minReplicas workers meet at the rendezvous."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import Job
from trainyard.core.diagnosis import Cause, Diagnosis, Endpoint, Finding, ObservedReplicas
from trainyard.kinds import torch_diagnosis
from trainyard.kinds.templates import whole_number
from trainyard.objects import Json

HOST_FIELD, MIN_FIELD = "spec.elasticPolicy.rdzvHost", "spec.elasticPolicy.minReplicas"


def _elastic_policy(spec: object) -> Json | None:
    policy = spec.get("elasticPolicy") if isinstance(spec, dict) else None
    return policy if isinstance(policy, dict) else None


def _address(spec: object) -> str:
    """host:port of a rendezvous outside of the job, "" without one."""
    policy = _elastic_policy(spec) or {}
    host, port = policy.get("rdzvHost"), policy.get("rdzvPort")
    if not isinstance(host, str) or not host.strip():
        return ""
    return f"{host}:{port}" if port else host


def rendezvous_endpoint(job: Json) -> Endpoint | None:
    """The address in elasticPolicy.rdzvHost, None without it."""
    address = _address(job.get("spec"))
    return torch_diagnosis.endpoint_at(job, address, HOST_FIELD) if address else None


def peers_needed(spec: Json) -> int | None:
    """How many replicas meet before training starts; None for an elastic job without a minimum."""
    policy = _elastic_policy(spec)
    if policy is not None:
        return whole_number(policy.get("minReplicas"))
    sets = spec.get("pytorchReplicaSpecs")
    items = [item for item in (sets.values() if isinstance(sets, dict) else ()) if isinstance(item, dict)]
    counts = [1 if item.get("replicas") is None else whole_number(item["replicas"]) or 0 for item in items]
    return sum(counts) or None


def too_few(job: Job, observed: ObservedReplicas) -> Iterator[Finding]:
    """Fewer workers run than elasticPolicy.minReplicas."""
    policy = _elastic_policy(job.parsed.spec) or {}
    return torch_diagnosis.too_few(observed, whole_number(policy.get("minReplicas")), MIN_FIELD)


def refine(job: Job, cause: Cause) -> Cause:
    """Name the endpoint that a launcher could not reach."""
    return torch_diagnosis.with_endpoint(cause, _address(job.parsed.spec), HOST_FIELD)


DIAGNOSIS = Diagnosis(
    rules=(torch_diagnosis.unreachable, too_few),
    output_patterns=torch_diagnosis.OUTPUT_PATTERNS,
    endpoint=rendezvous_endpoint,
    peers_needed=peers_needed,
    refine=refine,
    launcher=torch_diagnosis.TORCHRUN,
    module_fixes=torch_diagnosis.MODULE_FIXES,
)
