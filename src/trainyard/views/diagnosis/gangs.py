"""Gangs of kube-scheduler itself (PodGroups of scheduling.k8s.io): why it holds the pods of one, which shows nowhere.

Until enough members exist the scheduler sets no condition and records no event, so that is worked out here from the
group and its members. Which pods count is measured: those that name the group and have not ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core.children import GROUP_SCHEDULED
from trainyard.core.diagnosis import BLOCK, NOTE, Finding
from trainyard.objects import Json, as_dict, find_condition, name_of
from trainyard.views.diagnosis.inputs import Facts

API_VERSION_PREFIX = "scheduling.k8s.io/"
GATE = "--feature-gates=GenericWorkload=true"


def group_name_of(pod: Json) -> str:
    """The PodGroup that the pod is a member of; "" for none."""
    return str(as_dict(as_dict(pod.get("spec")).get("schedulingGroup")).get("podGroupName") or "")


def held_finding(facts: Facts, pod: Json) -> Finding | None:
    """Why kube-scheduler has not looked at a member of a group, None when its group does not tell."""
    name = group_name_of(pod)
    group, members = _group(facts, name), _members(facts, name)
    where = f"PodGroup {name} (podgroups.scheduling.k8s.io)"
    if group is None:
        summary = "kube-scheduler holds its pod: its PodGroup does not exist"
        return Finding(BLOCK, summary, f"pod {name_of(pod)}: spec.schedulingGroup", (), f"see who deleted {where}")
    for member in members:
        if gates := [
            str(as_dict(gate).get("name")) for gate in as_dict(member.get("spec")).get("schedulingGates") or ()
        ]:
            summary = f"kube-scheduler holds the whole gang: its member {name_of(member)} has a scheduling gate"
            fix = f"see who removes the gate {gates[0]}"
            return Finding(BLOCK, summary, f"pod {name_of(member)}: spec.schedulingGates", tuple(gates), fix)
    if len(members) < (least := _min_count(group)):
        summary = f"kube-scheduler holds its pod: {len(members)} of the {least} members of its gang exist"
        fix = "see why the others do not exist: an event of the job, or a quota (`kubectl get events`)"
        return Finding(BLOCK, summary, f"{where}: spec.schedulingPolicy.gang.minCount", (), fix)
    return None


def unschedulable_message(facts: Facts, pod: Json, message: str) -> str:
    """The message of the member of the gang that fits nowhere, for one of which the scheduler says only that its group
    does not; that message otherwise."""
    name = group_name_of(pod)
    if not name or not message.startswith("pod group is unschedulable"):
        return message
    for member in _members(facts, name):
        scheduled = find_condition((member.get("status") or {}).get("conditions"), "PodScheduled") or {}
        own = str(scheduled.get("message") or "")
        if scheduled.get("status") == "False" and not own.startswith("pod group is unschedulable"):
            return f"{message}; {name_of(member)}: {own}"
    return message


def scheduler_without_groups(facts: Facts) -> Iterator[Finding]:
    """Signs of a cluster in which a part does not know groups: the members were placed one by one."""
    for group in _groups(facts):
        name = name_of(group)
        members = _members(facts, name)
        bound = [member for member in members if as_dict(member.get("spec")).get("nodeName")]
        condition = find_condition(as_dict(group.get("status")).get("conditions"), GROUP_SCHEDULED)
        if condition is None and len(bound) >= _min_count(group):
            summary = "kube-scheduler does not serve gangs: it has placed the pods one by one"
            fix = f"start kube-scheduler with {GATE}"
            yield Finding(NOTE, summary, f"PodGroup {name}: status.conditions", (), fix)
        own = [pod for pod in facts.pods if not group_name_of(pod)]
        if own and not members and not as_dict(group.get("metadata")).get("deletionTimestamp"):
            summary = "the API server has dropped schedulingGroup of its pods, so they are no gang"
            fix = f"start kube-apiserver with {GATE}, and submit the job again"
            yield Finding(NOTE, summary, f"pod {name_of(own[0])}: spec.schedulingGroup", (), fix)


def _groups(facts: Facts) -> list[Json]:
    groups = (child for child in facts.children if child.get("kind") == "PodGroup")
    return [group for group in groups if str(group.get("apiVersion")).startswith(API_VERSION_PREFIX)]


def _group(facts: Facts, name: str) -> Json | None:
    return next((group for group in _groups(facts) if name_of(group) == name), None)


def _members(facts: Facts, name: str) -> list[Json]:
    return [
        pod
        for pod in facts.pods
        if group_name_of(pod) == name and as_dict(pod.get("status")).get("phase") not in ("Succeeded", "Failed")
    ]


def _min_count(group: Json) -> int:
    gang = as_dict(as_dict(as_dict(group.get("spec")).get("schedulingPolicy")).get("gang"))
    count = gang.get("minCount")
    return count if isinstance(count, int) else 0
