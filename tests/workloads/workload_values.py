"""Values for these tests: a Job, its pods, a Deployment, as the API server would hand them out."""

from __future__ import annotations

import copy
from typing import Any

from trainyard.objects import Json, controller_reference, format_time, uid_of
from trainyard.objects.writes import Create, Delete, Patch
from trainyard.workloads import jobs
from trainyard.workloads.writes import Decision, UpdateStatus

NOW = 1_700_000_000.0


def job(status: Json | None = None, restart: str = "Never", **spec: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "ps-76no-0", "namespace": "default", "uid": "u-job", "resourceVersion": "5"},
        "spec": {
            "template": {
                "metadata": {"labels": {"mine": "yes"}},
                "spec": {"restartPolicy": restart, "containers": [{"name": "tensorflow", "image": "x"}]},
            },
            **spec,
        },
        "status": status or {},
    }


def pod_of(owner: Json, before: int = 0, phase: str = "Running", **meta: Any) -> Json:
    """The pod that the Job controller would make after `before` failures, now in `phase`."""
    new_pod = jobs._new_pod(owner, before)
    new_pod["metadata"] |= {"uid": f"u-pod-{before}", "creationTimestamp": format_time(NOW - 5), **meta}
    new_pod["status"] = {"phase": phase, "conditions": [], "containerStatuses": []}
    return new_pod


def ended(pod: Json, phase: str, at: float) -> Json:
    pod = copy.deepcopy(pod)
    pod["status"]["phase"] = phase
    pod["status"]["containerStatuses"] = [
        {"name": "tensorflow", "state": {"terminated": {"finishedAt": format_time(at), "exitCode": 1}}}
    ]
    return pod


def is_ready(pod: Json) -> Json:
    pod = copy.deepcopy(pod)
    pod["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return pod


def restarted(pod: Json, times: int) -> Json:
    pod = copy.deepcopy(pod)
    pod["status"]["containerStatuses"] = [{"name": "tensorflow", "restartCount": times}]
    return pod


def status_in(decision: Decision) -> Json:
    """The status that is written, {} when none is."""
    return next((write.obj["status"] for write in decision.writes if isinstance(write, UpdateStatus)), {})


def made_in(decision: Decision) -> list[Json]:
    return [write.obj for write in decision.writes if isinstance(write, Create)]


def scaled_in(decision: Decision) -> dict[str, int]:
    """The ReplicaSets whose replicas are changed, and to what."""
    merges = [write for write in decision.writes if isinstance(write, Patch)]
    return {write.name: write.body["spec"]["replicas"] for write in merges if "spec" in write.body}


def deleted_in(decision: Decision) -> list[str]:
    return [write.uid for write in decision.writes if isinstance(write, Delete)]


def owned(obj: Json, owner: Json) -> Json:
    ref = controller_reference(owner["apiVersion"], owner["kind"], owner["metadata"]["name"], uid_of(owner))
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [ref]}}
