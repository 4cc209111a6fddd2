"""apps/v1 Deployment: one ReplicaSet per pod template, `<deployment>-<hash of the template>`. The ReplicaSets of older
templates stay, empty: they are the history that `kubectl rollout history` and `rollout undo` read.

A change of the template takes all old pods down before new ones are made, whatever `spec.strategy` says (as strategy
Recreate does): two TensorBoards on one log folder would disturb each other, and nothing here promises service without a
gap. Not here: RollingUpdate, progressDeadlineSeconds, adoption of ReplicaSets without an owner.
"""

from __future__ import annotations

import copy
from hashlib import sha256

from trainyard.core import Event
from trainyard.objects import (
    GVK,
    Json,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
    with_condition,
)
from trainyard.objects.resources import DEPLOYMENT, POD, REPLICA_SET
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Create, Decision, Merge, SetStatus, Write, delete_of

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HASH_LETTERS = "456789bcdf"  # those that Kubernetes' own hashes have: none makes a number with an exponent
_NAME_LIMIT = 253


def decide(deployment: Json, replica_sets: list[Json], pods: list[Json], now: float) -> Decision:
    """`replica_sets` are those whose controller owner is this Deployment; `pods` those whose controller owner is one of
    them or, made by an older trainyard, the Deployment itself."""
    if pod_facts.deleting(deployment):
        return Decision()
    template_hash = hash_of(deployment)
    sets = sorted((one for one in replica_sets if not pod_facts.deleting(one)), key=_revision)
    current = next((one for one in sets if labels_of(one).get(HASH) == template_hash), None)
    writes: list[Write] = []
    events: list[Event] = []
    if status_write := _status_write(deployment, sets, current, now):
        writes.append(status_write)
    if spec_of(deployment).get("paused"):
        newest = current or next((one for one in reversed(sets) if pod_facts.replicas(one)), None)
        if newest is not None:
            _scale(newest, pod_facts.replicas(deployment), writes, events)
        return Decision(tuple(writes), events=tuple(events))
    outdated = [one for one in sets if one is not current]
    for replica_set in outdated:
        _scale(replica_set, 0, writes, events)
    old_pods = [pod for pod in pods if current is None or _owner(pod) != uid_of(current)]
    unowned = [pod for pod in old_pods if _owner(pod) == uid_of(deployment) and not pod_facts.deleting(pod)]
    writes += [delete_of(POD, pod) for pod in unowned]
    revision = max((_revision(one) for one in outdated), default=0) + 1
    if current is not None:
        revision = max(revision, _revision(current))
        annotations = _annotations(deployment, revision)
        if any((current["metadata"].get("annotations") or {}).get(key) != text for key, text in annotations.items()):
            writes.append(_annotate(REPLICA_SET, current, annotations))
        if not old_pods or pod_facts.replicas(current) > pod_facts.replicas(deployment):
            _scale(current, pod_facts.replicas(deployment), writes, events)
    elif not old_pods:
        made = _replica_set(deployment, template_hash, revision)
        writes.append(Create(REPLICA_SET, made))
        if replicas := pod_facts.replicas(deployment):
            events.append(_scaled(made, 0, replicas))
    if (deployment["metadata"].get("annotations") or {}).get(REVISION) != str(revision) and (current or not old_pods):
        writes.append(_annotate(DEPLOYMENT, deployment, {REVISION: str(revision)}))
    writes += _surplus_history(deployment, outdated, old_pods)
    return Decision(tuple(writes), events=tuple(events))


def hash_of(deployment: Json) -> str:
    """The value of the label pod-template-hash: ten characters, of which the first is a letter."""
    number = int.from_bytes(sha256(pod_facts.canonical(spec_of(deployment).get("template"))).digest()[:8], "big")
    first, letters = "bcdf"[number % 4], f"{number // 4:020}"[-9:]
    return first + "".join(_HASH_LETTERS[int(digit)] for digit in letters)


def _owner(pod: Json) -> str:
    return str((controller_of(pod) or {}).get("uid") or "")


