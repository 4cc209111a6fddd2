"""How the conditions of `kubeflow.org/v1` are written: the newest is last, and some exclude others (docs/rules.md 4.6).

`kubectl get` shows the type of the last condition, whatever its status. So Trainyard's own conditions are at the
beginning of the list, and the last one is true.
"""

from __future__ import annotations

from trainyard.core import ConditionUpdate, Job, Replica
from trainyard.core.model import Condition, WrittenConditions
from trainyard.objects import Json, find_condition, format_time, set_condition
from trainyard.objects.structs import replace

TYPES = ("Created", "Suspended", "Running", "Restarting", "Succeeded", "Failed")
"""The conditions of the Training Operator, in the order in which those of one reconcile are written."""
EXCLUDED = {"Running": "Restarting", "Restarting": "Running"}


def write_conditions(job: Job, replicas: list[Replica], evaluated: list[Condition], now: float) -> WrittenConditions:
    """The conditions of the job's stored status, updated with those of this reconcile."""
    stored = list(job.status.conditions)
    own = [item for item in stored if item["type"] not in TYPES]
    shared = [item for item in stored if item["type"] in TYPES]
    updates: list[ConditionUpdate] = []
    by_type = {condition.type: condition for condition in evaluated}
    for condition in evaluated:
        old = find_condition(own, condition.type)
        if condition.type in TYPES or (old is None and not condition.holds):
            continue
        own = set_condition(own, condition.type, condition.holds, condition.reason, condition.message, now)
        if condition.holds and (old is None or (old.get("status"), old.get("reason")) != ("True", condition.reason)):
            updates.append(ConditionUpdate(condition.type, condition.reason, condition.message))
    for update, holds in _updates(job, replicas, shared, by_type):
        changed = _append(shared, update, holds, now)
        if changed is not shared:
            shared = changed
            updates.append(update)
    shared = _end_with_true(_set_running_false(shared, by_type, now))
    return WrittenConditions((*own, *shared), tuple(updates))


def _end_with_true(conditions: list[Json]) -> list[Json]:
    """The conditions with those that are false at the end moved before the last true one. Of the Training Operator they
    stay at the end: a resumed job is shown as Suspended until a replica runs. Created is the first one again as soon as
    another one is true."""
    ordered = sorted(conditions, key=lambda item: item["type"] != "Created")
    last = max((index for index, item in enumerate(ordered) if item.get("status") == "True"), default=-1)
    return ordered if last < 0 else [*ordered[:last], *ordered[last + 1 :], ordered[last]]


def _set_running_false(conditions: list[Json], by_type: dict[str, Condition], now: float) -> list[Json]:
    """Running becomes False, in its place, when no replica runs. The Training Operator leaves it True."""
    running, evaluated = find_condition(conditions, "Running"), by_type.get("Running")
    if running is None or running.get("status") != "True" or evaluated is None or evaluated.holds:
        return conditions
    time = format_time(now)
    change = {"status": "False", "reason": evaluated.reason, "message": evaluated.message}
    stopped = {**running, **change, "lastUpdateTime": time, "lastTransitionTime": time}
    return [stopped if item is running else item for item in conditions]


def _updates(
    job: Job, replicas: list[Replica], stored: list[Json], by_type: dict[str, Condition]
) -> list[tuple[ConditionUpdate, bool]]:
    """The conditions to write, with their texts. Suspended and, because of it, Running become False, too."""
    updates = []
    holding = {name for name, condition in by_type.items() if condition.holds}
    if holding & {"Restarting", "Suspended"}:
        holding.discard("Running")
    suspended = find_condition(stored, "Suspended")
    running = find_condition(stored, "Running")
    for name in TYPES:
        if name in holding:
            condition = by_type[name]
            update = ConditionUpdate(name, condition.reason, condition.message)
            update = job.kind.status.condition_message(job, update, replicas)
            if name == "Suspended" and running is not None and running.get("status") == "True":
                updates.append((replace(update, type="Running"), False))
            updates.append((update, True))
        elif name == "Suspended" and suspended is not None and suspended.get("status") == "True":
            resumed = ConditionUpdate(name, "JobResumed", "")
            updates.append((job.kind.status.condition_message(job, resumed, replicas), False))
    return updates


def _append(conditions: list[Json], update: ConditionUpdate, holds: bool, now: float) -> list[Json]:
    """The list with the condition at its end. The same list when the condition has the same status and reason."""
    status, time = "True" if holds else "False", format_time(now)
    old = find_condition(conditions, update.type)
    if old is not None and (old.get("status"), old.get("reason")) == (status, update.reason):
        return conditions
    new = {
        "type": update.type,
        "status": status,
        "reason": update.reason,
        "message": update.message,
        "lastUpdateTime": time,
        "lastTransitionTime": old.get("lastTransitionTime", time)
        if old is not None and old.get("status") == status
        else time,
    }
    kept = [item for item in conditions if item["type"] not in (update.type, EXCLUDED.get(update.type))]
    if update.type in ("Succeeded", "Failed"):
        kept = [{**item, "status": "False"} if item["type"] == "Running" else item for item in kept]
    return [*kept, new]
