"""The StatefulSet controller (apps/v1): pods with stable names `<set>-<ordinal>`, created and deleted in order.

The name of a pod is derived from its ordinal, so the API server admits at most one pod per ordinal. A pod of another
owner that has the name of an ordinal is kept; the create is retried until the name is free.

Steps of a reconcile. With podManagementPolicy OrderedReady a step that has to wait ends the reconcile; with Parallel
none does.
- From the lowest ordinal up: create a missing pod; delete a pod that ended; wait for a pod that is not available yet.
- From the highest ordinal down: delete the pods beyond `replicas`, one at a time.
- RollingUpdate: from the highest ordinal down to `partition`, delete one pod of an old revision once the pods above it
  are Running and Ready.

Guarantees:
- a pod is created only when the store has no pod of its name that this StatefulSet owns: its predecessor is gone;
- a pod that ended within `MIN_LIFETIME` seconds of its creation is deleted only when these are over, so that a pod that
  cannot run does not cause a hot loop;
- only pods of this StatefulSet are deleted, with the uid as precondition.
Not implemented: ControllerRevisions (a missing pod below the partition is created from the new template),
maxUnavailable, adoption of pods without an owner, persistentVolumeClaimRetentionPolicy (claims stay). Unlike in
kube-controller-manager, a pod beyond `replicas` is deleted also while other pods beyond it are not ready: a set that
never became ready can be scaled to 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainyard.objects import (
    Json,
    controller_reference,
    find_condition,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)
from trainyard.objects.resources import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from trainyard.objects.writes import Create
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import CreateIfAbsent, Decision, UpdateStatus, Write, delete_of

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"
MIN_LIFETIME = 10.0  # seconds
_LABEL_LIMIT = 63


class Step(NamedTuple):
    """The result of one step of a reconcile. `wait`: with OrderedReady, no later step is taken now. `requeue_at`:
    requeue at this time (seconds since the epoch)."""

    writes: tuple[Write, ...] = ()
    wait: bool = False
    requeue_at: float | None = None


def decide(stateful_set: Json, pods: list[Json], now: float) -> Decision:
    """The writes for one StatefulSet. `pods` are those whose controller owner it is."""
    if is_deleting(stateful_set):
        return Decision()
    by_ordinal = {index: pod for pod in pods if (index := ordinal(stateful_set, name_of(pod))) is not None}
    revision = _revision(stateful_set)
    steps: list[Step] = []
    for step in _scale_steps(stateful_set, by_ordinal, revision, now):
        steps.append(step)
        if step.wait and _ordered(stateful_set):
            break
    else:
        steps.append(_rolling_update(stateful_set, by_ordinal, revision))
    status, next_available = _status(stateful_set, by_ordinal, revision, now)
    # Sent first: for a stale copy the API server answers Conflict, and no pod is deleted or created.
    status_update: tuple[Write, ...] = ()
    if status != status_of(stateful_set):
        status_update = (UpdateStatus(STATEFUL_SET, {**stateful_set, "status": status}),)
    writes = [write for step in steps for write in step.writes]
    due = [time for time in (*(step.requeue_at for step in steps), next_available) if time is not None]
    return Decision((*status_update, *writes), min(due, default=None))


def _scale_steps(workload: Json, by_ordinal: dict[int, Json], revision: str, now: float) -> Iterable[Step]:
    """One step for each desired ordinal, from the lowest up, then one for each surplus pod, from the highest down."""
    desired = _ordinals(workload)
    for index in desired:
        if index in by_ordinal:
            yield _replace_ended(workload, by_ordinal[index], now)
        else:
            yield Step((*_claims(workload, index), Create(POD, _new_pod(workload, index, revision))), wait=True)
    for index in sorted(by_ordinal.keys() - set(desired), reverse=True):
        pod = by_ordinal[index]
        yield Step(() if is_deleting(pod) else (delete_of(POD, pod),), wait=True)


def _replace_ended(workload: Json, pod: Json, now: float) -> Step:
    """The step for an existing pod of a desired ordinal: delete it when it has ended, wait until it is available."""
    if is_deleting(pod):
        return Step(wait=True)
    if pod_facts.is_finished(pod):
        created = parse_time(pod["metadata"].get("creationTimestamp")) or 0.0
        if created + MIN_LIFETIME > now:
            return Step(wait=True, requeue_at=created + MIN_LIFETIME)
        return Step((delete_of(POD, pod),), wait=True)
    available_at = _available_at(workload, pod)
    return Step(wait=available_at is None or available_at > now)


def _rolling_update(workload: Json, by_ordinal: dict[int, Json], revision: str) -> Step:
    """The rolling update: deletes one pod of an old revision at a time, from the highest ordinal down to `partition`.
    An old pod that has ended is not deleted here: `_replace_ended` does that."""
    strategy = workload["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return Step()
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    for index in reversed(_ordinals(workload)):
        pod = by_ordinal.get(index)
        if index < partition:
            break
        if pod is None or is_deleting(pod):
            return Step()
        if labels_of(pod).get(REVISION_LABEL) != revision:
            return Step(() if pod_facts.is_finished(pod) else (delete_of(POD, pod),))
        if not _running_and_ready(pod):
            return Step()
    return Step()


# --- fields of the StatefulSet and its pods


def ordinal(workload: Json, pod_name: str) -> int | None:
    """The ordinal in a pod's name; None when the name is not one of this StatefulSet's."""
    prefix, _, number = pod_name.rpartition("-")
    if prefix != name_of(workload) or not (number.isascii() and number.isdecimal()) or str(int(number)) != number:
        return None
    return int(number)


def _ordered(workload: Json) -> bool:
    return bool(workload["spec"].get("podManagementPolicy") != "Parallel")


def _ordinals(workload: Json) -> range:
    spec = workload["spec"]
    replicas = spec.get("replicas")
    start = int((spec.get("ordinals") or {}).get("start") or 0)
    return range(start, start + (1 if replicas is None else max(0, int(replicas))))


def _revision(workload: Json) -> str:
    """The revision name of the pod template, `<set>-<hash>`, truncated to the length of a label value."""
    template_hash = pod_facts.template_hash(workload)
    return f"{name_of(workload)}-"[: _LABEL_LIMIT - len(template_hash)] + template_hash


def _running_and_ready(pod: Json) -> bool:
    return pod_facts.phase(pod) == "Running" and pod_facts.ready(pod)


def _available_at(workload: Json, pod: Json) -> float | None:
    """The time (seconds since the epoch, past or future) from which the pod counts as available: minReadySeconds after
    it became ready. 0.0 without minReadySeconds; None while the pod is not Running and Ready."""
    if not _running_and_ready(pod):
        return None
    ready_since = (find_condition(status_of(pod).get("conditions"), "Ready") or {}).get("lastTransitionTime")
    min_ready_seconds = float(workload["spec"].get("minReadySeconds") or 0)
    return (parse_time(ready_since) or 0.0) + min_ready_seconds if min_ready_seconds else 0.0


# --- objects


def _new_pod(workload: Json, index: int, revision: str) -> Json:
    name = f"{name_of(workload)}-{index}"
    owner = controller_reference("apps/v1", "StatefulSet", name_of(workload), uid_of(workload))
    pod = pod_facts.pod_from_template(workload["spec"].get("template") or {}, workload, owner, name)
    pod["metadata"]["labels"] |= {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(index), REVISION_LABEL: revision}
    pod["spec"]["hostname"] = name
    if service := workload["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = service
    if claim_names := _claim_names(workload, index):
        template_volumes = [
            volume for volume in pod["spec"].get("volumes") or [] if volume.get("name") not in claim_names
        ]
        claim_volumes = [
            {"name": volume_name, "persistentVolumeClaim": {"claimName": claim_name, "readOnly": False}}
            for volume_name, claim_name in claim_names.items()
        ]
        pod["spec"]["volumes"] = [*template_volumes, *claim_volumes]
    return pod


def _claim_names(workload: Json, index: int) -> dict[str, str]:
    """Volume name (of the claim template) -> name of the PersistentVolumeClaim of this ordinal."""
    templates = workload["spec"].get("volumeClaimTemplates") or []
    return {name_of(template): f"{name_of(template)}-{name_of(workload)}-{index}" for template in templates}


def _claims(workload: Json, index: int) -> list[Write]:
    """The PersistentVolumeClaims of an ordinal. They have no owner reference: the data outlive the StatefulSet."""
    names = _claim_names(workload, index)
    labels = (workload["spec"].get("selector") or {}).get("matchLabels") or {}
    writes: list[Write] = []
    for template in workload["spec"].get("volumeClaimTemplates") or []:
        meta = template["metadata"]
        claim_meta = {
            "name": names[name_of(template)],
            "namespace": namespace_of(workload),
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": dict(meta.get("annotations") or {}),
        }
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim_meta}
        writes.append(CreateIfAbsent(PERSISTENT_VOLUME_CLAIM, {**claim, "spec": dict(spec_of(template))}))
    return writes


# --- status


def _status(workload: Json, by_ordinal: dict[int, Json], update_revision: str, now: float) -> tuple[Json, float | None]:
    """The status, and the time (seconds since the epoch) when the next pod becomes available, None if none will."""
    current_revision = str(status_of(workload).get("currentRevision") or update_revision)
    pods = list(by_ordinal.values())
    available_times = [time for pod in pods if (time := _available_at(workload, pod)) is not None]

    def pods_of(revision: str) -> int:
        return sum(labels_of(pod).get(REVISION_LABEL) == revision for pod in pods if not is_deleting(pod))

    replicas, ready, updated = len(pods), sum(map(_running_and_ready, pods)), pods_of(update_revision)
    update_strategy = (workload["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate")
    if update_strategy == "RollingUpdate" and replicas == ready == updated == len(_ordinals(workload)):
        current_revision = update_revision
    status: Json = {
        "observedGeneration": workload["metadata"].get("generation", 1),
        "replicas": replicas,
        "currentRevision": current_revision,
        "updateRevision": update_revision,
        "availableReplicas": sum(time <= now for time in available_times),
        "collisionCount": 0,
    }
    counts = {"readyReplicas": ready, "currentReplicas": pods_of(current_revision), "updatedReplicas": updated}
    status |= {field: count for field, count in counts.items() if count}
    return status, min((time for time in available_times if time > now), default=None)
