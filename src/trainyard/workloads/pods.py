"""What the controllers of this room ask about a pod, and how they make one from a template.

Names are derived, never random: a controller that dies after a create and starts again asks for the same name, and the
API server says AlreadyExists instead of starting a second pod.
"""

from __future__ import annotations

import copy
from hashlib import sha256

from trainyard.objects import Json, encode, is_true, name_of, namespace_of, parse_time

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, nothing that looks like something else
_NAME_LIMIT = 63


def status_of(obj: Json) -> Json:
    status = obj.get("status")
    return status if isinstance(status, dict) else {}


def spec_of(obj: Json) -> Json:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def replicas(workload: Json) -> int:
    """`spec.replicas` of a Deployment or ReplicaSet."""
    number = spec_of(workload).get("replicas")
    return 1 if number is None else max(0, int(number))


def phase(pod: Json) -> str:
    return str(status_of(pod).get("phase") or "Pending")


def deleting(obj: Json) -> bool:
    return bool(obj.get("metadata", {}).get("deletionTimestamp"))


def ended(pod: Json) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def active(pod: Json) -> bool:
    return not ended(pod) and not deleting(pod)


def ready(pod: Json) -> bool:
    return active(pod) and is_true(status_of(pod).get("conditions"), "Ready")


def restarts(pod: Json) -> int:
    """In-place restarts of all containers, init containers included."""
    status = status_of(pod)
    lists = (status.get("initContainerStatuses") or [], status.get("containerStatuses") or [])
    return sum(int(one.get("restartCount") or 0) for each in lists for one in each)


def finished_at(pod: Json) -> float:
    """When the pod ended: its last container's end, or when its deletion was asked for, or when it was made."""
    ends = [
        parse_time(((one.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for one in status_of(pod).get("containerStatuses") or []
    ]
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    meta = pod.get("metadata", {})
    deletion = parse_time(meta.get("deletionTimestamp"))
    if deletion is not None:
        return deletion - float(meta.get("deletionGracePeriodSeconds") or 0)
    return parse_time(meta.get("creationTimestamp")) or 0.0


def suffix(*parts: object) -> str:
    """Five characters that always are the same for the same parts."""
    number = int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")
    letters = []
    for _ in range(5):
        number, at = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[at])
    return "".join(letters)


def generated(owner: str, five: str) -> str:
    """`<owner>-<five>`, cut where a name from generateName would be cut."""
    return f"{owner}-"[: _NAME_LIMIT - 5] + five


def template_hash(owner: Json) -> str:
    """Ten characters that tell one pod template of an owner from another."""
    return sha256(canonical(spec_of(owner).get("template"))).hexdigest()[:10]


def canonical(value: object) -> bytes:
    """JSON that is the same whatever the order of keys."""
    return encode(_sorted(value))


def _sorted(value: object) -> object:
    """The same whatever the order of keys."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def from_template(template: Json, owner: Json, reference: Json, name: str) -> Json:
    """A pod of this template. The template is not touched; labels and annotations come along."""
    meta = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{name_of(owner)}-",
            "namespace": namespace_of(owner),
            "labels": dict(meta.get("labels") or {}),
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [reference],
        },
        "spec": copy.deepcopy(template.get("spec") or {}),
    }
