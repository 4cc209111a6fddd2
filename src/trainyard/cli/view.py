"""The displayed state of jobs, computed from API objects. Pure. replica_view.py has that of one replica.

The state of a slot is that of its newest pod.

Restarts are counted as `status.restarts` counts them (core/restart_count.py): a container that was restarted in place,
and a pod that was created after a failed one. A gang is restarted as a whole, so each of its replicas has the job's
count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainyard.cli.layout import UNKNOWN_WIDTH, coloured, prose, table_lines
from trainyard.cli.replica_view import (
    REFERENCE_TIMEOUT,
    TEMPORARY_BLOCK_PREFIXES,
    ReplicaView,
    as_dict,
    group_by_slot,
    log_prefix,
    replica_view,
)
from trainyard.core import Config, parse_job
from trainyard.kinds import kind_of
from trainyard.objects import (
    Json,
    controller_of,
    find_condition,
    is_condition_true,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)
from trainyard.objects.structs import replace

ACCOUNT = "error looking up service account"  # in the message of a FailedCreate event


def job_result(job: Json) -> str:
    """Succeeded, Failed, or "" while the job has not ended; also from a status that a legacy operator has written."""
    status = as_dict(job.get("status"))
    if end := next((end for end in ("Succeeded", "Failed") if is_condition_true(status.get("conditions"), end)), ""):
        return end
    kind = kind_of(job)
    return kind.status.legacy_outcome(status) if kind else ""


def job_state(job: Json) -> str:
    """The state of a job in one word: its result, or the type of a condition that is True."""
    conditions = as_dict(job.get("status")).get("conditions")
    if end := job_result(job):
        return end
    true_conditions = (
        condition_type
        for condition_type in ("Suspended", "Restarting", "Running", "Created")
        if is_condition_true(conditions, condition_type)
    )
    return next(true_conditions, "Pending")


def job_message(job: Json) -> str:
    """The message of the True condition about the job's end, or about what blocks the job; "" for none."""
    conditions = as_dict(job.get("status")).get("conditions")
    for condition_type in ("Succeeded", "Failed", "NameConflict", "Blocked", "Degraded"):
        job_condition = find_condition(conditions, condition_type)
        if job_condition and job_condition.get("status") == "True":
            return str(job_condition.get("message") or job_condition.get("reason") or "")
    return ""


@dataclass(slots=True)
class JobView:
    """All observed jobs and replicas. Deleted pods stay in it: the final table shows them, too."""

    jobs: dict[str, Json] = field(default_factory=dict)  # by uid
    replicas: dict[str, ReplicaView] = field(default_factory=dict)  # by the pod's uid
    waiting: dict[str, float] = field(default_factory=dict)  # time since which a pod or owner (by uid) lacks an object
    refused: dict[str, str] = field(default_factory=dict)  # why no pod of an owner (by uid) can be created

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
        blocked_condition = find_condition(as_dict(job.get("status")).get("conditions"), "Blocked") or {}
        if blocked_condition.get("status") == "True":
            self.add_refusal(uid_of(job), name_of(job), str(blocked_condition.get("message")), now)
        elif uid_of(job) in self.refused:
            self._clear_refusal(uid_of(job))

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
        self.replicas[pod_replica.uid] = pod_replica
        self._clear_refusal(str((controller_of(pod) or {}).get("uid")))
        if pod_replica.blocked.startswith(TEMPORARY_BLOCK_PREFIXES):
            self.waiting.setdefault(pod_replica.uid, now)
        else:
            self.waiting.pop(pod_replica.uid, None)
        return True

    def slots(self, job_uid: str) -> list[ReplicaView]:
        """The replicas of a job (by uid), sorted by name: each in the state of its newest pod, with the restarts of all
        its pods."""
        replicas = (pod_replica for pod_replica in self.replicas.values() if pod_replica.job == job_uid)
        slots = group_by_slot(replicas, lambda pod_replica: pod_replica)
        job_object = self.jobs.get(job_uid, {})
        is_gang = _is_gang(job_object)  # parses the job: once, not for each replica
        return [_newest_replica(slots[name], job_object, is_gang) for name in sorted(slots, key=natural_sort_key)]

    def restarts(self, job_uid: str, slots: list[ReplicaView]) -> int:
        """The restarts of a job (by uid): the number in its status, or that of its observed `slots` if it is larger."""
        job_object = self.jobs.get(job_uid, {})
        stored = _count(as_dict(job_object.get("status")).get("restarts"))
        return stored if _is_gang(job_object) else max(stored, sum(slot.restarts for slot in slots))

    def label(self, replica: ReplicaView) -> str:
        """The replica in a log line's prefix, with its job if there are several."""
        return self._label(replica.job, replica.name)

    def _label(self, job_uid: str, replica_name: str) -> str:
        if len(self.jobs) < 2 or job_uid not in self.jobs:
            return replica_name
        return f"{name_of(self.jobs[job_uid])}/{replica_name}"

    def log_prefixes(self, role_name: str = "") -> list[str]:
        """The prefixes of the log lines of the containers (not of init containers) of the last replica of each role,
        according to the jobs' specs. `role_name`: only this role; "" for all."""
        prefixes = []
        for uid, job in self.jobs.items():
            kind = kind_of(job)
            for role in parse_job(kind, job, Config()).roles if kind else ():
                if role_name.lower() in ("", role.name.lower()):
                    label = self._label(uid, f"{role.name.lower()}-{max(0, role.replicas - 1)}")
                    pod_spec = as_dict(as_dict(role.template).get("spec"))
                    names = [str(as_dict(container).get("name")) for container in pod_spec.get("containers") or []]
                    prefixes += [log_prefix(label, name, False, len(names)) for name in names]
        return prefixes

    def blocked_reason(self, now: float) -> str:
        """The first replica that never starts, with the reason; "" if there is none."""
        for pod_replica in self.replicas.values():
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
    status = as_dict(job.get("status"))
    if is_gang:
        recreated, in_place = _count(status.get("restarts")), 0
    for name, role in as_dict(
        status.get("roles")
    ).items():  # deleted pods: attributable only if the role has one replica
        if name.lower() == last.role and as_dict(role).get("replicas") == 1:
            recreated = max(recreated, _count(as_dict(role).get("failures")) - last.failed)
    return replace(last, restarts=in_place + recreated)


