"""From a `Create` to the whole object, as it is sent."""

from __future__ import annotations

from trainyard.core.job import AuxiliaryObject, Job, Kind
from trainyard.core.model import Config, Create, Patch, Slot
from trainyard.core.read import parse_job
from trainyard.objects import Json, owner_reference
from trainyard.objects.labels import ATTEMPT, DIGEST, HOSTS, INDEX, OWNER, ROLE, WORKING_DIRECTORY
from trainyard.objects.resources import POD

_POLICY = "terminationMessagePolicy"


def render_object(kind: Kind, wire: Json, create: Create, config: Config) -> Json:
    """The object to send. Raises ValueError when the plan that asked for it was made from another spec."""
    return render_child(parse_job(kind, wire, config), create)


def render_child(job: Job, create: Create) -> Json:
    if create.slot is None:
        extra = job.auxiliary_objects.get(create.ref)
        if extra is None:
            raise ValueError(f"{job.key}: no {create.gvk.kind} {create.name} is part of this job")
        return _with_metadata(job, create, extra.body(), {DIGEST: extra.digest} if extra.digest else {})
    slot = create.slot
    labels = {
        **job.kind.child_labels(job, slot),
        ROLE: slot.role,
        INDEX: str(slot.index),
        ATTEMPT: str(create.attempt),
    }
    return _with_metadata(job, create, job.carrier(slot.role).render(job, slot, create.attempt), labels)


def _with_metadata(job: Job, create: Create, body: Json, labels: dict[str, str]) -> Json:
    """Name, namespace, owner and labels: what makes an object a child. Ours win over the user's labels."""
    meta = body.get("metadata", {})
    every = {**labels, OWNER: job.uid}
    body["metadata"] = {
        **meta,
        "name": create.name,
        "namespace": job.key.namespace,
        "labels": {**meta.get("labels", {}), **every},
        "ownerReferences": [owner_reference(job.kind.gvk.api_version, job.kind.gvk.kind, job.key.name, job.uid)],
    }
    template = body if create.gvk == POD else body.get("spec", {}).get("template")
    if isinstance(template, dict):
        inner = template.get("metadata") or {}
        inner = {key: value for key, value in inner.items() if value is not None}
        template["metadata"] = {**inner, "labels": {**(inner.get("labels") or {}), **every}}
        _set_working_directory(job, template["metadata"])
        if create.slot is not None:
            _set_termination_message_policy(job, create.slot, template)
            if job.kind.subdomain(job):
                _set_hostname(job, create.slot, template)
    return body


def _set_working_directory(job: Job, meta: Json) -> None:
    """The job's annotation goes to the pods; a pod template that has its own keeps it."""
    annotations = job.wire["metadata"].get("annotations")
    folder = annotations.get(WORKING_DIRECTORY) if isinstance(annotations, dict) else None
    own = meta.get("annotations") or {}
    if isinstance(folder, str) and folder and WORKING_DIRECTORY not in own:
        meta["annotations"] = {**own, WORKING_DIRECTORY: folder}


def _set_termination_message_policy(job: Job, slot: Slot, template: Json) -> None:
    """Default the deciding container's terminationMessagePolicy, so that its last log lines are in the pod's status."""
    role = job.role(slot.role)
    name = (role.container if role else "") or job.kind.container
    spec = template.get("spec") or {}
    listed = spec.get("containers") or []
    spoken = [
        {**one, _POLICY: one.get(_POLICY) or "FallbackToLogsOnError"} if _is_container(one, name) else one
        for one in listed
    ]
    template["spec"] = {**spec, "containers": spoken}


def _is_container(container: object, name: str) -> bool:
    return isinstance(container, dict) and container.get("name") == name


def update_patch(extra: AuxiliaryObject, uid: str) -> Patch:
    """What brings an object that was made from an older spec to this one: everything but its name and owner."""
    body = extra.body()
    labels = {**body.get("metadata", {}).get("labels", {}), DIGEST: extra.digest}
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return Patch(extra.gvk, extra.name, "", {"metadata": {"uid": uid, "labels": labels}, **rest})


def _set_hostname(job: Job, slot: Slot, template: Json) -> None:
    """Host name, subdomain and search list, so that the names in TF_CONFIG and the like resolve (S17)."""
    subdomain = job.kind.subdomain(job)
    domain = f"{subdomain}.{job.key.namespace}.svc.{job.config.cluster_domain}"
    spec = {**(template.get("spec") or {}), "hostname": job.kind.child_name(job, slot), "subdomain": subdomain}
    dns = spec.get("dnsConfig") or {}
    searches = dns.get("searches") or [] if isinstance(dns, dict) else None
    if isinstance(searches, list):  # what is malformed is passed on: the API server says so
        spec["dnsConfig"] = {**dns, "searches": [domain, *(one for one in searches if one != domain)]}
    template["spec"] = spec
    meta = template["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), HOSTS: hosts(job)}


def hosts(job: Job) -> str:
    """The host names of all slots, O(roles) long: "ps-76no-[0-1],worker-76no-[0-0]"."""
    spans = []
    for role in job.roles:
        if role.replicas:
            first = job.kind.child_name(job, Slot(role.name, 0)).removesuffix("0")
            spans.append(f"{first}[0-{role.replicas - 1}]")
    return ",".join(spans)
