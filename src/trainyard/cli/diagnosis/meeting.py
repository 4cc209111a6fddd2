"""Replicas that must meet before anything begins: enough of them, at an address that answers.

It is asked of every kind: the spec's minReplicas and rdzvEndpoint speak for themselves where a kind has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.cli.diagnosis.facts import BLOCK, WAIT, Endpoint, Facts, Finding
from trainyard.objects import Json, namespace_of

ENDPOINT = "rdzvEndpoint"


def address_of(job: Json) -> Endpoint | None:
    """The address in the spec, and the Service of the namespace that it may mean."""
    spec = job.get("spec")
    text = spec.get(ENDPOINT) if isinstance(spec, dict) else None
    if not isinstance(text, str) or not text.strip():
        return None
    host = text.split("//")[-1].split("/")[0].rpartition(":")[0] or text
    parts = host.split(".")
    numeric = all(part.isdecimal() for part in parts)
    namespace = namespace_of(job)
    same = len(parts) == 1 or (parts[1] == namespace and (len(parts) == 2 or parts[2] == "svc"))
    return Endpoint(text, f"spec.{ENDPOINT}", parts[0] if same and not numeric else host if numeric else "")


def too_few(facts: Facts) -> Iterator[Finding]:
    """Fewer replicas run than the least that may begin."""
    least = facts.spec.get("minReplicas")
    if not isinstance(least, int) or isinstance(least, bool):
        return
    running = sum(one.state == "Running" for one, _ in facts.slots)
    done = sum(one.state == "Succeeded" for one, _ in facts.slots)
    if running and not done and running < least:
        what = f"{running} of at least {least} replicas run: its rendezvous waits for the others"
        fix = "see what is said of the others; or lower spec.minReplicas"
        yield Finding(BLOCK, what, "spec.minReplicas", (), fix)


def unreachable(facts: Facts) -> Iterator[Finding]:
    """Nobody is at the address."""
    at = facts.endpoint
    if at is None or not at.known:
        return
    where = f"{at.field}: {at.address}"
    if not at.exists:
        what = f"there is no Service {at.service} in namespace {namespace_of(facts.job)}: its replicas cannot meet"
        fix = "make the Service and what runs behind it (for etcd: the README's etcd.yaml), or mend the field"
        yield Finding(BLOCK, what, where, (), fix)
    elif not at.ready:
        what = f"no pod behind Service {at.service} is ready: its replicas cannot meet yet"
        yield Finding(WAIT, what, where, (), f"see why it does not run: kubectl describe service {at.service}")
