"""What a person is shown of jobs and replicas, worked out from the objects of the API. Pure.

A replica is a slot of a job: role and index, from the labels that every pod of a job has (the pods of a StatefulSet
share their labels, and have a number of their own). The newest pod of a slot speaks for it.

Restarts are counted as `status.restarts` counts them (core/restarts.py): a container that was started again in place,
and a pod that was made after one that had failed. A gang is restarted as a whole, so the job's count is each replica's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainyard.cli.layout import UNKNOWN_WIDTH, fitted, painted, prose
from trainyard.core import Kind
from trainyard.core.children import DISRUPTIONS
from trainyard.kinds import kind_of
from trainyard.objects import (
    Json,
    condition,
    controller_of,
    is_true,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)
from trainyard.objects.labels import INDEX, OWNER, ROLE
from trainyard.objects.values import replace

ORDINAL = "apps.kubernetes.io/pod-index"  # the number of a StatefulSet's pod

# A container that waits for one of these will wait for ever: nobody else can put it right in a private cluster.
# What it refers to may be on its way, so that is given some time.
PATIENCE = 10.0
REFERENCE = "CreateContainerConfigError"
MOUNT, CLAIM = "MountVolume.SetUp failed", "persistentvolumeclaim"
ACCOUNT = "error looking up service account"
PATIENTLY = (REFERENCE, MOUNT, CLAIM)  # how such a `blocked` begins
STOPPED = frozenset({137, 143})  # what SIGTERM and SIGKILL leave of a pod that was told to go
BLOCKED = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "CreateContainerError",
        REFERENCE,
    }
)


class Replica(msgspec.Struct, frozen=True):
    """One pod, as a line of the table."""

    job: str  # the job's uid
    name: str  # role-index, or the pod's name where it has no slot
    role: str
    state: str
    uid: str = ""
    restarts: int = 0
    failed: bool = False  # by itself: it was neither told to go nor disrupted
    exit: str = ""
    born: float = 0.0
    started: float | None = None
    ended: float | None = None
    blocked: str = ""  # why it will never start
    due: float = 0.0  # when its node starts it again


def replica(pod: Json) -> Replica:
    """A pod, as a person sees it."""
    labels = labels_of(pod)
    role, index = role_of(pod).lower(), index_of(pod)
    fallback_name = labels.get("app") or name_of(pod)  # a pod beside the replicas: TensorBoard
    status = _as_dict(pod.get("status"))
    container_statuses = [
        container_status
        for container_status in status.get("containerStatuses") or []
        if isinstance(container_status, dict)
    ]
    init_statuses = [
        container_status
        for container_status in status.get("initContainerStatuses") or []
        if isinstance(container_status, dict)
    ]
    terminated_states = [
        _as_dict(_as_dict(container_status.get("state")).get("terminated")) for container_status in container_statuses
    ]
    end_times = [
        end
        for container_status in terminated_states
        if (end := parse_time(container_status.get("finishedAt"))) is not None
    ]
    has_ended = status.get("phase") in ("Succeeded", "Failed")
    state = _state(pod, status, [*init_statuses, *container_statuses])
    return Replica(
        job=labels.get(OWNER, ""),
        name=f"{role}-{index}" if role and index else fallback_name,
        role=role or fallback_name,
        state=state,
        uid=uid_of(pod),
        restarts=sum(int(container_status.get("restartCount") or 0) for container_status in container_statuses),
        failed=status.get("phase") == "Failed" and state != "Stopped" and not _disrupted(status),
        exit=_exit_text([container_status for container_status in terminated_states if container_status])
        if has_ended
        else "",
        born=parse_time(_as_dict(pod.get("metadata")).get("creationTimestamp")) or 0.0,
        started=parse_time(status.get("startTime")),
        ended=max(end_times) if has_ended and end_times else None,
        blocked=_missing_claim(status) or _blocked([*init_statuses, *container_statuses]),
        due=max(map(_back_off_end, [*init_statuses, *container_statuses]), default=0.0),
    )


def _disrupted(status: Json) -> bool:
    return is_true(status.get("conditions"), "DisruptionTarget") or status.get("reason") in DISRUPTIONS


def role_of(pod: Json) -> str:
    return str(labels_of(pod).get(ROLE) or "")


def index_of(pod: Json) -> str:
    labels = labels_of(pod)
    return str(labels.get(ORDINAL) or labels.get(INDEX) or "")


def _state(pod: Json, status: Json, containers: list[Json]) -> str:
    phase = str(status.get("phase") or "Pending")
    deletion_timestamp = _as_dict(pod.get("metadata")).get("deletionTimestamp")
    if phase == "Failed" and deletion_timestamp and _exit_codes(containers) <= STOPPED:
        return "Stopped"
    if phase in ("Succeeded", "Failed"):
        return str(status.get("reason") or phase) if phase == "Failed" else phase
    if deletion_timestamp:
        return "Terminating"
    for container in containers:
        waiting = _as_dict(_as_dict(container.get("state")).get("waiting"))
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return str(waiting["reason"])
    return phase


def _exit_codes(containers: list[Json]) -> set[object]:
    codes = (_as_dict(_as_dict(container.get("state")).get("terminated")).get("exitCode") for container in containers)
    return {code for code in codes if code}


def _exit_text(terminated_states: list[Json]) -> str:
    """The exit code that counts: the first that is not 0, with its reason where that says more than the code."""
    failed = next(
        (terminated for terminated in terminated_states if terminated.get("exitCode")),
        terminated_states[0] if terminated_states else {},
    )
    code, reason = failed.get("exitCode"), failed.get("reason")
    if code is None:
        return ""
    return f"{code} ({reason})" if reason not in (None, "", "Error", "Completed") else str(code)


_BACK_OFF = re.compile(r"back-off (?:(\d+)m)?(\d+)s ")


def _back_off_end(container: Json) -> float:
    """When the back-off of a container is over: its message says how long it is, from the end of its last run."""
    waiting = _as_dict(_as_dict(container.get("state")).get("waiting"))
    last_end = parse_time(_as_dict(_as_dict(container.get("lastState")).get("terminated")).get("finishedAt"))
    match = _BACK_OFF.match(str(waiting.get("message") or "")) if waiting.get("reason") == "CrashLoopBackOff" else None
    return 0.0 if match is None or last_end is None else last_end + 60 * int(match[1] or 0) + int(match[2])


def _blocked(containers: list[Json]) -> str:
    for container in containers:
        waiting = _as_dict(_as_dict(container.get("state")).get("waiting"))
        if waiting.get("reason") in BLOCKED:
            return f"{waiting['reason']}: {waiting.get('message') or container.get('image') or 'no message'}"
        if str(waiting.get("message") or "").startswith(MOUNT):
            return str(waiting["message"])
    return ""


def _missing_claim(status: Json) -> str:
    """Why no node takes the pod, where that is a claim."""
    scheduled = condition(status.get("conditions"), "PodScheduled") or {}
    missing = re.search(rf'{CLAIM} "([^"]+)" not found', str(scheduled.get("message") or ""))
    if scheduled.get("status") != "False" or not missing:
        return ""
    fix = f"add the PersistentVolumeClaim to the file, or name a folder of this machine: --mount {missing[1]}=DIR"
    return f"{missing[0]}; {fix}"


def _as_dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def result(job: Json) -> str:
    """Succeeded, Failed, or "" while the job goes on."""
    conditions = _as_dict(job.get("status")).get("conditions")
    return next((end for end in ("Succeeded", "Failed") if is_true(conditions, end)), "")


def ended(kind: Kind, job: Json) -> str:
    """As `result`, for a status that an operator before us has written, too."""
    return result(job) or kind.legacy_outcome(_as_dict(job.get("status")))


def word(job: Json) -> str:
    """One word about a job: its end, or the condition that holds now."""
    conditions = _as_dict(job.get("status")).get("conditions")
    if end := result(job):
        return end
    true_conditions = (
        condition_type
        for condition_type in ("Suspended", "Restarting", "Running", "Created")
        if is_true(conditions, condition_type)
    )
    return next(true_conditions, "Pending")


def why(job: Json) -> str:
    """The message of the job's end, or of what holds it up."""
    conditions = _as_dict(job.get("status")).get("conditions")
    for condition_type in ("Succeeded", "Failed", "NameConflict", "Blocked", "Degraded"):
        job_condition = condition(conditions, condition_type)
        if job_condition and job_condition.get("status") == "True":
            return str(job_condition.get("message") or job_condition.get("reason") or "")
    return ""


