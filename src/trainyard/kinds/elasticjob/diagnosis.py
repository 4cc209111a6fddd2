"""What `trainyard why` says about the rendezvous of an ElasticJob: at least spec.minReplicas workers meet at
spec.rdzvEndpoint."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import Job
from trainyard.core.diagnosis import BLOCK, Cause, Endpoint, Finding, ObservedReplicas
from trainyard.core.kind import Diagnosis
from trainyard.kinds.elasticjob.spec import replicas_of
from trainyard.kinds.pods.templates import whole_number
from trainyard.kinds.torchrun_diagnosis import (
    MODULE_FIXES,
    OUTPUT_PATTERNS,
    TORCHRUN,
    endpoint_of,
    unreachable,
    with_endpoint,
)
from trainyard.objects import Json

RDZV_ENDPOINT = "rdzvEndpoint"


def rendezvous_endpoint(job: Json) -> Endpoint | None:
    """The address in spec.rdzvEndpoint. None without it."""
    spec = job.get("spec")
    address = spec.get(RDZV_ENDPOINT) if isinstance(spec, dict) else None
    return endpoint_of(job, address, f"spec.{RDZV_ENDPOINT}")


def peers_needed(spec: Json) -> int | None:
    """How many workers meet before training starts. None without a minimum and an endpoint."""
    if "minReplicas" in spec:
        return whole_number(spec.get("minReplicas"))
    return replicas_of(spec) if RDZV_ENDPOINT in spec else None


def too_few(job: Job, observed: ObservedReplicas) -> Iterator[Finding]:
    """Fewer workers run than spec.minReplicas, so that the rendezvous does not complete."""
    min_replicas = whole_number(job.parsed.spec.get("minReplicas"))
    running = observed.states.count("Running")
    if min_replicas is not None and 0 < running < min_replicas and "Succeeded" not in observed.states:
        summary = f"{running} of at least {min_replicas} replicas run: its rendezvous waits for the others"
        fix = "see the findings about the others, or lower spec.minReplicas"
        yield Finding(BLOCK, summary, "spec.minReplicas", (), fix)


def refine(job: Job, cause: Cause) -> Cause:
    """Name the endpoint that a launcher could not reach."""
    return with_endpoint(cause, job.parsed.spec.get(RDZV_ENDPOINT) or "", f"spec.{RDZV_ENDPOINT}")


DIAGNOSIS = Diagnosis(
    rules=(unreachable, too_few),
    output_patterns=OUTPUT_PATTERNS,
    endpoint=rendezvous_endpoint,
    peers_needed=peers_needed,
    refine=refine,
    launcher=TORCHRUN,
    module_fixes=MODULE_FIXES,
)
