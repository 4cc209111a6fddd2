"""`spec.replicaSpecs`, a list of replica sets with a type: shared by TfJob and MxJob, the two kinds of 2017.

Defaults, roles, replica statuses, and common CEL rules. The old operators' texts differ by kind (rules.md I.4, II.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trainyard.core import ExitAction, Job, Role, Rule, Slot
from trainyard.core.job_state import JobResult
from trainyard.core.names import digest
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds.definitions import columns
from trainyard.kinds.definitions.immutability import IS_FIXED_CEL, is_immutable
from trainyard.kinds.pods.templates import whole_number
from trainyard.objects import Json, Problem, templates_of

COLUMNS = (
    columns.STATE,
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    columns.READY,
    columns.RESTARTS,
    columns.AGE,
    {"name": "RuntimeId", "type": "string", "jsonPath": ".spec.RuntimeId", "priority": 1},
    {**columns.REASON, "jsonPath": ".status.reason"},  # the old operators wrote it in this field, too
    columns.BLOCKED,
)
PHASES = {
    "Created": ("Creating", ""),
    "Suspended": ("Creating", "Suspended"),
    "Starting": ("Running", "Starting"),
    "Running": ("Running", "Running"),
    "Succeeded": ("Done", "Succeeded"),
    "Failed": ("Done", "Failed"),
    "Invalid": ("Failed", "Failed"),
}
"""Outcome.phase -> (status.phase, status.state) (docs/rules.md I.5, II.4)."""

REPLICA_SPECS = "replicaSpecs"
REPLICA_SPECS_ALIAS = "replica_specs"


def list_field_of(spec: Json) -> str:
    """The name under which this spec has the list: replicaSpecs or replica_specs."""
    return REPLICA_SPECS_ALIAS if REPLICA_SPECS_ALIAS in spec and REPLICA_SPECS not in spec else REPLICA_SPECS


def items_of(spec: Json) -> list[Json]:
    """The replica sets of the spec; malformed ones are left out."""
    return _items(spec, list_field_of(spec))


def lists_of(spec: Json) -> list[list[Json]]:
    """The lists under both field names, without lists that contain null. Other rules report nulls and two lists."""
    values = [(name, spec[name]) for name in (REPLICA_SPECS, REPLICA_SPECS_ALIAS) if spec.get(name) is not None]
    return [_items(spec, name) for name, items in values if not (isinstance(items, list) and None in items)]


def _items(spec: Json, name: str) -> list[Json]:
    items = spec.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def with_defaults(spec: Json, fill: Callable[[Json], Json]) -> Json:
    """The spec with `fill` applied to every replica set, under the field name that the user wrote."""
    name = list_field_of(spec)
    items = spec.get(name)
    if not isinstance(items, list):
        return spec
    return {**spec, name: [fill(item) if isinstance(item, dict) else item for item in items]}


def roles_of(spec: Json, type_field: str, port_field: str) -> tuple[Role, ...]:
    """The roles of a spec with defaults, in its order.

    Validation reports a type that is listed twice; here its first replica set is used. It also reports replicas above
    the schema's maximum; here they are limited to it, because each replica costs memory and objects stored under an
    older CRD may have any number.
    """
    roles: dict[str, Role] = {}
    for item in items_of(spec):
        name, port, template = item.get(type_field), whole_number(item.get(port_field)), item.get("template")
        replicas = whole_number(item.get("replicas"))
        if not isinstance(name, str) or port is None or replicas is None:
            continue
        pod_template = template if isinstance(template, dict) else {}
        count = min(max(0, replicas), MAX_REPLICAS)
        default_ps = ["IsDefaultPS"] if item.get("IsDefaultPS") is True else []
        roles.setdefault(name, Role(name, count, port, pod_template, digest(pod_template, port, *default_ps)))
    return tuple(roles.values())


def role_state(states: Mapping[str, int]) -> str:
    """The state of a replica set, first match (rules.md I.11.4). The old operators never wrote Starting."""
    if states.get("Failed"):
        return "Failed"
    if states.get("Running"):
        return "Running"
    if states and set(states) == {"Succeeded"}:
        return "Succeeded"
    return "Starting" if states.get("Starting") else "Unknown"


def replica_statuses(counts: Mapping[str, Mapping[str, int]], type_field: str) -> list[Json]:
    """status.replicaStatuses from {role: {replica state: count}}."""
    order = ("Unknown", "Starting", "Running", "Failed", "Succeeded")
    return [
        {
            type_field: role,
            "state": role_state(states),
            "ReplicasStates": {state: states[state] for state in order if states.get(state)},
        }
        for role, states in counts.items()
    ]


def on_exit(job: Job, slot: Slot, code: int, reason: str) -> ExitAction:
    """Exit codes 1 to 127, and OOMKilled with any code, are not retried (docs/rules.md I.11.3, II.8)."""
    return ExitAction.FAIL if reason == "OOMKilled" or 1 <= code <= 127 else ExitAction.RETRY


def legacy_outcome(status: Json) -> JobResult:
    """The result as an old operator wrote it, without conditions (docs/rules.md I.5)."""
    state = status.get("state")
    return "Succeeded" if state == "Succeeded" else "Failed" if state == "Failed" else ""


def policy_warnings(job: Job) -> tuple[Problem, ...]:
    """Warnings about restart policies that a batch Job does not accept (S31)."""
    supervised_roles = {slot.role for slot in job.supervised_slots()}
    problems = []
    for role in job.parsed.roles:
        spec = (role.template or {}).get("spec")
        policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
        if policy in (None, "", "Always"):
            is_supervised = role.name in supervised_roles
            replacement = "Never is used, and the operator tries again" if is_supervised else "OnFailure is used"
            text = f"of {role.name} is {policy or 'not set'}, which a batch Job does not take; {replacement}"
            templates = templates_of(job.parsed.spec, "spec")
            path = next((path for path, template in templates if template is role.template), "spec")
            problems.append(Problem(f"{path}.spec.restartPolicy", text))
    return tuple(problems)


def printed_replica_spec(item: Json, fields: tuple[str, ...]) -> str:
    """A replica spec as JSON as in the old operators' texts: indented by two spaces, in the order of `fields`."""
    return json.dumps({name: item[name] for name in fields if item.get(name) is not None}, indent=2)


