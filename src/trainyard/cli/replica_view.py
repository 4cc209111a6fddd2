"""The displayed state of a replica, computed from its pod. Pure.

A replica is a slot of a job: role and index, from the labels of the job's pods (the pods of a StatefulSet have the same
labels, and their index is in the pod-index label).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from trainyard.core.children import DISRUPTIONS
from trainyard.objects import Json, find_condition, is_condition_true, labels_of, name_of, parse_time, uid_of
from trainyard.objects.labels import INDEX, OWNER, ROLE

ORDINAL = "apps.kubernetes.io/pod-index"  # the label with the ordinal of a StatefulSet's pod

# A container that waits with one of BLOCKING_REASONS never starts: in a private cluster no other client can correct the
# cause. An object that the pod refers to may still be created within REFERENCE_TIMEOUT.
REFERENCE_TIMEOUT = 10.0  # seconds
REFERENCE = "CreateContainerConfigError"
MOUNT, MISSING_CLAIM_PREFIX = "MountVolume.SetUp failed", "persistentvolumeclaim"
# Prefixes of Replica.blocked for which REFERENCE_TIMEOUT is waited.
TEMPORARY_BLOCK_PREFIXES = (REFERENCE, MOUNT, MISSING_CLAIM_PREFIX)
SIGNAL_EXIT_CODES = frozenset({137, 143})  # exit codes of containers that SIGKILL or SIGTERM ended
BLOCKING_REASONS = frozenset(
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
    """The displayed state of one pod: a row of the table. Times are in seconds since the epoch."""

    job: str  # the job's uid
    name: str  # role-index, or the pod's name where it has no slot
    role: str
    state: str
    uid: str = ""
    restarts: int = 0
    failed: bool = False  # phase Failed without a deletion or a disruption
    exit: str = ""
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    blocked: str = ""  # the reason why it never starts; "" if it may start
    back_off_end: float = 0.0  # the end of the restart back-off; 0.0 for none


def replica(pod: Json) -> Replica:
    """The displayed state of a pod."""
    labels = labels_of(pod)
    role, index = role_of(pod).lower(), index_of(pod)
    fallback_name = labels.get("app") or name_of(pod)  # for a pod that is no replica: TensorBoard
    status = as_dict(pod.get("status"))
    containers = [container for container in status.get("containerStatuses") or [] if isinstance(container, dict)]
    inits = [container for container in status.get("initContainerStatuses") or [] if isinstance(container, dict)]
    terminated_states = [as_dict(as_dict(container.get("state")).get("terminated")) for container in containers]
    end_times = [end for state in terminated_states if (end := parse_time(state.get("finishedAt"))) is not None]
    has_ended = status.get("phase") in ("Succeeded", "Failed")
    state = _state(pod, status, [*inits, *containers])
    return Replica(
        job=labels.get(OWNER, ""),
        name=f"{role}-{index}" if role and index else fallback_name,
        role=role or fallback_name,
        state=state,
        uid=uid_of(pod),
        restarts=sum(int(container.get("restartCount") or 0) for container in containers),
        failed=status.get("phase") == "Failed" and state != "Stopped" and not _disrupted(status),
        exit=_exit_text([terminated for terminated in terminated_states if terminated]) if has_ended else "",
        created=parse_time(as_dict(pod.get("metadata")).get("creationTimestamp")) or 0.0,
        started=parse_time(status.get("startTime")),
        ended=max(end_times) if has_ended and end_times else None,
        blocked=_missing_claim(status) or _blocked([*inits, *containers]),
        back_off_end=max(map(_back_off_end, [*inits, *containers]), default=0.0),
    )


def _disrupted(status: Json) -> bool:
    return is_condition_true(status.get("conditions"), "DisruptionTarget") or status.get("reason") in DISRUPTIONS


def role_of(pod: Json) -> str:
    return str(labels_of(pod).get(ROLE) or "")


def index_of(pod: Json) -> str:
    labels = labels_of(pod)
    return str(labels.get(ORDINAL) or labels.get(INDEX) or "")


def _state(pod: Json, status: Json, containers: list[Json]) -> str:
    phase = str(status.get("phase") or "Pending")
    deletion_timestamp = as_dict(pod.get("metadata")).get("deletionTimestamp")
    if phase == "Failed" and deletion_timestamp and _exit_codes(containers) <= SIGNAL_EXIT_CODES:
        return "Stopped"
    if phase in ("Succeeded", "Failed"):
        return str(status.get("reason") or phase) if phase == "Failed" else phase
    if deletion_timestamp:
        return "Terminating"
    for container in containers:
        waiting = as_dict(as_dict(container.get("state")).get("waiting"))
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return str(waiting["reason"])
    return phase


def _exit_codes(containers: list[Json]) -> set[object]:
    codes = (as_dict(as_dict(container.get("state")).get("terminated")).get("exitCode") for container in containers)
    return {code for code in codes if code}


def _exit_text(terminated_states: list[Json]) -> str:
    """The first exit code that is not 0, else the first; with its reason unless that is Error or Completed."""
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
    """The end of a container's CrashLoopBackOff: the end of its last run plus the duration in the waiting message."""
    waiting = as_dict(as_dict(container.get("state")).get("waiting"))
    last_end = parse_time(as_dict(as_dict(container.get("lastState")).get("terminated")).get("finishedAt"))
    match = _BACK_OFF.match(str(waiting.get("message") or "")) if waiting.get("reason") == "CrashLoopBackOff" else None
    return 0.0 if match is None or last_end is None else last_end + 60 * int(match[1] or 0) + int(match[2])


def _blocked(containers: list[Json]) -> str:
    for container in containers:
        waiting = as_dict(as_dict(container.get("state")).get("waiting"))
        if waiting.get("reason") in BLOCKING_REASONS:
            return f"{waiting['reason']}: {waiting.get('message') or container.get('image') or 'no message'}"
        if str(waiting.get("message") or "").startswith(MOUNT):
            return str(waiting["message"])
    return ""


def _missing_claim(status: Json) -> str:
    """The reason why the pod is unschedulable, if that is a missing PersistentVolumeClaim; else ""."""
    scheduled = find_condition(status.get("conditions"), "PodScheduled") or {}
    missing = re.search(rf'{MISSING_CLAIM_PREFIX} "([^"]+)" not found', str(scheduled.get("message") or ""))
    if scheduled.get("status") != "False" or not missing:
        return ""
    fix = f"add the PersistentVolumeClaim to the file, or name a folder of this machine: --mount {missing[1]}=DIR"
    return f"{missing[0]}; {fix}"


def as_dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
