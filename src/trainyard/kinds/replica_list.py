"""`spec.replicaSpecs`, a list of typed replica sets: what the two kinds of 2017 share.

Defaults, roles and replica statuses. The texts of the rules are each kind's own (contract I.4, II.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from trainyard.core import Job, Role
from trainyard.core.names import digest
from trainyard.core.status import MOST_REPLICAS
from trainyard.objects import Json, Problem

FIELD = "replicaSpecs"
OTHER_FIELD = "replica_specs"


def field_of(spec: Json) -> str:
    """The spelling that this spec uses."""
    return OTHER_FIELD if OTHER_FIELD in spec and FIELD not in spec else FIELD


def items_of(spec: Json) -> list[Json]:
    listed = spec.get(field_of(spec))
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
        name, port, template = item.get(type_field), item.get(port_field), item.get("template")
        replicas = item.get("replicas")
        if not isinstance(name, str) or not isinstance(port, int) or not isinstance(replicas, int):
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
    """One state for a set of replicas, first match (contract I.11.4); Starting is what the old code never wrote."""
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


def policy_warnings(job: Job) -> tuple[Problem, ...]:
    """Restart policies that a batch Job does not take (S31)."""
    judged = {slot.role for slot in job.kind.judged(job)}
    found = []
    for role in job.wanted.roles:
        spec = (role.template or {}).get("spec")
        policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
        if policy not in ("OnFailure", "Never"):
            instead = "Never is used, and the operator tries again" if role.name in judged else "OnFailure is used"
            text = f"restartPolicy is {policy or 'not set'}, which a batch Job does not take; {instead}"
            found.append(Problem(f"spec ({role.name})", text))
    return tuple(found)


def as_go(item: Json, fields: tuple[str, ...]) -> str:
    """A replica spec as the old operators printed it in their texts: two spaces, their order of fields."""
    return json.dumps({name: item[name] for name in fields if item.get(name) is not None}, indent=2)
