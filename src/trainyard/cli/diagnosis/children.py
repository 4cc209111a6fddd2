"""What the objects say that should have made pods, and slots that have none."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard import core
from trainyard.cli.diagnosis.facts import BLOCK, WAIT, Facts, Finding, names_of
from trainyard.cli.diagnosis.waits import missing_object
from trainyard.cli.view import index_of, role_of
from trainyard.core import Observed
from trainyard.core.policies.restart import LONGEST_BACKOFF
from trainyard.objects import Json, controller_of, name_of, namespace_of, uid_of

PATIENCE = 10.0  # seconds in which a pod is made


def missing(facts: Facts) -> Iterator[Finding]:
    """Children that make no pod, or too few, and what was said about that. Equal ones together."""
    owners = {(controller_of(pod) or {}).get("uid") for pod in facts.pods}
    refused: dict[str, list[tuple[Json, str]]] = {}
    for child in facts.children:
        said = _refusal(facts, child)
        wanted, there = _wanted(child), uid_of(child) in owners
        if said and wanted and (not there or wanted > 1):
            refused.setdefault(said.replace(name_of(child), ""), []).append((child, said))
        elif child["kind"] == "StatefulSet" and wanted:
            ready = int((child.get("status") or {}).get("readyReplicas") or 0)
            if ready < wanted:
                where = f"StatefulSet {name_of(child)}: status.readyReplicas"
                what = f"{ready} of {wanted} workers of {name_of(child)} are ready"
                yield Finding(WAIT, what, where, (), "see what is said of its pods")
        elif wanted and not there and _is_late(facts, child):
            where = f"{child['kind']} {name_of(child)}: status"
            fix = "see that the controllers of the cluster run (kube-controller-manager)"
            yield Finding(BLOCK, f"{child['kind']} {name_of(child)} has made no pod yet", where, (), fix)
    for members in refused.values():
        yield _refused(members)


def _refused(members: list[tuple[Json, str]]) -> Finding:
    """Children whose pods the API server refuses, for the same reason."""
    child, said = members[0]
    what = f"no pod can be made for {child['kind']} {names_of(name_of(one) for one, _ in members)}"
    where = f"{child['kind']} {name_of(child)}: events"
    if lacking := missing_object(said, namespace_of(child)):
        return Finding(BLOCK, f"{what}: there is no {lacking.kind} {lacking.name}", where, (said,), lacking.fix)
    fix = "raise the quota, or ask for less" if "quota" in said else "mend the template as the message says"
    return Finding(BLOCK, what, where, (said,), fix)


def empty_slots(facts: Facts) -> Iterator[Finding]:
    """Slots of the job whose pod the operator makes itself, and that have none."""
    seen = {(role_of(pod), index_of(pod)) for pod in facts.pods}
    job = facts.read
    empty = [
        slot
        for slot in job.slots()
        if job.carrier(slot.role).gvk.kind == "Pod" and (slot.role, str(slot.index)) not in seen
    ]
    started = facts.age(facts.status.get("startTime"))
    if not empty or started is None or started < PATIENCE or facts.holds("Restarting") or facts.holds("Suspended"):
        return
    planned = {create.ref.name for create in decision(facts).creates}
    for made, slots in (
        (True, [slot for slot in empty if job.kind.child_name(job, slot) in planned]),
        (False, [slot for slot in empty if job.kind.child_name(job, slot) not in planned]),
    ):
        if not slots:
            continue
        what = f"{names_of(f'{slot.role.lower()}-{slot.index}' for slot in slots)}: no pod is there"
        where = f"pod {job.kind.child_name(job, slots[0])}"
        if made:
            fix = "see that the operator runs: on this machine `trainyard status` names its log"
            yield Finding(BLOCK, f"{what}, and the operator has not made one yet", where, (), fix)
        else:
            fix = f"`{facts.command('suspend')}` and then resume make its replicas anew"
            yield Finding(BLOCK, f"{what}, and none will be made", where, (), fix)


def decision(facts: Facts) -> core.Plan:
    """What the operator would do now: the very decision that it makes."""
    children = []
    for obj in (*facts.children, *facts.pods):
        try:
            children.append(core.child_of(obj, str(obj.get("kind"))))
        except ValueError:
            continue
    return core.plan(facts.kind, facts.job, Observed(tuple(children)), facts.now)


def next_look(facts: Facts) -> float | None:
    """When the operator looks again by itself."""
    after = decision(facts).requeue_at
    return after if after is not None and facts.now < after <= facts.now + LONGEST_BACKOFF else None


def done_without_pods(facts: Facts) -> int:
    """Replicas that have ended well and whose pods are gone: their batch Jobs remember."""
    owners = {(controller_of(pod) or {}).get("uid") for pod in facts.pods}
    return sum(
        child["kind"] == "Job" and uid_of(child) not in owners and _holds(child, "Complete") for child in facts.children
    )


def _wanted(child: Json) -> int | None:
    """How many pods a child keeps; None for one that keeps none, or has ended."""
    spec = child.get("spec") or {}
    if child["metadata"].get("deletionTimestamp"):
        return None
    if child["kind"] == "Job" and (_holds(child, "Complete") or _holds(child, "Failed") or spec.get("suspend")):
        return None
    if child["kind"] == "Job":
        return (
            None
            if _holds(child, "Complete") or _holds(child, "Failed") or spec.get("suspend")
            else int(spec.get("parallelism", 1) or 0)
        )
    return int(spec.get("replicas", 1) or 0) if child["kind"] in ("StatefulSet", "Deployment") else None


def _holds(child: Json, condition: str) -> bool:
    listed = (child.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == condition and one.get("status") == "True" for one in listed)


def _refusal(facts: Facts, child: Json) -> str:
    """The newest Warning about a pod that could not be made."""
    for event in reversed(facts.events):
        about = event.get("involvedObject") or {}
        if about.get("uid") == uid_of(child) and event.get("reason") == "FailedCreate":
            return str(event.get("message") or "")
    return ""


def _is_late(facts: Facts, child: Json) -> bool:
    since = facts.age(child["metadata"].get("creationTimestamp"))
    return since is not None and since >= PATIENCE
