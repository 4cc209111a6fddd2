"""The status of a job: how it is parsed and rendered.

Rules for this file:
- Only the operator writes the status; still, a missing or malformed field counts as never written.
- Its size is O(roles), never O(replicas). The same input renders the same bytes: otherwise the watch event of each
  status patch would cause another patch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.core.gangs import GANG_IGNORED
from trainyard.core.job_state import (
    STALLED,
    SUCCESS_IN_DOUBT,
    JobResult,
    JobStatus,
    Launch,
    Outcome,
    Replica,
    RestartCause,
    RoleStatus,
)
from trainyard.core.kind import Job, Kind
from trainyard.core.model import ConditionUpdate, Event
from trainyard.objects import Json, as_dict, find_condition, format_time, is_condition_true, parse_time
from trainyard.objects.meta import OWN_FIELDS
from trainyard.objects.structs import replace

MAX_DELETED_UIDS = 20
"""How many uids of deleted objects stay in `status.counted`: a stale cache must not count a failure twice."""

MAX_REPLICAS = 10000
"""The most replicas of a role. The schemas have the same maximum, so the operator never wrote a status with more."""

OUTCOMES: tuple[JobResult, ...] = ("Succeeded", "Failed")

MAX_TIME = 2.0e11
"""A time in the year 8307, in seconds since 1970: later times count as never written."""

OTHER_CAUSES: tuple[RestartCause, ...] = ("node-lost", "preemption", "eviction", "stall")
"""The causes whose restarts the status counts apart from `restarts`, in the order in which they are written."""

COUNTS = frozenset(
    {"conditions", "restarts", "restartCauses", "recentRestarts", "ready", "replicaStatuses", "launch", OWN_FIELDS}
)
"""The fields of a status whose change alone is not urgent. `launch` follows the pods, as counts do."""

WARNING_CONDITIONS = frozenset(
    {
        "Failed",
        "Restarting",
        "Degraded",
        "NameConflict",
        "Blocked",
        "SpecChangeIgnored",
        STALLED,
        "UnknownFields",
        "AnnotationIgnored",
        GANG_IGNORED,
        SUCCESS_IN_DOUBT,
    }
)
"""Conditions whose event is of type Warning when they become True."""


# Longer than 40 lines: the table of the fields of a status.
def parse_status(kind: Kind, wire: Json) -> JobStatus:
    """Parse the status of a stored object."""
    whole = as_dict(wire.get("status"))
    status = as_dict(whole.get(OWN_FIELDS)) if kind.status.public else whole
    stored_conditions = status.get("conditions")
    conditions = (
        [item for item in stored_conditions if isinstance(item, dict) and item.get("type")]
        if isinstance(stored_conditions, list)
        else []
    )
    aliases = kind.status.condition_aliases
    outcome: JobResult = next(
        (
            name
            for name in OUTCOMES
            if any(is_condition_true(conditions, alias) for alias in (name, aliases.get(name, name)))
        ),
        "",
    )
    counted = status.get("counted")
    stored_roles = status.get("roles")
    roles = {name: _parse_role(role) for name, role in stored_roles.items()} if isinstance(stored_roles, dict) else {}
    return JobStatus(
        stored=status,
        whole=whole,
        conditions=tuple(conditions),
        outcome=outcome,
        started=bool(roles),
        suspended=is_condition_true(conditions, "Suspended"),
        has_run=status.get("hasRun") is True or _has_run(find_condition(conditions, "Running")),
        gang=_text(status.get("gang")),
        launch=_parse_launch(status.get("launch")),
        failure_cause=_text(status.get("cause"))
        or str((find_condition(conditions, outcome) or {}).get("reason") or ""),
        start_time=_time(status.get("startTime")),
        completion_time=_time(status.get("completionTime")),
        resume_count=_count(status.get("resumes")),
        counted_failures=tuple(str(uid) for uid in counted) if isinstance(counted, list) else (),
        restart_causes=_parse_causes(status.get("restartCauses")),
        recent_restarts=_parse_times(status.get("recentRestarts")),
        restarts_count_towards_max=_count(status.get("restartsCountTowardsMax")),
        runtime_id=_text(status.get("runtimeId")),
        roles=roles,
    )


def _has_run(running: Json | None) -> bool:
    """Whether a replica has run, by the reason of condition Running: the status of an old operator has no `hasRun`."""
    return running is not None and running.get("reason") not in ("JobCreated", "JobSuspended")


def _parse_role(stored: object) -> RoleStatus:
    role: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    digest = role.get("template")
    return RoleStatus(
        attempt=_count(role.get("attempt")),
        failures=_count(role.get("failures")),
        replicas=min(_count(role.get("replicas")), MAX_REPLICAS),
        port=_count(role.get("port")),
        digest=digest if isinstance(digest, str) else "",
        without_progress=_count(role.get("withoutProgress")),
        in_place=_count(role.get("restartsInPlace")),
        failures_before=_count(role.get("failuresBefore")),
    )


def _parse_causes(stored: object) -> dict[RestartCause, int]:
    causes: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    return {cause: count for cause in OTHER_CAUSES if (count := _count(causes.get(cause)))}


def _parse_times(stored: object) -> tuple[float, ...]:
    times = stored if isinstance(stored, list) else []
    return tuple(seconds for time in times if (seconds := _time(time)) is not None)


def _parse_launch(stored: object) -> Launch:
    launch: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    lost = launch.get("lost")
    names = tuple(str(name) for name in lost) if isinstance(lost, list) else ()
    return Launch(_text(launch.get("run")), _text(launch.get("workers")), names)


def _render_launch(launch: Launch) -> Json:
    lost = {"lost": list(launch.lost)} if launch.lost else {}
    return {"run": launch.run, "workers": launch.workers, **lost}


def _time(value: object) -> float | None:
    """Seconds since 1970, None for a malformed or too late time: a time plus any deadline or TTL must have a date."""
    seconds = parse_time(value)
    return seconds if seconds is not None and 0 <= seconds < MAX_TIME else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0


def default_condition_event(update: ConditionUpdate) -> Event:
    """The event for a condition that became True."""
    return Event("Warning" if update.type in WARNING_CONDITIONS else "Normal", update.reason, update.message)


def render_status(
    job: Job,
    status: JobStatus,
    outcome: Outcome,
    counts: Mapping[str, Mapping[str, int]],
    restarts: int,
    replicas: Sequence[Replica],
) -> Json:
    """The whole status as it is stored. `status` is the job's next one, `counts` is {role: {replica state: count}}."""
    kind_fields = job.kind.status.render(job.with_status(_with_failed_pods(status, replicas)), outcome, counts)
    rendered: Json = {**kind_fields, **_ready_field(job, counts, kind_fields), "conditions": list(status.conditions)}
    meta = job.obj.get("metadata", {})
    if isinstance(meta.get("generation"), int):
        rendered["observedGeneration"] = meta["generation"]
    if job.kind.api.has_versions:
        rendered["version"] = job.kind.gvk.version
    if status.start_time is not None:
        rendered["startTime"] = format_time(status.start_time)
    if status.completion_time is not None:
        rendered["completionTime"] = format_time(status.completion_time)
    if status.runtime_id:
        rendered["runtimeId"] = status.runtime_id
    rendered |= _render_restarts(status, restarts)
    if status.resume_count:
        rendered["resumes"] = status.resume_count
    if status.has_run or outcome.phase == "Running":
        rendered["hasRun"] = True
    if status.gang:
        rendered["gang"] = status.gang
    if status.launch.run:
        rendered["launch"] = _render_launch(status.launch)
    rest = {
        "cause": status.failure_cause,
        "counted": list(status.counted_failures),
        "roles": {name: _render_role(role) for name, role in status.roles.items()},
    }
    rendered |= {name: value for name, value in rest.items() if value}
    if job.parsed.snapshot is not None:
        rendered["snapshot"] = job.parsed.snapshot
    return _with_public_fields(job.with_status(status), rendered, outcome, counts, replicas)