def _is_gang(job: Json) -> bool:
    kind = kind_of(job)
    return kind is not None and parse_job(kind, job, Config()).restarts_gang()


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def natural_sort_key(name: str) -> tuple[str, int, str]:
    """A key by which worker-2 precedes worker-10."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail), "") if tail.isdecimal() else (name, -1, tail)


def format_clock(seconds: float) -> str:
    """0:07, 12:34, 1:02:03."""
    total = max(0, int(seconds))
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def format_age(seconds: float) -> str:
    """A duration rounded down to one unit: 12s, 3m, 5h, 4d."""
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{max(0, int(seconds)) // size}{unit}"
    return f"{int(seconds) // 86400}d"


def format_since(stamp: object, now: float) -> str:
    """The age of an RFC 3339 time; "" for a value that is no time."""
    timestamp = parse_time(stamp)
    return "" if timestamp is None else format_age(now - timestamp)


def count_states(slots: list[ReplicaView]) -> str:
    """The numbers of replicas by role and state: worker: 2 Running, 1 Pending · ps: 1 Running."""
    texts = []
    for role in dict.fromkeys(slot.role for slot in slots):
        states: dict[str, int] = {}
        for slot in slots:
            if slot.role == role:
                states[slot.state] = states.get(slot.state, 0) + 1
        texts.append(f"{role}: " + ", ".join(f"{count} {state}" for state, count in states.items()))
    return " · ".join(texts)


def missing_peers_text(job: Json, slots: list[ReplicaView]) -> str:
    """The text "waiting for peers: 1 of 2" if fewer replicas run than must run at the same time; else ""."""
    kind = kind_of(job)
    needed = kind.diagnosis.peers_needed(as_dict(job.get("spec"))) if kind and not job_result(job) else None
    present = sum(slot.state in ("Running", "Succeeded") for slot in slots)
    return f"waiting for peers: {present} of {needed}" if needed is not None and 0 < present < needed else ""


def progress(view: JobView, elapsed: float | None, now: float = 0.0) -> str:
    """The progress line: elapsed time, and for each job its state, its replicas by role and state, missing peers, the
    next restart, and the number of restarts.

    elapsed: in seconds; with None the line has no times and changes only with the state of a job or replica.
    """
    parts = [] if elapsed is None else [format_clock(elapsed)]
    for uid, job in view.jobs.items():
        slots = view.slots(uid)
        texts = [
            f"{name_of(job)} {job_state(job)}",
            *filter(None, [count_states(slots), missing_peers_text(job, slots)]),
        ]
        if elapsed is not None:
            texts += [
                f"{slot.name} starts again in {format_clock(slot.back_off_end - now)}"
                for slot in slots
                if slot.back_off_end > now
            ][:1]
        if restarts := view.restarts(uid, slots):
            texts.append(f"restarts: {restarts}")
        parts.append(" · ".join(texts))
    return "  ".join(parts)


REPLICA_HEADS = ("REPLICA", "STATE", "RESTARTS", "EXIT", "TIME")


def replica_cells(slot: ReplicaView, now: float) -> list[str]:
    """A replica's cells of a table, under REPLICA_HEADS."""
    duration = "" if slot.started is None else format_clock((slot.ended or now) - slot.started)
    return [slot.name, slot.state, str(slot.restarts), slot.exit, duration]


def table(
    view: JobView,
    now: float,
    cut_short: str = "",
    width: int = UNKNOWN_WIDTH,
    colour: bool = False,
    with_message: bool = True,
) -> list[str]:
    """The final table: a line per replica, then a line per job. `cut_short`: why the jobs were ended early, or ""."""
    rows = [["JOB", *REPLICA_HEADS]]
    for uid, job in view.jobs.items():
        rows += [[name_of(job), *replica_cells(slot, now)] for slot in view.slots(uid)]
    lines = table_lines(rows, width, colour)
    verdicts = [outcome_line(job, now, cut_short, colour, with_message) for job in view.jobs.values()]
    return [*(lines if len(rows) > 1 else []), *(line for text in verdicts for line in prose(text, width).split("\n"))]


def outcome_line(job: Json, now: float, cut_short: str = "", colour: bool = False, with_message: bool = True) -> str:
    """One line about a job's end. `with_message`: with the message of its condition, also if the job has not
    succeeded."""
    status = as_dict(job.get("status"))
    start = parse_time(status.get("startTime")) or parse_time(as_dict(job.get("metadata")).get("creationTimestamp"))
    end = parse_time(status.get("completionTime")) or now
    duration = f" after {format_clock(end - start)}" if start is not None else ""
    text = " ".join(job_message(job).split()) if with_message or job_result(job) == "Succeeded" else ""
    name = f"{job.get('kind', 'Job')} {namespace_of(job)}/{name_of(job)}"
    state = coloured(job_state(job), colour)
    outcome = f"{cut_short} while {state}" if cut_short and not job_result(job) else state
    return f"{name}: {outcome}{duration}" + (f": {text}" if text else "")
