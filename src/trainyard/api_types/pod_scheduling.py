"""Validation of a pod's scheduling fields: affinity, topology spread, tolerations, gates.

A cluster of `trainyard up` has one node, which takes every pod; mistakes in a manifest are reported nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.api_types.names import label_problems, name_problem
from trainyard.api_types.validators import (
    selector_problems,
    validate_qualified_name,
    validate_selector_requirement,
)
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD_AFFINITY_FIELDS = ("podAffinity", "podAntiAffinity")
_MAX_WEIGHT = 100


def placement_problems(spec: Json, path: str) -> Iterator[Problem]:
    """The problems of those fields of a pod spec that the scheduler reads."""
    if selector := spec.get("nodeSelector"):
        yield from label_problems(selector, f"{path}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    if affinity := spec.get("affinity"):
        yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
        for kind in POD_AFFINITY_FIELDS:
            yield from _pod_affinity(affinity.get(kind) or {}, f"{path}.affinity.{kind}")
    if constraints := spec.get("topologySpreadConstraints"):
        yield from _topology_spread(constraints, f"{path}.topologySpreadConstraints")
    if gates := spec.get("schedulingGates"):
        yield from _scheduling_gates(gates, f"{path}.schedulingGates")
    if (group := spec.get("schedulingGroup")) is not None:
        yield from _scheduling_group(group, f"{path}.schedulingGroup.podGroupName")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        yield from validate_qualified_name(
            gate.get("conditionType") or "", f"{path}.readinessGates[{index}].conditionType"
        )


def _scheduling_group(group: Json, path: str) -> Iterator[Problem]:
    if (name := group.get("podGroupName")) is None:
        yield Problem(path, "Invalid value: null: must specify one of: `podGroupName`")
    elif problem := name_problem(name, "subdomain", path):
        yield problem


def _node_affinity(affinity: Json, path: str) -> Iterator[Problem]:
    for index, term in enumerate((affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from _node_selector_term(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(affinity.get(PREFERRED) or ()):
        yield from _weight(preferred, f"{path}.{PREFERRED}[{index}]")
        yield from _node_selector_term(preferred.get("preference") or {}, f"{path}.{PREFERRED}[{index}].preference")


def _node_selector_term(term: Json, path: str) -> Iterator[Problem]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from validate_selector_requirement(expression, f"{path}.matchExpressions[{index}]", ("Gt", "Lt"))
    for index, expression in enumerate(term.get("matchFields") or ()):
        yield from _node_field_requirement(expression, f"{path}.matchFields[{index}]")


def _node_field_requirement(expression: Json, path: str) -> Iterator[Problem]:
    """Problems of a field requirement: `metadata.name` is the only supported field of a node."""
    operator, values, key = (
        expression.get("operator") or "",
        expression.get("values") or [],
        expression.get("key") or "",
    )
    if operator not in ("In", "NotIn"):
        yield Problem(f"{path}.operator", f"Invalid value: {json_text(operator)}: not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield Problem(f"{path}.values", f"Required value: {text}")
    if key != "metadata.name":
        yield Problem(f"{path}.key", f"Invalid value: {json_text(key)}: not a valid field selector key")
        return
    for index, value in enumerate(values):
        if problem := name_problem(value, "subdomain", f"{path}.values[{index}]"):
            yield problem


def _pod_affinity(affinity: Json, path: str) -> Iterator[Problem]:
    for index, term in enumerate(affinity.get(REQUIRED) or ()):
        yield from _pod_affinity_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, preferred in enumerate(affinity.get(PREFERRED) or ()):
        yield from _weight(preferred, f"{path}.{PREFERRED}[{index}]")
        yield from _pod_affinity_term(
            preferred.get("podAffinityTerm") or {}, f"{path}.{PREFERRED}[{index}].podAffinityTerm"
        )


def _pod_affinity_term(term: Json, path: str) -> Iterator[Problem]:
    for word in ("labelSelector", "namespaceSelector"):
        yield from selector_problems(term.get(word) or {}, f"{path}.{word}")
    for name in term.get("namespaces") or ():
        if problem := name_problem(name, "label", f"{path}.namespace"):
            yield problem
    yield from _match_label_keys(term, ("matchLabelKeys", "mismatchLabelKeys"), path)
    if key := term.get("topologyKey"):
        yield from validate_qualified_name(key, f"{path}.topologyKey")


def _weight(term: Json, path: str) -> Iterator[Problem]:
    if not 0 < (weight := term.get("weight") or 0) <= _MAX_WEIGHT:
        yield Problem(f"{path}.weight", f"Invalid value: {weight}: must be in the range 1-{_MAX_WEIGHT}")


def _topology_spread(constraints: Any, path: str) -> Iterator[Problem]:
    for index, constraint in enumerate(constraints):
        where, key, later_constraints = (
            f"{path}[{index}]",
            constraint.get("topologyKey") or "",
            constraints[index + 1 :],
        )
        if (max_skew := constraint.get("maxSkew") or 0) < 1:
            yield Problem(f"{where}.maxSkew", f"Invalid value: {max_skew}: must be greater than zero")
        when_unsatisfiable = constraint.get("whenUnsatisfiable") or ""
        if any(
            (key, when_unsatisfiable) == (other.get("topologyKey"), other.get("whenUnsatisfiable"))
            for other in later_constraints
        ):
            text = f"Duplicate value: {json_text(f'{{{key}, {when_unsatisfiable}}}')}"
            yield Problem(f"{where}.{{topologyKey, whenUnsatisfiable}}", text)
        yield from _min_domains(constraint.get("minDomains"), when_unsatisfiable, f"{where}.minDomains")
        yield from selector_problems(constraint.get("labelSelector") or {}, f"{where}.labelSelector")
        yield from _match_label_keys(constraint, ("matchLabelKeys",), where)


def _min_domains(min_domains: int | None, when_unsatisfiable: str, where: str) -> Iterator[Problem]:
    if min_domains is not None and min_domains < 1:
        yield Problem(where, f"Invalid value: {min_domains}: must be greater than zero")
    if min_domains is not None and when_unsatisfiable != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when_unsatisfiable}"
        yield Problem(where, f"Invalid value: {min_domains}: {text}")


def _match_label_keys(term: Json, fields: tuple[str, ...], path: str) -> Iterator[Problem]:
    """Problems of label keys whose values are taken from the pod's own labels."""
    for field in fields:
        if term.get(field) and term.get("labelSelector") is None:
            yield Problem(f"{path}.{field}", "Forbidden: must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(term.get(field) or ()):
            yield from validate_qualified_name(key, f"{path}.{field}[{index}]")
            if any(key in (term.get(other) or ()) for other in fields[1:] if field == fields[0]):
                text = f"exists in both {fields[0]} and {fields[1]}"
                yield Problem(f"{path}.{field}[{index}]", f"Invalid value: {json_text(key)}: {text}")


def _scheduling_gates(gates: Any, path: str) -> Iterator[Problem]:
    earlier_names: set[str] = set()
    for index, gate in enumerate(gates):
        where, name = f"{path}[{index}]", gate.get("name") or ""
        if name in earlier_names:
            yield Problem(where, f"Duplicate value: {json_text(name)}")
        earlier_names.add(name)


def _toleration(toleration: Json, where: str) -> Iterator[Problem]:
    key, operator, value, effect = (toleration.get(name) or "" for name in ("key", "operator", "value", "effect"))
    if key:
        yield from validate_qualified_name(key, f"{where}.key")
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield Problem(f"{where}.operator", f"Invalid value: {json_text(operator)}: {text}")
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield Problem(f"{where}.effect", f"Invalid value: {json_text(effect)}: {text}")
    if operator == "Exists" and value:
        text = "value must be empty when `operator` is 'Exists'"
        yield Problem(f"{where}.operator", f"Invalid value: {json_text(value)}: {text}")
    elif operator in ("", "Equal"):
        yield from label_problems({"key": value}, f"{where}.operator")
