"""Rendezvous of the replicas: at least spec.minReplicas of them run, and spec.rdzvEndpoint is reachable.

The rules apply to every kind: a kind without these fields has no findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.cli.diagnosis.inputs import BLOCK, WAIT, Endpoint, Facts, Finding
from trainyard.objects import Json, namespace_of

RDZV_ENDPOINT = "rdzvEndpoint"


def rendezvous_endpoint(job: Json) -> Endpoint | None:
    """The address in spec.rdzvEndpoint, and the Service of the job's namespace that it may name. None without it."""
    spec = job.get("spec")
    address = spec.get(RDZV_ENDPOINT) if isinstance(spec, dict) else None
    if not isinstance(address, str) or not address.strip():
        return None
    host = address.split("//")[-1].split("/")[0].rpartition(":")[0] or address
    parts = host.split(".")
    numeric = all(part.isdecimal() for part in parts)
    namespace = namespace_of(job)
    same_namespace = len(parts) == 1 or (parts[1] == namespace and (len(parts) == 2 or parts[2] == "svc"))
    return Endpoint(
        address, f"spec.{RDZV_ENDPOINT}", parts[0] if same_namespace and not numeric else host if numeric else ""
    )


def too_few(facts: Facts) -> Iterator[Finding]:
    """Fewer replicas run than spec.minReplicas, so that the rendezvous does not complete."""
    min_replicas = facts.spec.get("minReplicas")
    if not isinstance(min_replicas, int) or isinstance(min_replicas, bool):
        return
    running = sum(replica.state == "Running" for replica, _ in facts.replicas)
    succeeded = sum(replica.state == "Succeeded" for replica, _ in facts.replicas)
    if running and not succeeded and running < min_replicas:
        summary = f"{running} of at least {min_replicas} replicas run: its rendezvous waits for the others"
        fix = "see what is said of the others; or lower spec.minReplicas"
        yield Finding(BLOCK, summary, "spec.minReplicas", (), fix)


def unreachable(facts: Facts) -> Iterator[Finding]:
    """The Service of the rendezvous address does not exist or has no ready pod."""
    endpoint = facts.endpoint
    if endpoint is None or not endpoint.looked_up:
        return
    where = f"{endpoint.field}: {endpoint.address}"
    if not endpoint.exists:
        summary = (
            f"there is no Service {endpoint.service} in namespace {namespace_of(facts.job)}: its replicas cannot meet"
        )
        fix = "make the Service and what runs behind it (for etcd: the README's etcd.yaml), or mend the field"
        yield Finding(BLOCK, summary, where, (), fix)
    elif not endpoint.ready_pods:
        summary = f"no pod behind Service {endpoint.service} is ready: its replicas cannot meet yet"
        yield Finding(WAIT, summary, where, (), f"see why it does not run: kubectl describe service {endpoint.service}")
