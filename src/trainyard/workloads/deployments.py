"""The Deployment controller (apps/v1): one ReplicaSet per pod template, named `<deployment>-<pod-template-hash>`.

The ReplicaSets of older templates stay, scaled to 0: `kubectl rollout history` and `kubectl rollout undo` read them.

When the template changes, all old pods are deleted before new ones are created, whatever `spec.strategy` is (as with
type Recreate): two TensorBoards on one log folder would disturb each other, and no workload here needs service without
interruption. Not implemented: RollingUpdate, progressDeadlineSeconds, adoption of ReplicaSets without an owner.
"""

from __future__ import annotations

import copy
from hashlib import sha256

from trainyard.core import Event
from trainyard.objects import (
    GVK,
    Json,
    controller_of,
    controller_reference,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    set_condition,
    uid_of,
)
from trainyard.objects.resources import DEPLOYMENT, POD, REPLICA_SET
from trainyard.objects.writes import Create, Patch
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Decision, UpdateStatus, Write, delete_of

POD_TEMPLATE_HASH = "pod-template-hash"  # label
REVISION = "deployment.kubernetes.io/revision"
DESIRED_REPLICAS, MAX_REPLICAS = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HASH_ALPHABET = "456789bcdf"  # characters of Kubernetes' own hashes; without "e", so YAML reads no float (1e3)
_NAME_LIMIT = 253


def decide(deployment: Json, replica_sets: list[Json], pods: list[Json], now: float) -> Decision:
    """The writes and events for one Deployment.

    `replica_sets` are those whose controller owner is this Deployment. `pods` are those whose controller owner is one
    of these ReplicaSets, or the Deployment itself (an older trainyard created such pods).
    """
    if is_deleting(deployment):
        return Decision()
    template_hash = pod_template_hash(deployment)
    live_sets = (replica_set for replica_set in replica_sets if not is_deleting(replica_set))
    by_revision = sorted(live_sets, key=_revision)
    current = next(
        (replica_set for replica_set in by_revision if labels_of(replica_set).get(POD_TEMPLATE_HASH) == template_hash),
        None,
    )
    writes: list[Write] = []
    events: list[Event] = []
    if status_write := _status_write(deployment, by_revision, current, now):
        writes.append(status_write)
    if spec_of(deployment).get("paused"):
        active = current or next(filter(pod_facts.replicas, reversed(by_revision)), None)
        if active is not None:
            _scale(active, pod_facts.replicas(deployment), writes, events)
        return Decision(tuple(writes), events=tuple(events))
    _roll_out(deployment, by_revision, current, pods, writes, events)
    return Decision(tuple(writes), events=tuple(events))


def _roll_out(
    deployment: Json,
    by_revision: list[Json],
    current: Json | None,
    pods: list[Json],
    writes: list[Write],
    events: list[Event],
) -> None:
    """Append the writes and events that bring the ReplicaSets to the present template. `by_revision`: the ReplicaSets,
    oldest first; `current`: the one of the present template, None before its creation."""
    outdated = [replica_set for replica_set in by_revision if replica_set is not current]
    for replica_set in outdated:
        _scale(replica_set, 0, writes, events)
    old_pods = [pod for pod in pods if current is None or _owner_uid(pod) != uid_of(current)]
    own_pods = [pod for pod in old_pods if _owner_uid(pod) == uid_of(deployment) and not is_deleting(pod)]
    writes += [delete_of(POD, pod) for pod in own_pods]
    revision = max(map(_revision, outdated), default=0) + 1
    if current is not None:
        revision = max(revision, _revision(current))
        annotations = _annotations(deployment, revision)
        if any((current["metadata"].get("annotations") or {}).get(key) != value for key, value in annotations.items()):
            writes.append(_annotate(REPLICA_SET, current, annotations))
        if not old_pods or pod_facts.replicas(current) > pod_facts.replicas(deployment):
            _scale(current, pod_facts.replicas(deployment), writes, events)
    elif not old_pods:
        new_set = _new_replica_set(deployment, pod_template_hash(deployment), revision)
        writes.append(Create(REPLICA_SET, new_set))
        if replicas := pod_facts.replicas(deployment):
            events.append(_scaling_event(new_set, 0, replicas))
    if (deployment["metadata"].get("annotations") or {}).get(REVISION) != str(revision) and (current or not old_pods):
        writes.append(_annotate(DEPLOYMENT, deployment, {REVISION: str(revision)}))
    writes += _delete_old_revisions(deployment, outdated, old_pods)


