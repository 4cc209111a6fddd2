"""PodGroups of scheduling.k8s.io: which pods are held, what the scheduler says, and their protection. Pure.

Rules, as measured on kube-scheduler 1.37.1:
- A member names the group, in its namespace, and has not ended. One that is being deleted still is a member.
- Pending members are held, without a condition or an event, while the group does not exist, fewer members than
  `minCount` exist, or a pending one has a scheduling gate.
- Otherwise all pending members are placed at once (device_admission.py). The condition PodGroupInitiallyScheduled is
  True for ever from the first success on.
- A group that is being deleted stays, by a finalizer, until it has no members: until then it still tells which of its
  pods may start. (In a cluster kube-controller-manager removes the finalizer.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainyard.objects import (
    Json,
    NamespacedName,
    as_dict,
    find_condition,
    is_deleting,
    name_of,
    namespace_of,
    set_condition,
    uid_of,
)
from trainyard.objects.resources import NATIVE_POD_GROUP
from trainyard.objects.writes import Patch
from trainyard.workloads import gc
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.device_admission import Attempt
from trainyard.workloads.writes import Decision

PROTECTION = "scheduling.k8s.io/podgroup-protection"
SCHEDULED = "PodGroupInitiallyScheduled"
_NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"


def group_of(pod: Json) -> NamespacedName | None:
    """The PodGroup that the pod is a member of, which need not exist; None for none."""
    name = as_dict(pod_facts.spec_of(pod).get("schedulingGroup")).get("podGroupName")
    return NamespacedName(namespace_of(pod), str(name)) if name else None


def min_count(group: Json) -> int:
    """So many members start together; 1 for a group without that rule."""
    policy = as_dict(pod_facts.spec_of(group).get("schedulingPolicy"))
    count = as_dict(policy.get("gang")).get("minCount")
    return count if isinstance(count, int) else 1


def is_held(group: Json, members: Sequence[Json]) -> bool:
    """Whether the pending ones of the pods that name the group are not to be looked at yet."""
    existing = [pod for pod in members if not pod_facts.is_finished(pod)]
    specs = [pod_facts.spec_of(pod) for pod in existing]
    return len(existing) < min_count(group) or any(
        spec.get("schedulingGates") and not spec.get("nodeName") for spec in specs
    )


def unsatisfied(group: Json, attempt: Attempt) -> str:
    """Why a group is not admitted, as kube-scheduler words it."""
    numbers = f"{attempt.scheduled} scheduled, {attempt.remaining} remaining"
    return f"minCount ({min_count(group)}) cannot be satisfied: {numbers}"


def member_message(pod: Json, group: Json, attempt: Attempt) -> str:
    """The condition of a pending member that would fit, or was not tried; "" for one that does not fit itself."""
    if uid_of(pod) in attempt.failed:
        return ""
    reason = unsatisfied(group, attempt)
    return f"pod group is unschedulable, {reason}, {_NO_VICTIMS}" if uid_of(pod) in attempt.nodes else reason


def decide_condition(group: Json, attempt: Attempt, now: float) -> tuple[Patch, ...]:
    """The write of the group's condition; none when it is as it should be."""
    conditions = pod_facts.status_of(group).get("conditions") or []
    stored = find_condition(conditions, SCHEDULED) or {}
    if stored.get("status") == "True":
        return ()
    if attempt.is_admitted:
        message = f"pod group is unschedulable, {_NO_VICTIMS}" if attempt.failed else ""
    else:
        message = f"{unsatisfied(group, attempt)}, {_NO_VICTIMS}"
    reason = "Scheduled" if attempt.is_admitted else "Unschedulable"
    status = "True" if attempt.is_admitted else "False"
    if (stored.get("status"), stored.get("message")) == (status, message):
        return ()
    body = {"status": {"conditions": set_condition(conditions, SCHEDULED, attempt.is_admitted, reason, message, now)}}
    return (Patch(NATIVE_POD_GROUP, namespace_of(group), name_of(group), body, "status"),)


def decide_protection(group: Json, members: Iterable[Json]) -> Decision:
    """The removal of the finalizer from a group that is being deleted. `members`: the pods that name it."""
    if not is_deleting(group) or PROTECTION not in gc.finalizers(group):
        return Decision()
    if not all(map(pod_facts.is_finished, members)):
        return Decision()
    return Decision((gc.without_finalizer(NATIVE_POD_GROUP, group, PROTECTION),))