def _with_public_fields(
    job: Job, rendered: Json, outcome: Outcome, counts: Mapping[str, Mapping[str, int]], replicas: Sequence[Replica]
) -> Json:
    """The operator's status below those fields that the definition of the kind has, if it has a status of its own."""
    public = job.kind.status.public
    if public is None:
        return rendered
    return {**job.status.whole, **public(job, outcome, counts, replicas), OWN_FIELDS: rendered}


def replica_counts(
    job: Job, replicas: Sequence[Replica], outcome: Outcome, deleted: frozenset[str]
) -> dict[str, dict[str, int]]:
    """Count the replicas of each role by state: {role: {replica state: count}}. The counts of a finished job are final:
    a replica whose object is deleted now (its uid is in `deleted`) counts as Unknown."""
    counts: dict[str, dict[str, int]] = {role.name: {} for role in job.roles}
    for replica in replicas:
        states, state = counts[replica.slot.role], replica.state
        termination = replica.termination
        if outcome.is_finished and termination is not None and not termination.disrupted and state != "Succeeded":
            state = "Failed"  # there is no further retry
        elif state in ("Starting", "Running") and replica.child and replica.child.uid in deleted:
            state = "Unknown"
        states[state] = states.get(state, 0) + (replica.running_pods if state == "Running" else 1)
    return counts


