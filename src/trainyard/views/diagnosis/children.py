"""Child objects whose controllers create no pods (batch Jobs, StatefulSets, Deployments), and slots without a pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainyard import core
from trainyard.core import Observed, Slot
from trainyard.core.diagnosis import BLOCK, WAIT, Finding
from trainyard.core.policies.restart import MAX_DELAY
from trainyard.objects import Json, controller_of, name_of, namespace_of, uid_of
from trainyard.objects.labels import index_of, role_of
from trainyard.objects.structs import replace
from trainyard.views.diagnosis.inputs import Facts, join_names
from trainyard.views.diagnosis.waiting_reasons import missing_object

POD_CREATION_SECONDS = 10.0  # seconds in which a controller creates a pod


def children_without_pods(facts: Facts) -> Iterator[Finding]:
    """Children with no pod or too few pods, with the FailedCreate event as evidence.

    Children with the same event message are one finding."""
    owners = {(controller_of(pod) or {}).get("uid") for pod in facts.pods}
    refused_children: dict[str, list[tuple[Json, str]]] = {}
    for child in facts.children:
        message = _failed_create_message(facts, child)
        desired, has_pod = _desired_pods(child), uid_of(child) in owners
        if message and desired and (not has_pod or desired > 1):
            refused_children.setdefault(message.replace(name_of(child), ""), []).append((child, message))
        elif child["kind"] == "StatefulSet" and desired:
            ready = int((child.get("status") or {}).get("readyReplicas") or 0)
            if ready < desired:
                where = f"StatefulSet {name_of(child)}: status.readyReplicas"
                summary = f"{ready} of {desired} workers of {name_of(child)} are ready"
                yield Finding(WAIT, summary, where, (), "see what is said of its pods")
        elif desired and not has_pod and _is_late(facts, child):
            where = f"{child['kind']} {name_of(child)}: status"
            fix = "see that the controllers of the cluster run (kube-controller-manager)"
            yield Finding(BLOCK, f"{child['kind']} {name_of(child)} has created no pod yet", where, (), fix)
    for members in refused_children.values():
        yield _refused_children_finding(members)


def _refused_children_finding(members: list[tuple[Json, str]]) -> Finding:
    """One finding for the children whose pods the API server rejects with the same message.

    members: (child, message of its FailedCreate event)."""
    child, message = members[0]
    summary = f"no pod can be created for {child['kind']} {join_names(name_of(member) for member, _ in members)}"
    where = f"{child['kind']} {name_of(child)}: events"
    if missing := missing_object(message, namespace_of(child)):
        return Finding(BLOCK, f"{summary}: there is no {missing.kind} {missing.name}", where, (message,), missing.fix)
    fix = "raise the quota, or ask for less" if "quota" in message else "mend the template as the message says"
    return Finding(BLOCK, summary, where, (message,), fix)


def _slots_without_pod(facts: Facts) -> tuple[list[Slot], list[tuple[Slot, str]]]:
    """The slots without a pod, and of those the ones whose object is not created yet because other slots must run or
    have succeeded first (PodRecipe.awaits), each with a text about these."""
    occupied = {(role_of(pod), index_of(pod)) for pod in facts.pods}
    job, recipe = facts.parsed_job, facts.kind.pods
    empty = [slot for slot in job.slots() if (slot.role, str(slot.index)) not in occupied]
    states = {(role_of(pod), index_of(pod)): replica.state for replica, pod in facts.replicas}
    running, succeeded = (
        frozenset(slot for slot in job.slots() if states.get((slot.role, str(slot.index))) == state)
        for state in ("Running", "Succeeded")
    )
    job = replace(job, running=running, succeeded=succeeded)
    waiting = []
    for slot in empty:
        awaited = (
            (recipe.awaited_successes(job, slot) - succeeded, "has succeeded"),
            (recipe.awaited_slots(job, slot) - running, "runs"),
        )
        texts = [f"{_names(slots)} {end}" for slots, end in awaited if slots]
        if texts:
            waiting.append((slot, " and ".join(texts)))
    return empty, waiting


def _names(slots: Iterable[Slot]) -> str:
    return join_names(f"{slot.role.lower()}-{slot.index}" for slot in sorted(slots))


def slots_that_wait(facts: Facts) -> Iterator[Finding]:
    """Slots whose object is created once other slots run or have succeeded."""
    if facts.true_condition("Suspended"):
        return
    groups: dict[str, list[Slot]] = {}
    for slot, text in _slots_without_pod(facts)[1]:
        groups.setdefault(text, []).append(slot)
    for text, slots in groups.items():
        where = f"pod {facts.kind.pods.name(facts.parsed_job, slots[0])}"
        yield Finding(WAIT, f"{_names(slots)}: no pod until {text}", where, (), f"wait; see `{facts.command('logs')}`")


def slots_without_pods(facts: Facts) -> Iterator[Finding]:
    """Slots whose pod the operator itself creates (no batch Job or other controller does), and that have no pod."""
    job = facts.parsed_job
    empty, waiting = _slots_without_pod(facts)
    late = {slot for slot, _ in waiting}
    unoccupied = [slot for slot in empty if job.carrier(slot.role).gvk.kind == "Pod" and slot not in late]
    running_seconds = facts.age(facts.status.get("startTime"))
    if (
        not unoccupied
        or running_seconds is None
        or running_seconds < POD_CREATION_SECONDS
        or facts.true_condition("Restarting")
        or facts.true_condition("Suspended")
        or facts.true_condition("Blocked")  # it says why
    ):
        return
    planned_pods = {create.ref.name for create in operator_plan(facts).creates}
    for is_planned, slots in (
        (True, [slot for slot in unoccupied if job.kind.pods.name(job, slot) in planned_pods]),
        (False, [slot for slot in unoccupied if job.kind.pods.name(job, slot) not in planned_pods]),
    ):
        if not slots:
            continue
        summary = f"{_names(slots)}: no pod is there"
        where = f"pod {job.kind.pods.name(job, slots[0])}"
        if is_planned:
            fix = "see that the operator runs: on this machine `trainyard status` names its log"
            yield Finding(BLOCK, f"{summary}, and the operator has not created one yet", where, (), fix)
        else:
            fix = f"`{facts.command('suspend')}` and then resume make its replicas anew"
            yield Finding(BLOCK, f"{summary}, and none will be created", where, (), fix)


def operator_plan(facts: Facts) -> core.Plan:
    """The plan that the operator's next reconcile would compute from these objects (`core.plan`)."""
    children, known = [], {gvk.kind for gvk in facts.kind.roles.children_in(facts.parsed_job.config)}
    for obj in (*facts.children, *facts.pods):
        if obj.get("kind") not in known:
            continue  # it depends on options of the operator, such as its gang scheduler
        try:
            children.append(core.decode_child(obj, str(obj.get("kind"))))
        except ValueError:
            continue
    return core.plan(facts.kind, facts.job, Observed(tuple(children)), facts.now)


