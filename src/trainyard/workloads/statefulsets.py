"""apps/v1 StatefulSet: pods with names that stay, `<set>-<ordinal>`, made, replaced and taken down in order.

A pod belongs to an ordinal; its name is the ordinal's, so the API server itself keeps two of one ordinal apart. What
holds the name of an ordinal and is not ours is left alone; the create is tried again until the name is free.

Flow, for one look; under OrderedReady every step that has something to wait for ends the look, under Parallel none:
- from the lowest ordinal up: make what is missing; take away what ended; wait for what is not yet ready;
- from the highest down: take away what is beyond `replicas`, one at a time;
- RollingUpdate: from the highest down to `partition`, take away one old pod once those above it are ready.

Guarantees:
- a pod is made only when nothing of its name is there, as far as we see: an old one has gone before;
- a pod that ended sooner than `SHORT` after it was made is replaced only then: what cannot run makes no hot loop;
- nothing is deleted but our own pods, by uid.
Not here: ControllerRevisions (a pod below the partition that vanishes is made from the new template), maxUnavailable,
adoption of pods without an owner, persistentVolumeClaimRetentionPolicy (claims stay). Unlike the real one, a pod that
is beyond `replicas` goes also when others beyond it are not ready: a set that never got ready can be scaled to 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainyard.objects import (
    Json,
    condition,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    parse_time,
    uid_of,
)
from trainyard.objects.resources import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Create, Decision, Ensure, SetStatus, Write, delete_of

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
REVISION = "controller-revision-hash"
SHORT = 10.0
_LABEL_LIMIT = 63


class Step(NamedTuple):
    """What one part of a look came to. `wait`: what follows has to wait, when the set is ordered."""

    writes: tuple[Write, ...] = ()
    wait: bool = False
    after: float | None = None


def decide(workload: Json, pods: list[Json], now: float) -> Decision:
    """`pods` are those whose controller owner is this StatefulSet."""
    if pod_facts.deleting(workload):
        return Decision()
    mine = {at: pod for pod in pods if (at := ordinal(workload, name_of(pod))) is not None}
    revision = _revision(workload)
    steps: list[Step] = []
    for step in _steps(workload, mine, revision, now):
        steps.append(step)
        if step.wait and _ordered(workload):
            break
    else:
        steps.append(_update(workload, mine, revision))
    status, ready_at = _status(workload, mine, revision, now)
    fence: tuple[Write, ...] = ()
    if status != status_of(workload):
        fence = (SetStatus(STATEFUL_SET, {**workload, "status": status}),)
    writes = [write for step in steps for write in step.writes]
    wake = [at for at in (*(step.after for step in steps), ready_at) if at is not None]
    return Decision((*fence, *writes), min(wake, default=None))


def _steps(workload: Json, mine: dict[int, Json], revision: str, now: float) -> Iterable[Step]:
    wanted = _ordinals(workload)
    for at in wanted:
        if at in mine:
            yield _keep(workload, mine[at], now)
        else:
            yield Step((*_claims(workload, at), Create(POD, _pod(workload, at, revision))), wait=True)
    for at in sorted(mine.keys() - set(wanted), reverse=True):
        going = pod_facts.deleting(mine[at])
        yield Step(() if going else (delete_of(POD, mine[at]),), wait=True)


def _keep(workload: Json, pod: Json, now: float) -> Step:
    """The pod of an ordinal that the set wants."""
    if pod_facts.deleting(pod):
        return Step(wait=True)
    if pod_facts.ended(pod):
        born = parse_time(pod["metadata"].get("creationTimestamp")) or 0.0
        if born + SHORT > now:
            return Step(wait=True, after=born + SHORT)
        return Step((delete_of(POD, pod),), wait=True)
    since = _available_at(workload, pod)
    return Step(wait=since is None or since > now)


def _update(workload: Json, mine: dict[int, Json], revision: str) -> Step:
    """The rolling update: one old pod at a time, from the top."""
    strategy = workload["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return Step()
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    for at in reversed(_ordinals(workload)):
        pod = mine.get(at)
        if at < partition:
            break
        if pod is None or pod_facts.deleting(pod):
            return Step()
        if labels_of(pod).get(REVISION) != revision:
            return Step(() if pod_facts.ended(pod) else (delete_of(POD, pod),))
        if not _runs(pod):
            return Step()
    return Step()


# --- facts


def ordinal(workload: Json, pod_name: str) -> int | None:
    """The ordinal that a name of this set stands for."""
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
    """The name of the template's revision, short enough for a label."""
    ten = pod_facts.template_hash(workload)
    return f"{name_of(workload)}-"[: _LABEL_LIMIT - len(ten)] + ten


