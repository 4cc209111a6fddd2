"""apps/v1 Deployment, the plainest one that tells the truth: its pods, directly, without ReplicaSets in between.

A pod belongs to a place (0 to replicas - 1) and to a template; its name is derived from both, so dying after a create
cannot make two. A change of the template takes all old pods down before new ones are made (strategy Recreate): two
TensorBoards on one log folder would disturb each other, and nothing here promises service without a gap.
"""

from __future__ import annotations

from trainyard.objects import GVK, Json, labels_of, name_of, owner_reference, uid_of, with_condition
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import status_of
from trainyard.workloads.writes import Create, Decision, SetStatus, Write, delete_of

DEPLOYMENT = GVK("apps", "v1", "Deployment", "deployments")
POD = GVK("", "v1", "Pod", "pods")
HASH = "pod-template-hash"


def decide(deployment: Json, pods: list[Json], now: float) -> Decision:
    """`pods` are those whose controller owner is this Deployment."""
    if pod_facts.deleting(deployment):
        return Decision()
    template_hash = pod_facts.template_hash(deployment)
    wanted = {_name(deployment, template_hash, place): place for place in range(_replicas(deployment))}
    stale = [pod for pod in pods if name_of(pod) not in wanted or pod_facts.ended(pod)]
    going = [delete_of(POD, pod) for pod in stale if not pod_facts.deleting(pod)]
    made: list[Write] = []
    # Old ones first: also those that are still being deleted hold the place.
    if not stale and not deployment["spec"].get("paused"):
        there = {name_of(pod) for pod in pods}
        made = [Create(POD, _pod(deployment, template_hash, name)) for name in wanted if name not in there]
    current = [pod for pod in pods if labels_of(pod).get(HASH) == template_hash and pod_facts.active(pod)]
    status = _status(deployment, pods, current, now)
    fence: tuple[Write, ...] = ()
    if status != status_of(deployment):
        fence = (SetStatus(DEPLOYMENT, {**deployment, "status": status}),)
    return Decision((*fence, *going, *made))


def _replicas(deployment: Json) -> int:
    replicas = deployment["spec"].get("replicas")
    return 1 if replicas is None else max(0, int(replicas))


def _name(deployment: Json, template_hash: str, place: int) -> str:
    five = pod_facts.suffix(uid_of(deployment), template_hash, place)
    return pod_facts.generated(f"{name_of(deployment)}-{template_hash}", five)


def _pod(deployment: Json, template_hash: str, name: str) -> Json:
    owner = owner_reference("apps/v1", "Deployment", name_of(deployment), uid_of(deployment))
    pod = pod_facts.from_template(deployment["spec"].get("template") or {}, deployment, owner, name)
    pod["metadata"]["labels"][HASH] = template_hash
    return pod


def _status(deployment: Json, pods: list[Json], current: list[Json], now: float) -> Json:
    replicas = _replicas(deployment)
    living = [pod for pod in pods if pod_facts.active(pod)]
    ready = sum(pod_facts.ready(pod) for pod in living)
    counts = {
        "replicas": len(living),
        "updatedReplicas": len(current),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, replicas - ready),
    }
    old = status_of(deployment).get("conditions") or []
    if ready >= replicas:
        available = (True, "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        available = (False, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    done = ready >= replicas and len(current) == len(living) == replicas
    word = "has successfully progressed" if done else "is progressing"
    reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
    conditions = with_condition(old, "Available", *available, now)
    conditions = with_condition(conditions, "Progressing", True, reason, f"{name_of(deployment)} {word}.", now)
    status: Json = {"observedGeneration": deployment["metadata"].get("generation", 1)}
    status |= {field: count for field, count in counts.items() if count}
    return {**status, "conditions": conditions}