def next_requeue(facts: Facts) -> float | None:
    """When the operator reconciles the job again without an event, in Unix seconds; None when no requeue is planned."""
    requeue_at = operator_plan(facts).requeue_at
    return requeue_at if requeue_at is not None and facts.now < requeue_at <= facts.now + MAX_DELAY else None


def succeeded_without_pods(facts: Facts) -> int:
    """Number of replicas whose pods are deleted and whose batch Jobs are Complete."""
    owners = {(controller_of(pod) or {}).get("uid") for pod in facts.pods}
    return sum(
        child["kind"] == "Job" and uid_of(child) not in owners and _condition_is_true(child, "Complete")
        for child in facts.children
    )


def _desired_pods(child: Json) -> int | None:
    """How many pods the controller of a child should keep.

    None for a child of another kind, and for one that has ended, is suspended or is being deleted."""
    spec = child.get("spec") or {}
    if child["metadata"].get("deletionTimestamp"):
        return None
    if child["kind"] == "Job":
        return (
            None
            if _condition_is_true(child, "Complete") or _condition_is_true(child, "Failed") or spec.get("suspend")
            else int(spec.get("parallelism", 1) or 0)
        )
    return int(spec.get("replicas", 1) or 0) if child["kind"] in ("StatefulSet", "Deployment") else None


def _condition_is_true(child: Json, condition: str) -> bool:
    conditions = (child.get("status") or {}).get("conditions") or ()
    return any(entry.get("type") == condition and entry.get("status") == "True" for entry in conditions)


def _failed_create_message(facts: Facts, child: Json) -> str:
    """The message of the child's newest FailedCreate event; "" when there is none."""
    for event in reversed(facts.events):
        involved_object = event.get("involvedObject") or {}
        if involved_object.get("uid") == uid_of(child) and event.get("reason") == "FailedCreate":
            return str(event.get("message") or "")
    return ""


def _is_late(facts: Facts, child: Json) -> bool:
    seconds = facts.age(child["metadata"].get("creationTimestamp"))
    return seconds is not None and seconds >= POD_CREATION_SECONDS