def _runs(pod: Json) -> bool:
    """Running and Ready."""
    return pod_facts.phase(pod) == "Running" and pod_facts.ready(pod)


def _available_at(workload: Json, pod: Json) -> float | None:
    """Since when, or from when on, the pod counts as available; None while it is not ready."""
    if not _runs(pod):
        return None
    since = (condition(status_of(pod).get("conditions"), "Ready") or {}).get("lastTransitionTime")
    seconds = float(workload["spec"].get("minReadySeconds") or 0)
    return (parse_time(since) or 0.0) + seconds if seconds else 0.0


# --- objects


def _pod(workload: Json, at: int, revision: str) -> Json:
    name = f"{name_of(workload)}-{at}"
    owner = owner_reference("apps/v1", "StatefulSet", name_of(workload), uid_of(workload))
    pod = pod_facts.from_template(workload["spec"].get("template") or {}, workload, owner, name)
    pod["metadata"]["labels"] |= {POD_NAME: name, POD_INDEX: str(at), REVISION: revision}
    pod["spec"]["hostname"] = name
    if service := workload["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = service
    if claims := _claim_names(workload, at):
        others = [one for one in pod["spec"].get("volumes") or [] if one.get("name") not in claims]
        ours = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim, "readOnly": False}}
            for volume, claim in claims.items()
        ]
        pod["spec"]["volumes"] = [*others, *ours]
    return pod


def _claim_names(workload: Json, at: int) -> dict[str, str]:
    templates = workload["spec"].get("volumeClaimTemplates") or []
    return {name_of(one): f"{name_of(one)}-{name_of(workload)}-{at}" for one in templates}


def _claims(workload: Json, at: int) -> list[Write]:
    """The claims of an ordinal. They have no owner: what is stored there outlives the set."""
    names = _claim_names(workload, at)
    labels = (workload["spec"].get("selector") or {}).get("matchLabels") or {}
    made: list[Write] = []
    for template in workload["spec"].get("volumeClaimTemplates") or []:
        meta = template["metadata"]
        claim_meta = {
            "name": names[name_of(template)],
            "namespace": namespace_of(workload),
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": dict(meta.get("annotations") or {}),
        }
        words = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim_meta}
        made.append(Ensure(PERSISTENT_VOLUME_CLAIM, {**words, "spec": dict(spec_of(template))}))
    return made


# --- status


def _status(workload: Json, mine: dict[int, Json], update: str, now: float) -> tuple[Json, float | None]:
    """The status, and when it has to be looked at again because a pod becomes available then."""
    old = status_of(workload)
    current = str(old.get("currentRevision") or update)
    there = list(mine.values())
    steady = [pod for pod in there if not pod_facts.deleting(pod)]
    since = [at for pod in there if (at := _available_at(workload, pod)) is not None]

    def of(revision: str) -> int:
        return sum(labels_of(pod).get(REVISION) == revision for pod in steady)

    replicas, ready, updated = len(there), sum(map(_runs, there)), of(update)
    rolls = (workload["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
    if rolls and replicas == ready == updated == len(_ordinals(workload)):
        current = update
    status: Json = {
        "observedGeneration": workload["metadata"].get("generation", 1),
        "replicas": replicas,
        "currentRevision": current,
        "updateRevision": update,
        "availableReplicas": sum(at <= now for at in since),
        "collisionCount": 0,
    }
    counts = {"readyReplicas": ready, "currentReplicas": of(current), "updatedReplicas": updated}
    status |= {field: count for field, count in counts.items() if count}
    return status, min((at for at in since if at > now), default=None)
