"""What an API server needs to know of a kind: its CustomResourceDefinition, and its rules as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainyard.core import Config, Job, Kind, Rule, parse_job, violations, with_aliases
from trainyard.core.policy import OTHERS, OURS, is_managed_here
from trainyard.kinds.misspelt import misspelt_fields
from trainyard.kinds.templates import templates_of
from trainyard.objects import GVK, Json, Problem
from trainyard.objects.ineffective import ineffective_fields
from trainyard.objects.values import replace
from trainyard.objects.words import short
from trainyard.schema import Schema, from_struct

KEEP = "x-kubernetes-preserve-unknown-fields"


def served(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Every kind once for each API group under which it is served."""
    return tuple(
        replace(kind, gvk=replace(kind.gvk, group=group), groups=())
        for kind in kinds
        for group in (kind.gvk.group, *kind.groups)
    )


def crd(kind: Kind) -> Json:
    """The CustomResourceDefinition."""
    gvk = kind.gvk
    version = {
        "name": gvk.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}, **({"scale": dict(kind.scale)} if kind.scale else {})},
        "additionalPrinterColumns": [dict(column) for column in kind.columns],
    }
    names: Json = {"kind": gvk.kind, "listKind": f"{gvk.kind}List", "plural": gvk.plural, "singular": kind.singular}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{gvk.plural}.{gvk.group}"},
        "spec": {"group": gvk.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def schema(kind: Kind) -> Json:
    """The structural schema of the whole object, CEL rules included. Unknown fields of the spec are kept (S30)."""
    root: Json = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},  # what rules and paths name
            "spec": {**from_struct(kind.spec_type), KEEP: True},
            # Rules may name only what the schema names, so the one field of status that they look at stands here.
            "status": {"type": "object", KEEP: True, "properties": {"roles": {"type": "object", KEEP: True}}},
        },
    }
    for rule in with_aliases(kind.rules, kind.field_aliases):
        node = _at(root, rule.path)
        node["x-kubernetes-validations"] = [*node.get("x-kubernetes-validations", []), _wire(rule)]
    return root


def _at(root: Json, path: str) -> Json:
    node = root
    for part in filter(None, path.split(".")):
        node = node["properties"][part.removesuffix("[]").removesuffix("{}")]
        if part.endswith(("[]", "{}")):
            node = node["items" if part.endswith("[]") else "additionalProperties"]
    return node


def _wire(rule: Rule) -> Json:
    wire = {"rule": rule.cel, "message": rule.default_message}
    return {**wire, "fieldPath": f".{rule.at}"} if rule.at else wire


_compiled: dict[GVK, tuple[Json, Schema]] = {}


def _schemas_of(kind: Kind) -> tuple[Json, Schema]:
    """The schema of the whole object, and the same compiled."""
    found = _compiled.get(kind.gvk)
    if found is None:
        whole = schema(kind)
        found = _compiled[kind.gvk] = whole, Schema.ours(whole)
    return found


def admit(kind: Kind, wire: Json) -> tuple[Json, list[Problem]]:
    """What an API server would do with a new object: defaults filled in, and every problem."""
    compiled = _schemas_of(kind)[1]
    full = compiled.default(wire)
    return full, [*compiled.validate(full), *check(kind)(full, None)]


def misspelt(kind: Kind, wire: Json) -> tuple[list[Problem], Json]:
    """Misspelt names of fields, and the job as it was meant. A server keeps such fields (S30); a file is refused."""
    return misspelt_fields(_schemas_of(kind)[0], wire)


def warnings(kind: Kind, wire: Json) -> list[Problem]:
    """What is accepted and still probably not meant (S30, S31)."""
    job = parse_job(kind, wire, Config())
    text = "is not known here and will not be looked at; is it spelled right?"
    return [*(Problem(path, text) for path in job.parsed.unknown), *_handed_over(job), *kind.warnings(job)]


def _handed_over(job: Job) -> list[Problem]:
    """A job that nobody may ever run: its `managedBy` names a controller of which nothing is known here."""
    named = job.policy.managed_by
    if is_managed_here(job) or named in OTHERS:
        return []
    known = ", ".join((OURS, *sorted(OTHERS)))
    text = (
        f"names {short(named)}, so that Trainyard makes no request for the job; known are {known}, and nothing at all"
    )
    return [Problem("spec.managedBy", text)]


def notes(kind: Kind, wire: Json) -> list[Problem]:
    """Fields of its pods that have no effect on one machine: one for each field, with the roles that it stands in.

    They are no warnings: on a cluster these fields have an effect.
    """
    job = parse_job(kind, wire, Config())
    roles: dict[str, list[str]] = {}
    first: dict[str, Problem] = {}
    for place, template in templates_of(wire.get("spec"), "spec"):
        found = [role.name for role in job.parsed.roles if role.template is template]
        for path, field, reason in ineffective_fields(template):
            first.setdefault(field, Problem(f"{place}.{path}", reason))
            named = roles.setdefault(field, [])
            named += [name for name in found if name not in named]
    return [replace(one, text=_note(one.text, roles[field])) for field, one in first.items()]


def _note(reason: str, roles: list[str]) -> str:
    whose = f" ({', '.join(roles)})" if roles else ""
    return f"no effect on one machine{whose}: {reason}"


def check(kind: Kind) -> Callable[[Json, Json | None], list[Problem]]:
    """The kind's cross-field rules for an admission that has no CEL: (new, old or None) -> problems."""
    rules = with_aliases(kind.rules, kind.field_aliases)
    return lambda new, old: violations(rules, new, old)
