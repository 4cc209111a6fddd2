"""Builders for values: jobs and their observed children, as the API server would hand them over.

Rules for this file: every builder has defaults that make a legal object, and returns a new one each time.
"""

from __future__ import annotations

from typing import Any

from trainyard.core import Observed, Plan, decode_child, plan
from trainyard.kinds import TFJOB
from trainyard.objects import Json, controller_reference, format_time
from trainyard.objects.labels import ATTEMPT, INDEX, OWNER, ROLE

NOW = 1_700_000_000.0
UID = "11111111-2222-4333-8444-555555555555"
RUNTIME_ID = "76no"
IMAGE = "tensorflow/tensorflow:1.3.0"


def template(container: str = "tensorflow", **spec: Any) -> Json:
    """A pod template with one container; `spec` is merged into the pod spec."""
    return {"spec": {"containers": [{"name": container, "image": IMAGE}], "restartPolicy": "OnFailure", **spec}}


def replicas(kind: str, count: int = 1, **fields: Any) -> Json:
    """One item of `replicaSpecs`; a PS without a template is the default one."""
    item: Json = {"tfReplicaType": kind, "replicas": count}
    if kind != "PS":
        item["template"] = template()
    return {**item, **fields}


def tfjob(*items: Json, status: Json | None = None, **spec: Any) -> Json:
    """A TfJob; without items it has a MASTER and a WORKER. Its RuntimeId is stored already."""
    listed = list(items) or [replicas("MASTER"), replicas("WORKER")]
    job: Json = {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "metadata": {"name": "example-job", "namespace": "default", "uid": UID, "resourceVersion": "1"},
        "spec": {"RuntimeId": RUNTIME_ID, "replicaSpecs": listed, **spec},
    }
    return job if status is None else {**job, "status": status}


def batch_job(role: str, index: int = 0, attempt: int = 0, **status: Any) -> Json:
    """The batch Job of a slot as observed. `failed="reason"` or `complete=True` give it its last condition."""
    name = f"{role.lower()}-{RUNTIME_ID}-{index}"
    conditions = []
    if status.pop("complete", False):
        conditions.append({"type": "Complete", "status": "True", "lastTransitionTime": format_time(NOW)})
    if reason := status.pop("failed", ""):
        last = {"type": "Failed", "status": "True", "reason": reason, "message": f"{reason} it is"}
        conditions.append({**last, "lastTransitionTime": format_time(NOW)})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}-{attempt}",
            "creationTimestamp": format_time(NOW - 20),
            "labels": {OWNER: UID, ROLE: role, INDEX: str(index), ATTEMPT: str(attempt)},
            "ownerReferences": [controller_reference("tensorflow.org/v1alpha1", "TfJob", "example-job", UID)],
        },
        "status": {**status, "conditions": conditions},
    }


def pod_of(job: Json, phase: str = "Running", number: int = 0, **fields: Any) -> Json:
    """A pod of a batch Job. `code`, `reason`, `restarts`, `container` say what its container did; else it is status."""
    meta = job["metadata"]
    code, reason = fields.pop("code", None), fields.pop("reason", "")
    name, restarts = fields.pop("container", "tensorflow"), fields.pop("restarts", 0)
    deleting = fields.pop("deleting", False)
    state: Json = {"waiting": {"reason": "ContainerCreating"}} if phase == "Pending" else {"running": {}}
    if code is not None:
        end_reason = reason or ("Completed" if code == 0 else "Error")
        state = {"terminated": {"exitCode": code, "reason": end_reason, "finishedAt": format_time(NOW - 1)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-pod{number}",
            "namespace": "default",
            "uid": f"uid-{meta['uid']}-pod{number}",
            "creationTimestamp": format_time(NOW - 50 + number),
            **({"deletionTimestamp": format_time(NOW)} if deleting else {}),
            "labels": dict(meta["labels"]),
            "ownerReferences": [controller_reference("batch/v1", "Job", meta["name"], meta["uid"])],
        },
        "status": {
            "phase": phase,
            "startTime": format_time(NOW - 40),
            "containerStatuses": [{"name": name, "state": state, "restartCount": restarts}],
            **fields,
        },
    }


def service() -> Json:
    """The headless Service of the job, as observed."""
    owner = controller_reference("tensorflow.org/v1alpha1", "TfJob", "example-job", UID)
    meta = {"name": f"tfjob-{RUNTIME_ID}", "namespace": "default", "uid": "uid-service", "labels": {OWNER: UID}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {**meta, "ownerReferences": [owner]}}


def started(*items: Json, at: float = NOW - 60, **spec: Any) -> Json:
    """A TfJob whose first pass was carried out; without items its WORKER has restartPolicy Never."""
    worker = replicas("WORKER", template=template(restartPolicy="Never"))
    job = tfjob(*(items or (replicas("MASTER"), worker)), **spec)
    return {**job, "status": plan(TFJOB, job, Observed(), at).status}


def look(job: Json, *children: Json, now: float = NOW) -> Plan:
    """The plan for a job with these children and its Service."""
    return plan(TFJOB, job, Observed(tuple(map(decode_child, (service(), *children)))), now)
