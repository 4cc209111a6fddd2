"""The displayed state of jobs, computed from API objects; replica_view.py has that of one replica.

The state of a slot is that of its newest pod.

Restarts are counted as `status.restarts` counts them (core/restart_count.py): a container that was restarted in place,
and a pod that was created after a failed one. A gang is restarted as a whole, so each of its replicas has the job's
count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from trainyard.core import Config, Job, parse_job
from trainyard.core.job_state import STALLED, SUCCESS_IN_DOUBT
from trainyard.kinds import kind_of
from trainyard.objects import (
    Json,
    as_dict,
    controller_of,
    find_condition,
    is_condition_true,
    name_of,
    operator_status,
    uid_of,
)
from trainyard.objects.structs import replace
from trainyard.views.replica_view import (
    REFERENCE_TIMEOUT,
    TEMPORARY_BLOCK_PREFIXES,
    ReplicaView,
    group_by_slot,
    replica_view,
)

ACCOUNT = "error looking up service account"  # in the message of a FailedCreate event


def job_result(job: Json) -> str:
    """Succeeded, Failed, or "" while the job has not ended; also from a status that a legacy operator has written."""
    status = operator_status(job)
    if end := next((end for end in ("Succeeded", "Failed") if is_condition_true(status.get("conditions"), end)), ""):
        return end
    kind = kind_of(job)
    return kind.status.legacy_outcome(status) if kind else ""


def is_success_in_doubt(job: Json) -> bool:
    """Whether the operator doubts the success of a job: a worker was lost, or none was used."""
    return is_condition_true(operator_status(job).get("conditions"), SUCCESS_IN_DOUBT)


def job_state(job: Json) -> str:
    """The state of a job in one word: its result, or the type of a condition that is True."""
    conditions = operator_status(job).get("conditions")
    if end := job_result(job):
        return end
    true_conditions = (
        condition_type
        for condition_type in ("Suspended", "Restarting", "Running", "Created")
        if is_condition_true(conditions, condition_type)
    )
    return next(true_conditions, "Pending")


NO_REPLICAS = "it has no replicas"


def job_message(job: Json) -> str:
    """The message of the True condition about the job's end, or about what blocks the job; "" for none."""
    conditions = operator_status(job).get("conditions")
    for condition_type in (SUCCESS_IN_DOUBT, "Succeeded", "Failed", "NameConflict", "Blocked", STALLED, "Degraded"):
        job_condition = find_condition(conditions, condition_type)
        if job_condition and job_condition.get("status") == "True":
            return str(job_condition.get("message") or job_condition.get("reason") or "")
    return ""


