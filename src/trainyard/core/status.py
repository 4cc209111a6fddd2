"""Status: what we remember, and how it is written.

Rules for this file:
- Status is written by us only, and still read with suspicion: what is missing or malformed counts as never written.
- It is O(roles), never O(replicas). The same facts give the same status, byte for byte, or the operator wakes itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.core.job import Job, Kind, Memory, Replica, RoleMemory, Said, Verdict
from trainyard.core.model import Event
from trainyard.objects import Json, condition, format_time, is_true, parse_time, with_condition
from trainyard.objects.values import replace

REMEMBERED = 20
"""How many counted uids of deleted objects are kept: with a stale cache a failure must not count twice."""

MOST_REPLICAS = 10000
"""What a role may have; the schemas say the same, so a status that says more is forged."""

LATEST = 2.0e11
"""Seconds of a time in the year 8307: later ones count as never written."""

ALARMS = frozenset(
    {"Failed", "Restarting", "Degraded", "NameConflict", "Blocked", "SpecChangeIgnored", "UnknownFields"}
)
"""Conditions that deserve a Warning event when they become True."""


def remember(kind: Kind, wire: Json) -> Memory:
    """The memory in a stored object's status."""
    status = wire.get("status")
    if not isinstance(status, dict):
        status = {}
    listed = status.get("conditions")
    given = listed if isinstance(listed, list) else []
    conditions = tuple(one for one in given if isinstance(one, dict) and one.get("type"))
    also = kind.speech.also
    ends = [
        end
        for end in ("Succeeded", "Failed")
        if any(is_true(list(conditions), name) for name in (end, also.get(end, end)))
    ]
    counted = status.get("counted")
    stored = status.get("roles")
    roles = {name: _role(role) for name, role in stored.items()} if isinstance(stored, dict) else {}
    return Memory(
        wire=status,
        conditions=conditions,
        end=ends[0] if ends else "",
        started=bool(roles),
        suspended=is_true(list(conditions), "Suspended"),
        ran=_ran(condition(list(conditions), "Running")),
        start=_time(status.get("startTime")),
        completion=_time(status.get("completionTime")),
        resumes=_count(status.get("resumes")),
        counted=tuple(str(uid) for uid in counted) if isinstance(counted, list) else (),
        runtime_id=status["runtimeId"] if isinstance(status.get("runtimeId"), str) else "",
        roles=roles,
    )


def _ran(running: Json | None) -> bool:
    """Running says why it is False: before the first replica, and since the job was suspended, nothing has run."""
    return running is not None and running.get("reason") not in ("JobCreated", "JobSuspended")


def _role(stored: object) -> RoleMemory:
    role: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    digest = role.get("template")
    return RoleMemory(
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
        self.all: list[Json] = list(job.memory.conditions)
        self.said: list[Said] = []
        self._job = job
        self._replicas = replicas
        self._now = now

    def set(self, kind: str, holds: bool, reason: str, message: str) -> None:
        """A condition that does not hold and never did is not written at all."""
        old = condition(self.all, kind)
        if old is None and not holds:
            return
        speech = self._job.kind.speech
        said = Said(kind, reason, message)
        said = speech.word(self._job, said, self._replicas) if holds else said
        for name in filter(None, (kind, speech.also.get(kind))):
            self._write(name, holds, said)
        if holds and (old is None or old.get("status") != "True" or old.get("reason") != said.reason):
            self.said.append(said)

    def _write(self, name: str, holds: bool, said: Said) -> None:
        old = condition(self.all, name)
        self.all = with_condition(self.all, name, holds, said.reason, said.message, self._now)
        new = condition(self.all, name)
        for field in self._job.kind.speech.times:
            if new is not None:
                same = old is not None and all(old.get(key) == value for key, value in new.items())
                new[field] = old.get(field) if same and old else format_time(self._now)


def event_of(said: Said) -> Event:
    """What is told when a condition becomes True."""
    return Event("Warning" if said.type in ALARMS else "Normal", said.reason, said.message)


def written(
    job: Job,
    memory: Memory,
    verdict: Verdict,
    tally: Mapping[str, Mapping[str, int]],
    restarts: int,
    replicas: Sequence[Replica],
) -> Json:
    """The whole status as it is written. `memory` is what is to be remembered from now on."""
    own = job.kind.report(replace(job, memory=_with_failed_pods(memory, replicas)), verdict, tally)
    status: Json = {**own, **_ready(job, tally), "conditions": list(memory.conditions)}
    meta = job.wire.get("metadata", {})
    if isinstance(meta.get("generation"), int):
        status["observedGeneration"] = meta["generation"]
    if memory.start is not None:
        status["startTime"] = format_time(memory.start)
    if memory.completion is not None:
        status["completionTime"] = format_time(memory.completion)
    if memory.runtime_id:
        status["runtimeId"] = memory.runtime_id
    status["restarts"] = restarts
    if memory.resumes:
        status["resumes"] = memory.resumes
    if memory.counted:
        status["counted"] = list(memory.counted)
    if memory.roles:
        status["roles"] = {name: _role_wire(role) for name, role in memory.roles.items()}
    return status


def _with_failed_pods(memory: Memory, replicas: Sequence[Replica]) -> Memory:
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


def _role_wire(role: RoleMemory) -> Json:
    return {
        "attempt": role.attempt,
        "failures": role.failures,
        "replicas": role.replicas,
        "port": role.port,
        "template": role.digest,
    }


def is_urgent(old: Json, new: Json) -> bool:
    """True when more changed than counts: a phase, a state, a condition, an attempt."""
    return _headline(old) != _headline(new)


def _headline(status: Json) -> object:
    listed = status.get("conditions")
    given = listed if isinstance(listed, list) else []
    words = [(c.get("type"), c.get("status"), c.get("reason")) for c in given if isinstance(c, dict)]
    rest = {
        key: value for key, value in status.items() if key not in ("conditions", "restarts", "ready", "replicaStatuses")
    }
    return words, rest
