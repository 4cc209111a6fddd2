"""What the real server refuses of where a pod wants to run: affinity, spread, tolerations, gates.

A cluster of `trainyard up` has one node, which takes every pod; a manifest is told of its mistakes all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.metadata import WORD_TEXT, label_problems, name_problem
from trainyard.server.strategies.refusing import keyed, one_of, requirement, selector_problems

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WHERE_FROM = ("podAffinity", "podAntiAffinity")
UNSATISFIED = ("DoNotSchedule", "ScheduleAnyway")
HEEDED = ("Honor", "Ignore")
OPERATORS = ("Equal", "Exists")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HEAVIEST = 100


def placement_problems(spec: Json, path: str) -> Iterator[Problem]:
    if selector := spec.get("nodeSelector"):
        yield from label_problems(selector, f"{path}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    if affinity := spec.get("affinity"):
        yield from _of_nodes(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
        for kind in WHERE_FROM:
            yield from _of_pods(affinity.get(kind) or {}, f"{path}.affinity.{kind}")
    if spreads := spec.get("topologySpreadConstraints"):
        yield from _spreads(spreads, f"{path}.topologySpreadConstraints")
    if gates := spec.get("schedulingGates"):
        yield from _gates(gates, f"{path}.schedulingGates")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        yield from keyed(gate.get("conditionType") or "", f"{path}.readinessGates[{index}].conditionType")


def placement_warnings(spec: Json, path: str) -> Iterator[str]:
    """Terms that choose no pod."""
    terms = [
        (f"{path}.topologySpreadConstraints[{index}]", one)
        for index, one in enumerate(spec.get("topologySpreadConstraints") or ())
    ]
    for kind in WHERE_FROM if spec.get("affinity") else ():
        part, where = spec["affinity"].get(kind) or {}, f"{path}.affinity.{kind}"
        terms += [(f"{where}.{REQUIRED}[{index}]", one) for index, one in enumerate(part.get(REQUIRED) or ())]
        terms += [
            (f"{where}.{PREFERRED}[{index}].podAffinityTerm", one.get("podAffinityTerm") or {})
            for index, one in enumerate(part.get(PREFERRED) or ())
        ]
    for where, term in terms:
        if term.get("labelSelector") is None:
            yield f"{where}.labelSelector: a null labelSelector results in matching no pod"


def _of_nodes(part: Json, path: str) -> Iterator[Problem]:
    if (required := part.get(REQUIRED)) is not None:
        terms, where = required.get("nodeSelectorTerms") or (), f"{path}.{REQUIRED}.nodeSelectorTerms"
        if not terms:
            yield Problem(where, "Required value: must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_term(term, f"{where}[{index}]")
    for index, one in enumerate(part.get(PREFERRED) or ()):
        yield from _weight(one, f"{path}.{PREFERRED}[{index}]")
        yield from _node_term(one.get("preference") or {}, f"{path}.{PREFERRED}[{index}].preference")


def _node_term(term: Json, path: str) -> Iterator[Problem]:
    for index, one in enumerate(term.get("matchExpressions") or ()):
        yield from requirement(one, f"{path}.matchExpressions[{index}]", ("Gt", "Lt"))
    for index, one in enumerate(term.get("matchFields") or ()):
        yield from _node_field(one, f"{path}.matchFields[{index}]")


def _node_field(one: Json, path: str) -> Iterator[Problem]:
    """Of a node itself only its name can be asked for."""
    operator, values, key = one.get("operator") or "", one.get("values") or [], one.get("key") or ""
    if operator not in ("In", "NotIn"):
        yield Problem(f"{path}.operator", f"Invalid value: {shown(operator)}: not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield Problem(f"{path}.values", f"Required value: {text}")
    if key != "metadata.name":
        yield Problem(f"{path}.key", f"Invalid value: {shown(key)}: not a valid field selector key")
        return
    for index, value in enumerate(values):
        if bad := name_problem(value, "subdomain", f"{path}.values[{index}]"):
            yield bad


def _of_pods(part: Json, path: str) -> Iterator[Problem]:
    for index, term in enumerate(part.get(REQUIRED) or ()):
        yield from _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, one in enumerate(part.get(PREFERRED) or ()):
        yield from _weight(one, f"{path}.{PREFERRED}[{index}]")
        yield from _pod_term(one.get("podAffinityTerm") or {}, f"{path}.{PREFERRED}[{index}].podAffinityTerm")


def _pod_term(term: Json, path: str) -> Iterator[Problem]:
    for word in ("labelSelector", "namespaceSelector"):
        yield from selector_problems(term.get(word) or {}, f"{path}.{word}")
    for name in term.get("namespaces") or ():
        if bad := name_problem(name, "label", f"{path}.namespace"):
            yield bad
    yield from _label_keys(term, ("matchLabelKeys", "mismatchLabelKeys"), path)
    key = term.get("topologyKey") or ""
    if not key:
        yield Problem(f"{path}.topologyKey", "Required value: can not be empty")
    yield from keyed(key, f"{path}.topologyKey")


def _weight(one: Json, path: str) -> Iterator[Problem]:
    if not 0 < (weight := one.get("weight") or 0) <= _HEAVIEST:
        yield Problem(f"{path}.weight", f"Invalid value: {weight}: must be in the range 1-{_HEAVIEST}")


def _spreads(constraints: Any, path: str) -> Iterator[Problem]:
    for index, one in enumerate(constraints):
        where, key, more = f"{path}[{index}]", one.get("topologyKey") or "", constraints[index + 1 :]
        if (skew := one.get("maxSkew") or 0) < 1:
            yield Problem(f"{where}.maxSkew", f"Invalid value: {skew}: must be greater than zero")
        if not key:
            yield Problem(f"{where}.topologyKey", "Required value: can not be empty")
        yield from one_of(otherwise := one.get("whenUnsatisfiable") or "", UNSATISFIED, f"{where}.whenUnsatisfiable")
        if any((key, otherwise) == (other.get("topologyKey"), other.get("whenUnsatisfiable")) for other in more):
            text = f"Duplicate value: {shown(f'{{{key}, {otherwise}}}')}"
            yield Problem(f"{where}.{{topologyKey, whenUnsatisfiable}}", text)
        yield from _domains(one.get("minDomains"), otherwise, f"{where}.minDomains")
        for word in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(one.get(word), HEEDED, f"{where}.{word}")
        yield from selector_problems(one.get("labelSelector") or {}, f"{where}.labelSelector")
        yield from _label_keys(one, ("matchLabelKeys",), where)


def _domains(least: int | None, otherwise: str, where: str) -> Iterator[Problem]:
    if least is not None and least < 1:
        yield Problem(where, f"Invalid value: {least}: must be greater than zero")
    if least is not None and otherwise != UNSATISFIED[0]:
        text = f"can only use minDomains if whenUnsatisfiable={UNSATISFIED[0]}, not {otherwise}"
        yield Problem(where, f"Invalid value: {least}: {text}")


def _label_keys(one: Json, words: tuple[str, ...], path: str) -> Iterator[Problem]:
    """Keys whose values are those of the pod itself."""
    for word in words:
        if one.get(word) and one.get("labelSelector") is None:
            yield Problem(f"{path}.{word}", "Forbidden: must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(one.get(word) or ()):
            yield from keyed(key, f"{path}.{word}[{index}]")
            if any(key in (one.get(other) or ()) for other in words[1:] if word == words[0]):
                text = f"exists in both {words[0]} and {words[1]}"
                yield Problem(f"{path}.{word}[{index}]", f"Invalid value: {shown(key)}: {text}")


def _gates(gates: Any, path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        where, name = f"{path}[{index}]", gate.get("name") or ""
        if not name:
            yield Problem(where, 'Invalid value: "": name part must be non-empty')
            yield Problem(where, f'Invalid value: "": name part {WORD_TEXT}')
        if name in seen:
            yield Problem(where, f"Duplicate value: {shown(name)}")
        seen.add(name)


def _toleration(one: Json, where: str) -> Iterator[Problem]:
    key, operator, value, effect = (one.get(name) or "" for name in ("key", "operator", "value", "effect"))
    if key:
        yield from keyed(key, f"{where}.key")
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield Problem(f"{where}.operator", f"Invalid value: {shown(operator)}: {text}")
    if one.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield Problem(f"{where}.effect", f"Invalid value: {shown(effect)}: {text}")
    if operator == "Exists" and value:
        text = "value must be empty when `operator` is 'Exists'"
        yield Problem(f"{where}.operator", f"Invalid value: {shown(value)}: {text}")
    elif operator in ("", "Equal"):
        yield from label_problems({"key": value}, f"{where}.operator")
    yield from one_of(operator or None, OPERATORS, f"{where}.operator")
    yield from one_of(effect or None, EFFECTS, f"{where}.effect")
