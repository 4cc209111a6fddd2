"""CustomResourceDefinitions of the kinds, and admission, warnings and notes for their objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from trainyard.core import Config, Job, Kind, Rule, TemplateKind, parse_job, violations, with_aliases
from trainyard.core.annotations import annotation_problems
from trainyard.core.policies import progress
from trainyard.core.policies.managed_by import KNOWN_CONTROLLERS, is_managed_here
from trainyard.core.rules import field_and_items
from trainyard.kinds.definitions import misplaced_fields
from trainyard.kinds.definitions.immutability import rules_of
from trainyard.kinds.definitions.misspellings import misspelt_fields
from trainyard.kinds.definitions.size_variables import size_warnings
from trainyard.objects import GVK, Json, Problem, annotations_of, templates_of
from trainyard.objects.ineffective_fields import ineffective_fields
from trainyard.objects.review import Reviewer
from trainyard.objects.structs import replace
from trainyard.objects.yaml_scalars import shorten
from trainyard.schema import Schema, from_struct, read_ahead

KEEP = "x-kubernetes-preserve-unknown-fields"


def crds(kinds: Iterable[Kind]) -> Iterator[Json]:
    """The CustomResourceDefinitions of these kinds, and of the objects that have their templates. Faster than `crd` for
    each of them."""
    kinds = tuple(kinds)
    read_ahead(version.api.spec_type for kind in kinds for version in kind.versions)
    for kind in kinds:
        yield crd(kind)
        for template_kind in template_kinds(kind):
            yield template_kind.definition()


def template_kinds(kind: Kind) -> tuple[TemplateKind, ...]:
    """The kinds of objects that have the templates of this kind's jobs; none if they are in the spec."""
    return kind.template_source.kinds if kind.template_source else ()


def crd(kind: Kind) -> Json:
    """The CustomResourceDefinition of the kind, with all its versions."""
    if kind.api.definition is not None:
        return kind.api.definition()
    gvk = kind.gvk
    versions = [_crd_version(version, stored=version is kind) for version in kind.versions]
    names: Json = {"kind": gvk.kind, "listKind": f"{gvk.kind}List", "plural": gvk.plural, "singular": kind.api.singular}
    if kind.api.short_names:
        names["shortNames"] = list(kind.api.short_names)
    if kind.api.categories:
        names["categories"] = list(kind.api.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{gvk.plural}.{gvk.group}"},
        "spec": {"group": gvk.group, "names": names, "scope": "Namespaced", "versions": versions},
    }


def _crd_version(kind: Kind, stored: bool) -> Json:
    return {
        "name": kind.gvk.version,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}, **({"scale": dict(kind.api.scale)} if kind.api.scale else {})},
        "additionalPrinterColumns": [dict(column) for column in kind.api.columns],
    }


def schema(kind: Kind) -> Json:
    """The structural schema of the whole object, with its CEL rules. Unknown fields of the spec are preserved (S30),
    unless the kind has a definition of its own."""
    if kind.api.definition is not None:
        (version,) = kind.api.definition()["spec"]["versions"]
        own: Json = version["schema"]["openAPIV3Schema"]
        return own
    root: Json = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},  # the rules use it
            "spec": {**from_struct(kind.api.spec_type), KEEP: True},
            # CEL rules may use only fields of the schema, so it has the one status field that they use.
            "status": {"type": "object", KEEP: True, "properties": {"roles": {"type": "object", KEEP: True}}},
        },
    }
    for rule in with_aliases(rules_of(kind), kind.api.field_aliases):
        root = with_rule(root, rule.path.split(".") if rule.path else [], rule)
    return root


def with_rule(node: Json, path: Sequence[str], rule: Rule) -> Json:
    """A copy of the schema with the rule at that path below it, as in `Rule.path`. What is not on the path is shared:
    the schemas of pods are those of all kinds."""
    if not path:
        return {**node, "x-kubernetes-validations": [*node.get("x-kubernetes-validations", []), _validation_rule(rule)]}
    name, items = field_and_items(path[0])
    field_schema = node["properties"][name]
    if not items:
        field_schema = with_rule(field_schema, path[1:], rule)
    else:
        inner = "additionalProperties" if items == "{}" else "items"
        field_schema = {**field_schema, inner: with_rule(field_schema[inner], path[1:], rule)}
    return {**node, "properties": {**node["properties"], name: field_schema}}


def _validation_rule(rule: Rule) -> Json:
    validation = {"rule": rule.cel, "message": rule.default_message}
    return {**validation, "fieldPath": f".{rule.field}"} if rule.field else validation


_compiled_schemas: dict[GVK, tuple[Json, Schema]] = {}


def _schemas_of(kind: Kind) -> tuple[Json, Schema]:
    """The schema of the whole object as JSON and compiled, cached by kind."""
    cached = _compiled_schemas.get(kind.gvk)
    if cached is None:
        document = schema(kind)
        cached = _compiled_schemas[kind.gvk] = document, Schema.trusted(document)
    return cached