@dataclass(slots=True)
class Board:
    """Everything seen so far. Pods that are gone stay on it: the final table speaks of them too."""

    jobs: dict[str, Json] = field(default_factory=dict)  # by uid
    replicas: dict[str, Replica] = field(default_factory=dict)  # by the pod's uid
    deleted: set[str] = field(default_factory=set)  # uids of jobs that went before they ended
    waiting: dict[str, float] = field(default_factory=dict)  # since when a pod waits for what it refers to
    refused: dict[str, str] = field(default_factory=dict)  # why pods of an owner (by uid) cannot be made; see `waiting`

    def see_job(self, job: Json, now: float = 0.0) -> None:
        self.jobs[uid_of(job)] = job
        blocked_condition = condition(_as_dict(job.get("status")).get("conditions"), "Blocked") or {}
        if blocked_condition.get("status") == "True":
            self.see_refusal(uid_of(job), name_of(job), str(blocked_condition.get("message")), now)
        elif uid_of(job) in self.refused:
            self._clear_refusal(uid_of(job))

    def see_event(self, event: Json, now: float) -> None:
        involved_object = _as_dict(event.get("involvedObject"))
        if event.get("reason") == "FailedCreate":
            self.see_refusal(
                str(involved_object.get("uid")), str(involved_object.get("name")), str(event.get("message")), now
            )

    def see_refusal(self, owner: str, name: str, message: str, now: float) -> None:
        """A missing ServiceAccount may be on its way, as any other reference."""
        if (position := message.find(ACCOUNT)) >= 0:
            self.refused[owner] = f"{name}: {message[position:]}; add the ServiceAccount to the file"
            self.waiting.setdefault(owner, now)

    def _clear_refusal(self, owner: str) -> None:
        self.refused.pop(owner, None)
        self.waiting.pop(owner, None)

    def see_pod(self, pod: Json, now: float) -> None:
        pod_replica = replica(pod)
        if pod_replica.job not in self.jobs:
            return
        self.replicas[pod_replica.uid] = pod_replica
        self._clear_refusal(str((controller_of(pod) or {}).get("uid")))
        if pod_replica.blocked.startswith(PATIENTLY):
            self.waiting.setdefault(pod_replica.uid, now)
        else:
            self.waiting.pop(pod_replica.uid, None)

    def slots(self, job: str) -> list[Replica]:
        """The replicas of a job, each by its newest pod, restarts of all its pods together, in order of name."""
        by_name: dict[str, list[Replica]] = {}
        for pod_replica in self.replicas.values():
            if pod_replica.job == job:
                by_name.setdefault(pod_replica.name, []).append(pod_replica)
        job_object = self.jobs.get(job, {})
        return [_newest_replica(by_name[name], job_object) for name in sorted(by_name, key=natural)]

    def restarts(self, job: str) -> int:
        """Of the whole job: what its status says, or more where pods have shown more since."""
        job_object = self.jobs.get(job, {})
        stored = _count(_as_dict(job_object.get("status")).get("restarts"))
        return stored if _is_gang(job_object) else max(stored, sum(slot.restarts for slot in self.slots(job)))

    def label(self, one: Replica) -> str:
        """What stands before its log lines."""
        if len(self.jobs) < 2 or one.job not in self.jobs:
            return one.name
        return f"{name_of(self.jobs[one.job])}/{one.name}"

    def blocked(self, now: float) -> str:
        """The first replica that will never start, and why."""
        for pod_replica in self.replicas.values():
            if pod_replica.blocked and now >= self.waiting.get(pod_replica.uid, now - PATIENCE) + PATIENCE:
                return f"{self.label(pod_replica)}: {pod_replica.blocked}"
        return next((reason for owner, reason in self.refused.items() if now >= self.waiting[owner] + PATIENCE), "")

    def ended(self) -> bool:
        return bool(self.jobs) and all(result(job) or uid in self.deleted for uid, job in self.jobs.items())


