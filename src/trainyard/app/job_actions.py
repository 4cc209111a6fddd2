"""What changes a job that exists: suspend, resume, scale, delete. The commands and the page do it by these functions.

Each takes a job as it was read, and returns a sentence for the person. With `resource_version` the API server refuses
the change (Conflict) when the object is not exactly that one any more, which includes another object of its name.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from trainyard.client import ApiClient, NotFound
from trainyard.core import Config, Job, Kind, parse_job
from trainyard.kinds.definitions.size_variables import size_variables
from trainyard.objects import Json, is_deleting, name_of, namespace_of, uid_of
from trainyard.objects.numbers import count_text
from trainyard.views.job_view import job_result


class ActionRefused(Exception):
    """The job cannot be changed like this. The text is a sentence for the person."""


class UnknownRole(ActionRefused):
    """The job has no such role, or one whose number is fixed."""


class ScaleOffer(msgspec.Struct, frozen=True):
    """The role whose number of replicas can be set. `least` and `most` are None without a bound."""

    role: str
    replicas: int
    least: int | None
    most: int | None


class OfferedActions(msgspec.Struct, frozen=True):
    """What can be done with a job in its present state. `generation`: of the spec for which this holds."""

    generation: int
    verbs: tuple[str, ...]  # of suspend, resume, scale, delete
    scale: ScaleOffer | None


def generation_of(job: Json) -> int:
    """metadata.generation, which grows with each change of the spec; 0 when absent."""
    generation = job["metadata"].get("generation")
    return generation if isinstance(generation, int) else 0


def offered_actions(job: Job) -> OfferedActions:
    """What can be done with the job; nothing while it is being deleted. Every kind has `suspend` (docs/rules.md S2)."""
    generation = generation_of(job.obj)
    if is_deleting(job.obj):
        return OfferedActions(generation, (), None)
    if job_result(job.obj):
        return OfferedActions(generation, ("delete",), None)
    scale = _scale_offer(job)
    suspend = "resume" if job.policy.suspend else "suspend"
    return OfferedActions(generation, (suspend, *(("scale",) if scale else ()), "delete"), scale)


def reference_of(kind: Kind, job: Json) -> str:
    """KIND/NAME as on the command line: tfjob/a."""
    return f"{kind.api.singular}/{name_of(job)}"


def check_suspend(kind: Kind, job: Json, suspend: bool) -> None:
    """Raises ActionRefused for a job that has ended."""
    if end := job_result(job):
        text = f"has ended ({end}): there is nothing to {'suspend' if suspend else 'resume'}"
        raise ActionRefused(f"{reference_of(kind, job)} {text}")


async def set_suspend(api: ApiClient, kind: Kind, job: Json, suspend: bool, resource_version: str = "") -> str:
    """Patch `suspend` where the kind has its policies; it takes precedence over any other place (S2). Raises
    ActionRefused and ApiError."""
    check_suspend(kind, job, suspend)
    reference = reference_of(kind, job)
    if parse_job(kind, job, Config()).policy.suspend == suspend:
        return f"{reference} is {'suspended already' if suspend else 'not suspended'}"
    body: Any = suspend
    for field in reversed(kind.api.policy_path("suspend")):
        body = {field: body}
    await api.patch(kind.gvk, namespace_of(job), name_of(job), _precondition(resource_version) | body)
    return f"{reference} {'suspended' if suspend else 'resumed'}"


async def scale(
    api: ApiClient, kind: Kind, job: Json, replicas: int, role: str = "", resource_version: str = ""
) -> str:
    """Patch the scale subresource. `role`: the role that was named, "" for none. Raises ActionRefused and ApiError."""
    reference = reference_of(kind, job)
    if end := job_result(job):
        raise ActionRefused(f"{reference} has ended ({end}): its size does not change any more")
    _check_scalable(kind, job, role)
    _check_bounds(kind, job, replicas)
    current = await api.get(kind.gvk, namespace_of(job), name_of(job), "scale")
    body = _precondition(resource_version) | {"spec": {"replicas": replicas}}
    await api.patch(kind.gvk, namespace_of(job), name_of(job), body, "scale")
    sizes = [size for size in size_variables(parse_job(kind, job, Config())) if size.processes != replicas]
    kept = "".join(f"; its template has {size.name}={size.processes}, which stays: edit it, too" for size in sizes[:1])
    return f"{reference} scaled from {(current.get('spec') or {}).get('replicas', 0)} to {replicas}{kept}"


async def delete_job(api: ApiClient, kind: Kind, job: Json, resource_version: str = "") -> str:
    """Delete the job, and not another one of its name. Raises ApiError."""
    with contextlib.suppress(NotFound):
        await api.delete(kind.gvk, namespace_of(job), name_of(job), uid_of(job), resource_version=resource_version)
    return f"{reference_of(kind, job)} deleted"


def _precondition(resource_version: str) -> Json:
    return {"metadata": {"resourceVersion": resource_version}} if resource_version else {}


def _scaled_roles(kind: Kind, names: list[str]) -> list[str]:
    """Those of the roles whose number the scale subresource of the kind sets."""
    path = kind.api.scale.get("specReplicasPath", "").split(".")
    return [name for name in names if name in path]


def _scale_offer(job: Job) -> ScaleOffer | None:
    roles = {role.name: role for role in job.parsed.roles}
    for name in _scaled_roles(job.kind, list(roles)):
        least, most = job.kind.api.scale_bounds(job)
        return ScaleOffer(name, roles[name].replicas, least, most)
    return None


def _check_bounds(kind: Kind, job: Json, replicas: int) -> None:
    """Raises ActionRefused for a number outside of the bounds of an elastic job: its rendezvous would not take it, and
    the API server knows of no rule."""
    least, most = kind.api.scale_bounds(parse_job(kind, job, Config()))
    reference = reference_of(kind, job)
    if most is not None and replicas > most:
        text = f"{count_text(replicas, 'replica')} must not be above maxReplicas, {most}: raise maxReplicas first"
        raise ActionRefused(f"{reference}: {text}")
    if least is not None and replicas < least:
        text = f"{count_text(replicas, 'replica')} must not be below minReplicas, {least}: lower minReplicas first"
        raise ActionRefused(f"{reference}: {text}")


def _check_scalable(kind: Kind, job: Json, role: str) -> None:
    """Raises ActionRefused if a running job of this kind, or this role, cannot be scaled."""
    reference = reference_of(kind, job)
    roles = [replica_role.name for replica_role in parse_job(kind, job, Config()).parsed.roles]
    if role and role.lower() not in (name.lower() for name in roles):
        raise UnknownRole(f"{reference} has no role {role}; it has: {', '.join(roles) or 'none'}")
    if kind.api.scale:
        names = _scaled_roles(kind, roles) or roles
        if role and role.lower() not in (name.lower() for name in names):
            raise UnknownRole(f"{reference}: its {role} cannot be scaled; these can: {', '.join(names)}")
        return
    if any(kind.lifecycle.follows_edits(name) for name in roles if not role or name.lower() == role.lower()):
        text = "edit the replicas in its spec (kubectl edit, or kubectl apply); it follows the edit"
        raise ActionRefused(f"{reference}: a {kind.gvk.kind} has no scale subresource; {text}")
    fixed = "what shapes its cluster is fixed once it has started, its program knows the size from its environment"
    fix = f"trainyard suspend {reference}, edit the spec, trainyard resume {reference}; or make a new job"
    raise ActionRefused(f"{reference}: a {kind.gvk.kind} cannot be scaled while it runs: {fixed}. To change it: {fix}")