def admit(kind: Kind, obj: Json) -> tuple[Json, list[Problem]]:
    """Admission of a new object as in an API server: the object with defaults, and every problem. In addition the
    problems that the API server reports only for the pods, and annotations that it does not know."""
    from trainyard.kinds.definitions.pod_checks import pod_problems_of  # imported here because most commands do without

    compiled = _schemas_of(kind)[1]
    defaulted = compiled.default(obj)
    problems = [*compiled.validate(defaulted), *rules_check(kind)(defaulted, None)]
    problems += pod_problems_of(kind, defaulted, problems)
    return defaulted, [*problems, *progress.annotation_problems(annotations_of(defaulted))]


def misspelling_problems(kind: Kind, wire: Json) -> tuple[list[Problem], Json]:
    """A problem for each misspelt field name, and the job with the corrected names.

    An API server preserves such fields (S30); `lint`, `plan`, `run` and `submit` reject files with them.
    """
    return misspelt_fields(_schemas_of(kind)[0], wire)


def warnings(kind: Kind, wire: Json) -> list[Problem]:
    """Fields that are accepted but are probably a mistake (S30, S31)."""
    job = parse_job(kind, wire, Config())
    spec_schema = _schemas_of(kind)[0]["properties"]["spec"] if job.parsed.unknown else {}
    unknown = [
        Problem(path, misplaced_fields.warning_text(spec_schema, job.parsed.spec, path)) for path in job.parsed.unknown
    ]
    return [
        *unknown,
        *_managed_by_warnings(job),
        *size_warnings(job),
        *annotation_problems(job),
        *kind.api.warnings(job),
    ]


def _managed_by_warnings(job: Job) -> list[Problem]:
    """A warning when `managedBy` is a controller unknown to Trainyard: perhaps no controller runs the job."""
    managed_by = job.policy.managed_by
    if is_managed_here(job) or managed_by in KNOWN_CONTROLLERS:
        return []
    known = ", ".join((*job.kind.api.managers, *sorted(KNOWN_CONTROLLERS)))
    text = f"names {shorten(managed_by)}, so that Trainyard ignores the job; known are {known}; or leave it out"
    return [Problem(".".join(job.kind.api.policy_path("managedBy")), text)]


def notes(kind: Kind, wire: Json, is_given_out: Callable[[str], bool] = lambda resource: False) -> list[Problem]:
    """Fields of the job without effect on one machine: one Problem for each, with the roles of a pod field.
    `is_given_out`: whether the machine may have devices of a resource.

    They are not warnings: on a cluster these fields have an effect.
    """
    job = parse_job(kind, wire, Config())
    roles: dict[str, list[str]] = {}
    first: dict[str, Problem] = {}
    for template_path, template in templates_of(wire.get("spec"), "spec"):
        template_roles = [role.name for role in job.parsed.roles if role.template is template]
        for path, field, reason in ineffective_fields(template, is_given_out=is_given_out):
            first.setdefault(field, Problem(f"{template_path}.{path}", reason))
            field_roles = roles.setdefault(field, [])
            field_roles += [name for name in template_roles if name not in field_roles]
    of_pods = [replace(problem, text=_note_text(problem.text, roles[field])) for field, problem in first.items()]
    return [*of_pods, *(replace(note, text=_note_text(note.text, [])) for note in kind.api.notes(job))]


def _note_text(reason: str, roles: list[str]) -> str:
    role_names = f" ({', '.join(roles)})" if roles else ""
    return f"no effect on one machine{role_names}: {reason}"


def rules_check(kind: Kind) -> Callable[[Json, Json | None], list[Problem]]:
    """The kind's CEL rules as a Python function (new, old or None) -> problems, for admission without CEL."""
    rules = {version.gvk: with_aliases(rules_of(version), version.api.field_aliases) for version in kind.versions}
    return lambda new, old: violations(rules[kind.version_of(new).gvk], new, old)


def template_checks(kind: Kind) -> dict[tuple[str, str], Callable[[Json, Json | None], list[Problem]]]:
    """As rules_check, for each kind of objects that have the templates of this kind's jobs, by group and kind."""
    return {(item.gvk.group, item.gvk.kind): partial(violations, item.rules) for item in template_kinds(kind)}


def reviewers(kind: Kind) -> dict[tuple[str, str], Reviewer]:
    """The webhooks of the kind and of the objects that have its templates, by group and kind."""
    reviews = {kind.gvk: kind.api.review, **{item.gvk: item.review for item in template_kinds(kind)}}
    return {(gvk.group, gvk.kind): review for gvk, review in reviews.items() if review}


def shipped_objects(kind: Kind) -> tuple[tuple[GVK, Json], ...]:
    """The objects that come with the kind on one machine, with their resources (TemplateSource.shipped)."""
    return kind.template_source.shipped() if kind.template_source else ()