def _with_failed_pods(status: JobStatus, replicas: Sequence[Replica]) -> JobStatus:
    """The status for StatusShape.render only: status.failed of a Job that retries by itself includes pods that were
    deleted before the operator observed their failure. It is not stored in `status.roles`: a pod whose watch event
    comes after that of its Job would be counted twice."""
    roles = dict(status.roles)
    for replica in replicas:
        role = roles.get(replica.slot.role)
        if role and role.failures < replica.failed_pods:
            roles[replica.slot.role] = replace(role, failures=replica.failed_pods)
    return replace(status, roles=roles)


def _ready_field(job: Job, counts: Mapping[str, Mapping[str, int]], kind_fields: Json) -> Json:
    """`status.ready`, for `kubectl get`: running replicas/all replicas. It changes only together with the counts of the
    kind, so it causes no write of its own, unless one object runs a whole role. Where the kind has
    the field itself, it counts the running replicas of a job that has ended otherwise."""
    if "ready" in kind_fields:
        return {"ready": kind_fields["ready"]}
    running = sum(states.get("Running", 0) for states in counts.values())
    return {"ready": f"{running}/{sum(role.replicas for role in job.roles)}"}


def _render_restarts(status: JobStatus, restarts: int) -> Json:
    rendered: Json = {"restarts": restarts}
    if status.restart_causes:  # else all are the program's
        rendered["restartCauses"] = {"program": restarts, **status.restart_causes}
    if status.restarts_count_towards_max:
        rendered["restartsCountTowardsMax"] = status.restarts_count_towards_max
    if status.recent_restarts:
        rendered["recentRestarts"] = [format_time(time) for time in status.recent_restarts]
    return rendered


def _render_role(role: RoleStatus) -> Json:
    rendered = {
        "attempt": role.attempt,
        "failures": role.failures,
        "replicas": role.replicas,
        "port": role.port,
        "template": role.digest,
    }
    rest = {
        "withoutProgress": role.without_progress,
        "restartsInPlace": role.in_place,
        "failuresBefore": role.failures_before,
    }
    return {**rendered, **{name: count for name, count in rest.items() if count}}


def is_urgent(old: Json, new: Json) -> bool:
    """True when more than counts changed: a phase, a state, a condition, an attempt."""
    parts = [(status, as_dict(status.get(OWN_FIELDS))) for status in (old, new)]
    (old_parts, new_parts) = ([_without_counts(part) for part in pair] for pair in parts)
    return old_parts != new_parts


def _without_counts(status: Json) -> object:
    stored_conditions = status.get("conditions")
    conditions = stored_conditions if isinstance(stored_conditions, list) else []
    summary = [
        (item.get("type"), item.get("status"), item.get("reason")) for item in conditions if isinstance(item, dict)
    ]
    rest = {key: value for key, value in status.items() if key not in COUNTS}
    return summary, rest
