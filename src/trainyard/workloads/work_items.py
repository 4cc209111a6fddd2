"""The items of the work queue, and which items a change of an object adds to it. Pure.

A change of an object adds its own item, and the items of the objects whose controllers decide on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from trainyard.controller_runtime.store import Change
from trainyard.objects import (
    GVK,
    Json,
    NamespacedName,
    controller_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from trainyard.objects.extended_resources import pod_requests
from trainyard.objects.resources import (
    CRD,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    NATIVE_POD_GROUP,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
)
from trainyard.workloads import device_admission, endpoint_slices, gc, namespaces, scheduler
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.discovery import RESTMapper
from trainyard.workloads.graph import Graph
from trainyard.workloads.pod_groups import group_of
from trainyard.workloads.pods import spec_of

WORKLOAD_RESOURCES = (JOB, REPLICA_SET, STATEFUL_SET, DEPLOYMENT)


ControllerName = Literal[
    "workload", "endpoints", "namespace", "scheduler", "pod group protection", "garbage collector", "discovery"
]


class WorkItem(NamedTuple):
    """An item of the work queue: an object, and the controller that reconciles it.

    `controller` is "workload" (the controller of Job, Deployment, ReplicaSet or StatefulSet), "endpoints"
    (EndpointSlices of a Service), "namespace" (default objects of a Namespace), "scheduler" (binding of a Pod, or of
    all pods of a PodGroup), "pod group protection" (the finalizer of a PodGroup), "garbage collector" (of any object)
    or "discovery" (of the API; the key is empty).
    """

    controller: ControllerName
    gvk: GVK
    key: NamespacedName

    @property
    def namespace(self) -> str:
        """The namespace by which the work queue is fair; "" for cluster-scoped objects."""
        return self.key.namespace


def affected_items(graph: Graph, mapper: RESTMapper, gvk: GVK, change: Change[Json]) -> Iterator[WorkItem]:
    """The items of the objects that a change affects. To be called after the graph has indexed the change.

    A name with a new uid counts as a deletion and a creation.
    """
    before, after = change.before, change.after
    if before is not None and after is not None and uid_of(before) != uid_of(after):
        yield from _affected_items(graph, mapper, gvk, before, None)
        yield from _affected_items(graph, mapper, gvk, None, after)
    else:
        yield from _affected_items(graph, mapper, gvk, before, after)


def bound_or_deleted(change: Change[Json]) -> set[str]:
    """The uids of the pods that a change shows as bound to a node or as deleted."""
    before, after = change.before, change.after
    uids = set()
    if before is not None and (after is None or uid_of(before) != uid_of(after)):
        uids.add(uid_of(before))
    if after is not None and spec_of(after).get("nodeName"):
        uids.add(uid_of(after))
    return uids


def _affected_items(
    graph: Graph, mapper: RESTMapper, gvk: GVK, before: Json | None, after: Json | None
) -> Iterator[WorkItem]:
    obj = after if after is not None else before
    if obj is None:
        return
    if gvk in WORKLOAD_RESOURCES and after is not None:
        yield WorkItem("workload", gvk, key_of(obj))
    if gvk == REPLICA_SET:
        yield from _owner_items(mapper, obj)
    if gvk == NAMESPACE and after is not None:
        yield WorkItem("namespace", gvk, key_of(obj))
    if namespaces.DEFAULT_OBJECTS.get(gvk) == name_of(obj):
        yield WorkItem("namespace", NAMESPACE, NamespacedName("", namespace_of(obj)))
    for key in endpoint_slices.affected_services(gvk, before, after, graph.services_of):
        yield WorkItem("endpoints", SERVICE, key)
    if gvk == CRD:
        yield WorkItem("discovery", CRD, NamespacedName("", ""))
    if gvk in (NODE, PERSISTENT_VOLUME_CLAIM):  # a Node has no namespace
        yield from _unscheduled_pod_items(graph, namespace_of(obj))
    if gvk in (POD, NATIVE_POD_GROUP):
        yield from _group_items(gvk, obj, after)
    if gvk == POD:
        yield from _pod_items(graph, mapper, obj, after)
        if device_admission.changes_what_is_free(before, after) and device_admission.list_devices(graph.all(NODE)):
            yield from _unscheduled_pod_items(graph, "", with_devices=True)
    if after is None or before is None or _gc_fields(before) != _gc_fields(after):
        yield from _gc_items(graph, gvk, obj, after)


def _unscheduled_pod_items(graph: Graph, namespace: str, with_devices: bool = False) -> Iterator[WorkItem]:
    """The pods that have no node yet; namespace "" means all namespaces. `with_devices`: only those that request
    some."""
    for pod in filter(scheduler.needs_scheduling, graph.all(POD)):
        if namespace in ("", namespace_of(pod)) and (not with_devices or pod_requests(pod)):
            yield _scheduler_item(pod)


def _scheduler_item(pod: Json) -> WorkItem:
    """The pod, or its PodGroup, whose pods are placed at once."""
    group_key = group_of(pod)
    return WorkItem("scheduler", NATIVE_POD_GROUP, group_key) if group_key else WorkItem("scheduler", POD, key_of(pod))


def _group_items(gvk: GVK, obj: Json, after: Json | None) -> Iterator[WorkItem]:
    """The PodGroup that a pod or a group is about."""
    group_key = group_of(obj) if gvk == POD else key_of(obj)
    is_released = after is None or pod_facts.is_finished(after) if gvk == POD else after is not None
    if group_key is not None and is_released:
        yield WorkItem("pod group protection", NATIVE_POD_GROUP, group_key)
    if gvk == NATIVE_POD_GROUP and after is not None:
        yield WorkItem("scheduler", gvk, key_of(after))


def _owner_items(mapper: RESTMapper, obj: Json) -> list[WorkItem]:
    """The controller owner of `obj` if its kind is in WORKLOAD_RESOURCES; at most one item."""
    owner = controller_of(obj)
    gvk = mapper.resource_for(str(owner.get("apiVersion")), str(owner.get("kind"))) if owner else None
    if owner is None or gvk is None or gvk not in WORKLOAD_RESOURCES:
        return []
    return [WorkItem("workload", gvk, NamespacedName(namespace_of(obj), str(owner.get("name"))))]


def _pod_items(graph: Graph, mapper: RESTMapper, pod: Json, after: Json | None) -> Iterator[WorkItem]:
    for item in _owner_items(mapper, pod):
        yield item
        owner = graph.get(item.gvk, item.key)
        if owner is not None and owner.get("kind") == "ReplicaSet":
            yield from _owner_items(mapper, owner)  # a Deployment scales up when the pods of older templates have gone
    if after is not None and not spec_of(after).get("nodeName") and scheduler.needs_scheduling(after):
        yield _scheduler_item(after)


def _gc_items(graph: Graph, gvk: GVK, obj: Json, after: Json | None) -> Iterator[WorkItem]:
    """The garbage collector's fields of `obj` changed: the object itself, its dependents, and those of its owners that
    are being deleted (foreground deletion waits for dependents)."""
    if after is not None:
        yield WorkItem("garbage collector", gvk, key_of(after))
    for dependent in graph.dependents(uid_of(obj)):
        yield WorkItem("garbage collector", dependent.gvk, key_of(dependent.obj))
    for ref in gc.owner_references(obj):
        owner = graph.by_uid(str(ref.get("uid")))
        if owner and is_deleting(owner[1]):
            yield WorkItem("garbage collector", owner[0], key_of(owner[1]))


def _gc_fields(obj: Json) -> object:
    """The fields of an object that the garbage collector decides on."""
    meta = obj["metadata"]
    return meta.get("ownerReferences"), meta.get("finalizers"), bool(meta.get("deletionTimestamp"))
