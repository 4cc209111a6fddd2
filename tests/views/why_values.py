"""Jobs, pods and facts for the tests of `why`."""

from __future__ import annotations

from typing import Any, NamedTuple

from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json, format_time
from trainyard.views.diagnosis import Facts, Finding, why

NOW = 1_700_000_000.0


def at(ago: float) -> str:
    return format_time(NOW - ago)


def template(container: str) -> Json:
    spec = {"containers": [{"name": container, "image": "x", "command": ["train"]}], "restartPolicy": "OnFailure"}
    return {"spec": spec}


def tfjob(*holding: tuple[str, str, str], status: Json | None = None, **spec: Any) -> Json:
    """A TfJob of one master and two workers; `holding` are the conditions that are True: type, reason, message."""
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": text, "lastTransitionTime": at(180)}
        for kind, reason, text in holding
    ]
    previous = {"phase": "Running", "startTime": at(200), "conditions": conditions} if conditions else {}
    roles = [
        {"tfReplicaType": "MASTER", "replicas": 1, "template": template("tensorflow")},
        {"tfReplicaType": "WORKER", "replicas": 2, "template": template("tensorflow")},
    ]
    meta = {"name": "mnist", "namespace": "default", "uid": "u", "creationTimestamp": at(200)}
    return {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "metadata": meta,
        "spec": {"replicaSpecs": roles, "RuntimeId": "abcd", **spec},
        "status": status if status is not None else previous,
    }


def elastic(*holding: tuple[str, str, str], **spec: Any) -> Json:
    job = tfjob(*holding)
    worker = {"replicas": 2, "restartPolicy": "ExitCode", "template": template("elasticjob-worker")}
    own = {"rdzvEndpoint": "etcd-service:2379", "minReplicas": 2, "maxReplicas": 3}
    return {
        **job,
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "spec": {**own, "replicaSpecs": {"Worker": worker}, **spec},
    }


def pytorch(*holding: tuple[str, str, str], **spec: Any) -> Json:
    """A PyTorchJob of two elastic workers, which meet at an etcd."""
    worker = {"replicas": 2, "restartPolicy": "ExitCode", "template": template("pytorch")}
    policy = {"rdzvHost": "etcd-service", "rdzvPort": 2379, "minReplicas": 2, "maxReplicas": 3}
    own = {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}}
    return {**tfjob(*holding), "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {**own, **spec}}


RUNNING = ("Running", "JobRunning", "at least one replica runs")


def pod(
    slot: str, state: Json | None = None, phase: str = "Running", container: str = "tensorflow", **more: Any
) -> Json:
    """A pod of that slot. `state` is its container's status; by default it runs."""
    role, _, index = slot.rpartition("-")
    labels = {"trainyard.dev/owner": "u", "trainyard.dev/role": role, "trainyard.dev/index": index}
    meta = {"name": f"{slot.lower()}-abcd-x", "namespace": "default", "uid": f"p-{slot}", "labels": labels}
    running = {"state": {"running": {"startedAt": at(100)}}}
    status = {
        "phase": phase,
        "startTime": at(150),
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": container, "restartCount": 0, **(running if state is None else state)}],
    }
    return {
        "kind": "Pod",
        "metadata": {**meta, "creationTimestamp": at(150), **more},
        "spec": {"nodeName": "here", "containers": [{"name": container, "image": "registry/x:1"}]},
        "status": status,
    }


WORKERS = (pod("WORKER-0"), pod("WORKER-1"))


def waits(reason: str, message: str = "", **more: Any) -> Json:
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


def ended(code: int, reason: str = "Error", ago: float = 30, **more: Any) -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at(ago), **more}}


def unplaced(slot: str, message: str) -> Json:
    pending_pod = pod(slot, waits(""), "Pending")
    pending_pod["spec"].pop("nodeName")
    pending_pod["status"]["containerStatuses"] = []
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pending_pod["status"]["conditions"] = [condition]
    return pending_pod


def child(kind: str, name: str, uid: str = "c", spec: Json | None = None, status: Json | None = None) -> Json:
    meta = {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": at(100)}
    return {"kind": kind, "metadata": meta, "spec": spec or {}, "status": status or {}}


def refused(uid: str, message: str) -> Json:
    about = {"kind": "Job", "name": "x", "uid": uid}
    return {"type": "Warning", "reason": "FailedCreate", "message": message, "involvedObject": about}


def facts(job: Json, *pods: Json, **more: Any) -> Facts:
    kind: Kind | None = kinds.kind_of(job)
    assert kind is not None
    return Facts(kind=kind, job=job, now=NOW, pods=pods, **more)


def diagnose(*objects: Any, **more: Any) -> list[Finding]:
    return why(facts(*objects, **more))


def everything(findings: list[Finding]) -> str:
    """The texts of all findings, one per line."""
    return "\n".join(
        f"{finding.summary}\n{finding.where}\n{' / '.join(finding.evidence)}\n{finding.fix}" for finding in findings
    )


class Case(NamedTuple):
    name: str
    job: Json
    pods: tuple[Json, ...]
    level: int  # of the first finding
    says: tuple[str, ...]  # all of this is said
    more: dict[str, Any] = {}  # noqa: RUF012  (read only)