class JobView(msgspec.Struct):
    """All observed jobs and replicas. Deleted pods stay in it: the final table shows them, too."""

    jobs: dict[str, Json] = {}  # by uid
    replicas: dict[str, dict[str, ReplicaView]] = {}  # by the job's uid, then by the pod's
    waiting: dict[str, float] = {}  # time since which a pod or owner (by uid) lacks an object
    refused: dict[str, str] = {}  # why no pod of an owner (by uid) can be created
    _parsed: dict[str, tuple[Json, Job | None]] = {}  # by uid: a job and how it parses
    _slots: dict[str, tuple[Json, dict[str, ReplicaView | None]]] = {}
    """By uid: a job and its slots by name, in order; None for a slot of which a pod has changed since."""

    @classmethod
    def of(cls, jobs: Iterable[Json], pods: Iterable[Json], now: float) -> JobView:
        """The view of objects that are not watched."""
        view = cls({uid_of(job): job for job in jobs})
        for pod in pods:
            view.update_pod(pod, now)
        return view

    def update_job(self, job: Json, now: float = 0.0) -> None:
        """Take over the job; its condition Blocked counts as a refusal. `now`: Unix seconds."""
        self.jobs[uid_of(job)] = job
        blocked_condition = find_condition(operator_status(job).get("conditions"), "Blocked") or {}
        if blocked_condition.get("status") == "True":
            self.add_refusal(uid_of(job), name_of(job), str(blocked_condition.get("message")), now)
        elif uid_of(job) in self.refused:
            self._clear_refusal(uid_of(job))

    def remove_job(self, job_uid: str) -> None:
        """Forget a job that is deleted, and its replicas."""
        for uid in (job_uid, *self.replicas.pop(job_uid, {})):
            self.waiting.pop(uid, None)
            self.refused.pop(uid, None)
        self.jobs.pop(job_uid, None)
        self._parsed.pop(job_uid, None)
        self._slots.pop(job_uid, None)

    def update_event(self, event: Json, now: float) -> None:
        """Take over an event: FailedCreate counts as a refusal. `now`: Unix seconds."""
        involved_object = as_dict(event.get("involvedObject"))
        if event.get("reason") == "FailedCreate":
            self.add_refusal(
                str(involved_object.get("uid")), str(involved_object.get("name")), str(event.get("message")), now
            )

    def add_refusal(self, owner: str, name: str, message: str, now: float) -> None:
        """Record that pods cannot be created for lack of a ServiceAccount, which may still be created."""
        if (position := message.find(ACCOUNT)) >= 0:
            self.refused[owner] = f"{name}: {message[position:]}; add the ServiceAccount to the file"
            self.waiting.setdefault(owner, now)

    def _clear_refusal(self, owner: str) -> None:
        self.refused.pop(owner, None)
        self.waiting.pop(owner, None)

    def update_pod(self, pod: Json, now: float) -> bool:
        """False when the pod belongs to none of the jobs."""
        pod_replica = replica_view(pod)
        if pod_replica.job not in self.jobs:
            return False
        if pod_replica.restarts:  # a job is parsed for few pods
            pod_replica = replica_view(pod, self.parsed(pod_replica.job))
        pods = self.replicas.setdefault(pod_replica.job, {})
        _, slots = self._slots.get(pod_replica.job, ({}, {}))
        for name in {pod_replica.name, pods.get(pod_replica.uid, pod_replica).name} & slots.keys():
            slots[name] = None
        pods[pod_replica.uid] = pod_replica
        self._clear_refusal(str((controller_of(pod) or {}).get("uid")))
        if pod_replica.blocked.startswith(TEMPORARY_BLOCK_PREFIXES):
            self.waiting.setdefault(pod_replica.uid, now)
        else:
            self.waiting.pop(pod_replica.uid, None)
        return True

    def slots(self, job_uid: str) -> list[ReplicaView]:
        """The replicas of a job (by uid), sorted by name: each in the state of its newest pod, with the restarts of all
        its pods. Those of which nothing has changed are not worked out again: the page asks several times a second."""
        job = self.jobs.get(job_uid, {})
        known, slots = self._slots.get(job_uid, ({}, {}))
        if known is not job:
            slots = {}
        replicas = self.replicas.get(job_uid, {}).values()
        if changed := [pod_replica for pod_replica in replicas if slots.get(pod_replica.name) is None]:
            is_gang, is_new = self._is_gang(job_uid), any(pod_replica.name not in slots for pod_replica in changed)
            pods_by_slot = group_by_slot(changed, lambda pod_replica: pod_replica)
            slots |= {name: _newest_replica(pods, job, is_gang) for name, pods in pods_by_slot.items()}
            if is_new:
                slots = {name: slots[name] for name in sorted(slots, key=natural_sort_key)}
            self._slots[job_uid] = job, slots
        return [slot for slot in slots.values() if slot is not None]

    def restarts(self, job_uid: str, slots: list[ReplicaView]) -> int:
        """The restarts of a job (by uid): the number in its status, or that of its observed `slots` if it is larger."""
        stored = _count(operator_status(self.jobs.get(job_uid, {})).get("restarts"))
        return stored if self._is_gang(job_uid) else max(stored, sum(slot.restarts for slot in slots))

    def parsed(self, job_uid: str) -> Job | None:
        """The job (by uid) as the operator parses it; None for an object of an unknown kind. A job is parsed once for
        each of its states: the page asks for thousands of jobs."""
        job = self.jobs.get(job_uid, {})
        known, parsed = self._parsed.get(job_uid, ({}, None))
        if known is not job:
            kind = kind_of(job)
            parsed = parse_job(kind, job, Config()) if kind else None
            self._parsed[job_uid] = job, parsed
        return parsed

    def _is_gang(self, job_uid: str) -> bool:
        parsed = self.parsed(job_uid)
        return parsed is not None and parsed.restarts_gang()

    def label(self, replica: ReplicaView) -> str:
        """The replica in a log line's prefix, with its job if there are several."""
        return self.slot_label(replica.job, replica.name)

    def slot_label(self, job_uid: str, replica_name: str) -> str:
        """As `label`, for a replica that need not have a pod."""
        if len(self.jobs) < 2 or job_uid not in self.jobs:
            return replica_name
        return f"{name_of(self.jobs[job_uid])}/{replica_name}"

    def blocked_reason(self, now: float) -> str:
        """The first replica that never starts, with the reason; "" if there is none."""
        for pod_replica in (pod_replica for pods in self.replicas.values() for pod_replica in pods.values()):
            if (
                pod_replica.blocked
                and now >= self.waiting.get(pod_replica.uid, now - REFERENCE_TIMEOUT) + REFERENCE_TIMEOUT
            ):
                return f"{self.label(pod_replica)}: {pod_replica.blocked}"
        return next(
            (reason for owner, reason in self.refused.items() if now >= self.waiting[owner] + REFERENCE_TIMEOUT), ""
        )


def _newest_replica(pods: list[ReplicaView], job: Json, is_gang: bool) -> ReplicaView:
    """The newest pod of a slot, with the restarts of the slot. `pods`: the oldest first."""
    *earlier, last = pods
    in_place = sum(pod.restarts for pod in pods)
    recreated = sum(pod.failed for pod in earlier)
    status = operator_status(job)
    if is_gang:
        recreated, in_place = _count(status.get("restarts")), 0
    for name, role in as_dict(
        status.get("roles")
    ).items():  # deleted pods: attributable only if the role has one replica
        if name.lower() == last.role and as_dict(role).get("replicas") == 1:
            recreated = max(recreated, _count(as_dict(role).get("failures")) - last.failed)
    return replace(last, restarts=in_place + recreated)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def natural_sort_key(name: str) -> tuple[str, int, str]:
    """A key by which worker-2 precedes worker-10."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail), "") if tail.isdecimal() else (name, -1, tail)


def count_states(slots: Iterable[ReplicaView]) -> dict[str, dict[str, int]]:
    """The numbers of replicas by role, then by state."""
    counts: dict[str, dict[str, int]] = {}
    for slot in slots:
        states = counts.setdefault(slot.role, {})
        states[slot.state] = states.get(slot.state, 0) + 1
    return counts


def missing_peers_text(job: Json, slots: list[ReplicaView]) -> str:
    """The text "waiting for peers: 1 of 2" if fewer replicas run than must run at the same time; else ""."""
    kind = kind_of(job)
    needed = kind.diagnosis.peers_needed(as_dict(job.get("spec"))) if kind and not job_result(job) else None
    present = sum(slot.state in ("Running", "Succeeded") for slot in slots)
    return f"waiting for peers: {present} of {needed}" if needed is not None and 0 < present < needed else ""
