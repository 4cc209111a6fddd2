"""Observed children, from the wire into flat records.

Rules for this file:
- Decoding is partial: only the fields named here are read, so unknown and huge ones cost nothing.
- Every field may be missing: one odd object must not fail a whole list.
- Nothing is ever written back from a record.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from trainyard.core.model import Child
from trainyard.objects import parse_time
from trainyard.objects.labels import ATTEMPT, DIGEST, INDEX, OWNER, ROLE

DISRUPTIONS = frozenset({"Evicted", "Preempted", "Preempting", "Shutdown", "NodeShutdown", "NodeLost"})
"""Pod reasons that mean: the machine's affairs, not the program's (docs/rules.md S27)."""


_LONGEST = 512  # characters of what somebody else has said


class Container(NamedTuple):
    """What one container of a pod does. `state` is waiting, running or terminated. `code` is that of its end; while it
    waits or runs, that of its end before, which the node has answered by starting it again."""

    name: str
    state: str
    code: int
    reason: str
    restarts: int
    init: bool


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


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
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


class _Spec(msgspec.Struct, gc=False):
    replicas: Any = None
    restartPolicy: Any = None


class _Object(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: _Meta | None = None
    spec: _Spec | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Object)


def child_of(obj: bytes | dict[str, Any], kind: str = "") -> Child:
    """The record of one object, given as JSON or decoded. `kind` is for list items, which do not name theirs.

    Raises ValueError when it is not an object of the shape that the API server promises.
    """
    try:
        wire = msgspec.convert(obj, _Object, strict=False) if isinstance(obj, dict) else _decoder.decode(obj)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"cannot read a {kind or 'child'}: {error}") from None
    meta = wire.metadata or _Meta()
    status = wire.status or _Status()
    kind = kind or wire.kind
    owner = next((one for one in meta.ownerReferences or () if one.controller), None)
    labels = meta.labels or {}
    fields: dict[str, Any] = {}
    if kind == "Pod":
        fields = _pod_fields(status)
        policy = wire.spec.restartPolicy if wire.spec else None
        fields |= {
            "restarts_containers": policy in ("Always", "OnFailure"),
            "always_restarts": policy == "Always",
        }
    elif kind == "Job":
        fields = _job_fields(status)
    elif kind == "StatefulSet":
        size = wire.spec.replicas if wire.spec else None
        fields = {"replicas": size if isinstance(size, int) else 1}
    elif kind == "Deployment":
        fields = _deployment_fields(status)
    return Child(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        revision=meta.resourceVersion,
        job=labels.get(OWNER, ""),
        owner=owner.uid if owner else "",
        role=labels.get(ROLE, ""),
        index=_number(labels.get(INDEX), -1),
        attempt=_number(labels.get(ATTEMPT), 0),
        digest=labels.get(DIGEST, ""),
        deleting=meta.deletionTimestamp is not None,
        delete_deadline=parse_time(meta.deletionTimestamp) or 0.0,
        created=parse_time(meta.creationTimestamp) or 0.0,
        started=parse_time(status.startTime) or 0.0,
        **fields,
    )


def containers(pod: Child) -> list[Container]:
    """The containers of a pod record, init containers first."""
    found = []
    for line in filter(None, pod.containers.split("\n")):
        name, state, code, reason, restarts, init = line.split("|")
        found.append(Container(name, state, int(code), reason, int(restarts), init == "i"))
    return found


def encode_containers(*given: Container) -> str:
    """The text that `containers` reads back."""
    clean = _without_separators
    return "\n".join(
        f"{clean(c.name)}|{c.state}|{c.code}|{clean(c.reason)}|{c.restarts}|{'i' if c.init else ''}" for c in given
    )


def _without_separators(text: str) -> str:
    """A text that anybody may have written, without what separates the fields of a line."""
    return text.translate(_SEPARATORS) if "|" in text or "\n" in text else text


_SEPARATORS = str.maketrans("|\n", "  ")


def _pod_fields(status: _Status) -> dict[str, Any]:
    conditions = {one.type: one for one in status.conditions or ()}
    disruption = conditions.get("DisruptionTarget")
    scheduled = conditions.get("PodScheduled")
    waiting = scheduled if scheduled and scheduled.status == "False" else None
    lines: list[Container] = []
    ended = 0.0
    message = status.message or (waiting.message if waiting else "") or ""
    for init, statuses in ((True, status.initContainerStatuses), (False, status.containerStatuses)):
        for one in statuses or ():
            lines.append(_container(one, init))
            state = one.state
            if state and state.terminated:
                ended = max(ended, parse_time(state.terminated.finishedAt) or 0.0)
                message = message or _last_line(state.terminated)
            if state and state.waiting and state.waiting.message:
                message = message or state.waiting.message
    disrupted = disruption is not None and disruption.status == "True"
    by = disruption.reason if disruption and disrupted else ""
    reason = status.reason or by or (waiting.reason if waiting else "") or ""
    return {
        "phase": status.phase,
        "reason": reason,
        "message": message[:_LONGEST],
        "ended": ended,
        "disrupted": disrupted or reason in DISRUPTIONS,
        "containers": encode_containers(*lines),
    }


_RAISED = re.compile(r"(\[[^\]]*\]:)?\s*[A-Za-z_][\w.]*(Error|Exception|Failed|Closed|Interrupt)\b")


def _last_line(end: _Terminated) -> str:
    """What a container that failed has left to say: the last exception in its termination message, else the last line
    that is one. What a launcher says about its child comes after the child's own words, and says less."""
    lines = [line.strip() for line in end.message.splitlines() if re.search(r"\w", line)] if end.exitCode else []
    raised = [line for line in lines if _RAISED.match(line) and "ChildFailedError" not in line]
    return (raised or lines or [""])[-1][:_LONGEST]


def _container(status: _ContainerStatus, init: bool) -> Container:
    state = status.state or _State()
    if state.terminated is not None:
        end = state.terminated
        return Container(status.name, "terminated", end.exitCode, end.reason, status.restartCount, init)
    before = status.lastState.terminated if status.lastState else None
    code = before.exitCode if before else 0
    if state.running is not None:
        return Container(status.name, "running", code, "", status.restartCount, init)
    reason = state.waiting.reason if state.waiting else ""
    return Container(status.name, "waiting", code, reason, status.restartCount, init)


def _job_fields(status: _Status) -> dict[str, Any]:
    failed = {"failed_pods": status.failed} if 0 < (status.failed or 0) < 2**31 else {}
    for one in status.conditions or ():
        if one.type in ("Complete", "Failed") and one.status == "True":
            return {
                **failed,
                "phase": one.type,
                "reason": one.reason or "",
                "message": (one.message or "")[:_LONGEST],
                "ended": parse_time(status.completionTime) or parse_time(one.lastTransitionTime) or 0.0,
            }
    if status.succeeded:
        return {**failed, "phase": "Complete", "ended": parse_time(status.completionTime) or 0.0}
    return failed


def _deployment_fields(status: _Status) -> dict[str, Any]:
    """Why it cannot make a pod, or gets none to run for long; nothing while all is well."""
    for one in status.conditions or ():
        if (one.type, one.status) in (("ReplicaFailure", "True"), ("Progressing", "False")):
            return {"reason": one.reason or one.type, "message": (one.message or "")[:_LONGEST]}
    return {}


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else default
