"""Gangs: why the scheduler of a PodGroup holds its members.

kube-scheduler shows nothing until enough members exist: no condition and no event. Volcano and Coscheduling write into
each member that it is unschedulable, whatever its gang waits for. So it is worked out here from the group and its
members. Which pods count is measured: those that name the group and have not ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainyard.core.children import GROUP_SCHEDULED
from trainyard.core.diagnosis import BLOCK, NOTE, Finding
from trainyard.kinds.native_gang import TOPOLOGY_KEY, topology_key
from trainyard.objects import Json, as_dict, find_condition, labels_of, name_of, uid_of
from trainyard.objects.patterns import lazy_pattern
from trainyard.views.diagnosis.inputs import Facts

GATE = "--feature-gates=GenericWorkload=true"
TOPOLOGY_GATE = f"{GATE},TopologyAwareWorkloadScheduling=true"
RELEASE_SECONDS = 30.0
"""A deleted group without members is gone after a moment."""
NATIVE, VOLCANO, PLUGINS = "scheduling.k8s.io/", "scheduling.volcano.sh/", "scheduling.x-k8s.io/"
"""The API groups of PodGroups."""
VOLCANO_ANNOTATION, PLUGINS_LABEL = "scheduling.k8s.io/group-name", "scheduling.x-k8s.io/pod-group"

_ABOUT_THE_GANG = lazy_pattern(
    r"pod group is (unschedulable|not ready|ready)|^minCount \(\d+\) cannot be satisfied"
    r"|can possibly be assigned to|once resource is released"
    r"|has already predicated failed|cannot find enough sibling pods|resource gap: |rejection in (PostFilter|Unreserve)"
    r"|at plugin Coscheduling"
)
"""In the condition of a member: what its scheduler says of the gang, and not of the room for this pod."""
_GANG_FIXES = (
    (
        "resource gap: ",
        "free what schedulingPolicy.minResources of the job asks for, or leave it out: a gang that is rejected for it "
        "waits up to 20 s after its room is free",
    ),
    (
        "at plugin Coscheduling",
        "see whether the members without a node fit at all; if they only need longer, raise "
        "schedulingPolicy.scheduleTimeoutSeconds",
    ),
    ("once resource is released", "wait: pods that are ending hold the room"),
)
_WAIT_FIX = "free room for all of them (`trainyard why` of the other jobs, `kubectl describe nodes`), or add a node"


@dataclass(frozen=True)
class Gang:
    """The gang of a pod. `group`: its PodGroup, None if it is not among the children of the job."""

    name: str
    api: str  # NATIVE, VOLCANO or PLUGINS
    group: Json | None
    members: tuple[Json, ...]

    @property
    def least(self) -> int:
        """How many members start together, 0 when unknown."""
        spec = as_dict((self.group or {}).get("spec"))
        gang = as_dict(as_dict(spec.get("schedulingPolicy")).get("gang"))
        count = gang.get("minCount") if self.api == NATIVE else spec.get("minMember")
        return count if isinstance(count, int) else 0

    @property
    def where(self) -> str:
        """The group, as a finding names it."""
        return f"PodGroup {self.name} (podgroups.{self.api.rstrip('/')})"

    @property
    def field(self) -> str:
        """The field of the group with the number of members that start together."""
        return "spec.schedulingPolicy.gang.minCount" if self.api == NATIVE else "spec.minMember"


def gang_of(facts: Facts, pod: Json) -> Gang | None:
    """The gang that the pod is a member of, None for none."""
    for api in (NATIVE, VOLCANO, PLUGINS):
        if name := _group_name(pod, api):
            members = tuple(member for member in facts.pods if _group_name(member, api) == name and _is_living(member))
            groups = (group for group in _groups(facts, api) if name_of(group) == name)
            return Gang(name, api, next(groups, None), members)
    return None


def held_finding(facts: Facts, pod: Json) -> Finding | None:
    """Why kube-scheduler has not looked at a member of a group, None when its group does not tell."""
    gang = gang_of(facts, pod)
    if gang is None or gang.api != NATIVE:
        return None
    if gang.group is None:
        summary = "kube-scheduler holds its pod: its PodGroup does not exist"
        return Finding(BLOCK, summary, f"pod {name_of(pod)}: spec.schedulingGroup", (), f"see who deleted {gang.where}")
    for member in gang.members:
        if gates := [
            str(as_dict(gate).get("name")) for gate in as_dict(member.get("spec")).get("schedulingGates") or ()
        ]:
            summary = f"kube-scheduler holds the whole gang: its member {name_of(member)} has a scheduling gate"
            fix = f"see who removes the gate {gates[0]}"
            return Finding(BLOCK, summary, f"pod {name_of(member)}: spec.schedulingGates", tuple(gates), fix)
    return lacking_members(gang, "kube-scheduler")


def lacking_members(gang: Gang, scheduler: str) -> Finding | None:
    """The scheduler holds the pods of a gang of which too few members exist; None when enough do."""
    if len(gang.members) >= gang.least:
        return None
    summary = f"{scheduler} holds its pod: {len(gang.members)} of the {gang.least} members of its gang exist"
    fix = "see why the others do not exist: an event of the job, or a quota (`kubectl get events`)"
    return Finding(BLOCK, summary, f"{gang.where}: {gang.field}", (), fix)


def gang_message(gang: Gang, message: str) -> str:
    """The message of a member that says what there is no room for, for one whose own is about the gang; that message
    otherwise."""
    if not _ABOUT_THE_GANG.search(message):
        return message
    for member in gang.members:
        scheduled = find_condition(as_dict(member.get("status")).get("conditions"), "PodScheduled") or {}
        own = str(scheduled.get("message") or "")
        if scheduled.get("status") == "False" and own and not _ABOUT_THE_GANG.search(own):
            return f"{message}; {name_of(member)}: {own}"
    return message


def gang_wait(gang: Gang, message: str) -> tuple[str, str]:
    """What the gang of an unscheduled pod waits for, and the fix when the message names no resource."""
    placed = sum(bool(as_dict(member.get("spec")).get("nodeName")) for member in gang.members)
    if not gang.least:
        return "its gang waits for room", _WAIT_FIX
    count = f"{gang.least} of its {len(gang.members)}" if gang.least < len(gang.members) else f"all {gang.least}"
    summary = f"its gang waits for room for {count} pods" + (f", of which {placed} have a node" if placed else "")
    if key := _topology_key(gang.group or {}):
        fix = f"free room on nodes with one value of the label {key}, or let the job ask for less"
        return f"{summary} in one {key}", fix
    return summary, next((fix for text, fix in _GANG_FIXES if text in message), _WAIT_FIX)


def queue_evidence(facts: Facts) -> tuple[str, ...]:
    """The queue of a job that Volcano has not admitted, and what Volcano says of its PodGroup: only events tell it."""
    lines = []
    for group in _groups(facts, VOLCANO):
        lines.append(f"queue: {as_dict(group.get('spec')).get('queue') or 'default'}")
        events = (event for event in facts.events if as_dict(event.get("involvedObject")).get("uid") == uid_of(group))
        lines += [f"event {event.get('reason')}: {event.get('message')}" for event in list(events)[-1:]]
    return tuple(lines)


def scheduler_without_groups(facts: Facts) -> Iterator[Finding]:
    """Signs of a cluster in which a part does not know groups: the members were placed one by one."""
    for group in _groups(facts, NATIVE):
        name = name_of(group)
        members = [pod for pod in facts.pods if _group_name(pod, NATIVE) == name and _is_living(pod)]
        least = Gang(name, NATIVE, group, ()).least
        # Of a group that was deleted and created again, those that ran already are not placed anew.
        younger = [member for member in members if _created(member) >= _created(group)]
        bound = [member for member in younger if as_dict(member.get("spec")).get("nodeName")]
        condition = find_condition(as_dict(group.get("status")).get("conditions"), GROUP_SCHEDULED)
        if condition is None and bound and len(bound) >= least:
            summary = "kube-scheduler does not serve gangs: it has placed the pods one by one"
            fix = f"start kube-scheduler with {GATE}"
            yield Finding(NOTE, summary, f"PodGroup {name}: status.conditions", (), fix)
        deleted = facts.age(as_dict(group.get("metadata")).get("deletionTimestamp"))
        if deleted is not None and deleted > RELEASE_SECONDS and not members:
            summary = f"kube-controller-manager does not release its PodGroup {name}, which is deleted and stays"
            fix = f"start kube-controller-manager with {GATE}, or remove the finalizer of the group"
            yield Finding(NOTE, summary, f"PodGroup {name}: metadata.finalizers", (), fix)
        alone = [pod for pod in facts.pods if not _group_name(pod, NATIVE) and _is_living(pod)]
        if not alone or members or as_dict(group.get("metadata")).get("deletionTimestamp"):
            continue
        if min(map(_created, alone)) < _created(group):  # the operator creates the group first
            summary = "its pods are no gang: they were created before their PodGroup, by an operator without gangs"
            fix = "wait for its next attempt, or suspend and resume the job"
            yield Finding(NOTE, summary, f"pod {name_of(alone[0])}: spec.schedulingGroup", (), fix)
        else:
            summary = "the API server has dropped schedulingGroup of its pods, so they are no gang"
            fix = f"start kube-apiserver with {GATE}, and submit the job again"
            yield Finding(NOTE, summary, f"pod {name_of(alone[0])}: spec.schedulingGroup", (), fix)


def ignored_topology(facts: Facts) -> Iterator[Finding]:
    """TOPOLOGY_KEY has no effect: it was edited after the gang had started, or a part of the cluster does not know
    topology constraints."""
    key = topology_key(facts.job)
    for group in _groups(facts, NATIVE):
        name, field = name_of(group), "spec.schedulingConstraints"
        started_key, constraint = topology_key(group), _topology_key(group)
        if key != started_key:
            start = f"with {TOPOLOGY_KEY} {started_key}" if started_key else f"without {TOPOLOGY_KEY}"
            effect = f"its pods need not be in one {key}" if key else f"its pods are still placed in one {started_key}"
            fix = "wait for its next attempt, or suspend and resume the job: a group keeps its topology"
            yield Finding(NOTE, f"its gang started {start}: {effect}", f"PodGroup {name}: {field}", (), fix)
        if started_key and not constraint:
            summary = f"the API server has dropped the topology of its gang: its pods need not be in one {started_key}"
            fix = f"start kube-apiserver and kube-scheduler with {TOPOLOGY_GATE}; then suspend and resume the job"
            yield Finding(NOTE, summary, f"PodGroup {name}: {field}", (), fix)
        if constraint and len(values := _values_of(constraint, facts, name)) > 1:
            summary = f"kube-scheduler ignores the topology of its gang: its pods are in {len(values)} values of "
            fix = f"start kube-scheduler with {TOPOLOGY_GATE}; then suspend and resume the job"
            yield Finding(NOTE, summary + constraint, f"PodGroup {name}: {field}", tuple(values), fix)


def _values_of(label: str, facts: Facts, group: str) -> list[str]:
    """The values of the label that the nodes of the group's members have."""
    values = {name_of(node): labels_of(node).get(label) for node in facts.nodes or ()}
    members = (pod for pod in facts.pods if _group_name(pod, NATIVE) == group and _is_living(pod))
    nodes = {str(as_dict(pod.get("spec")).get("nodeName") or "") for pod in members} & values.keys()
    return sorted({str(values[node]) for node in nodes if values[node]})


