"""Which pods that request devices may be bound now, and to which node. Pure.

Rules:
- A node has of each extended resource what its allocatable lists, less the requests of the pods that are bound to it
  and have not ended. A resource that no node lists is not counted: its pods run without it.
- The pods of a training job are a gang. The gang is admitted when all of its replicas fit at once, or the first
  `minAvailable` of them; until they exist, its devices are kept for those of its replicas that do not exist yet.
- Gangs are admitted in the order in which their jobs were created. A gang that waits holds back all later ones that
  request the same resource, unless it can never fit: so a large job is not overtaken for ever.
- A pod of no job is a gang of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from trainyard.objects import Json, is_deleting, name_of, uid_of
from trainyard.objects.extended_resources import is_device_resource, pod_requests
from trainyard.objects.quantities import exact
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of

Requests = Mapping[str, int]  # resource -> number


class Gang(msgspec.Struct, frozen=True):
    """Pods that are admitted together. `order`: of two gangs the one with the smaller value came first. `members`: the
    requests of each replica that has to fit, by its key; empty for a pod of no job."""

    key: str
    order: tuple[float, int, str]
    members: Mapping[str, Requests] = {}


class GangPod(msgspec.Struct, frozen=True):
    """A pod that requests devices: its gang, which of the members it is, and the node to which it is bound, or "".
    `has_ended`: it uses and needs nothing, because it has ended, or is deleted without a node."""

    uid: str
    gang: Gang
    member: str
    requests: Requests
    node: str = ""
    has_ended: bool = False


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


def gang_pod(pod: Json, gang: Gang, member: str, requests: Requests, assumed: Mapping[str, str]) -> GangPod:
    """`assumed`: uid -> node of the pods whose binding was sent and is not shown yet."""
    node = str(spec_of(pod).get("nodeName") or assumed.get(uid_of(pod)) or "")
    has_ended = pod_facts.is_finished(pod) or (is_deleting(pod) and not node)
    return GangPod(uid_of(pod), gang, member, requests, node, has_ended)


def changes_what_is_free(before: Json | None, after: Json | None) -> bool:
    """Whether a change of a pod changes what others may get: it was created, bound, has ended or is gone."""
    return _use(before) != _use(after) and bool(pod_requests(after or before or {}))


def _use(pod: Json | None) -> tuple[object, ...]:
    return (spec_of(pod).get("nodeName"), pod_facts.is_finished(pod), is_deleting(pod)) if pod is not None else ()


def placements(pods: Sequence[GangPod], resources: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """uid -> node of the pods that may be bound now. `resources`: node -> resource -> number that can be allocated;
    of several nodes the first that has enough is taken."""
    free = {node: Counter(counts) for node, counts in resources.items()}
    for pod in pods:
        if pod.node in free and not pod.has_ended:
            free[pod.node].subtract(pod.requests)
    gangs: dict[str, list[GangPod]] = {}
    for pod in pods:
        gangs.setdefault(pod.gang.key, []).append(pod)
    placed: dict[str, str] = {}
    waiting = []
    for members in sorted(gangs.values(), key=lambda members: members[0].gang.order):
        if any(pod.node and not pod.has_ended for pod in members):
            _place(_pending(members), free, placed)
            for requests in _missing(members):
                _take(requests, free)
        else:
            waiting.append(members)
    held_back: set[str] = set()
    for members in waiting:
        pending, missing = _pending(members), _missing(members)
        if not pending:
            continue
        names = {name for pod in pending for name in pod.requests}
        needed = [*(pod.requests for pod in _required(pending)), *missing]
        if not held_back & names and _fit(needed, free):
            _place(pending, free, placed)
            for requests in missing:
                _take(requests, free)
        elif _fit(needed, resources):
            held_back |= names
    return placed


def _pending(members: Sequence[GangPod]) -> list[GangPod]:
    """The pods of a gang that are not bound, first those that have to fit."""
    pending = [pod for pod in members if not pod.node and not pod.has_ended]
    required = _required(pending)
    return [*required, *(pod for pod in pending if pod not in required)]


def _required(pending: Sequence[GangPod]) -> list[GangPod]:
    """Of these pods of a gang those that have to fit at once."""
    return [pod for pod in pending if not pod.gang.members or pod.member in pod.gang.members]


def _missing(members: Sequence[GangPod]) -> list[Requests]:
    """The requests of the replicas that have to fit and do not exist yet."""
    existing = {pod.member for pod in members if pod.node or not pod.has_ended}
    return [requests for member, requests in members[0].gang.members.items() if member not in existing]


def _place(pending: Iterable[GangPod], free: Mapping[str, Counter[str]], placed: dict[str, str]) -> None:
    for pod in pending:
        if node := _take(pod.requests, free):
            placed[pod.uid] = node


def _fit(needed: Iterable[Requests], free: Mapping[str, Mapping[str, int]]) -> bool:
    left = _copied(free)
    return all(_take(requests, left) for requests in needed)


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
