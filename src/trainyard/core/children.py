"""Decodes observed children, from JSON into flat `Child` records.

Rules for this file:
- Decoding is partial: only the fields named here are read, so unknown and large fields cost nothing.
- Every field may be missing: one malformed object must not fail a whole list.
- A record is never written back to the API server.
- Equal texts, times and statuses of different records are one object in memory (`_shared`, `_parse_time`,
  `_shared_status`): the pods of a job have one owner, a pod and its Service one name, and thousands of
  running pods the same containers.

Container statuses are decoded here, and not by `objects/container_statuses.py`: msgspec decodes a pod straight into the
structs below, so that the operator makes no dicts of the thousands of pods that it lists.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import msgspec

from trainyard.core.failure_lines import failure_line
from trainyard.core.model import NO_STATUS, Child, ChildStatus
from trainyard.objects import as_dict, parse_time
from trainyard.objects.container_restarts import ContainerRestartPolicy, restart_policy
from trainyard.objects.labels import ATTEMPT, DIGEST, EXEC_SESSION, INDEX, OWNER, ROLE
from trainyard.objects.no_progress import NO_PROGRESS
from trainyard.objects.usage import PROGRESS

DISRUPTIONS = frozenset({"Evicted", "Preempted", "Preempting", "Shutdown", "NodeShutdown", "NodeLost"})
"""Pod reasons of a disruption, which is no failure of the program (docs/rules.md S27)."""


QUEUE_NAME, ADMISSION_GATE = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/admission"
"""The label that puts an object in a queue of Kueue, and the scheduling gate of a Pod that waits in one."""
GROUP_SCHEDULED = "PodGroupInitiallyScheduled"
"""The condition of a PodGroup of scheduling.k8s.io. True for ever once all members have been placed."""
_MAX_MESSAGE = 512  # characters of a message in the pod's, Job's or Deployment's status

_shared = sys.intern
_parse_time = lru_cache(maxsize=1024)(parse_time)


@lru_cache(maxsize=1024)
def _shared_status(status: ChildStatus) -> ChildStatus:
    return status


class ContainerRecord(msgspec.Struct, frozen=True):
    """The status of one container of a pod. `state` is waiting, running or terminated. `exit_code` is the exit code of
    its termination; while it waits or runs, that of its last termination, after which the kubelet restarted it.
    `reason` is that of its state, while it runs "", and `last_reason` that of that last termination.
    `restarts`: it is terminated, and the kubelet restarts it unless the pod has ended; `sidecar`: an init container
    that runs beside the containers."""

    name: str
    state: str
    exit_code: int
    reason: str
    restart_count: int
    init: bool
    restarts: bool = False
    sidecar: bool = False
    last_reason: str = ""


class _Terminated(msgspec.Struct, gc=False):
    exitCode: int = 0
    reason: str = ""
    message: str = ""
    finishedAt: str | None = None


class _Waiting(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, gc=False):
    running: dict[str, Any] | None = None
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, gc=False):
    name: str = ""
    state: _State | None = None
    lastState: _State | None = None
    restartCount: int = 0
    containerID: str = ""


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""
    controller: bool | None = None


class _Annotations(msgspec.Struct, gc=False):
    no_progress: str | None = msgspec.field(default=None, name=NO_PROGRESS)
    progress: str | None = msgspec.field(default=None, name=PROGRESS)


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None
    ownerReferences: list[_Owner] | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    startTime: str | None = None
    completionTime: str | None = None
    succeeded: int | None = None
    failed: int | None = None
    conditions: list[_Condition] | None = None
    containerStatuses: list[_ContainerStatus] | None = None
    initContainerStatuses: list[_ContainerStatus] | None = None


class _ContainerSpec(msgspec.Struct, gc=False):
    name: str = ""
    restartPolicy: Any = None
    restartPolicyRules: Any = None


class _SchedulingGroup(msgspec.Struct, gc=False):
    podGroupName: Any = None


class _Template(msgspec.Struct, gc=False):
    spec: _Spec | None = None


class _Spec(msgspec.Struct, gc=False):
    replicas: Any = None
    restartPolicy: Any = None
    containers: list[_ContainerSpec] | None = None
    initContainers: list[_ContainerSpec] | None = None
    suspend: Any = None
    schedulingGates: Any = None
    schedulingGroup: _SchedulingGroup | None = None
    template: _Template | None = None


class _Object(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: _Meta | None = None
    spec: _Spec | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Object)


# Longer than 40 lines: the table of the fields of a child. It decodes each object and watch event, so that calls count.
def decode_child(obj: bytes | dict[str, Any], kind: str = "") -> Child:
    """The record of one object, from JSON or decoded JSON. `kind` is for list items, which have no field `kind`.

    Raises ValueError when a field has a type that the API does not allow.
    """
    try:
        wire = msgspec.convert(obj, _Object, strict=False) if isinstance(obj, dict) else _decoder.decode(obj)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"cannot read a {kind or 'child'}: {error}") from None
    meta = wire.metadata or _Meta()
    status = wire.status or _Status()
    kind = kind or wire.kind
    owner = next((reference for reference in meta.ownerReferences or () if reference.controller), None)
    labels = meta.labels or {}
    fields: dict[str, Any] = {}
    if kind == "Pod":
        fields = _pod_fields(status, wire.spec or _Spec())
        if meta.annotations and meta.annotations.no_progress:
            fields["no_progress"] = meta.annotations.no_progress[:_MAX_MESSAGE]
        if meta.annotations and meta.annotations.progress:
            fields["progress"] = meta.annotations.progress
    elif kind == "Job":
        fields = _job_fields(status)
    elif kind == "StatefulSet":
        size = wire.spec.replicas if wire.spec else None
        fields = {"replicas": size if isinstance(size, int) else 1}
    elif kind == "PodGroup":
        fields = _pod_group_fields(status) | _group_spec_fields(obj)
    elif kind == "Deployment":
        fields = _deployment_fields(status)
    if wire.spec is not None and (group := _pod_group(wire.spec)):
        fields["pod_group"] = group
    if QUEUE_NAME in labels and wire.spec is not None and _is_held(wire.spec):
        fields["queue"] = _shared(labels[QUEUE_NAME])
    finished_at = fields.pop("finished_at", 0.0)
    return Child(
        kind=kind,
        namespace=_shared(meta.namespace),
        name=_shared(meta.name),
        uid=meta.uid,
        resource_version=meta.resourceVersion,
        job_uid=_shared(labels.get(OWNER, "")),
        owner_uid=_shared(owner.uid) if owner else "",
        role=_shared(labels.get(ROLE, "")),
        index=_parse_number(labels.get(INDEX), -1),
        attempt=_parse_number(labels.get(ATTEMPT), 0),
        digest=_shared(labels.get(DIGEST, "")),
        deleting=meta.deletionTimestamp is not None,
        delete_deadline=_parse_time(meta.deletionTimestamp) or 0.0,
        held_by_finalizers=meta.deletionTimestamp is not None and meta.deletionGracePeriodSeconds == 0,
        created=_parse_time(meta.creationTimestamp) or 0.0,
        start_time=_parse_time(status.startTime) or 0.0,
        finished_at=finished_at,
        status=_shared_status(ChildStatus(**fields)) if fields else NO_STATUS,
    )


def _pod_group(spec: _Spec) -> str:
    """The PodGroup of Kubernetes that a pod, or those of a template, are members of; "" for none."""
    template = spec.template.spec if spec.template else None
    group = spec.schedulingGroup or (template.schedulingGroup if template else None)
    return _shared(group.podGroupName) if group and isinstance(group.podGroupName, str) else ""


def _is_held(spec: _Spec) -> bool:
    """Whether Kueue holds a Job or a Pod that it has put in a queue by itself. The operator suspends no Job."""
    gates = spec.schedulingGates if isinstance(spec.schedulingGates, list) else []
    return spec.suspend is True or {"name": ADMISSION_GATE} in gates


def decode_containers(pod: Child) -> tuple[ContainerRecord, ...]:
    """The containers of a pod record, init containers first."""
    return _decode_containers(pod.containers)


@lru_cache(maxsize=1024)  # a plan reads the containers of each pod four times, and most pods have equal ones
def _decode_containers(text: str) -> tuple[ContainerRecord, ...]:
    records = []
    for line in filter(None, text.split("\n")):
        name, state, code, reason, restarts, flags, last_reason = line.split("|")
        init, restarted, sidecar = "i" in flags, "r" in flags, "s" in flags
        records.append(
            ContainerRecord(name, state, int(code), reason, int(restarts), init, restarted, sidecar, last_reason)
        )
    return tuple(records)


def encode_containers(*records: ContainerRecord) -> str:
    """The text of `Child.containers`, which decode_containers reads."""
    clean = _without_separators
    return "\n".join(
        f"{clean(record.name)}|{record.state}|{record.exit_code}|{clean(record.reason)}|{record.restart_count}|"
        f"{'i' if record.init else ''}{'r' if record.restarts else ''}{'s' if record.sidecar else ''}|"
        f"{clean(record.last_reason)}"
        for record in records
    )


def _without_separators(text: str) -> str:
    """The text with spaces for the characters that separate fields and lines: a name or reason may have any text."""
    return text.translate(_SEPARATORS) if "|" in text or "\n" in text else text


_SEPARATORS = str.maketrans("|\n", "  ")


def _pod_fields(status: _Status, spec: _Spec) -> dict[str, Any]:
    conditions = {condition.type: condition for condition in status.conditions or ()}
    disruption = conditions.get("DisruptionTarget")
    all_restart = conditions.get("AllContainersRestarting")
    restarting = all_restart is not None and all_restart.status == "True"
    policies = _restart_policies(spec)
    scheduled = conditions.get("PodScheduled")
    unscheduled = scheduled if scheduled and scheduled.status == "False" else None
    records: list[ContainerRecord] = []
    ended = 0.0
    disrupted = disruption is not None and disruption.status == "True"
    cause = disruption if disrupted else unscheduled
    message = status.message or (cause.message if cause else "") or ""
    for init, statuses in ((True, status.initContainerStatuses), (False, status.containerStatuses)):
        for container_status in statuses or ():
            records.append(_container(container_status, init, policies.get(container_status.name), restarting))
            state = container_status.state
            if state and state.terminated:
                ended = max(ended, _parse_time(state.terminated.finishedAt) or 0.0)
                message = message or failure_line(state.terminated.message, state.terminated.exitCode)[:_MAX_MESSAGE]
            if state and state.waiting and state.waiting.message:
                message = message or state.waiting.message
    reason = status.reason or (cause.reason if cause else "") or ""
    if not ended and disrupted and disruption and status.phase == "Failed":  # a node that is gone tells no end
        ended = _parse_time(disruption.lastTransitionTime) or 0.0
    return {
        "phase": _shared(status.phase),
        "reason": _shared(reason),
        "message": message[:_MAX_MESSAGE],
        "finished_at": ended,
        "disrupted": disrupted or reason in DISRUPTIONS,
        "had_exec": conditions[EXEC_SESSION].status if EXEC_SESSION in conditions else "",
        "is_scheduled": scheduled is not None and scheduled.status == "True",
        "has_runtime": any(container.containerID for container in status.containerStatuses or ()),
        "containers": _shared(encode_containers(*records)),
    }


def _restart_policies(spec: _Spec) -> dict[str, ContainerRestartPolicy]:
    """Container name -> when the kubelet restarts it."""
    pod_policy = spec.restartPolicy if isinstance(spec.restartPolicy, str) else ""
    return {
        container.name: restart_policy(
            {"restartPolicy": container.restartPolicy, "restartPolicyRules": container.restartPolicyRules},
            pod_policy,
            init=init,
        )
        for init, containers in ((True, spec.initContainers), (False, spec.containers))
        for container in containers or ()
    }


def _container(
    status: _ContainerStatus, init: bool, policy: ContainerRestartPolicy | None, all_restart: bool
) -> ContainerRecord:
    """`all_restart`: all containers of the pod are being restarted, whatever their exit codes."""
    state = status.state or _State()
    sidecar = policy is not None and policy.sidecar
    if (terminated := state.terminated) is not None:
        code, reason = terminated.exitCode, terminated.reason
        restarts = all_restart or (policy is not None and policy.action(code) != "")
        return ContainerRecord(status.name, "terminated", code, reason, status.restartCount, init, restarts, sidecar)
    last = status.lastState.terminated if status.lastState else None
    code, last_reason = (last.exitCode, last.reason) if last else (0, "")
    current = "waiting" if state.running is None else "running"
    reason = state.waiting.reason if state.waiting and state.running is None else ""
    return ContainerRecord(
        status.name, current, code, reason, status.restartCount, init, sidecar=sidecar, last_reason=last_reason
    )


def _pod_group_fields(status: _Status) -> dict[str, Any]:
    """A PodGroup of Volcano or scheduler-plugins has a phase; that of Kubernetes has a condition instead, whose reason
    (Scheduled, Unschedulable, SchedulerError) counts as its phase."""
    conditions = {condition.type: condition for condition in status.conditions or ()}
    placed = conditions.get(GROUP_SCHEDULED)
    if placed is None:
        return {"phase": status.phase}
    return {"phase": _shared(placed.reason or ""), "message": (placed.message or "")[:_MAX_MESSAGE]}


def _group_spec_fields(obj: bytes | dict[str, Any]) -> dict[str, Any]:
    """ChildStatus.spec_fields and min_count."""
    wire = obj if isinstance(obj, dict) else msgspec.json.decode(obj)
    spec = wire.get("spec")
    paths: list[tuple[str, ...]] = []
    for name, value in spec.items() if isinstance(spec, dict) else ():
        paths.append((_shared(name),))
        paths += [(_shared(name), _shared(entry)) for entry in value] if isinstance(value, dict) else []
    gang = as_dict(as_dict(as_dict(spec).get("schedulingPolicy")).get("gang"))
    count = gang.get("minCount")
    return {"spec_fields": tuple(paths), "min_count": count if isinstance(count, int) else 0}


def _job_fields(status: _Status) -> dict[str, Any]:
    failed = {"failed_pods": status.failed} if 0 < (status.failed or 0) < 2**31 else {}
    for condition in status.conditions or ():
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return {
                **failed,
                "phase": condition.type,
                "reason": condition.reason or "",
                "message": (condition.message or "")[:_MAX_MESSAGE],
                "finished_at": _parse_time(status.completionTime) or _parse_time(condition.lastTransitionTime) or 0.0,
            }
    if status.succeeded:
        return {**failed, "phase": "Complete", "finished_at": _parse_time(status.completionTime) or 0.0}
    return failed


def _deployment_fields(status: _Status) -> dict[str, Any]:
    """Reason and message of the condition ReplicaFailure or a failed Progressing; empty if neither is present."""
    for condition in status.conditions or ():
        if (condition.type, condition.status) in (("ReplicaFailure", "True"), ("Progressing", "False")):
            return {"reason": condition.reason or condition.type, "message": (condition.message or "")[:_MAX_MESSAGE]}
    return {}


def _parse_number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else default
