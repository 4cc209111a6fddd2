"""`trainyard describe JOB`: a job's fields, roles, replicas, conditions, children and events."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options
from trainyard.cli.cluster_command import ClusterContext, print_output, run_with_cluster
from trainyard.cli.completion import job_names
from trainyard.cli.layout import UNKNOWN_WIDTH, colour_on, field_lines, table_lines, terminal_width
from trainyard.objects import Json, name_of, parse_time, uid_of

if TYPE_CHECKING:
    from trainyard.cli.jobs import JobInfo, RelatedObjects

EVENTS = 20  # the number of events shown, the newest


@click.command()
@click.argument("job", shell_complete=job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(["wide"]), help="wide cuts nothing off.")
def describe(job: str, output: str | None, **params: Any) -> None:
    """Show a job: its roles and replicas, conditions, children and events.

    Of a job that is gone it shows what the history of this machine has.

    Example: trainyard describe tfjob/mnist
    """
    width = sys.maxsize if output else terminal_width()
    run_with_cluster(
        params, lambda context: _describe(context, job, width), lambda: _from_history(job, params["namespace"], width)
    )


async def _describe(context: ClusterContext, job: str, width: int) -> None:
    from trainyard.cli.jobs import get_job, get_related_objects

    info = await get_job(context, job)
    print_output(
        "\n".join(describe_lines(info, await get_related_objects(context, info), time.time(), width, colour_on(1)))
    )


def _from_history(job: str, namespace: str, width: int) -> bool:
    from trainyard.cli.history import record_lines
    from trainyard.cli.history_logs import last_record

    record = last_record(job, namespace)
    if record is not None:
        print_output("\n".join(record_lines(record, time.time(), width)))
    return record is not None


def describe_lines(
    info: JobInfo, related: RelatedObjects, now: float, width: int = UNKNOWN_WIDTH, colour: bool = False
) -> list[str]:
    """All lines of the command's output. Pure."""
    lines = field_lines([(f"{name}:", value) for name, value in _head(info, now)], width, colour)
    for title, rows in (
        ("Roles", _roles(info)),
        ("Replicas", _replicas(info, related, now)),
        ("Conditions", _conditions(info.job, now)),
        ("Children", _children(related, now)),
    ):
        if len(rows) > 1:
            lines += [f"{title}:", *(f"  {line}" for line in table_lines(rows, width - 2, colour))]
    lines += ["Events:" if related.events else "Events: none", *_events(related, now, width - 2)]
    return lines


def _head(info: JobInfo, now: float) -> list[tuple[str, str]]:
    from trainyard.cli.view import job_state
    from trainyard.core import Config, parse_job

    job, parsed_job = info.job, parse_job(info.kind, info.job, Config())
    status = job.get("status") or {}
    policy = parsed_job.policy
    policies = {
        "suspend": policy.suspend or None,
        "cleanPodPolicy": policy.clean_pod_policy or None,
        "ttlSecondsAfterFinished": policy.ttl_seconds_after_finished,
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "backoffLimit": policy.backoff_limit,
        "managedBy": policy.managed_by or None,
    }
    policies_text = ", ".join(f"{name}={_value_text(value)}" for name, value in policies.items() if value is not None)
    labels = job["metadata"].get("labels") or {}
    return [
        ("Name", info.name),
        ("Namespace", info.namespace),
        ("Kind", f"{info.kind.gvk.kind} ({info.gvk.api_version})"),
        ("Labels", ", ".join(f"{key}={value}" for key, value in labels.items())),
        ("State", job_state(job)),
        ("Reason", " ".join(str(status.get("reason") or "").split())),
        ("Created", _time_text(job["metadata"].get("creationTimestamp"), now)),
        ("Deleted", _time_text(job["metadata"].get("deletionTimestamp"), now)),
        ("Started", _time_text(status.get("startTime"), now)),
        ("Ended", _time_text(status.get("completionTime"), now)),
        ("Restarts", str(status.get("restarts") or "")),
        ("RuntimeId", parsed_job.runtime_id),
        ("Policies", policies_text),
    ]


def _value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time_text(stamp: object, now: float) -> str:
    from trainyard.cli.view import format_age

    moment = parse_time(stamp)
    return "" if moment is None else f"{stamp} ({format_age(now - moment)} ago)"


def _roles(info: JobInfo) -> list[list[str]]:
    from trainyard.core import Config, parse_job

    rows = [["ROLE", "REPLICAS", "CONTAINER", "IMAGE", "COMMAND"]]
    for role in parse_job(info.kind, info.job, Config()).parsed.roles:
        spec = (role.template or {}).get("spec") or {}
        for index, container in enumerate(spec.get("containers") or [{}]):
            role_cells = [role.name, str(role.replicas)] if index == 0 else ["", ""]
            command = [*(container.get("command") or []), *(container.get("args") or [])]
            rows.append(
                [*role_cells, str(container.get("name") or ""), str(container.get("image") or ""), _shorten(command)]
            )
    return rows


def _shorten(command: list[Any], longest: int = 60) -> str:
    text = " ".join(" ".join(map(str, command)).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _replicas(info: JobInfo, related: RelatedObjects, now: float) -> list[list[str]]:
    from trainyard.cli.view import REPLICA_HEADS, JobView, replica_cells

    view = JobView.of([info.job], related.pods, now)
    names = {uid_of(pod): name_of(pod) for pod in related.pods}
    rows = [[*replica_cells(slot, now), names.get(slot.uid, "")] for slot in view.slots(uid_of(info.job))]
    return [[*REPLICA_HEADS, "POD"], *rows]


def _conditions(job: Json, now: float) -> list[list[str]]:
    from trainyard.cli.view import format_since

    rows = [["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]]
    for condition in (job.get("status") or {}).get("conditions") or []:
        message = " ".join(str(condition.get("message") or "").split())
        rows.append([*(str(condition.get(key) or "") for key in ("type", "status", "reason")), "", message])
        rows[-1][3] = format_since(condition.get("lastTransitionTime"), now)
    return rows


def _children(related: RelatedObjects, now: float) -> list[list[str]]:
    from trainyard.cli.view import format_since

    rows = [["KIND", "NAME", "STATE", "AGE"]]
    for child in sorted(related.children, key=lambda child: (child["kind"], name_of(child))):
        age = format_since(child["metadata"].get("creationTimestamp"), now)
        rows.append([child["kind"], name_of(child), child_state(child), age])
    return rows


def child_state(child: Json) -> str:
    """The state of a child that owns pods, in one word or as ready replicas; "" for a child without a state."""
    spec, status = child.get("spec") or {}, child.get("status") or {}
    if child["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in status.get("conditions") or []:
        if (
            child["kind"] == "Job"
            and condition.get("type") in ("Complete", "Failed", "Suspended")
            and condition["status"] == "True"
        ):
            return str(condition["type"])
    if child["kind"] == "Job":
        return f"{status.get('active') or 0} active"
    if "replicas" in spec:
        return f"{status.get('readyReplicas') or 0}/{spec['replicas']} ready"
    return ""


def _events(related: RelatedObjects, now: float, width: int) -> list[str]:
    from trainyard.cli.events import event_rows

    if not related.events:
        return []
    earlier_count = len(related.events) - EVENTS
    earlier = [f"  ({earlier_count} earlier ones: trainyard events)"] if earlier_count > 0 else []
    return [*earlier, *(f"  {line}" for line in table_lines(event_rows(related.events[-EVENTS:], now), width))]
