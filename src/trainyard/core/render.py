"""Renders the object of a `Create` or a patch, as it is sent to the API server."""

from __future__ import annotations

from trainyard.core.kind import Job, Kind
from trainyard.core.model import AuxiliaryObject, Child, Config, PlannedCreate, Slot
from trainyard.core.read import parse_job
from trainyard.objects import Json, controller_reference
from trainyard.objects.labels import ATTEMPT, DIGEST, HOSTS, INDEX, OWNER, ROLE, WORKING_DIRECTORY
from trainyard.objects.no_progress import PROGRESS_DEADLINE
from trainyard.objects.resources import POD
from trainyard.objects.writes import Patch

_POLICY = "terminationMessagePolicy"
_COPIED_ANNOTATIONS = (WORKING_DIRECTORY, PROGRESS_DEADLINE)
"""Annotations of a job that its pods get, too: their node reads them."""


def render_object(kind: Kind, wire: Json, create: PlannedCreate, config: Config) -> Json:
    """The object to send. Raises ValueError when `create` is from the plan of another spec."""
    return render_child(parse_job(kind, wire, config), create)


def render_child(job: Job, create: PlannedCreate) -> Json:
    """As render_object, for a parsed job."""
    if create.slot is None:
        auxiliary = job.auxiliary_objects.get(create.ref)
        if auxiliary is None:
            raise ValueError(f"{job.key}: no {create.gvk.kind} {create.name} is part of this job")
        return _with_metadata(job, create, auxiliary.body(), {DIGEST: auxiliary.digest} if auxiliary.digest else {})
    slot = create.slot
    labels = {
        **job.kind.pods.labels(job, slot),
        ROLE: slot.role,
        INDEX: str(slot.index),
        ATTEMPT: str(create.attempt),
    }
    return _with_metadata(job, create, job.carrier(slot.role).render(job, slot, create.attempt), labels)


def _with_metadata(job: Job, create: PlannedCreate, body: Json, labels: dict[str, str]) -> Json:
    """Set name, namespace, owner reference and labels of a child. The operator's labels override the user's."""
    meta = body.get("metadata", {})
    own_labels = {**labels, OWNER: job.uid}
    body["metadata"] = {
        **meta,
        "name": create.name,
        "namespace": job.key.namespace,
        "labels": {**meta.get("labels", {}), **own_labels},
        "ownerReferences": [controller_reference(job.kind.gvk.api_version, job.kind.gvk.kind, job.key.name, job.uid)],
    }
    template = body if create.gvk == POD else body.get("spec", {}).get("template")
    if isinstance(template, dict):
        pod_meta = template.get("metadata") or {}
        pod_meta = {key: value for key, value in pod_meta.items() if value is not None}
        template["metadata"] = {**pod_meta, "labels": {**(pod_meta.get("labels") or {}), **own_labels}}
        for name in _COPIED_ANNOTATIONS:
            _copy_annotation(job, name, template["metadata"])
        if create.slot is not None:
            _set_termination_message_policy(job, create.slot, template)
            if job.kind.pods.subdomain(job):
                _set_hostname(job, create.slot, template)
    return body


def _copy_annotation(job: Job, name: str, meta: Json) -> None:
    """Copy an annotation of the job to its pods, unless the pod template has its own."""
    annotations = job.obj["metadata"].get("annotations")
    value = annotations.get(name) if isinstance(annotations, dict) else None
    pod_annotations = meta.get("annotations") or {}
    if isinstance(value, str) and value and name not in pod_annotations:
        meta["annotations"] = {**pod_annotations, name: value}


def _set_termination_message_policy(job: Job, slot: Slot, template: Json) -> None:
    """Default the main container's terminationMessagePolicy, so that its last log lines are in the pod's status."""
    role = job.role(slot.role)
    name = (role.container if role else "") or job.kind.roles.container
    spec = template.get("spec") or {}
    containers = spec.get("containers") or []
    defaulted = [
        {**container, _POLICY: container.get(_POLICY) or "FallbackToLogsOnError"}
        if _is_container(container, name)
        else container
        for container in containers
    ]
    template["spec"] = {**spec, "containers": defaulted}


def _is_container(container: object, name: str) -> bool:
    return isinstance(container, dict) and container.get("name") == name


def update_patch(auxiliary: AuxiliaryObject, child: Child, digest: str) -> Patch:
    """The patch that updates an object rendered from an older spec: all but its name, its owner reference and
    `fixed_fields`. `digest`: that of the auxiliary object, or one that a change of it begins with."""
    body = auxiliary.body()
    if isinstance(spec := body.get("spec"), dict):
        body["spec"] = _spec_patch(spec, auxiliary, child)
    labels = {**body.get("metadata", {}).get("labels", {}), DIGEST: digest}
    fields = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    metadata = {"uid": child.uid, "labels": labels}
    body = {"metadata": metadata, **fields}
    return Patch(auxiliary.gvk, child.namespace, auxiliary.name, body, deferrable=auxiliary.deferrable)


def _spec_patch(spec: Json, auxiliary: AuxiliaryObject, child: Child) -> Json:
    """The merge patch of the child's spec, with null for what it has and the new spec has not (`optional_fields`)."""
    patch = {name: value for name, value in spec.items() if name not in auxiliary.fixed_fields}
    for name, *entries in child.status.spec_fields:
        if name not in auxiliary.optional_fields:
            continue
        if name not in spec:
            patch[name] = None
        elif entries and entries[0] not in spec[name]:
            patch[name] = {**patch[name], entries[0]: None}
    return patch


def _set_hostname(job: Job, slot: Slot, template: Json) -> None:
    """Set hostname, subdomain and DNS search list, so that the host names in TF_CONFIG and the like resolve (S17)."""
    subdomain = job.kind.pods.subdomain(job)
    domain = f"{subdomain}.{job.key.namespace}.svc.{job.config.cluster_domain}"
    spec = {**(template.get("spec") or {}), "hostname": job.kind.pods.name(job, slot), "subdomain": subdomain}
    dns = spec.get("dnsConfig") or {}
    searches = dns.get("searches") or [] if isinstance(dns, dict) else None
    if isinstance(searches, list):  # a malformed dnsConfig is sent as it is, and the API server refuses it
        spec["dnsConfig"] = {**dns, "searches": [domain, *(search for search in searches if search != domain)]}
    template["spec"] = spec
    meta = template["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), HOSTS: hosts(job)}


def hosts(job: Job) -> str:
    """The host names of all slots, O(roles) long: "ps-76no-[0-1],worker-76no-[0-0]"."""
    ranges = []
    for role in job.roles:
        if role.replicas:
            first = job.kind.pods.name(job, Slot(role.name, 0)).removesuffix("0")
            ranges.append(f"{first}[0-{role.replicas - 1}]")
    return ",".join(ranges)
