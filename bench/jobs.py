"""The jobs of the benchmarks: `replicas` pods that nothing but `bench.kubelet` runs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drop_in.snapshot import JOB_SET
from trainyard import kinds
from trainyard.objects import GVK, Json, as_dict

SCHEDULER = "bench"
"""The scheduler of the pods. There is none of this name: nothing but the operator and the kubelet writes the pods."""

NODE = "bench"
"""The node of pods that are created with one. Its kubelet is `bench.kubelet`."""


def _pod(container: str, **spec: object) -> Json:
    containers = [{"name": container, "image": "none", "command": ["python", "train.py"]}]
    return {"spec": {"schedulerName": SCHEDULER, "containers": containers, **spec}}


def _job(gvk: GVK, name: str, spec: Json) -> Json:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name}, "spec": spec}


def pytorch_job(name: str, replicas: int) -> Json:
    """A PyTorchJob of kubeflow.org with a master."""
    template = _pod("pytorch")
    specs = {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": template}
        for role, count in (("Master", 1), ("Worker", replicas - 1))
        if count
    }
    spec = {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": specs}
    return _job(kinds.PYTORCHJOB.gvk, name, spec)


def tf_job(name: str, replicas: int) -> Json:
    """A TfJob of tensorflow.org with a master: a batch Job for each replica."""
    template = _pod("tensorflow", restartPolicy="OnFailure")
    roles = [
        {"tfReplicaType": role, "replicas": count, "template": template}
        for role, count in (("MASTER", 1), ("WORKER", replicas - 1))
        if count
    ]
    return _job(kinds.TFJOB.gvk, name, {"replicaSpecs": roles})


def managed_elsewhere(gvk: GVK, job: Json) -> Json:
    """A copy of a stored job, to be created, that its operator leaves to another controller."""
    spec, manager = dict(job["spec"]), {"managedBy": "kueue.x-k8s.io/multikueue"}
    if "runPolicy" in spec:
        spec["runPolicy"] = {**spec["runPolicy"], **manager}
    else:
        spec |= manager
    return _job(gvk, job["metadata"]["name"], spec)


def job_set(name: str, replicas: int) -> Json:
    """A JobSet with one Indexed Job, whose pods are made by kube-controller-manager."""
    job = {
        "parallelism": replicas,
        "completions": replicas,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": _pod("pytorch", restartPolicy="Never"),
    }
    return _job(JOB_SET, name, {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]})


def on_node(job: Json) -> Json:
    """The job with its pods on `NODE`, where a deleted pod exists until the kubelet has ended it. Edits the job."""
    for template in _templates(job):
        template["spec"]["nodeName"] = NODE
    return job


def _templates(obj: object) -> Iterator[Json]:
    """The pod templates in a job, wherever they are."""
    if isinstance(obj, list):
        for item in obj:
            yield from _templates(item)
    elif isinstance(obj, dict):
        for value in obj.values():
            if isinstance(value, dict) and "containers" in as_dict(value.get("spec")):
                yield value
            else:
                yield from _templates(value)
