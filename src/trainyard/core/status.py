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
from trainyard.objects import Json, condition, format_time, is_true, parse_time, with_condition
from trainyard.objects.values import replace

KEPT_UIDS = 20
"""How many counted uids of deleted objects are kept: with a stale cache a failure must not count twice."""

MOST_REPLICAS = 10000
"""What a role may have; the schemas say the same, so a status that says more is forged."""

LATEST = 2.0e11
"""Seconds of a time in the year 8307: later ones count as never written."""

WARNING_CONDITIONS = frozenset(
    {"Failed", "Restarting", "Degraded", "NameConflict", "Blocked", "SpecChangeIgnored", "UnknownFields"}
)
"""Conditions that deserve a Warning event when they become True."""


def parse_status(kind: Kind, wire: Json) -> JobStatus:
    """The memory in a stored object's status."""
    status = wire.get("status")
    if not isinstance(status, dict):
        status = {}
    listed = status.get("conditions")
    given = listed if isinstance(listed, list) else []
    conditions = tuple(one for one in given if isinstance(one, dict) and one.get("type"))
    also = kind.messages.condition_aliases
    ends = [
        end
        for end in ("Succeeded", "Failed")
        if any(is_true(list(conditions), name) for name in (end, also.get(end, end)))
    ]
    counted = status.get("counted")
    stored = status.get("roles")
    roles = {name: _parse_role(role) for name, role in stored.items()} if isinstance(stored, dict) else {}
    return JobStatus(
        wire=status,
        conditions=conditions,
        outcome=ends[0] if ends else "",
        started=bool(roles),
        suspended=is_true(list(conditions), "Suspended"),
        ran=_ran(condition(list(conditions), "Running")),
        start_time=_time(status.get("startTime")),
        completion_time=_time(status.get("completionTime")),
        resumes=_count(status.get("resumes")),
        counted_failures=tuple(str(uid) for uid in counted) if isinstance(counted, list) else (),
        runtime_id=status["runtimeId"] if isinstance(status.get("runtimeId"), str) else "",
        roles=roles,
    )


def _ran(running: Json | None) -> bool:
    """Running says why it is False: before the first replica, and since the job was suspended, nothing has run."""
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


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0


class Conditions:
    """The conditions of one pass; `said` collects those that became True or changed their reason."""

    def __init__(self, job: Job, replicas: list[Replica], now: float) -> None:
        self.all: list[Json] = list(job.status.conditions)
        self.updates: list[ConditionUpdate] = []
        self._job = job
        self._replicas = replicas
        self._now = now

    def set(self, kind: str, holds: bool, reason: str, message: str) -> None:
        """A condition that does not hold and never did is not written at all."""
        old = condition(self.all, kind)
        if old is None and not holds:
            return
        speech = self._job.kind.messages
        said = ConditionUpdate(kind, reason, message)
        said = speech.condition_message(self._job, said, self._replicas) if holds else said
        for name in filter(None, (kind, speech.condition_aliases.get(kind))):
            self._write(name, holds, said)
        if holds and (old is None or old.get("status") != "True" or old.get("reason") != said.reason):
            self.updates.append(said)

    def _write(self, name: str, holds: bool, said: ConditionUpdate) -> None:
        old = condition(self.all, name)
        self.all = with_condition(self.all, name, holds, said.reason, said.message, self._now)
        new = condition(self.all, name)
        for field in self._job.kind.messages.extra_timestamps:
            if new is not None:
                same = old is not None and all(old.get(key) == value for key, value in new.items())
                new[field] = old.get(field) if same and old else format_time(self._now)


def default_condition_event(said: ConditionUpdate) -> Event:
    """What is told when a condition becomes True."""
    return Event("Warning" if said.type in WARNING_CONDITIONS else "Normal", said.reason, said.message)


def render_status(
    job: Job,
    memory: JobStatus,
    verdict: Outcome,
    tally: Mapping[str, Mapping[str, int]],
    restarts: int,
    replicas: Sequence[Replica],
) -> Json:
    """The whole status as it is written. `memory` is what is to be remembered from now on."""
    own = job.kind.render_status(replace(job, status=_with_failed_pods(memory, replicas)), verdict, tally)
    status: Json = {**own, **_ready(job, tally), "conditions": list(memory.conditions)}
    meta = job.wire.get("metadata", {})
    if isinstance(meta.get("generation"), int):
        status["observedGeneration"] = meta["generation"]
    if memory.start_time is not None:
        status["startTime"] = format_time(memory.start_time)
    if memory.completion_time is not None:
        status["completionTime"] = format_time(memory.completion_time)
    if memory.runtime_id:
        status["runtimeId"] = memory.runtime_id
    status["restarts"] = restarts
    if memory.resumes:
        status["resumes"] = memory.resumes
    if memory.counted_failures:
        status["counted"] = list(memory.counted_failures)
    if memory.roles:
        status["roles"] = {name: _render_role(role) for name, role in memory.roles.items()}
    return status


def _with_failed_pods(memory: JobStatus, replicas: Sequence[Replica]) -> JobStatus:
    """For the report only: status.failed of a Job that retries by itself includes pods that were deleted before the
    operator saw them fail. It is not stored: a pod whose watch event comes after its Job's would be counted twice."""
    roles = dict(memory.roles)
    for replica in replicas:
        role = roles.get(replica.slot.role)
        if role and role.failures < replica.failed_pods:
            roles[replica.slot.role] = replace(role, failures=replica.failed_pods)
    return replace(memory, roles=roles)


def _ready(job: Job, tally: Mapping[str, Mapping[str, int]]) -> Json:
    """How many replicas run, of how many: for people who list jobs. It changes only when the counts beside it do, so it
    costs no write; but where one object carries a whole role, it is the count itself."""
    running = sum(states.get("Running", 0) for states in tally.values())
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
    given = listed if isinstance(listed, list) else []
    words = [(c.get("type"), c.get("status"), c.get("reason")) for c in given if isinstance(c, dict)]
    rest = {
        key: value for key, value in status.items() if key not in ("conditions", "restarts", "ready", "replicaStatuses")
    }
    return words, rest
