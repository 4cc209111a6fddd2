"""The pods of a TrainJob and the objects beside them, with the names and labels that JobSet would give them."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator

from trainyard.core import AuxiliaryObject, Job, Slot
from trainyard.core.names import digest
from trainyard.kinds.gang_members import living_members, start_together, started_members
from trainyard.kinds.kubeflow_v1.gang import VOLCANO_POD_GROUP
from trainyard.kinds.trainjob import mpi, pod_groups
from trainyard.kinds.trainjob.expand import Expansion, expand, job_name, pod
from trainyard.kinds.trainjob.progress import reports_progress
from trainyard.kinds.trainjob.render import Rendering, render
from trainyard.kinds.trainjob.roles import replicated_jobs
from trainyard.objects import GVK, Json, Ref, encode
from trainyard.objects.resources import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, SECRET, SERVICE
from trainyard.objects.structs import replace
from trainyard.objects.usage import REPORT_PROGRESS

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Of the names that an API server generates."""


def rendering(job: Job) -> Rendering:
    """What Trainer would make of the job."""
    computed: Rendering = job.cached_of_spec("rendering", _render)
    return computed


def _render(job: Job) -> Rendering:
    return render({"metadata": {"name": job.key.name}, "spec": job.parsed.spec}, job.parsed.snapshot or {})


def job_set(job: Job) -> Json:
    """The document of the JobSet."""
    return rendering(job).job_set


def _expansion(job: Job, attempt: int) -> Expansion:
    """Its objects. `attempt` counts the restarts of all replicated jobs."""
    name = f"expansion {attempt}"
    expansion: Expansion = job.cached_of_spec(
        name, lambda parsed: expand(job_set(parsed), job.uid, job.key.namespace, attempt)
    )
    return expansion


def pod_name(job: Job, slot: Slot) -> str:
    """As that of an indexed Job's pod, whose five random characters are here a function of the job's uid and of the
    slot: a create whose answer was lost is not repeated under another name."""
    number = int.from_bytes(hashlib.sha256(f"{job.uid} {slot.role} {slot.index}".encode()).digest()[:8], "big")
    letters = ""
    for _ in range(5):
        number, rest = divmod(number, len(_SUFFIX_LETTERS))
        letters += _SUFFIX_LETTERS[rest]
    return f"{job.key.name}-{slot.role}-0-{slot.index}-{letters}"


def pod_labels(job: Job, slot: Slot) -> dict[str, str]:
    """Labels of a Job's pods. The others are in the template."""
    return {"batch.kubernetes.io/controller-uid": job.uid, "controller-uid": job.uid}


def pod_template(template: Json, job: Job, slot: Slot) -> Json:
    """The template of one pod: with host name, index, labels and the volumes of the job's claims."""
    attempt = max(job.status.role(slot.role).attempt - job.status.resume_count, 0)
    named = (item for item in replicated_jobs(job_set(job)) if item["name"] == slot.role)
    replicated_job = next(named, None)
    if replicated_job is None:
        return template
    template = pod(job_set(job), replicated_job, _expansion(job, attempt).pods[slot.role], slot.index)
    if reports_progress(replicated_job, slot):
        template["metadata"]["annotations"].setdefault(REPORT_PROGRESS, "true")
    return template


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """Service, claims, the objects of MPI and of a gang scheduler, and the ConfigMap in which Trainer keeps the
    runtime."""
    if not job.parsed.roles:
        return ()
    objects: tuple[AuxiliaryObject, ...] = job.cached_of_spec("auxiliary", _with_snapshot)
    *needed, snapshot = objects
    return (*needed, *_pod_groups(job), snapshot)


def _with_snapshot(job: Job) -> tuple[AuxiliaryObject, ...]:
    """Without the PodGroups. No pod needs the ConfigMap with the runtime: it comes after them, and with them where they
    wait for others."""
    needed = tuple(_objects(job))
    groups = (Ref(gvk.kind, group["metadata"]["name"]) for gvk, group in _served_groups(job))
    snapshot = AuxiliaryObject(
        CONFIG_MAP,
        f"{job.key.name}-runtime-snapshot",
        lambda: _config_map({"runtime": encode(job.parsed.snapshot).decode()}),
        create_after_replicas=True,
        depends_on=(*(auxiliary.ref for auxiliary in needed if auxiliary.gvk != SERVICE), *groups),
    )
    return (*needed, snapshot)


def _objects(job: Job) -> Iterator[AuxiliaryObject]:
    expansion = _expansion(job, 0)
    if expansion.service is not None:
        yield _auxiliary(SERVICE, expansion.service)
    for claim in expansion.claims:
        yield _auxiliary(PERSISTENT_VOLUME_CLAIM, claim)
    if rendering(job).hostfile:
        yield from _mpi_objects(job)


def _served_groups(job: Job) -> Iterator[tuple[GVK, Json]]:
    """The PodGroups of the gang scheduler that the operator has."""
    served = {(gvk.api_version, gvk.kind): gvk for gvk in job.kind.roles.children_in(job.config)}
    for group in rendering(job).pod_groups:
        if gvk := served.get((group["apiVersion"], group["kind"])):
            yield gvk, group


def _pod_groups(job: Job) -> Iterator[AuxiliaryObject]:
    """They follow the pods that there are at a time; Volcano counts those that have succeeded, too."""
    for gvk, group in _served_groups(job):
        living = living_members(job)
        members = started_members(job) if gvk == VOLCANO_POD_GROUP else living
        document = pod_groups.of_members(group, job_set(job), start_together(members, None), living)
        yield replace(_auxiliary(gvk, document), digest=digest(document["spec"]))


def _auxiliary(gvk: GVK, document: Json) -> AuxiliaryObject:
    metadata = {field: value for field, value in document["metadata"].items() if field != "name"}
    return AuxiliaryObject(gvk, document["metadata"]["name"], lambda: {**document, "metadata": dict(metadata)})


def _mpi_objects(job: Job) -> Iterator[AuxiliaryObject]:
    """The key pair, made once: it exists if the ConfigMap does, which is made after it."""
    config, secret = mpi.hostfile_name(job.key.name), mpi.secret_name(job.key.name)
    yield AuxiliaryObject(SECRET, secret, lambda: _key_pair(job), exists_with=Ref(CONFIG_MAP.kind, config))
    yield AuxiliaryObject(
        CONFIG_MAP,
        config,
        lambda: _config_map({mpi.HOSTFILE: rendering(job).hostfile}),
        depends_on=(Ref(SECRET.kind, secret),),
    )


def _config_map(data: dict[str, str]) -> Json:
    return {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "data": data}


def _key_pair(job: Job) -> Json:
    new_key = job.config.new_ssh_key
    key = new_key() if new_key else None
    texts = {mpi.PRIVATE_KEY: key.private, mpi.PUBLIC_KEY: key.public} if key else {}
    data = {name: b64encode(text.encode()).decode() for name, text in texts.items()}
    identity = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "type": "kubernetes.io/ssh-auth"}
    return {**identity, "immutable": True, "data": data}


def first_failed_job(job: Job, role: str) -> str:
    """The name of the Job of this replicated job, in messages."""
    return job_name(job_set(job), {"name": role})