def _revision(replica_set: Json) -> int:
    text = str((replica_set["metadata"].get("annotations") or {}).get(REVISION) or "0")
    return int(text) if text.isdecimal() else 0


def _scale(replica_set: Json, to: int, writes: list[Write], events: list[Event]) -> None:
    before = pod_facts.replicas(replica_set)
    if before != to:
        body = {"metadata": {"annotations": {DESIRED: str(to), MOST: str(to)}}, "spec": {"replicas": to}}
        writes.append(Merge(REPLICA_SET, namespace_of(replica_set), name_of(replica_set), body))
        events.append(_scaled(replica_set, before, to))


def _scaled(replica_set: Json, before: int, to: int) -> Event:
    way = "up" if to > before else "down"
    text = f"Scaled {way} replica set {name_of(replica_set)} from {before} to {to}"
    return Event("Normal", "ScalingReplicaSet", text)


def _annotations(deployment: Json, revision: int) -> dict[str, str]:
    """What a ReplicaSet has of its Deployment: the cause of the change (`kubernetes.io/change-cause`) among others."""
    own = deployment["metadata"].get("annotations") or {}
    return {key: str(text) for key, text in own.items() if key not in (LAST_APPLIED, REVISION)} | {
        REVISION: str(revision)
    }


def _annotate(gvk: GVK, obj: Json, annotations: dict[str, str]) -> Merge:
    return Merge(gvk, namespace_of(obj), name_of(obj), {"metadata": {"annotations": annotations}})


def _replica_set(deployment: Json, template_hash: str, revision: int) -> Json:
    spec, replicas = spec_of(deployment), pod_facts.replicas(deployment)
    template = copy.deepcopy(spec.get("template") or {})
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH: template_hash}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = copy.deepcopy(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: template_hash}
    annotations = {**_annotations(deployment, revision), DESIRED: str(replicas), MOST: str(replicas)}
    owner = owner_reference("apps/v1", "Deployment", name_of(deployment), uid_of(deployment))
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name_of(deployment)}-"[: _NAME_LIMIT - len(template_hash)] + template_hash,
            "namespace": namespace_of(deployment),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def _surplus_history(deployment: Json, outdated: list[Json], old_pods: list[Json]) -> list[Write]:
    """Empty ReplicaSets beyond `revisionHistoryLimit`, the oldest first."""
    limit = spec_of(deployment).get("revisionHistoryLimit")
    owners = {_owner(pod) for pod in old_pods}
    empty = [one for one in outdated if not pod_facts.replicas(one) and uid_of(one) not in owners]
    return [delete_of(REPLICA_SET, one) for one in empty[: max(0, len(empty) - (10 if limit is None else int(limit)))]]


def _status_write(deployment: Json, sets: list[Json], current: Json | None, now: float) -> SetStatus | None:
    replicas = pod_facts.replicas(deployment)

    def total(field: str) -> int:
        return sum(int(status_of(one).get(field) or 0) for one in sets)

    updated = int(status_of(current).get("replicas") or 0) if current else 0
    available = total("availableReplicas")
    counts = {
        "replicas": total("replicas"),
        "updatedReplicas": updated,
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, replicas - available),
    }
    conditions = status_of(deployment).get("conditions") or []
    if available >= replicas:
        minimum = (True, "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        minimum = (False, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    conditions = with_condition(conditions, "Available", *minimum, now)
    done = current is not None and available >= replicas and counts["replicas"] == updated == replicas
    word = "has successfully progressed" if done else "is progressing"
    reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
    subject = f'ReplicaSet "{name_of(current)}"' if current else f'Deployment "{name_of(deployment)}"'
    conditions = with_condition(conditions, "Progressing", True, reason, f"{subject} {word}.", now)
    status: Json = {"observedGeneration": deployment["metadata"].get("generation", 1)}
    status |= {field: count for field, count in counts.items() if count}
    status["conditions"] = conditions
    if status == status_of(deployment):
        return None
    return SetStatus(DEPLOYMENT, {**deployment, "status": status})
