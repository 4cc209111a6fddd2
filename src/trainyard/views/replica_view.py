"""The displayed state of a replica. `get`, `describe`, `why`, the table of `run` and the history all use it.

State, restarts, exit code and reason are those that the operator reads from the pod (core/children.py); nothing is
worked out again here. Only the messages about what blocks a pod, which the operator does not need, are read from the
pod itself.

A replica is a slot of a job: role and index, from the labels of the job's pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from trainyard.core import Child, ChildStatus, Job, decode_child
from trainyard.core.carriers.terminations import restarts_of_pod
from trainyard.core.children import ContainerRecord, decode_containers
from trainyard.objects import Json, as_dict, find_condition, labels_of, name_of, namespace_of, parse_time, uid_of
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.labels import OWNER, index_of, replica_name, role_of
from trainyard.views.memory import MemoryPeak, device_peak, memory_peak

T = TypeVar("T")

# A container that waits with one of BLOCKING_REASONS never starts: in a private cluster no other client can correct the
# cause. An object that the pod refers to may still be created within REFERENCE_TIMEOUT.
REFERENCE_TIMEOUT = 10.0  # seconds
REFERENCE = "CreateContainerConfigError"
MOUNT, MISSING_CLAIM_PREFIX = "MountVolume.SetUp failed", "persistentvolumeclaim"
# Prefixes of ReplicaView.blocked for which REFERENCE_TIMEOUT is waited.
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


class ReplicaView(msgspec.Struct, frozen=True, rename="camel"):
    """The displayed state of one pod: a row of a table of replicas. Its JSON (`msgspec.to_builtins`) has the fields
    below in camelCase. Times are in seconds since the epoch."""

    job: str  # the job's uid
    name: str  # role-index, or the pod's name where it has no slot
    role: str  # in lower case
    state: str
    index: str = ""  # "" for a pod that is no replica
    pod: str = ""  # the pod's name
    uid: str = ""  # the pod's uid
    node: str = ""
    attempt: int = 0
    restarts: int = 0
    failed: bool = False  # phase Failed without a deletion or a disruption
    exit_code: int | None = None  # of an ended pod
    reason: str = ""  # of the container with that exit code
    created: float = 0.0
    started: float | None = None
    ended_at: float | None = msgspec.field(default=None, name="ended")
    blocked: str = ""  # the reason why it never starts; "" if it may start
    back_off_end: float = 0.0  # the end of the restart back-off; 0.0 for none
    peak_memory: int = 0  # the largest memory in bytes of the last ended run of one of its containers; 0 if unknown
    memory_limit: str = ""  # of that container
    peak_device_memory: int = 0  # the largest memory on GPUs in bytes of the last ended run of one of its containers

    @property
    def exit(self) -> str:
        """The exit code as text, with its reason unless that is Error or Completed; "" for a pod that has not ended."""
        if self.exit_code is None:
            return ""
        is_named = self.reason not in ("", "Error", "Completed")
        return f"{self.exit_code} ({self.reason})" if is_named else str(self.exit_code)


def replica_view(pod: Json, job: Job | None = None) -> ReplicaView:
    """The displayed state of a pod. Which of several containers' restarts count is known with its job alone."""
    record = read_pod(pod)
    containers = decode_containers(record)
    state = _state(record, containers)
    has_ended = record.phase in ("Succeeded", "Failed")
    container = _exit_container(containers) if has_ended else None
    status = as_dict(pod.get("status"))
    statuses = container_statuses(status)
    peak = max((memory_peak(pod, entry) for entry in statuses), default=MemoryPeak())
    return ReplicaView(
        job=record.job_uid,
        name=replica_name(pod),
        role=role_of(pod).lower() or replica_name(pod),
        state=state,
        index=index_of(pod),
        pod=record.name,
        uid=record.uid,
        node=str(as_dict(pod.get("spec")).get("nodeName") or ""),
        attempt=record.attempt,
        restarts=restarts_of_pod(record, job),
        failed=record.phase == "Failed" and state != "Stopped" and not record.disrupted,
        exit_code=container.exit_code if container else None,
        reason=container.reason if container else "",
        created=record.created,
        started=record.start_time or None,
        ended_at=(record.finished_at or None) if has_ended else None,
        blocked=_missing_claim(status) or _blocked(statuses),
        back_off_end=max(map(_back_off_end, statuses), default=0.0),
        peak_memory=peak.size,
        memory_limit=peak.limit if peak.size else "",
        peak_device_memory=max((device_peak(pod, entry) for entry in statuses), default=0),
    )


def read_pod(pod: Json) -> Child:
    """The pod as the operator reads it. A pod that it cannot read, because a field has a wrong type, has no state."""
    try:
        return decode_child(pod, "Pod")
    except ValueError:
        owner = str(labels_of(pod).get(OWNER) or "")
        return Child(
            kind="Pod",
            namespace=namespace_of(pod),
            name=name_of(pod),
            uid=uid_of(pod),
            job_uid=owner,
            status=ChildStatus(phase="Unknown"),
        )


def group_by_slot(items: Iterable[T], replica_of: Callable[[T], ReplicaView]) -> dict[str, list[T]]:
    """The pods of each slot by its name, each list from the oldest to the newest. `replica_of` returns the view of an
    item."""
    slots: dict[str, list[T]] = {}
    for item in sorted(items, key=lambda item: replica_of(item).created):
        slots.setdefault(replica_of(item).name, []).append(item)
    return slots


def _state(pod: Child, containers: Sequence[ContainerRecord]) -> str:
    """A word for the state: as in kubectl the reason of a failed pod or of a waiting container, else the phase."""
    if pod.phase == "Failed":
        ended = [container for container in containers if container.state == "terminated" and not container.sidecar]
        codes = {container.exit_code for container in ended}
        return "Stopped" if pod.deleting and codes <= SIGNAL_EXIT_CODES | {0} else pod.reason or pod.phase
    if pod.phase == "Succeeded":
        return pod.phase
    if pod.deleting:
        return "Terminating"
    reasons = (container.reason for container in containers if container.state == "waiting")
    return next((reason for reason in reasons if reason not in ("", "PodInitializing")), pod.phase or "Pending")


def _exit_container(containers: Sequence[ContainerRecord]) -> ContainerRecord | None:
    """The ended container whose exit code is shown: the first whose code is not 0, else the first one. A sidecar, which
    is stopped after the others, is not shown."""
    ended = [container for container in containers if container.state == "terminated" and not container.sidecar]
    ended = [container for container in ended if container.exit_code or not container.init]
    return next((container for container in ended if container.exit_code), ended[0] if ended else None)


_BACK_OFF = re.compile(r"back-off (?:(\d+)m)?(\d+)s ")


def _back_off_end(container: ContainerStatus) -> float:
    """The end of a container's CrashLoopBackOff: the end of its last run plus the duration in the waiting message."""
    waiting = container.state("waiting") or {}
    last_end = parse_time((container.last_terminated or {}).get("finishedAt"))
    match = _BACK_OFF.match(str(waiting.get("message") or "")) if waiting.get("reason") == "CrashLoopBackOff" else None
    return 0.0 if match is None or last_end is None else last_end + 60 * int(match[1] or 0) + int(match[2])


def _blocked(containers: list[ContainerStatus]) -> str:
    for container in containers:
        waiting = container.state("waiting") or {}
        if waiting.get("reason") in BLOCKING_REASONS:
            return f"{waiting['reason']}: {waiting.get('message') or container.status.get('image') or 'no message'}"
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