def has_template_cel(item: str) -> str:
    """CEL: the replica set has a template. Null counts as unset."""
    return f"(has({item}.template) && {item}.template != null)"


class ReplicaType(msgspec.Struct, frozen=True):
    """The field of a replica set that has its type, and the type of a set without it."""

    field: str
    default: str

    def of_item(self, item: Json) -> Any:
        """The type of a replica set."""
        return item.get(self.field, self.default)


def one_name_rule(name: str, other: str, nullable: bool = False) -> Rule:
    """The rule that a spec has only one of two names of a field. Null counts as unset.

    `nullable`: the field is an object, which CEL can compare with null; for a typed list this does not compile.
    """
    paths = [f"self.{field}" for field in (name, other)]
    both = " && ".join(f"has({path}) && {path} != null" if nullable else f"has({path})" for path in paths)
    return Rule(
        "spec",
        f"!({both})",
        lambda spec, old: spec.get(name) is None or spec.get(other) is None,
        f"{name} and {other} are the same field: write one of the two",
        field=other,
    )


NULL_TEXT = "there was a problem setting defaults for job spec: ReplicaSpecs contain nil"
"""The old operator's text for a replica set that is null (docs/rules.md II.3)."""


def has_null_cel(list_path: str) -> str:
    """CEL: the list contains null, so other rules must not access fields of its items."""
    return f"{list_path}.exists(r, r == null)"


NO_NULL_RULE = Rule(
    f"spec.{REPLICA_SPECS}",
    f"!({has_null_cel('self')})",
    lambda items, old: None not in items,
    f"{NULL_TEXT}; write the set out, or take the empty item away",
    detail=lambda items: f"{NULL_TEXT}; item {items.index(None)} is empty: write the set out, or take the item away",
    early=True,
)


def not_empty_rule(write: str) -> Rule:
    """The rule that the list is not empty. `write` says what to list."""
    return Rule(
        "spec",
        "(has(self.replicaSpecs) && self.replicaSpecs.size() > 0)"
        " || (has(self.replica_specs) && self.replica_specs.size() > 0)",
        lambda spec, old: bool(spec.get(REPLICA_SPECS) or spec.get(REPLICA_SPECS_ALIAS)),
        f"a job has replicas: write replicaSpecs, a list with {write}",
        field=REPLICA_SPECS,
    )


