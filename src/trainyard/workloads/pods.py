"""Fields of a pod that the controllers of this package read, and the creation of a pod from a template.

Names are derived, never random: a controller that dies after a create and starts again creates the same name, and the
API server answers AlreadyExists instead of creating a second pod.
"""

from __future__ import annotations

import copy
from hashlib import sha256

from trainyard.objects import Json, encode, is_condition_true, is_deleting, name_of, namespace_of, parse_time
from trainyard.objects.container_statuses import container_statuses

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no characters that look alike
_NAME_LIMIT = 63


def status_of(obj: Json) -> Json:
    """`status`, {} when it is absent or malformed."""
    status = obj.get("status")
    return status if isinstance(status, dict) else {}


def spec_of(obj: Json) -> Json:
    """`spec`, {} when it is absent or malformed."""
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def replicas(workload: Json) -> int:
    """`spec.replicas` of a Deployment or ReplicaSet; 1 when it is unset."""
    number = spec_of(workload).get("replicas")
    return 1 if number is None else max(0, int(number))


def phase(pod: Json) -> str:
    """`status.phase`; Pending when it is unset."""
    return str(status_of(pod).get("phase") or "Pending")


def is_finished(pod: Json) -> bool:
    """True in the phases Succeeded and Failed."""
    return phase(pod) in ("Succeeded", "Failed")


def active(pod: Json) -> bool:
    """True for a pod that has not ended and is not being deleted (client-go: IsPodActive)."""
    return not is_finished(pod) and not is_deleting(pod)


def ready(pod: Json) -> bool:
    """Whether an active pod has condition Ready True."""
    return active(pod) and is_condition_true(status_of(pod).get("conditions"), "Ready")


def restart_count(pod: Json) -> int:
    """The sum of `restartCount` of all containers, init containers included."""
    return sum(container.restarts for container in container_statuses(status_of(pod)))


def finished_at(pod: Json) -> float:
    """When the pod ended, in seconds since the epoch: the last `finishedAt` of its containers; without one, the time of
    the DELETE request; without that, the creationTimestamp."""
    containers = [container for container in container_statuses(status_of(pod)) if not container.init]
    terminated = [container.state("terminated") or {} for container in containers]
    finish_times = [time for state in terminated if (time := parse_time(state.get("finishedAt"))) is not None]
    if finish_times:
        return max(finish_times)
    meta = pod.get("metadata", {})
    deletion = parse_time(meta.get("deletionTimestamp"))
    if deletion is not None:
        return deletion - float(meta.get("deletionGracePeriodSeconds") or 0)
    return parse_time(meta.get("creationTimestamp")) or 0.0


def name_suffix(*parts: object) -> str:
    """A name suffix of five characters, a hash of `parts`."""
    number = int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")
    characters = []
    for _ in range(5):
        number, index = divmod(number, len(_SUFFIX_ALPHABET))
        characters.append(_SUFFIX_ALPHABET[index])
    return "".join(characters)


def generated_name(owner: str, five: str) -> str:
    """The name `<owner>-<five>`, where `five` is a suffix of five characters. A long owner name is truncated as the API
    server truncates generateName (63 characters in all)."""
    return f"{owner}-"[: _NAME_LIMIT - 5] + five


def template_hash(owner: Json) -> str:
    """A hash of `spec.template` of a workload: ten hexadecimal digits."""
    return sha256(canonical_json(spec_of(owner).get("template"))).hexdigest()[:10]


def canonical_json(value: object) -> bytes:
    """The value as JSON with sorted keys."""
    return encode(_with_sorted_keys(value))


def _with_sorted_keys(value: object) -> object:
    """The value with the keys of all objects in it sorted."""
    if isinstance(value, dict):
        return {key: _with_sorted_keys(value[key]) for key in sorted(value)}
    return [_with_sorted_keys(item) for item in value] if isinstance(value, list) else value


def pod_from_template(template: Json, owner: Json, reference: Json, name: str) -> Json:
    """A new pod `name` of a pod template, with its labels and annotations (copies: the template is not modified).

    `owner` is the controller; `reference` is the owner reference to it.
    """
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
