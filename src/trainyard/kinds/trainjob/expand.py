"""A JobSet as the objects that its controller, and that of Jobs, make of it: Service, claims and pods."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from trainyard.objects import Json, decode, encode

PREFIX = "jobset.sigs.k8s.io/"
JOB_SET_NAME = f"{PREFIX}jobset-name"
INDEX = "batch.kubernetes.io/job-completion-index"
"""A label and an annotation of a pod."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


class Expansion(msgspec.Struct, frozen=True):
    """The objects of a JobSet, without owners and namespaces. `pods` are the templates of the pods of each replicated
    job, with all but their index."""

    service: Json | None
    claims: tuple[Json, ...]
    pods: dict[str, Json]


def expand(job_set: Json, uid: str, namespace: str, attempt: int = 0) -> Expansion:
    """`job_set` has its defaults. `uid` is in the pods' labels; `attempt` counts the restarts of all of them."""
    spec = job_set["spec"]
    labels = common_labels(job_set, uid, namespace, attempt)
    pods = {
        replicated_job["name"]: _pod_template(job_set, replicated_job, labels[replicated_job["name"]])
        for replicated_job in spec["replicatedJobs"]
    }
    service = _service(job_set) if spec["network"]["enableDNSHostnames"] else None
    return Expansion(service, tuple(_claims(job_set)), pods)


def job_name(job_set: Json, replicated_job: Json) -> str:
    """Of the Job: JobSets of TrainJobs have one for each replicated job."""
    return f"{job_set['metadata']['name']}-{replicated_job['name']}-0"


def subdomain(job_set: Json) -> str:
    """The name of the Service, and the last part of the pods' host names."""
    return str(job_set["spec"]["network"].get("subdomain") or job_set["metadata"]["name"])


def common_labels(job_set: Json, uid: str, namespace: str, attempt: int) -> dict[str, Json]:
    """Replicated job -> JobSet's labels, which are the pods' annotations as well."""
    jobs = job_set["spec"]["replicatedJobs"]
    groups = [replicated_job["groupName"] for replicated_job in jobs]
    labels = {}
    for number, replicated_job in enumerate(jobs):
        group = replicated_job["groupName"]
        key = f"{namespace}/{job_name(job_set, replicated_job)}"
        values = {
            "jobset-name": job_set["metadata"]["name"],
            "jobset-uid": uid,
            "replicatedjob-name": replicated_job["name"],
            "restart-attempt": attempt,
            "replicatedjob-replicas": replicated_job["replicas"],
            "global-replicas": sum(item["replicas"] for item in jobs),
            "job-index": 0,
            "job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
            "job-global-index": sum(item["replicas"] for item in jobs[:number]),
            "group-name": group,
            "group-replicas": sum(item["replicas"] for item in jobs if item["groupName"] == group),
            "job-group-index": groups[:number].count(group),
        }
        labels[replicated_job["name"]] = {f"{PREFIX}{name}": str(value) for name, value in values.items()}
    return labels


def _pod_template(job_set: Json, replicated_job: Json, labels: Json) -> Json:
    template: Json = decode(encode(replicated_job["template"]["spec"]["template"]))
    metadata, spec = template.setdefault("metadata", {}), template["spec"]
    for field in ("labels", "annotations"):
        metadata[field] = {**(metadata.get(field) or {}), **labels}
    if job_set["spec"]["network"]["enableDNSHostnames"]:
        spec["subdomain"] = subdomain(job_set)
    if volumes := list(_claim_volumes(job_set, spec)):
        spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
    return template


def pod(job_set: Json, replicated_job: Json, template: Json, index: int) -> Json:
    """The pod of an index, without its name: the metadata and the spec."""
    document: Json = decode(encode(template))
    name = job_name(job_set, replicated_job)
    own = {"batch.kubernetes.io/job-name": name, "job-name": name, INDEX: str(index)}
    own[f"{PREFIX}priority"] = str(document["spec"].get("priority") or 0)
    document["metadata"]["labels"] |= own
    document["metadata"]["annotations"] |= {INDEX: str(index)}
    document["spec"]["hostname"] = f"{name}-{index}"
    variable = {"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}
    for container in (*document["spec"]["containers"], *(document["spec"].get("initContainers") or ())):
        container["env"] = [*(container.get("env") or ()), variable]
    return document


def _service(job_set: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": subdomain(job_set)},
        "spec": {
            "clusterIP": "None",
            "selector": {JOB_SET_NAME: job_set["metadata"]["name"]},
            "publishNotReadyAddresses": job_set["spec"]["network"]["publishNotReadyAddresses"],
        },
    }


def _claim_templates(job_set: Json) -> Iterator[tuple[Json, Json]]:
    for policy in job_set["spec"].get("volumeClaimPolicies") or ():
        for template in policy["templates"]:
            yield policy, template


def claim_name(job_set: Json, template: Json) -> str:
    """Of the PersistentVolumeClaim of a template."""
    return f"{template['metadata']['name']}-{job_set['metadata']['name']}"


def _claims(job_set: Json) -> Iterator[Json]:
    for _, template in _claim_templates(job_set):
        stored = template["metadata"]
        labels = {**(stored.get("labels") or {}), JOB_SET_NAME: job_set["metadata"]["name"]}
        metadata: Json = {"name": claim_name(job_set, template), "labels": labels}
        if stored.get("annotations"):
            metadata["annotations"] = stored["annotations"]
        yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}


def _claim_volumes(job_set: Json, pod_spec: Json) -> Iterator[Json]:
    """A volume for each claim that a container mounts."""
    containers = (*pod_spec["containers"], *(pod_spec.get("initContainers") or ()))
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    for _, template in _claim_templates(job_set):
        name = template["metadata"]["name"]
        if name in mounted:
            yield {"name": name, "persistentVolumeClaim": {"claimName": claim_name(job_set, template)}}
