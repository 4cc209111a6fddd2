"""What kube-scheduler does with the gang of a job: nothing that Kubernetes shows.

It holds the members of a PodGroup without a condition and without an event, and a part of a cluster that does not know
groups drops or ignores them. The texts are those of `trainyard why` (views/diagnosis/gangs.py), which sees more: nodes,
events and the names of scheduling gates.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainyard.core.job_state import OwnedObjects
from trainyard.core.kind import Job
from trainyard.core.model import Child, Condition
from trainyard.objects.resources import NATIVE_POD_GROUP

GANG_IGNORED = "GangIgnored"
"""The condition of a job whose pods are scheduled one by one, although its operator makes gangs."""
SILENT_SECONDS = 30.0
"""Seconds after the creation of the youngest pod: until then its scheduler may not have looked at it."""


class Wait(msgspec.Struct, frozen=True):
    """A message for condition Blocked, or the time when it will be due; "" and None when nothing blocks the job."""

    message: str = ""
    due: float | None = None


def held_members(job: Job, owned: OwnedObjects, now: float) -> Wait:
    """Why kube-scheduler has not looked at the pods of the job's group."""
    group = next(_groups(job, owned), None)
    if group is None:
        return Wait()
    pods = [pod for pod in _pods(owned) if pod.pod_group == group.name]
    unseen = [pod for pod in pods if not pod.status.is_scheduled and pod.reason in ("", "SchedulingGated")]
    unseen = [pod for pod in unseen if pod.phase in ("", "Pending") and not pod.deleting]
    if not unseen:
        return Wait()
    due = max(pod.created for pod in unseen) + SILENT_SECONDS
    if now < due:
        return Wait(due=due)
    members = [pod for pod in pods if pod.phase not in ("Succeeded", "Failed")]
    gated = sorted(pod.name for pod in members if pod.reason == "SchedulingGated")
    if gated:
        return Wait(f"PodGroup {group.name} waits: its member {gated[0]} has a scheduling gate")
    if len(members) < group.status.min_count:
        return Wait(f"PodGroup {group.name} waits: {len(members)} of its {group.status.min_count} members exist")
    return Wait()


def ignored(job: Job, owned: OwnedObjects, now: float) -> tuple[Condition, float | None]:
    """The condition GANG_IGNORED, and when it will be due."""
    if job.config.gangs_not_served:
        text = f"the API server serves no {NATIVE_POD_GROUP.plural} of {NATIVE_POD_GROUP.api_version}"
        return Condition(GANG_IGNORED, True, "NotServed", f"{text}: the pods are scheduled one by one"), None
    for group in _groups(job, owned):
        pods = [pod for pod in _pods(owned) if pod.created >= group.created and not pod.deleting]
        alone = [pod for pod in pods if not pod.pod_group and pod.index >= 0]
        # A batch Job of an operator without gangs still makes pods without the field.
        older = {child.uid for child in owned.by_ref.values() if child.created < group.created} if alone else ()
        if names := [pod.name for pod in alone if pod.owner_uid not in older]:
            text = f"the API server has dropped schedulingGroup of Pod {min(names)}: the pods are scheduled one by one"
            return Condition(GANG_IGNORED, True, "FieldDropped", text), None
        placed = [pod for pod in pods if pod.pod_group == group.name and pod.status.is_scheduled]
        if group.phase or not placed or len(placed) < group.status.min_count:
            continue
        due = max(pod.created for pod in placed) + SILENT_SECONDS
        if now < due:
            return Condition(GANG_IGNORED, False, "GangScheduled", ""), due
        text = f"kube-scheduler has placed the pods of PodGroup {group.name} one by one: it does not serve gangs"
        return Condition(GANG_IGNORED, True, "SchedulerWithoutGangs", text), None
    return Condition(GANG_IGNORED, False, "GangScheduled", ""), None


def _groups(job: Job, owned: OwnedObjects) -> Iterator[Child]:
    if not job.config.gang_scheduler:
        return
    for ref, auxiliary in job.auxiliary_objects.items():
        group = owned.by_ref.get(ref)
        if auxiliary.gvk == NATIVE_POD_GROUP and group is not None and not group.deleting:
            yield group


def _pods(owned: OwnedObjects) -> Iterator[Child]:
    yield from owned.pods_without_owner
    for pods in owned.pods_by_owner.values():
        yield from pods