def pod_template_hash(deployment: Json) -> str:
    """The value of the label pod-template-hash: ten characters, the first of them a letter."""
    number = int.from_bytes(sha256(pod_facts.canonical_json(spec_of(deployment).get("template"))).digest()[:8], "big")
    first, digits = "bcdf"[number % 4], f"{number // 4:020}"[-9:]
    return first + "".join(_HASH_ALPHABET[int(digit)] for digit in digits)


def _owner_uid(pod: Json) -> str:
    return str((controller_of(pod) or {}).get("uid") or "")


def _revision(replica_set: Json) -> int:
    revision = str((replica_set["metadata"].get("annotations") or {}).get(REVISION) or "0")
    return int(revision) if revision.isdecimal() else 0


def _scale(replica_set: Json, replicas: int, writes: list[Write], events: list[Event]) -> None:
    """Append the patch and the event that scale `replica_set`; nothing when `spec.replicas` is right."""
    old_replicas = pod_facts.replicas(replica_set)
    if old_replicas != replicas:
        annotations = {DESIRED_REPLICAS: str(replicas), MAX_REPLICAS: str(replicas)}
        body = {"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}
        writes.append(Patch(REPLICA_SET, namespace_of(replica_set), name_of(replica_set), body))
        events.append(_scaling_event(replica_set, old_replicas, replicas))


def _scaling_event(replica_set: Json, old_replicas: int, replicas: int) -> Event:
    direction = "up" if replicas > old_replicas else "down"
    text = f"Scaled {direction} replica set {name_of(replica_set)} from {old_replicas} to {replicas}"
    return Event("Normal", "ScalingReplicaSet", text)


def _annotations(deployment: Json, revision: int) -> dict[str, str]:
    """The annotations that a ReplicaSet copies from its Deployment (`kubernetes.io/change-cause` among them), and its
    revision."""
    annotations = deployment["metadata"].get("annotations") or {}
    copied = {key: str(value) for key, value in annotations.items() if key not in (LAST_APPLIED, REVISION)}
    return copied | {REVISION: str(revision)}


def _annotate(gvk: GVK, obj: Json, annotations: dict[str, str]) -> Patch:
    return Patch(gvk, namespace_of(obj), name_of(obj), {"metadata": {"annotations": annotations}})


def _new_replica_set(deployment: Json, template_hash: str, revision: int) -> Json:
    spec, replicas = spec_of(deployment), pod_facts.replicas(deployment)
    template = copy.deepcopy(spec.get("template") or {})
    labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: template_hash}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = copy.deepcopy(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: template_hash}
    annotations = {**_annotations(deployment, revision), DESIRED_REPLICAS: str(replicas), MAX_REPLICAS: str(replicas)}
    owner = controller_reference("apps/v1", "Deployment", name_of(deployment), uid_of(deployment))
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


def _delete_old_revisions(deployment: Json, outdated: list[Json], old_pods: list[Json]) -> list[Write]:
    """Delete ReplicaSets without pods beyond `revisionHistoryLimit` (default 10), the oldest revisions first."""
    limit = spec_of(deployment).get("revisionHistoryLimit")
    limit = 10 if limit is None else int(limit)
    owner_uids = {_owner_uid(pod) for pod in old_pods}
    unused = [
        replica_set
        for replica_set in outdated
        if not pod_facts.replicas(replica_set) and uid_of(replica_set) not in owner_uids
    ]
    return [delete_of(REPLICA_SET, replica_set) for replica_set in unused[: max(0, len(unused) - limit)]]


def _status_write(deployment: Json, replica_sets: list[Json], current: Json | None, now: float) -> UpdateStatus | None:
    """The status of the Deployment; None when it is stored already. `current` is the ReplicaSet of the template."""
    replicas = pod_facts.replicas(deployment)

    def total(field: str) -> int:
        return sum(int(status_of(replica_set).get(field) or 0) for replica_set in replica_sets)

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
        available_condition = (True, "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        available_condition = (False, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    conditions = set_condition(conditions, "Available", *available_condition, now)
    complete = current is not None and available >= replicas and counts["replicas"] == updated == replicas
    progress = "has successfully progressed" if complete else "is progressing"
    reason = "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"
    subject = f'ReplicaSet "{name_of(current)}"' if current else f'Deployment "{name_of(deployment)}"'
    conditions = set_condition(conditions, "Progressing", True, reason, f"{subject} {progress}.", now)
    status: Json = {"observedGeneration": deployment["metadata"].get("generation", 1)}
    status |= {field: count for field, count in counts.items() if count}
    status["conditions"] = conditions
    if status == status_of(deployment):
        return None
    return UpdateStatus(DEPLOYMENT, {**deployment, "status": status})
