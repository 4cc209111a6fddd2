"""Which pods that request devices may be bound now, and to which node. Pure.

Rules:
- A node has of each extended resource what its allocatable lists, less the requests of the pods that are bound to it
  and have not ended. A resource that no node lists is not counted: its pods run without it.
- The pods of a PodGroup are a gang (pod_groups.py), any other pod is a gang of one. Its pending pods are placed in
  their order; they are bound if with the bound ones at least `min_count` are placed, otherwise none is.
- Gangs are placed in the order of their creation, those of which a pod is bound before all others. A gang that waits
  holds back all later ones that request the same resource, unless it can never fit: so a large job is not overtaken
  for ever. kube-scheduler has no such rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from trainyard.objects import Json, is_deleting, name_of, uid_of
from trainyard.objects.extended_resources import is_device_resource, pod_requests
from trainyard.objects.quantities import exact
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of

Requests = Mapping[str, int]  # resource -> number


class Gang(msgspec.Struct, frozen=True):
    """Pods that are placed together. `order`: of two gangs the one with the smaller value came first. `is_held`: its
    pending pods are not to be placed yet."""

    key: str
    order: tuple[float, int, str]
    min_count: int = 1
    is_held: bool = False


class GangPod(msgspec.Struct, frozen=True):
    """A pod of a gang, and the node to which it is bound, or "". `has_ended`: it uses and needs nothing, because it has
    ended, or is deleted without a node. `is_blocked`: it fits nowhere, for another reason than its requests."""

    uid: str
    gang: Gang
    requests: Requests
    node: str = ""
    has_ended: bool = False
    is_blocked: bool = False


class Attempt(NamedTuple):
    """The placement of the pending pods of one gang. `nodes`: uid -> node of those that fit. `failed`: the uids of
    those that do not; `remaining`: the number of those that were not tried, because too few could be placed any more.
    `scheduled`: the bound and the placed ones together."""

    nodes: Mapping[str, str]
    failed: frozenset[str]
    scheduled: int
    remaining: int
    is_admitted: bool


def node_resources(nodes: Iterable[Json]) -> dict[str, Counter[str]]:
    """Node -> extended resource -> number that can be allocated, of the resources in the capacity of the node."""
    resources: dict[str, Counter[str]] = {}
    for node in nodes:
        capacity, allocatable = (_counts(status_of(node).get(field)) for field in ("capacity", "allocatable"))
        resources[name_of(node)] = Counter({name: allocatable.get(name, 0) for name in capacity})
    return resources


def is_finding_devices(node: Json) -> bool:
    """Whether a node of Trainyard does not know its devices yet: it lists a resource with a capacity of 0."""
    return any(
        is_device_resource(name) and not count for name, count in _counts(status_of(node).get("capacity")).items()
    )


def list_devices(nodes: Iterable[Json]) -> bool:
    """Whether a node lists an extended resource; if none does, no pod waits for one."""
    return any(_counts(status_of(node).get("capacity")) for node in nodes)


def counted_requests(pod: Json, resources: Mapping[str, Collection[str]]) -> dict[str, int]:
    """What the pod requests of the resources that nodes list."""
    listed = {name for names in resources.values() for name in names}
    return {name: count for name, count in pod_requests(pod).items() if name in listed}


def gang_pod(
    pod: Json, gang: Gang, requests: Requests, assumed: Mapping[str, str], is_blocked: bool = False
) -> GangPod:
    """`assumed`: uid -> node of the pods whose binding was sent and is not shown yet."""
    node = str(spec_of(pod).get("nodeName") or assumed.get(uid_of(pod)) or "")
    has_ended = pod_facts.is_finished(pod) or (is_deleting(pod) and not node)
    return GangPod(uid_of(pod), gang, requests, node, has_ended, is_blocked)


def changes_what_is_free(before: Json | None, after: Json | None) -> bool:
    """Whether a change of a pod changes what others may get: it was created, bound, has ended or is gone."""
    return _use(before) != _use(after) and bool(pod_requests(after or before or {}))


def _use(pod: Json | None) -> tuple[object, ...]:
    return (spec_of(pod).get("nodeName"), pod_facts.is_finished(pod), is_deleting(pod)) if pod is not None else ()


def attempts(pods: Sequence[GangPod], resources: Mapping[str, Mapping[str, int]]) -> dict[str, Attempt]:
    """Key -> attempt of each gang that has pending pods and is not held. `resources`: node -> resource -> number that
    can be allocated; of several nodes the first that has enough is taken."""
    free = _copied(resources)
    gangs: dict[str, list[GangPod]] = {}
    for pod in pods:
        if not pod.has_ended:
            gangs.setdefault(pod.gang.key, []).append(pod)
            if pod.node in free:
                free[pod.node].subtract(pod.requests)
    results: dict[str, Attempt] = {}
    for members in sorted(gangs.values(), key=lambda pods: (not any(pod.node for pod in pods), pods[0].gang.order)):
        gang, pending = members[0].gang, [pod for pod in members if not pod.node]
        if gang.is_held or not pending:
            continue
        attempt = results[gang.key] = _attempt(pending, len(members) - len(pending), free)
        if attempt.is_admitted:
            for pod in pending:
                if pod.uid in attempt.nodes:
                    free[attempt.nodes[pod.uid]].subtract(pod.requests)
        elif _attempt(members, 0, resources).is_admitted:
            _hold_back({name for pod in pending for name in pod.requests}, free)
    return results


def placements(pods: Sequence[GangPod], resources: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """uid -> node of the pods that may be bound now."""
    admitted = (attempt for attempt in attempts(pods, resources).values() if attempt.is_admitted)
    return {uid: node for attempt in admitted for uid, node in attempt.nodes.items()}


def _attempt(pending: Sequence[GangPod], bound: int, free: Mapping[str, Mapping[str, int]]) -> Attempt:
    """Ends, as kube-scheduler's, at the pod after which too few can be placed."""
    left, min_count = _copied(free), pending[0].gang.min_count
    nodes: dict[str, str] = {}
    failed: set[str] = set()
    remaining = len(pending)
    for pod in pending:
        remaining -= 1
        if not pod.is_blocked and (node := _take(pod.requests, left)):
            nodes[pod.uid] = node
        else:
            failed.add(pod.uid)
        if bound + len(nodes) + remaining < min_count:
            break
    scheduled = bound + len(nodes)
    return Attempt(nodes, frozenset(failed), scheduled, remaining, scheduled >= min_count)


def _hold_back(names: Iterable[str], free: Mapping[str, Counter[str]]) -> None:
    """Leave nothing of these resources to the gangs after one that waits for them."""
    for counts in free.values():
        for name in names:
            counts[name] = min(counts[name], 0)


def _take(requests: Requests, free: Mapping[str, Counter[str]]) -> str:
    """Take what is requested from the first node that has it. Returns the node, "" if there is none."""
    for node, counts in free.items():
        if all(counts[name] >= count for name, count in requests.items()):
            counts.subtract(requests)
            return node
    return ""


def _copied(resources: Mapping[str, Mapping[str, int]]) -> dict[str, Counter[str]]:
    return {node: Counter(counts) for node, counts in resources.items()}


def _counts(quantities: object) -> dict[str, int]:
    if not isinstance(quantities, dict):
        return {}
    counts = {name: exact(str(quantity)) for name, quantity in quantities.items() if "/" in name}
    return {name: int(count) for name, count in counts.items() if count is not None}