def _newest_replica(pods: list[Replica], job: Json) -> Replica:
    """The newest pod of a slot, with the restarts of the slot."""
    *earlier, last = [pod for _, pod in sorted(enumerate(pods), key=lambda pair: (pair[1].born, pair[0]))]
    in_place = sum(pod.restarts for pod in pods)
    recreated = sum(pod.failed for pod in earlier)
    status = _as_dict(job.get("status"))
    if _is_gang(job):
        recreated, in_place = _count(status.get("restarts")), 0
    for name, role in _as_dict(status.get("roles")).items():  # pods that are gone: known where the role is one replica
        if name.lower() == last.role and _as_dict(role).get("replicas") == 1:
            recreated = max(recreated, _count(_as_dict(role).get("failures")) - last.failed)
    return replace(last, restarts=in_place + recreated)


def _is_gang(job: Json) -> bool:
    kind = kind_of(job)
    return kind is not None and kind.restart_scope == "gang"


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def natural(name: str) -> tuple[str, int, str]:
    head, _, tail = name.rpartition("-")
    return (head, int(tail), "") if tail.isdecimal() else (name, -1, tail)


def clock(seconds: float) -> str:
    """0:07, 12:34, 1:02:03."""
    total = max(0, int(seconds))
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def age(seconds: float) -> str:
    """12s, 3m, 5h, 4d: one unit is enough for a person."""
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{max(0, int(seconds)) // size}{unit}"
    return f"{int(seconds) // 86400}d"


def since(stamp: object, now: float) -> str:
    """How long ago that was; "" for what is no time."""
    timestamp = parse_time(stamp)
    return "" if timestamp is None else age(now - timestamp)


def tally(slots: list[Replica]) -> str:
    """worker: 2 Running, 1 Pending · ps: 1 Running."""
    texts = []
    for role in dict.fromkeys(slot.role for slot in slots):
        states: dict[str, int] = {}
        for slot in slots:
            if slot.role == role:
                states[slot.state] = states.get(slot.state, 0) + 1
        texts.append(f"{role}: " + ", ".join(f"{count} {state}" for state, count in states.items()))
    return " · ".join(texts)


def peers(job: Json, slots: list[Replica]) -> str:
    """waiting for peers: 1 of 2. Some replicas of a rendezvous run, and begin when enough of them do."""
    spec = _as_dict(job.get("spec"))
    min_replicas = spec.get("minReplicas", len(slots) if "rdzvEndpoint" in spec else None)
    if not isinstance(min_replicas, int) or isinstance(min_replicas, bool) or result(job):
        return ""
    present = sum(slot.state in ("Running", "Succeeded") for slot in slots)
    return f"waiting for peers: {present} of {min_replicas}" if 0 < present < min_replicas else ""


def progress(board: Board, elapsed: float | None, now: float = 0.0) -> str:
    """One line: each job's word, how many replicas of each role are in which state, what is waited for, restarts,
    elapsed time.

    Without the time (None) it changes only when something happened.
    """
    parts = [] if elapsed is None else [clock(elapsed)]
    for uid, job in board.jobs.items():
        slots = board.slots(uid)
        texts = [f"{name_of(job)} {word(job)}", *filter(None, [tally(slots), peers(job, slots)])]
        if elapsed is not None:
            texts += [f"{slot.name} starts again in {clock(slot.due - now)}" for slot in slots if slot.due > now][:1]
        if restarts := board.restarts(uid):
            texts.append(f"restarts: {restarts}")
        parts.append(" · ".join(texts))
    return "  ".join(parts)


def table(
    board: Board,
    now: float,
    cut_short: str = "",
    width: int = UNKNOWN_WIDTH,
    colour: bool = False,
    why_too: bool = True,
) -> list[str]:
    """The final table: a line per replica, then a line per job. `cut_short` says why jobs did not come to their end."""
    rows = [["JOB", "REPLICA", "STATE", "RESTARTS", "EXIT", "TIME"]]
    for uid, job in board.jobs.items():
        for slot in board.slots(uid):
            duration = "" if slot.started is None else clock((slot.ended or now) - slot.started)
            rows.append([name_of(job), slot.name, slot.state, str(slot.restarts), slot.exit, duration])
    lines = fitted(rows, width, colour)
    verdicts = [verdict(job, now, cut_short, colour, why_too) for job in board.jobs.values()]
    return [*(lines if len(rows) > 1 else []), *(line for text in verdicts for line in prose(text, width).split("\n"))]


def verdict(job: Json, now: float, cut_short: str = "", colour: bool = False, why_too: bool = True) -> str:
    """One sentence on how a job ended. Its reason is left out where more is said of that afterwards."""
    status = _as_dict(job.get("status"))
    start = parse_time(status.get("startTime")) or parse_time(_as_dict(job.get("metadata")).get("creationTimestamp"))
    end = parse_time(status.get("completionTime")) or now
    duration = f" after {clock(end - start)}" if start is not None else ""
    text = " ".join(why(job).split()) if why_too or result(job) == "Succeeded" else ""
    name = f"{job.get('kind', 'Job')} {namespace_of(job)}/{name_of(job)}"
    state = painted(word(job), colour)
    outcome = f"{cut_short} while {state}" if cut_short and not result(job) else state
    return f"{name}: {outcome}{duration}" + (f": {text}" if text else "")
