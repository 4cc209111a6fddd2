"""All about one job: the content of `trainyard describe` and of the page of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from trainyard.core import Job, decode_child
from trainyard.core.job_state import RestartCause
from trainyard.objects import Json, as_dict, labels_of, name_of, operator_status, parse_time, uid_of
from trainyard.views.event_view import EventView, event_view
from trainyard.views.job_row import JobRow, job_row
from trainyard.views.job_view import JobView
from trainyard.views.replica_view import ReplicaView


class ContainerDetails(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a role's template. `command`: its command and args, joined by spaces."""

    name: str
    image: str
    command: str


class RoleDetails(msgspec.Struct, frozen=True, rename="camel"):
    """A role of the spec. `containers`: those of its template, without its init containers."""

    name: str
    replicas: int
    containers: tuple[ContainerDetails, ...]


class ConditionView(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of the job. `since`: seconds since the epoch; `message`: in one line."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None


class ChildView(msgspec.Struct, frozen=True, rename="camel"):
    """A child of the job that is no pod. `created`: seconds since the epoch."""

    kind: str
    name: str
    state: str  # in one word, or its ready pods: 2/3 ready; "" for an object without a state
    created: float | None


class JobDetails(msgspec.Struct, frozen=True, rename="camel"):
    """One job with its replicas (the newest pod of each slot). Its JSON has the fields below in camelCase."""

    row: JobRow
    labels: dict[str, str]
    reason: str  # `status.reason`, in one line
    deleted: float | None  # when its deletion began, in seconds since the epoch
    runtime_id: str
    disruptions: dict[RestartCause, int]  # restarts of other causes than the program, by cause: node-lost, eviction ...
    policies: dict[str, Any]  # those that are set, by the API's names
    roles: tuple[RoleDetails, ...]
    replicas: tuple[ReplicaView, ...]
    conditions: tuple[ConditionView, ...]
    children: tuple[ChildView, ...]
    events: tuple[EventView, ...]


def job_details(
    job: Json,
    pods: Iterable[Json],
    children: Iterable[Json],
    events: Iterable[Json],
    now: float,
    view: JobView | None = None,
) -> JobDetails:
    """The details of a job. `children`: all but its pods; `events`: oldest first; `now`: Unix seconds; `view`: the job
    with these pods, if the caller has it."""
    view = view or JobView.of([job], pods, now)
    slots, parsed = view.slots(uid_of(job)), view.parsed(uid_of(job))
    status = operator_status(job)
    children = sorted(children, key=lambda child: (child["kind"], name_of(child)))
    return JobDetails(
        row=job_row(view, uid_of(job), slots),
        labels={str(key): str(value) for key, value in labels_of(job).items()},
        reason=" ".join(str(status.get("reason") or "").split()),
        deleted=parse_time(as_dict(job.get("metadata")).get("deletionTimestamp")),
        runtime_id=parsed.runtime_id if parsed else "",
        disruptions=dict(parsed.status.restart_causes) if parsed else {},
        policies=_policies(parsed) if parsed else {},
        roles=tuple(_roles(parsed)) if parsed else (),
        replicas=tuple(slots),
        conditions=tuple(_conditions(status.get("conditions"))),
        children=tuple(
            _child_view(child) for child in sorted(children, key=lambda child: (child["kind"], name_of(child)))
        ),
        events=tuple(map(event_view, events)),
    )


def restarts_text(restarts: int, disruptions: Iterable[tuple[str, int]]) -> str:
    """The restarts that the program caused, and those of other causes: "2; 1 by node-lost"; "" for none."""
    by_cause = (f"{count} by {cause}" for cause, count in disruptions)
    return "; ".join(filter(None, (str(restarts or ""), *by_cause)))


def _policies(job: Job) -> dict[str, Any]:
    policy = job.policy
    policies = {
        "suspend": policy.suspend or None,
        "cleanPodPolicy": policy.clean_pod_policy or None,
        "ttlSecondsAfterFinished": policy.ttl_seconds_after_finished,
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "backoffLimit": policy.backoff_limit,
        "managedBy": policy.managed_by or None,
    }
    return {name: value for name, value in policies.items() if value is not None}


def _roles(job: Job) -> Iterator[RoleDetails]:
    for role in job.parsed.roles:
        containers = as_dict(as_dict(role.template).get("spec")).get("containers")
        yield RoleDetails(role.name, role.replicas, tuple(map(_container_details, _items(containers))))


def _container_details(container: object) -> ContainerDetails:
    fields = as_dict(container)
    command = [*_items(fields.get("command")), *_items(fields.get("args"))]
    return ContainerDetails(str(fields.get("name") or ""), str(fields.get("image") or ""), " ".join(map(str, command)))


def _items(value: object) -> list[Any]:
    """The value if it is a list: a job whose spec is refused may have anything."""
    return value if isinstance(value, list) else []


def _conditions(conditions: Any) -> Iterator[ConditionView]:
    for condition in map(as_dict, _items(conditions)):
        yield ConditionView(
            type=str(condition.get("type") or ""),
            status=str(condition.get("status") or ""),
            reason=str(condition.get("reason") or ""),
            message=" ".join(str(condition.get("message") or "").split()),
            since=parse_time(condition.get("lastTransitionTime")),
        )


def _child_view(child: Json) -> ChildView:
    created = parse_time(as_dict(child.get("metadata")).get("creationTimestamp"))
    return ChildView(child["kind"], name_of(child), child_state(child), created)


def child_state(child: Json) -> str:
    """The state of a child that owns pods, in one word or as ready replicas, or the phase of a PodGroup; "" for a child
    without a state."""
    spec, status = as_dict(child.get("spec")), as_dict(child.get("status"))
    if as_dict(child.get("metadata")).get("deletionTimestamp"):
        return "Terminating"
    if child["kind"] == "Job":
        for condition in status.get("conditions") or []:
            if condition.get("type") in ("Complete", "Failed", "Suspended") and condition["status"] == "True":
                return str(condition["type"])
        return f"{status.get('active') or 0} active"
    if child["kind"] == "PodGroup":
        return decode_child(child).phase
    if "replicas" in spec:
        return f"{status.get('readyReplicas') or 0}/{spec['replicas']} ready"
    return ""
