"""PodGroups of scheduling.k8s.io/v1beta1: defaults and validation, as with kube-apiserver's gate GenericWorkload and
TopologyAwareWorkloadScheduling.

kube-apiserver drops the fields of other gates without a word, and so does this server. PriorityClasses are not served
here: a name of one is stored, and the priority is 0, as it is for pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainyard.api_types.defaults import set_defaults, string_or_empty
from trainyard.api_types.names import name_problem
from trainyard.api_types.validators import validate_enum, validate_qualified_name
from trainyard.objects import Json, Problem, find_condition
from trainyard.objects.json_equal import json_equal
from trainyard.objects.resources import NATIVE_POD_GROUP
from trainyard.server.builtin.job_rules import STATUSES
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Column, Resource
from trainyard.server.registry.tables import AGE, NAME

PROTECTION = "scheduling.k8s.io/podgroup-protection"
"""The finalizer of every group: it is there until no pod that has not ended names the group."""
_OFF = ("preemptionPolicy", "parentCompositePodGroupName", "resourceClaims")
"""Fields of gates that are off."""
_IMMUTABLE = ("disruptionMode", "priority", "priorityClassName", "schedulingConstraints", "workloadRef")
_SCHEDULED = "PodGroupInitiallyScheduled"


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of a PodGroup, and of a new one the finalizer."""
    set_defaults(new, spec={}, status={})
    spec = new["spec"]
    for field in _OFF:
        spec.pop(field, None)
    set_defaults(spec, schedulingPolicy={}, disruptionMode={"single": {}}, priority=0)
    if old is None:
        finalizers = new["metadata"].get("finalizers") or []
        new["metadata"]["finalizers"] = finalizers if PROTECTION in finalizers else [*finalizers, PROTECTION]


def _admit(new: Json, old: Json | None, context: RequestContext) -> None:
    if old is None and (priority := new["spec"]["priority"]):
        text = "must match the priority computed (0) based on the priority class set in the spec"
        message = f"priority set in the pod group ({priority}) {text}"
        raise errors.forbidden("podgroups", NATIVE_POD_GROUP.group, new["metadata"].get("name") or "", message)


def _problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec = new["spec"]
    policy = spec["schedulingPolicy"]
    yield from _union(policy, ("basic", "gang"), "spec.schedulingPolicy")
    if (gang := policy.get("gang")) is not None and (count := gang.get("minCount") or 0) < 1:
        text = f"Invalid value: {count}: must be greater than or equal to 1" if count else "Required value"
        yield Problem("spec.schedulingPolicy.gang.minCount", text)
    yield from _union(spec["disruptionMode"], ("single", "all"), "spec.disruptionMode")
    yield from _topology_problems(spec)
    if reference := spec.get("workloadRef"):
        for field, rule in (("workloadName", "subdomain"), ("templateName", "label")):
            if (name := reference.get(field)) and (problem := name_problem(name, rule, f"spec.workloadRef.{field}")):
                yield problem
    if old is not None:
        yield from _changes(spec, old["spec"])


def _union(union: Json, members: Sequence[str], path: str) -> Iterator[Problem]:
    names = ", ".join(f"`{member}`" for member in members)
    present = [member for member in members if union.get(member) is not None]
    if not present:
        yield Problem(path, f'Invalid value: "": must specify one of: {names}')
    elif len(present) > 1:
        yield Problem(path, f'Invalid value: "{{{", ".join(present)}}}": must specify exactly one of: {names}')


def _topology_problems(spec: Json) -> Iterator[Problem]:
    path = "spec.schedulingConstraints.topology"
    constraints = (spec.get("schedulingConstraints") or {}).get("topology") or []
    if len(constraints) > 1:
        yield Problem(path, f"Too many: {len(constraints)}: must have at most 1 item")
        return
    for index, constraint in enumerate(constraints):
        if key := constraint.get("key"):
            yield from validate_qualified_name(key, f"{path}[{index}].key")


def _changes(spec: Json, old: Json) -> Iterator[Problem]:
    """Only `minCount` may change."""
    policy, old_policy = spec["schedulingPolicy"], old["schedulingPolicy"]
    if ("basic" in policy) is not ("basic" in old_policy):
        yield Problem("spec.schedulingPolicy.basic", "Invalid value: null: field is immutable")
    if ("gang" in policy) is not ("gang" in old_policy):
        text = "field cannot be set once created" if "gang" in policy else "field cannot be cleared once set"
        yield Problem("spec.schedulingPolicy.gang", f"Invalid value: null: {text}")
    for field in _IMMUTABLE:
        if not json_equal(spec.get(field), old.get(field)):
            yield Problem(f"spec.{field}", "Invalid value: null: field is immutable")


def _status_problems(new: Json, old: Json) -> Iterator[Problem]:
    for index, condition in enumerate((new.get("status") or {}).get("conditions") or ()):
        path = f"status.conditions[{index}]"
        if condition_type := condition.get("type"):
            yield from validate_qualified_name(condition_type, f"{path}.type")
        yield from validate_enum(condition.get("status"), STATUSES, f"{path}.status")
        for field in ("type", "status", "lastTransitionTime", "reason"):
            if not condition.get(field):
                yield Problem(f"{path}.{field}", "Required value")


def _policy(group: Json, now: float) -> str:
    return "Gang" if "gang" in group["spec"]["schedulingPolicy"] else "Basic"


def _workload(group: Json, now: float) -> str:
    return string_or_empty((group["spec"].get("workloadRef") or {}).get("workloadName")) or "<none>"


def _state(group: Json, now: float) -> str:
    condition = find_condition((group.get("status") or {}).get("conditions") or [], _SCHEDULED)
    if condition is None:
        return "Pending"
    return "Scheduled" if condition.get("status") == "True" else "Unschedulable"


RESOURCES = (
    Resource(
        group=NATIVE_POD_GROUP.group,
        version=NATIVE_POD_GROUP.version,
        kind=NATIVE_POD_GROUP.kind,
        plural=NATIVE_POD_GROUP.plural,
        status=True,
        returns_deleted=True,
        prepare=prepare,
        admit=_admit,
        check=lambda new, old: list(_problems(new, old)),
        check_status=_status_problems,
        unowned=lambda group: [("f:metadata", "f:finalizers"), ("f:spec", "f:priority")],
        columns=(NAME, Column("Policy", _policy), Column("Workload", _workload), Column("Status", _state), AGE),
    ),
)
