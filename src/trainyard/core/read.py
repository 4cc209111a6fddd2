"""Parse a stored object into a `Job`: its spec, its status, and the roles in effect."""

from __future__ import annotations

from collections.abc import Collection

from trainyard.core import names
from trainyard.core.job import Job, JobStatus, Kind, ParsedSpec, Role, RoleStatus
from trainyard.core.model import Config
from trainyard.core.status import parse_status
from trainyard.objects import Json, Problem, key_of, name_of, uid_of
from trainyard.objects.values import replace
from trainyard.schema import Schema

_JOB = Schema({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object"}}})


def parse_job(kind: Kind, wire: Json, config: Config, in_use: Collection[str] = ()) -> Job:
    """The job behind a wire object. Never raises: what is wrong with the spec is in `wanted.problems`."""
    spec = wire.get("spec")
    wanted = kind.read(spec if isinstance(spec, dict) else {}, name_of(wire))
    if not isinstance(spec, dict):
        wanted = replace(wanted, problems=_no_spec(spec))
    return parse_job_with(kind, wire, wanted, config, in_use)


def _no_spec(spec: object) -> tuple[Problem, ...]:
    """What an API server says of a job whose spec is no object; null counts as left out."""
    return tuple(_JOB.validate({} if spec is None else {"spec": spec}))


def parse_job_with(kind: Kind, wire: Json, wanted: ParsedSpec, config: Config, in_use: Collection[str] = ()) -> Job:
    """The same with the spec understood already, for those who look at one spec many times."""
    memory = parse_status(kind, wire)
    if not memory.conditions:
        memory = replace(memory, outcome=kind.legacy_outcome(memory.wire))
    found = ""
    if kind.has_runtime_id:
        # Write-once: what status remembers wins over an edit, and over nothing when the spec has lost it (S29).
        found = runtime_id_of(wire) or names.runtime_id(uid_of(wire), in_use)
        wanted = replace(wanted, spec={**wanted.spec, "RuntimeId": _text(wire, "spec", "RuntimeId") or found})
    return Job(
        kind=kind,
        wire=wire,
        key=key_of(wire),
        uid=uid_of(wire),
        runtime_id=found,
        parsed=wanted,
        status=memory,
        roles=effective_roles(kind, wanted, memory),
        config=config,
    )


def runtime_id_of(wire: Json) -> str:
    """The id that names the job's children, "" when there is none yet. A spec may lose it, status does not (S29)."""
    return _text(wire, "status", "runtimeId") or _text(wire, "spec", "RuntimeId")


def _text(wire: Json, part: str, name: str) -> str:
    within = wire.get(part)
    found = within.get(name) if isinstance(within, dict) else None
    return found if isinstance(found, str) else ""


def ignores_edits(wanted: ParsedSpec, memory: JobStatus) -> bool:
    """True while edits of what shapes the job are ignored: it has started, and neither is nor gets suspended (S11)."""
    return memory.started and not (memory.suspended or wanted.policy.suspend) and not memory.outcome


def ignored_edits(kind: Kind, wanted: ParsedSpec, memory: JobStatus) -> list[str]:
    """What differs from what the job was started with and is not followed, as short texts; empty when nothing does."""
    if wanted.problems:
        return [str(wanted.problems[0])]
    now = {role.name: role for role in wanted.roles if not kind.on_template_change(role.name)}
    texts = [f"{name} was taken out" for name in memory.roles if name not in now and not kind.on_template_change(name)]
    named = wanted.spec.get("RuntimeId", memory.runtime_id)
    if named != memory.runtime_id:
        texts.append(f"RuntimeId is {named} now, and {memory.runtime_id} names the children")
    for name, role in now.items():
        then = memory.roles.get(name)
        if then is None:
            texts.append(f"{name} was added")
        elif then.replicas != role.replicas:
            texts.append(f"{name} has {then.replicas} replicas, the spec now says {role.replicas}")
        elif not names.same_digest(then.digest, role.digest):
            texts.append(f"{name} was edited")
    return texts


def effective_roles(kind: Kind, wanted: ParsedSpec, memory: JobStatus) -> tuple[Role, ...]:
    """The spec's roles before the start, while suspended and after the end; in between, those that the job was started
    with. Roles that follow edits are the spec's while the spec is valid.

    In the order of the spec: an API server gives the keys of a status back in an order of its own.
    """
    if not ignores_edits(wanted, memory):
        return wanted.roles
    follows = {role.name: role for role in wanted.roles if kind.on_template_change(role.name) and not wanted.problems}
    known = {role.name: role for role in wanted.roles}
    roles = dict.fromkeys(known)
    for name, then in memory.roles.items():
        if not kind.on_template_change(name):
            roles[name] = _as_started(name, then, known.get(name))
        elif wanted.problems:  # what such a role is made from is the whole spec: nothing is made from a wrong one
            roles[name] = _as_started(name, then, None)
    return tuple(role for name, found in roles.items() if (role := follows.get(name) or found))


def _as_started(name: str, then: RoleStatus, role: Role | None) -> Role:
    if role is None or not names.same_digest(then.digest, role.digest):
        return Role(name, then.replicas, then.port, None, then.digest)
    return replace(role, replicas=then.replicas, port=then.port)
