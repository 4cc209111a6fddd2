"""From a `Create` to the whole object, as it is sent."""

from __future__ import annotations

from trainyard.core.model import Config, Create, Job, Kind, Slot
from trainyard.core.read import read
from trainyard.objects import Json, owner_reference
from trainyard.objects.labels import ATTEMPT, HOSTS, INDEX, OWNER, ROLE


def render(kind: Kind, wire: Json, create: Create, config: Config) -> Json:
    """The object to send. Raises ValueError when the plan that asked for it was made from another spec."""
    return render_for(read(kind, wire, config), create)


def render_for(job: Job, create: Create) -> Json:
    if create.slot is None:
        extra = next((one for one in job.kind.extras(job) if one.name == create.name and one.gvk == create.gvk), None)
        if extra is None:
            raise ValueError(f"{job.key}: no {create.gvk.kind} {create.name} is part of this job")
        return _stamp(job, create, extra.body(), {})
    slot = create.slot
    labels = {
        **job.kind.child_labels(job, slot),
        ROLE: slot.role,
        INDEX: str(slot.index),
        ATTEMPT: str(create.attempt),
    }
    return _stamp(job, create, job.kind.carrier.render(job, slot, create.attempt), labels)


def _stamp(job: Job, create: Create, body: Json, labels: dict[str, str]) -> Json:
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
    template = body.get("spec", {}).get("template")
    if isinstance(template, dict):
        inner = template.get("metadata") or {}
        inner = {key: value for key, value in inner.items() if value is not None}
        template["metadata"] = {**inner, "labels": {**(inner.get("labels") or {}), **every}}
        if create.slot is not None:
            _address(job, create.slot, template)
    return body


def _address(job: Job, slot: Slot, template: Json) -> None:
    """Host name, subdomain and search list, so that the names in TF_CONFIG and the like resolve (S17)."""
    subdomain = job.kind.subdomain(job)
    domain = f"{subdomain}.{job.key.namespace}.svc.{job.config.cluster_domain}"
    spec = dict(template.get("spec") or {})
    dns = dict(spec.get("dnsConfig") or {})
    searches = [one for one in dns.get("searches") or [] if one != domain]
    spec |= {
        "hostname": job.kind.child_name(job, slot),
        "subdomain": subdomain,
        "dnsConfig": {**dns, "searches": [domain, *searches]},
    }
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
