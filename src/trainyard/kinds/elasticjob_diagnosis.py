"""What `trainyard why` says about the rendezvous of an ElasticJob: at least spec.minReplicas workers meet at
spec.rdzvEndpoint."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import Job
from trainyard.core.diagnosis import Cause, Diagnosis, Endpoint, Finding, ObservedReplicas
from trainyard.kinds import torch_diagnosis
from trainyard.kinds.elasticjob_spec import replicas_of
from trainyard.kinds.templates import whole_number
from trainyard.objects import Json

RDZV_ENDPOINT = "rdzvEndpoint"


def rendezvous_endpoint(job: Json) -> Endpoint | None:
    """The address in spec.rdzvEndpoint, None without it."""
    spec = job.get("spec")
    address = spec.get(RDZV_ENDPOINT) if isinstance(spec, dict) else None
    if not isinstance(address, str) or not address.strip():
        return None
    return torch_diagnosis.endpoint_at(job, address, f"spec.{RDZV_ENDPOINT}")


def peers_needed(spec: Json) -> int | None:
    """How many workers meet before training starts. None without a minimum and an endpoint."""
    if "minReplicas" in spec:
        return whole_number(spec.get("minReplicas"))
    return replicas_of(spec) if RDZV_ENDPOINT in spec else None


def too_few(job: Job, observed: ObservedReplicas) -> Iterator[Finding]:
    """Fewer workers run than spec.minReplicas."""
    return torch_diagnosis.too_few(observed, whole_number(job.parsed.spec.get("minReplicas")), "spec.minReplicas")


def refine(job: Job, cause: Cause) -> Cause:
    """Name the endpoint that a launcher could not reach."""
    return torch_diagnosis.with_endpoint(cause, job.parsed.spec.get(RDZV_ENDPOINT) or "", f"spec.{RDZV_ENDPOINT}")


DIAGNOSIS = Diagnosis(
    rules=(torch_diagnosis.unreachable, too_few),
    output_patterns=torch_diagnosis.OUTPUT_PATTERNS,
    endpoint=rendezvous_endpoint,
    peers_needed=peers_needed,
    refine=refine,
    launcher=torch_diagnosis.TORCHRUN,
    module_fixes=torch_diagnosis.MODULE_FIXES,
)
