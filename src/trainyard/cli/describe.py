"""`trainyard describe JOB`: what it is, what it does, what belongs to it, what was said about it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options
from trainyard.cli.completion import job_names
from trainyard.cli.layout import UNKNOWN_WIDTH, colour_on, fields, fitted, terminal_width
from trainyard.cli.speaking import Here, out, speak
from trainyard.objects import Json, name_of, parse_time, uid_of

if TYPE_CHECKING:
    from trainyard.cli.jobs import Family, Found

EVENTS = 20  # the newest


@click.command()
@click.argument("job", shell_complete=job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(["wide"]), help="wide cuts nothing off.")
def describe(job: str, output: str | None, **words: Any) -> None:
    """Show a job: its roles and replicas, conditions, children and events.

    Of a job that is gone it shows what the history of this machine has.

    Example: trainyard describe tfjob/mnist
    """
    width = sys.maxsize if output else terminal_width()
    speak(words, lambda here: _describe(here, job, width), lambda: _from_history(job, words["namespace"], width))


async def _describe(here: Here, job: str, width: int) -> None:
    from trainyard.cli.jobs import family, find

    found = await find(here, job)
    out("\n".join(described(found, await family(here, found), time.time(), width, colour_on(1))))


def _from_history(job: str, namespace: str, width: int) -> bool:
    from trainyard.cli.history import page
    from trainyard.cli.history_logs import last_record

    record = last_record(job, namespace)
    if record is not None:
        out("\n".join(page(record, time.time(), width)))
    return record is not None


def described(found: Found, family: Family, now: float, width: int = UNKNOWN_WIDTH, colour: bool = False) -> list[str]:
    """The whole page. Pure."""
    lines = fields([(f"{name}:", value) for name, value in _head(found, now)], width, colour)
    for title, rows in (
        ("Roles", _roles(found)),
        ("Replicas", _replicas(found, family, now)),
        ("Conditions", _conditions(found.job, now)),
        ("Children", _children(family, now)),
    ):
        if len(rows) > 1:
            lines += [f"{title}:", *(f"  {line}" for line in fitted(rows, width - 2, colour))]
    lines += ["Events:" if family.events else "Events: none", *_events(family, now, width - 2)]
    return lines


def _head(found: Found, now: float) -> list[tuple[str, str]]:
    from trainyard.cli.view import word
    from trainyard.core import Config, parse_job

    job, read_job = found.job, parse_job(found.kind, found.job, Config())
    status = job.get("status") or {}
    policy = read_job.policy
    policies = {
        "suspend": policy.suspend or None,
        "cleanPodPolicy": policy.clean or None,
        "ttlSecondsAfterFinished": policy.ttl,
        "activeDeadlineSeconds": policy.deadline,
        "backoffLimit": policy.backoff_limit,
        "managedBy": policy.managed_by or None,
    }
    said = ", ".join(f"{name}={_json(value)}" for name, value in policies.items() if value is not None)
    labels = job["metadata"].get("labels") or {}
    return [
        ("Name", found.name),
        ("Namespace", found.namespace),
        ("Kind", f"{found.kind.gvk.kind} ({found.gvk.api_version})"),
        ("Labels", ", ".join(f"{key}={value}" for key, value in labels.items())),
        ("State", word(job)),
        ("Reason", " ".join(str(status.get("reason") or "").split())),
        ("Created", _time(job["metadata"].get("creationTimestamp"), now)),
        ("Deleted", _time(job["metadata"].get("deletionTimestamp"), now)),
        ("Started", _time(status.get("startTime"), now)),
        ("Ended", _time(status.get("completionTime"), now)),
        ("Restarts", str(status.get("restarts") or "")),
        ("RuntimeId", read_job.runtime_id),
        ("Policies", said),
    ]


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time(stamp: object, now: float) -> str:
    from trainyard.cli.view import age

    moment = parse_time(stamp)
    return "" if moment is None else f"{stamp} ({age(now - moment)} ago)"


def _roles(found: Found) -> list[list[str]]:
    from trainyard.core import Config, parse_job

    rows = [["ROLE", "REPLICAS", "CONTAINER", "IMAGE", "COMMAND"]]
    for role in parse_job(found.kind, found.job, Config()).parsed.roles:
        spec = (role.template or {}).get("spec") or {}
        for at, one in enumerate(spec.get("containers") or [{}]):
            first = [role.name, str(role.replicas)] if at == 0 else ["", ""]
            words = [*(one.get("command") or []), *(one.get("args") or [])]
            rows.append([*first, str(one.get("name") or ""), str(one.get("image") or ""), _short(words)])
    return rows


def _short(words: list[Any], longest: int = 60) -> str:
    text = " ".join(" ".join(map(str, words)).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _replicas(found: Found, family: Family, now: float) -> list[list[str]]:
    from trainyard.cli.view import Board, clock

    board = Board({uid_of(found.job): found.job})
    for pod in family.pods:
        board.see_pod(pod, now)
    names = {uid_of(pod): name_of(pod) for pod in family.pods}
    rows = [["REPLICA", "STATE", "RESTARTS", "EXIT", "TIME", "POD"]]
    for one in board.slots(uid_of(found.job)):
        took = "" if one.started is None else clock((one.ended or now) - one.started)
        rows.append([one.name, one.state, str(one.restarts), one.exit, took, names.get(one.uid, "")])
    return rows


def _conditions(job: Json, now: float) -> list[list[str]]:
    from trainyard.cli.view import since

    rows = [["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]]
    for one in (job.get("status") or {}).get("conditions") or []:
        message = " ".join(str(one.get("message") or "").split())
        rows.append([*(str(one.get(key) or "") for key in ("type", "status", "reason")), "", message])
        rows[-1][3] = since(one.get("lastTransitionTime"), now)
    return rows


def _children(family: Family, now: float) -> list[list[str]]:
    from trainyard.cli.view import since

    rows = [["KIND", "NAME", "STATE", "AGE"]]
    for child in sorted(family.children, key=lambda one: (one["kind"], name_of(one))):
        age = since(child["metadata"].get("creationTimestamp"), now)
        rows.append([child["kind"], name_of(child), child_state(child), age])
    return rows


def child_state(child: Json) -> str:
    """A word about a child that keeps pods; "" for one that has no state."""
    spec, status = child.get("spec") or {}, child.get("status") or {}
    if child["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for one in status.get("conditions") or []:
        if (
            child["kind"] == "Job"
            and one.get("type") in ("Complete", "Failed", "Suspended")
            and one["status"] == "True"
        ):
            return str(one["type"])
    if child["kind"] == "Job":
        return f"{status.get('active') or 0} active"
    if "replicas" in spec:
        return f"{status.get('readyReplicas') or 0}/{spec['replicas']} ready"
    return ""


def _events(family: Family, now: float, width: int) -> list[str]:
    from trainyard.cli.events import rows

    if not family.events:
        return []
    left = len(family.events) - EVENTS
    earlier = [f"  ({left} earlier ones: trainyard events)"] if left > 0 else []
    return [*earlier, *(f"  {line}" for line in fitted(rows(family.events[-EVENTS:], now), width))]