def _topology_key(group: Json) -> str:
    """The label of which all nodes of the gang have one value; "" for any nodes."""
    constraints = as_dict(as_dict(group.get("spec")).get("schedulingConstraints")).get("topology")
    return str(as_dict(constraints[0]).get("key") or "") if isinstance(constraints, list) and constraints else ""


def _groups(facts: Facts, api: str) -> list[Json]:
    groups = (child for child in facts.children if child.get("kind") == "PodGroup")
    return [group for group in groups if str(group.get("apiVersion")).startswith(api)]


def _group_name(pod: Json, api: str) -> str:
    metadata = as_dict(pod.get("metadata"))
    names: Mapping[str, object] = {
        NATIVE: as_dict(as_dict(pod.get("spec")).get("schedulingGroup")).get("podGroupName"),
        VOLCANO: as_dict(metadata.get("annotations")).get(VOLCANO_ANNOTATION),
        PLUGINS: as_dict(metadata.get("labels")).get(PLUGINS_LABEL),
    }
    return str(names[api] or "")


def _created(obj: Json) -> str:
    """The time in RFC 3339, which is ordered as text."""
    return str(as_dict(obj.get("metadata")).get("creationTimestamp") or "")


def _is_living(pod: Json) -> bool:
    return as_dict(pod.get("status")).get("phase") not in ("Succeeded", "Failed")
