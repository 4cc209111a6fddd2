"""`spec.replicaSpecs`, a list of typed replica sets: what the two kinds of 2017 share.

Defaults, roles, replica statuses, and the rules that both have. The old texts are each kind's own (rules.md I.4, II.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trainyard.core import Job, Role, Rule
from trainyard.core.names import digest
from trainyard.core.status import MOST_REPLICAS
from trainyard.kinds import columns
from trainyard.kinds.templates import templates_of, whole
from trainyard.objects import Json, Problem

COLUMNS = (
    columns.STATE,
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    columns.READY,
    columns.RESTARTS,
    columns.AGE,
    {"name": "RuntimeId", "type": "string", "jsonPath": ".spec.RuntimeId", "priority": 1},
    {**columns.REASON, "jsonPath": ".status.reason"},  # the old operators wrote it there, too
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
"""The phase and the state of each stage (docs/rules.md I.5, II.4)."""

FIELD = "replicaSpecs"
OTHER_FIELD = "replica_specs"


def field_of(spec: Json) -> str:
    """The spelling that this spec uses."""
    return OTHER_FIELD if OTHER_FIELD in spec and FIELD not in spec else FIELD


def items_of(spec: Json) -> list[Json]:
    return _items(spec, field_of(spec))


def lists_of(spec: Json) -> list[list[Json]]:
    """The lists that are there, one for each spelling; more than one, or a null in one, is a problem of its own."""
    given = [(name, spec[name]) for name in (FIELD, OTHER_FIELD) if spec.get(name) is not None]
    return [_items(spec, name) for name, listed in given if not (isinstance(listed, list) and None in listed)]


def _items(spec: Json, name: str) -> list[Json]:
    listed = spec.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def filled(spec: Json, fill: Callable[[Json], Json]) -> Json:
    """The spec with every item of the list filled in, in the spelling the user wrote."""
    name = field_of(spec)
    listed = spec.get(name)
    if not isinstance(listed, list):
        return spec
    return {**spec, name: [fill(one) if isinstance(one, dict) else one for one in listed]}


def roles_of(spec: Json, type_field: str, port_field: str) -> tuple[Role, ...]:
    """The roles of a filled spec, in its order. A type that is listed twice is a problem; here the first one holds.

    So is a count beyond the schema's; here it is cut, because every replica costs and an older definition stores any.
    """
    roles: dict[str, Role] = {}
    for item in items_of(spec):
        name, port, template = item.get(type_field), whole(item.get(port_field)), item.get("template")
        replicas = whole(item.get("replicas"))
        if not isinstance(name, str) or port is None or replicas is None:
            continue
        shape = template if isinstance(template, dict) else {}
        count = min(max(0, replicas), MOST_REPLICAS)
        roles.setdefault(
            name,
            Role(
                name,
                count,
                port,
                shape,
                digest(shape, port, *(["IsDefaultPS"] if item.get("IsDefaultPS") is True else [])),
            ),
        )
    return tuple(roles.values())


def role_state(states: Mapping[str, int]) -> str:
    """One state for a set of replicas, first match (rules.md I.11.4); Starting is what the old code never wrote."""
    if states.get("Failed"):
        return "Failed"
    if states.get("Running"):
        return "Running"
    if states and set(states) == {"Succeeded"}:
        return "Succeeded"
    return "Starting" if states.get("Starting") else "Unknown"


def replica_statuses(tally: Mapping[str, Mapping[str, int]], type_field: str) -> list[Json]:
    order = ("Unknown", "Starting", "Running", "Failed", "Succeeded")
    return [
        {
            type_field: role,
            "state": role_state(states),
            "ReplicasStates": {state: states[state] for state in order if states.get(state)},
        }
        for role, states in tally.items()
    ]


def old_end(status: Json) -> str:
    """A job that an older operator finished: `state` says how, and `conditions` is null (docs/rules.md I.5)."""
    state = status.get("state")
    return str(state) if state in ("Succeeded", "Failed") else ""


def policy_warnings(job: Job) -> tuple[Problem, ...]:
    """Restart policies that a batch Job does not take (S31)."""
    judged = {slot.role for slot in job.kind.supervised_slots_of(job)}
    found = []
    for role in job.parsed.roles:
        spec = (role.template or {}).get("spec")
        policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
        if policy in (None, "", "Always"):
            instead = "Never is used, and the operator tries again" if role.name in judged else "OnFailure is used"
            text = f"of {role.name} is {policy or 'not set'}, which a batch Job does not take; {instead}"
            place = next(
                (place for place, one in templates_of(job.parsed.spec, "spec") if one is role.template), "spec"
            )
            found.append(Problem(f"{place}.spec.restartPolicy", text))
    return tuple(found)


def as_go(item: Json, fields: tuple[str, ...]) -> str:
    """A replica spec as the old operators printed it in their texts: two spaces, their order of fields."""
    return json.dumps({name: item[name] for name in fields if item.get(name) is not None}, indent=2)


def given(item: str) -> str:
    """CEL: a template that is null counts as one that is left out."""
    return f"(has({item}.template) && {item}.template != null)"


class Typed(NamedTuple):
    """How a kind names the type of a set, and the type of a set that does not say."""

    field: str
    default: str

    def of(self, item: Json) -> Any:
        return item.get(self.field, self.default)


FIXED = (
    "has(oldSelf.status) && has(oldSelf.status.roles) && !(has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"
    " && !(has(self.spec.suspend) && self.spec.suspend)"
)


def is_fixed(new: Json, old: Json) -> bool:
    """The job has started, and is not suspended before or after the edit: what shapes it is fixed (S11).

    Kueue suspends a job and takes back what it has put into the templates in one update, and resumes it so, too.
    """
    held = any(job["spec"].get("suspend") is True for job in (new, old))
    return bool((old.get("status") or {}).get("roles")) and not held


def one_spelling(name: str, other: str, nullable: bool = False) -> Rule:
    """Null counts as left out; only an object may be compared with it, for a list that is typed so does not compile."""
    names = [f"self.{one}" for one in (name, other)]
    both = " && ".join(f"has({one}) && {one} != null" if nullable else f"has({one})" for one in names)
    return Rule(
        "spec",
        f"!({both})",
        lambda spec, old: spec.get(name) is None or spec.get(other) is None,
        f"{name} and {other} are the same field: write one of the two",
        at=other,
    )


NIL = "there was a problem setting defaults for job spec: ReplicaSpecs contain nil"
"""The old text for a set that is null (docs/rules.md II.3)."""


def has_null(listed: str) -> str:
    """CEL: a set is null, so that no other rule may look into the sets of this list."""
    return f"{listed}.exists(r, r == null)"


NO_NULL = Rule(
    f"spec.{FIELD}",
    f"!({has_null('self')})",
    lambda items, old: None not in items,
    f"{NIL}; write the set out, or take the empty item away",
    detail=lambda items: f"{NIL}; item {items.index(None)} is empty: write the set out, or take the item away",
    early=True,
)


def some_replicas(write: str) -> Rule:
    return Rule(
        "spec",
        "(has(self.replicaSpecs) && self.replicaSpecs.size() > 0)"
        " || (has(self.replica_specs) && self.replica_specs.size() > 0)",
        lambda spec, old: bool(spec.get(FIELD) or spec.get(OTHER_FIELD)),
        f"a job has replicas: write replicaSpecs, a list with {write}",
        at=FIELD,
    )


def listed_once(typed: Typed, but: str = "") -> Rule:
    """No type is listed twice, except one that another rule looks after."""
    field = typed.field
    return Rule(
        f"spec.{FIELD}",
        f"{has_null('self')}"
        f" || self.all(r, r.{field} == '{but}' || self.filter(o, o.{field} == r.{field}).size() == 1)",
        lambda items, old: _once([typed.of(item) for item in items], but),
        "a type may be listed only once: put its replicas into one set",
    )


def _once(names: list[str], but: str) -> bool:
    return all(names.count(name) == 1 for name in names if name != but)


class Fixed(NamedTuple):
    """What else of a job (`whole`) and of a set (`each`) is fixed once it has started: CEL, and the same in Python."""

    whole: str
    same: Callable[[Json, Json], bool]
    each: str
    same_set: Callable[[Json, Json], bool]


def fixed(typed: Typed, what: Fixed, text: str) -> Rule:
    """Nothing that shapes the cluster differs, or the job may still change: not started, or suspended (S11)."""

    def same_shape(new: Any, old: Any) -> bool:
        if not is_fixed(new, old):
            return True
        given = [(new["spec"].get(name), old["spec"].get(name)) for name in (FIELD, OTHER_FIELD)]
        return what.same(new["spec"], old["spec"]) and all(_same_list(typed, what, *pair) for pair in given)

    lists = " && ".join(_same_in_cel(typed, what, name) for name in (FIELD, OTHER_FIELD))
    return Rule(
        "",
        f"!({FIXED}) || ({what.whole} && {lists})",
        same_shape,
        f"{text} once the job has started: suspend it and edit it then, or make a new job",
        transition=True,
        at=f"spec.{FIELD}",
    )


def _same_in_cel(typed: Typed, what: Fixed, name: str) -> str:
    """For one spelling: to a cluster the two lists are of different types, so nothing may stand for either."""
    new, old = f"self.spec.{name}", f"oldSelf.spec.{name}"
    return (
        f"has({new}) == has({old}) && (!has({new}) || {has_null(new)} || ({new}.size() == {old}.size()"
        f" && {new}.all(r, {old}.exists(o, o.{typed.field} == r.{typed.field} && o.replicas == r.replicas"
        f" && (!{given('r')} || !{given('o')} || r.template == o.template) && {what.each}))))"
    )


def _same_list(typed: Typed, what: Fixed, new: Any, old: Any) -> bool:
    if new is None or old is None:
        return new is None and old is None
    before, now = ({typed.of(item): item for item in listed} for listed in (old, new))
    return (
        len(new) == len(old)
        and now.keys() == before.keys()
        and all(_same_set(now[name], before[name]) and what.same_set(now[name], before[name]) for name in now)
    )


def _same_set(new: Json, old: Json) -> bool:
    # A default template that `kubectl apply` takes away again is the default all the same (S29).
    templates = new.get("template"), old.get("template")
    same = None in templates or templates[0] == templates[1]
    return same and bool(new.get("replicas", 1) == old.get("replicas", 1))


RUNTIME_ID_STAYS = Rule(
    "",
    "!has(oldSelf.spec.RuntimeId) || oldSelf.spec.RuntimeId == '' || !has(self.spec.RuntimeId)"
    " || self.spec.RuntimeId == oldSelf.spec.RuntimeId",
    lambda job, old: (
        not old["spec"].get("RuntimeId") or job["spec"].get("RuntimeId") in (None, old["spec"]["RuntimeId"])
    ),
    "RuntimeId names the children and cannot change: leave it as it is",
    transition=True,
    at="spec.RuntimeId",
)