def unique_types_rule(typed: ReplicaType, except_type: str = "") -> Rule:
    """The rule that no type is listed twice, except the type `but`, which another rule checks."""
    field = typed.field
    return Rule(
        f"spec.{REPLICA_SPECS}",
        f"{has_null_cel('self')}"
        f" || self.all(r, r.{field} == '{except_type}' || self.filter(o, o.{field} == r.{field}).size() == 1)",
        lambda items, old: _has_no_duplicates([typed.of_item(item) for item in items], except_type),
        "a type may be listed only once: put its replicas into one set",
    )


def _has_no_duplicates(names: list[str], but: str) -> bool:
    return all(names.count(name) == 1 for name in names if name != but)


class ImmutableFields(msgspec.Struct, frozen=True):
    """Further fields that are fixed once a job has started, compared in CEL and, as a function, in Python.

    `spec_cel` and `is_same_spec` compare fields of the spec, `replica_set_cel` and `is_same_replica_set` fields of a
    replica set (r is new, o is old).
    """

    spec_cel: str
    is_same_spec: Callable[[Json, Json], bool]
    replica_set_cel: str
    is_same_replica_set: Callable[[Json, Json], bool]


def immutable_rule(typed: ReplicaType, immutable_fields: ImmutableFields, text: str) -> Rule:
    """The rule that the replica sets and `immutable_fields` do not change once the job has started (S11). `text` begins
    its message."""

    def is_unchanged(new: Any, old: Any) -> bool:
        if not is_immutable(new, old):
            return True
        lists = [(new["spec"].get(name), old["spec"].get(name)) for name in (REPLICA_SPECS, REPLICA_SPECS_ALIAS)]
        return immutable_fields.is_same_spec(new["spec"], old["spec"]) and all(
            _is_same_list(typed, immutable_fields, *pair) for pair in lists
        )

    lists_cel = " && ".join(
        _same_list_cel(typed, immutable_fields, name) for name in (REPLICA_SPECS, REPLICA_SPECS_ALIAS)
    )
    return Rule(
        "",
        f"!({IS_FIXED_CEL}) || ({immutable_fields.spec_cel} && {lists_cel})",
        is_unchanged,
        f"{text} once the job has started: suspend it and edit it then, or make a new job",
        transition=True,
        field=f"spec.{REPLICA_SPECS}",
    )


def _same_list_cel(typed: ReplicaType, immutable_fields: ImmutableFields, name: str) -> str:
    """CEL: the list under one field name is unchanged. In CEL the two lists have different types, so one expression
    cannot stand for both."""
    new, old = f"self.spec.{name}", f"oldSelf.spec.{name}"
    return (
        f"has({new}) == has({old}) && (!has({new}) || {has_null_cel(new)} || ({new}.size() == {old}.size()"
        f" && {new}.all(r, {old}.exists(o, o.{typed.field} == r.{typed.field} && o.replicas == r.replicas"
        f" && (!{has_template_cel('r')} || !{has_template_cel('o')} || r.template == o.template)"
        f" && {immutable_fields.replica_set_cel}))))"
    )


def _is_same_list(typed: ReplicaType, immutable_fields: ImmutableFields, new: Any, old: Any) -> bool:
    if new is None or old is None:
        return new is None and old is None
    old_sets, new_sets = ({typed.of_item(item): item for item in items} for items in (old, new))
    return (
        len(new) == len(old)
        and new_sets.keys() == old_sets.keys()
        and all(
            _is_same_set(new_sets[name], old_sets[name])
            and immutable_fields.is_same_replica_set(new_sets[name], old_sets[name])
            for name in new_sets
        )
    )


def _is_same_set(new: Json, old: Json) -> bool:
    # `kubectl apply` removes a stored default template from the spec; the template in effect is the same (S29).
    templates = new.get("template"), old.get("template")
    is_same_template = None in templates or templates[0] == templates[1]
    return is_same_template and bool(new.get("replicas", 1) == old.get("replicas", 1))


RUNTIME_ID_IMMUTABLE_RULE = Rule(
    "",
    "!has(oldSelf.spec.RuntimeId) || oldSelf.spec.RuntimeId == '' || !has(self.spec.RuntimeId)"
    " || self.spec.RuntimeId == oldSelf.spec.RuntimeId",
    lambda job, old: (
        not old["spec"].get("RuntimeId") or job["spec"].get("RuntimeId") in (None, old["spec"]["RuntimeId"])
    ),
    "RuntimeId names the children and cannot change: leave it as it is",
    transition=True,
    field="spec.RuntimeId",
)
