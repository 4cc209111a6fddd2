"""Status: what we remember, and how it is written.

Rules for this file:
- Status is written by us only, and still read with suspicion: what is missing or malformed counts as never written.
- It is O(roles), never O(replicas). The same facts give the same status, byte for byte, or the operator wakes itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.core.job import ConditionUpdate, Job, JobStatus, Kind, Outcome, Replica, RoleStatus
from trainyard.core.model import Event
from trainyard.objects import Json, condition, format_time, is_true, parse_time
from trainyard.objects.values import replace

KEPT_UIDS = 20
"""How many counted uids of deleted objects are kept: with a stale cache a failure must not count twice."""

MOST_REPLICAS = 10000
"""What a role may have; the schemas say the same, so a status that says more is forged."""

OUTCOMES = ("Succeeded", "Failed")

LATEST = 2.0e11
"""Seconds of a time in the year 8307: later ones count as never written."""

WARNING_CONDITIONS = frozenset(
    {"Failed", "Restarting", "Degraded", "NameConflict", "Blocked", "SpecChangeIgnored", "UnknownFields"}
)
"""Conditions that deserve a Warning event when they become True."""


def parse_status(kind: Kind, wire: Json) -> JobStatus:
    """Parse the status of a stored object."""
    status = wire.get("status")
    if not isinstance(status, dict):
        status = {}
    listed = status.get("conditions")
    conditions = (
        [item for item in listed if isinstance(item, dict) and item.get("type")] if isinstance(listed, list) else []
    )
    aliases = kind.messages.condition_aliases
    outcome = next(
        (end for end in OUTCOMES if any(is_true(conditions, name) for name in (end, aliases.get(end, end)))), ""
    )
    counted = status.get("counted")
    stored = status.get("roles")
    roles = {name: _parse_role(role) for name, role in stored.items()} if isinstance(stored, dict) else {}
    return JobStatus(
        wire=status,
        conditions=tuple(conditions),
        outcome=outcome,
        started=bool(roles),
        suspended=is_true(conditions, "Suspended"),
        ran=status.get("hasRun") is True or _ran(condition(conditions, "Running")),
        cause=_text(status.get("cause")) or str((condition(conditions, outcome) or {}).get("reason") or ""),
        start_time=_time(status.get("startTime")),
        completion_time=_time(status.get("completionTime")),
        resumes=_count(status.get("resumes")),
        counted_failures=tuple(str(uid) for uid in counted) if isinstance(counted, list) else (),
        runtime_id=_text(status.get("runtimeId")),
        roles=roles,
    )


def _ran(running: Json | None) -> bool:
    """For a status of version 0.1.0, which has no `hasRun`: the reason of a False Running tells."""
    return running is not None and running.get("reason") not in ("JobCreated", "JobSuspended")


def _parse_role(stored: object) -> RoleStatus:
    role: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    digest = role.get("template")
    return RoleStatus(
        attempt=_count(role.get("attempt")),
        failures=_count(role.get("failures")),
        replicas=min(_count(role.get("replicas")), MOST_REPLICAS),
        port=_count(role.get("port")),
        digest=digest if isinstance(digest, str) else "",
    )


def _time(value: object) -> float | None:
    """A time that we can have written, and that any policy added to it leaves inside the calendar."""
    found = parse_time(value)
    return found if found is not None and 0 <= found < LATEST else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0


def default_condition_event(said: ConditionUpdate) -> Event:
    """What is told when a condition becomes True."""
    return Event("Warning" if said.type in WARNING_CONDITIONS else "Normal", said.reason, said.message)


def render_status(
    job: Job,
    status: JobStatus,
    outcome: Outcome,
    counts: Mapping[str, Mapping[str, int]],
    restarts: int,
    replicas: Sequence[Replica],
) -> Json:
    """The whole status as it is stored. `status` is the job's next one, `counts` is {role: {replica state: count}}."""
    own = job.kind.render_status(replace(job, status=_with_failed_pods(status, replicas)), outcome, counts)
    rendered: Json = {**own, **_ready(job, counts), "conditions": list(status.conditions)}
    meta = job.wire.get("metadata", {})
    if isinstance(meta.get("generation"), int):
        rendered["observedGeneration"] = meta["generation"]
    if status.start_time is not None:
        rendered["startTime"] = format_time(status.start_time)
    if status.completion_time is not None:
        rendered["completionTime"] = format_time(status.completion_time)
    if status.runtime_id:
        rendered["runtimeId"] = status.runtime_id
    rendered["restarts"] = restarts
    if status.resumes:
        rendered["resumes"] = status.resumes
    if status.ran or outcome.phase == "Running":
        rendered["hasRun"] = True
    if status.cause:
        rendered["cause"] = status.cause
    if status.counted_failures:
        rendered["counted"] = list(status.counted_failures)
    if status.roles:
        rendered["roles"] = {name: _render_role(role) for name, role in status.roles.items()}
    return rendered


def replica_counts(
    job: Job, replicas: Sequence[Replica], outcome: Outcome, deleted: frozenset[str]
) -> dict[str, dict[str, int]]:
    """Count the replicas of each role by state. The final counts are never updated: a replica whose object is deleted
    now (its uid is in `deleted`) counts as Unknown."""
    counts: dict[str, dict[str, int]] = {role.name: {} for role in job.roles}
    for replica in replicas:
        states, state = counts[replica.slot.role], replica.state
        ended = replica.termination
        if outcome.finished and ended is not None and not ended.disrupted and state != "Succeeded":
            state = "Failed"  # it is not retried any more
        elif state in ("Starting", "Running") and replica.child and replica.child.uid in deleted:
            state = "Unknown"
        states[state] = states.get(state, 0) + (replica.running if state == "Running" else 1)
    return counts


def _with_failed_pods(status: JobStatus, replicas: Sequence[Replica]) -> JobStatus:
    """For the report only: status.failed of a Job that retries by itself includes pods that were deleted before the
    operator saw them fail. It is not stored: a pod whose watch event comes after its Job's would be counted twice."""
    roles = dict(status.roles)
    for replica in replicas:
        role = roles.get(replica.slot.role)
        if role and role.failures < replica.failed_pods:
            roles[replica.slot.role] = replace(role, failures=replica.failed_pods)
    return replace(status, roles=roles)


def _ready(job: Job, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """How many replicas run, of how many: for people who list jobs. It changes only when the counts beside it do, so it
    costs no write; but where one object carries a whole role, it is the count itself."""
    running = sum(states.get("Running", 0) for states in counts.values())
    return {"ready": f"{running}/{sum(role.replicas for role in job.roles)}"}


def _render_role(role: RoleStatus) -> Json:
    return {
        "attempt": role.attempt,
        "failures": role.failures,
        "replicas": role.replicas,
        "port": role.port,
        "template": role.digest,
    }


def is_urgent(old: Json, new: Json) -> bool:
    """True when more changed than counts: a phase, a state, a condition, an attempt."""
    return _without_counts(old) != _without_counts(new)


def _without_counts(status: Json) -> object:
    listed = status.get("conditions")
    conditions = listed if isinstance(listed, list) else []
    summary = [(c.get("type"), c.get("status"), c.get("reason")) for c in conditions if isinstance(c, dict)]
    rest = {
        key: value for key, value in status.items() if key not in ("conditions", "restarts", "ready", "replicaStatuses")
    }
    return summary, rest
