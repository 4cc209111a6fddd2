"""Parse a stored object into a `Job`: its spec, its status, and the roles in effect."""

from __future__ import annotations

from collections.abc import Collection

from trainyard.core import names
from trainyard.core.job_state import JobStatus, ParsedSpec, Role, RoleStatus
from trainyard.core.kind import Job, Kind
from trainyard.core.long_variables import FEW_REPLICAS, long_variables
from trainyard.core.model import Config
from trainyard.core.status import parse_status
from trainyard.objects import Json, Problem, key_of, name_of, uid_of
from trainyard.objects.structs import replace
from trainyard.schema import Schema

_JOB = Schema({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object"}}})


def parse_job(
    kind: Kind, wire: Json, config: Config, in_use: Collection[str] = (), template_source: Json | None = None
) -> Job:
    """The parsed job of a stored object. Never raises: the errors of the spec are in `parsed.problems`.

    `in_use`: the RuntimeIds of the other jobs in the namespace. `template_source`: see parse_spec.
    """
    return parse_job_with(kind, wire, parse_spec(kind, wire, template_source), config, in_use)


def parse_spec(kind: Kind, wire: Json, template_source: Json | None = None) -> ParsedSpec:
    """The parsed spec of a stored object. It depends on the name, the namespace, the spec and the snapshot of the
    templates alone, so that it holds for all objects of one uid and generation. Never raises. `template_source`: the
    object of Kind.template_source, of which a snapshot is made if the status has none; without both there are no roles.

    A variable that Linux cannot pass is a problem of a job with many replicas, because it would start no pod."""
    spec = wire.get("spec")
    parsed = _read(kind, wire, spec if isinstance(spec, dict) else {}, template_source)
    if not isinstance(spec, dict):
        return replace(parsed, problems=_no_spec(spec))
    if parsed.problems or sum(role.replicas for role in parsed.roles) <= FEW_REPLICAS:
        return parsed
    new_job = parse_job_with(kind, {**wire, "status": {}}, parsed, Config())  # with all roles as in the spec
    return replace(parsed, problems=tuple(long_variables(new_job)))


def _read(kind: Kind, wire: Json, spec: Json, template_source: Json | None) -> ParsedSpec:
    source = kind.template_source
    if source is None:
        return kind.api.read(spec, name_of(wire))
    snapshot = snapshot_of(kind, wire)
    if snapshot is None and template_source is not None:
        snapshot = source.snapshot(template_source)
    if snapshot is None:
        return kind.api.read(spec, name_of(wire))
    return replace(source.read(spec, name_of(wire), snapshot), snapshot=snapshot)


def snapshot_of(kind: Kind, wire: Json) -> Json | None:
    """The snapshot of the job's templates in its status, None before the first status."""
    snapshot = parse_status(kind, wire).stored.get("snapshot")
    return snapshot if isinstance(snapshot, dict) else None


def _no_spec(spec: object) -> tuple[Problem, ...]:
    """The problems that an API server reports for a spec that is not an object; null counts as missing."""
    return tuple(_JOB.validate({} if spec is None else {"spec": spec}))


def parse_job_with(kind: Kind, wire: Json, parsed: ParsedSpec, config: Config, in_use: Collection[str] = ()) -> Job:
    """As parse_job, with the spec already parsed: for callers that parse many objects with the same spec."""
    status = parse_status(kind, wire)
    if not status.conditions:
        status = replace(status, outcome=kind.status.legacy_outcome(status.whole))
    runtime_id = ""
    if kind.api.has_runtime_id:
        # Never changed: the RuntimeId in the status takes precedence over an edited or removed one in the spec (S29).
        runtime_id = runtime_id_of(wire) or names.runtime_id(uid_of(wire), in_use)
        parsed = replace(parsed, spec={**parsed.spec, "RuntimeId": _text(wire, "spec", "RuntimeId") or runtime_id})
    return Job(
        kind=kind,
        obj=wire,
        key=key_of(wire),
        uid=uid_of(wire),
        runtime_id=runtime_id,
        parsed=parsed,
        status=status,
        roles=effective_roles(kind, parsed, status),
        config=config,
    )


def runtime_id_of(wire: Json) -> str:
    """The RuntimeId in the names of the job's children, "" before it is set. A client may remove it from the spec, not
    from the status (S29)."""
    return _text(wire, "status", "runtimeId") or _text(wire, "spec", "RuntimeId")


def _text(wire: Json, part: str, name: str) -> str:
    fields = wire.get(part)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else ""


def ignores_edits(parsed: ParsedSpec, status: JobStatus) -> bool:
    """True while edits of the roles are ignored: the job has started, and is neither suspended nor to be (S11)."""
    return status.started and not (status.suspended or parsed.policy.suspend) and not status.outcome


def describe_ignored_edits(kind: Kind, parsed: ParsedSpec, status: JobStatus) -> list[str]:
    """A text for each difference between the spec and the roles that the job was started with, except for the roles on
    which edits take effect (Lifecycle.follows_edits)."""
    if parsed.problems:
        return [str(parsed.problems[0])]
    fixed = {role.name: role for role in parsed.roles if not kind.lifecycle.follows_edits(role.name)}
    texts = [
        f"{name} was taken out" for name in status.roles if name not in fixed and not kind.lifecycle.follows_edits(name)
    ]
    runtime_id = parsed.spec.get("RuntimeId", status.runtime_id)
    if runtime_id != status.runtime_id:
        texts.append(f"RuntimeId is {runtime_id} now, and {status.runtime_id} names the children")
    for name, role in fixed.items():
        started = status.roles.get(name)
        if started is None:
            texts.append(f"{name} was added")
        elif started.replicas != role.replicas:
            texts.append(f"{name} has {started.replicas} replicas, the spec now says {role.replicas}")
        elif not names.same_digest(started.digest, role.digest):
            texts.append(f"{name} was edited")
    return texts


def effective_roles(kind: Kind, parsed: ParsedSpec, status: JobStatus) -> tuple[Role, ...]:
    """The roles of the spec before the start, while suspended and after the end; while the job runs, those that it was
    started with. A role on which edits take effect (Lifecycle.follows_edits) is that of the spec, if the spec is valid.

    In the order of the spec, because an API server may return the keys of a status in another order.
    """
    if not ignores_edits(parsed, status):
        return parsed.roles
    followed = {
        role.name: role for role in parsed.roles if kind.lifecycle.follows_edits(role.name) and not parsed.problems
    }
    spec_roles = {role.name: role for role in parsed.roles}
    roles = dict.fromkeys(spec_roles)
    for name, started in status.roles.items():
        if not kind.lifecycle.follows_edits(name):
            roles[name] = _as_started(name, started, spec_roles.get(name))
        elif parsed.problems:  # such a role follows the spec, and no child is created from an invalid spec
            roles[name] = _as_started(name, started, None)
    return tuple(role for name, fixed in roles.items() if (role := followed.get(name) or fixed))


def _as_started(name: str, started: RoleStatus, role: Role | None) -> Role:
    """The role that the job was started with; without template if the spec's role is another one."""
    if role is None or not names.same_digest(started.digest, role.digest):
        return Role(name, started.replicas, started.port, None, started.digest)
    return replace(role, replicas=started.replicas, port=started.port)
