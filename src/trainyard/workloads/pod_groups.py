"""The protection of PodGroups (kube-controller-manager's podgroup-protection controller). Pure.

The API server puts a finalizer on every group. It is removed from one that is being deleted when no pod names it that
has not ended: until then the group still tells which of its pods may start.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.objects import Json, NamespacedName, as_dict, is_deleting, namespace_of
from trainyard.objects.resources import NATIVE_POD_GROUP
from trainyard.workloads import gc
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.writes import Decision

PROTECTION = "scheduling.k8s.io/podgroup-protection"


def group_of(pod: Json) -> NamespacedName | None:
    """The PodGroup that the pod is a member of, which need not exist; None for none."""
    name = as_dict(pod_facts.spec_of(pod).get("schedulingGroup")).get("podGroupName")
    return NamespacedName(namespace_of(pod), str(name)) if name else None


def decide_protection(group: Json, members: Iterable[Json]) -> Decision:
    """The removal of the finalizer from a group that is being deleted. `members`: the pods that name it."""
    if not is_deleting(group) or PROTECTION not in gc.finalizers(group):
        return Decision()
    if not all(map(pod_facts.is_finished, members)):
        return Decision()
    return Decision((gc.without_finalizer(NATIVE_POD_GROUP, group, PROTECTION),))
