"""rbac.authorization.k8s.io: strategies of roles and bindings. The authorizer is in server/auth/rbac.py and
authorization.py."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.api_types.defaults import set_defaults, set_defaults_for_zero, string_or_empty
from trainyard.api_types.names import path_texts
from trainyard.api_types.validators import selector_problems, validate_enum, validate_name
from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.schema.checks import json_text
from trainyard.server.auth import authorization
from trainyard.server.auth.authorization import GROUP
from trainyard.server.auth.rbac import Attributes
from trainyard.server.builtin import columns as cells
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Column, Resource
from trainyard.server.registry.tables import AGE, NAME

_ROLE_KINDS = {"Role": "roles", "ClusterRole": "clusterroles"}


def prepare_role(new: Json, old: Json | None, context: RequestContext) -> None:
    """Empty rules are stored as null."""
    new["rules"] = new.get("rules") or None
    for rule in new["rules"] or ():
        set_defaults(rule, verbs=[])


def _check_role(new: Json, old: Json | None) -> list[Problem]:
    problems = [
        problem for index, rule in enumerate(new["rules"] or ()) for problem in _rule_problems(new, rule, index)
    ]
    if (aggregation := new.get("aggregationRule")) is not None and new["kind"] == "ClusterRole":
        problems += _aggregation_problems(aggregation.get("clusterRoleSelectors") or [])
    return problems


def _rule_problems(new: Json, rule: Json, index: int) -> Iterator[Problem]:
    path = f"rules[{index}]"
    if rule.get("nonResourceURLs"):
        if new["kind"] == "Role":
            problem = "namespaced rules cannot apply to non-resource URLs"
            yield Problem(f"{path}.nonResourceURLs", f"Invalid value: {problem}")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            problem = "rules cannot apply to both regular resources and non-resource URLs"
            yield Problem(f"{path}.nonResourceURLs", f"Invalid value: {problem}")
        return
    if not rule.get("apiGroups"):
        problem = 'resource rules must supply at least one api group; "" is the core group'
        yield Problem(f"{path}.apiGroups", f"Required value: {problem}")
    if not rule.get("resources"):
        yield Problem(f"{path}.resources", "Required value: resource rules must supply at least one resource")


def _aggregation_problems(selectors: list[Json]) -> Iterator[Problem]:
    path = "aggregationRule.clusterRoleSelectors"
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield Problem(path, f"Required value: {text}")
    for index, selector in enumerate(selectors):
        problems = list(selector_problems(selector, f"{path}[{index}]"))
        yield from problems
        if problems:
            yield Problem(f"{path}[{index}]", "Invalid value: null: invalid label selector.")


def _admit_role(new: Json, old: Json | None, context: RequestContext) -> None:
    if old is not None and json_equal(new.get("rules"), old.get("rules")):
        return
    metadata, plural = new["metadata"], _ROLE_KINDS[new["kind"]]
    attributes = Attributes("escalate", GROUP, plural, "", metadata.get("namespace", ""), metadata.get("name", ""))
    authorization.require_no_escalation(context.log, context.user, new.get("rules") or [], new, attributes)


def _prepare_binding(new: Json, old: Json | None, context: RequestContext) -> None:
    set_defaults(new, roleRef={})
    set_defaults(new["roleRef"], kind="", name="")
    set_defaults_for_zero(new["roleRef"], apiGroup=GROUP)
    for subject in new.get("subjects") or ():
        set_defaults(subject, kind="", name="")
        for name in ("namespace", "apiGroup"):
            if not subject.get(name):
                subject.pop(name, None)
        if subject["kind"] in ("User", "Group"):
            set_defaults_for_zero(subject, apiGroup=GROUP)


def _admit_binding(new: Json, old: Json | None, context: RequestContext) -> None:
    fields = ("roleRef", "subjects")
    if old is not None and all(json_equal(new.get(name), old.get(name)) for name in fields):
        return
    role = new["roleRef"]
    plural = _ROLE_KINDS.get(role["kind"], "")
    attributes = Attributes("bind", GROUP, plural, "", new["metadata"].get("namespace", ""), role["name"])
    role_rules = authorization.role_rules(context.log, new)
    if role_rules is None and not authorization.is_allowed(context.log, context.user, attributes):
        raise errors.not_found(plural, GROUP, role["name"])
    authorization.require_no_escalation(context.log, context.user, role_rules or [], new, attributes)


def _check_binding(new: Json, old: Json | None) -> list[Problem]:
    problems: list[Problem] = []
    role = new["roleRef"]
    namespaced = new["kind"] == "RoleBinding"
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    problems += validate_enum(role["apiGroup"], (GROUP,), "roleRef.apiGroup")
    problems += validate_enum(role["kind"], kinds, "roleRef.kind")
    problems += _role_name_problems(role["name"])
    for index, subject in enumerate(new.get("subjects") or ()):
        problems += _subject_problems(subject, f"subjects[{index}]", namespaced)
    return problems


def _role_name_problems(name: str) -> Iterator[Problem]:
    for message in path_texts(name):
        yield Problem("roleRef.name", f"Invalid value: {json_text(name)}: {message}")


def _subject_problems(subject: Json, path: str, namespaced: bool) -> Iterator[Problem]:
    """Problems of a subject. In a RoleBinding, a ServiceAccount without namespace is one of the binding's namespace."""
    kind, name = subject["kind"], subject["name"]
    yield from validate_enum(kind, ("Group", "ServiceAccount", "User"), f"{path}.kind")
    if kind in ("User", "Group"):
        yield from validate_enum(subject["apiGroup"], (GROUP,), f"{path}.apiGroup")
    if kind == "ServiceAccount":
        yield from validate_name(name, f"{path}.name", "subdomain")
        if not namespaced and not subject.get("namespace"):
            yield Problem(f"{path}.namespace", "Required value")
        yield from validate_enum(subject.get("apiGroup"), ("",), f"{path}.apiGroup")


def _subjects(kind: str) -> Column:
    def cell(binding: Json, now: float) -> str:
        subjects = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
        namespaced = kind == "ServiceAccount"
        return ", ".join(
            f"{string_or_empty(subject.get('namespace'))}/{subject['name']}" if namespaced else subject["name"]
            for subject in subjects
        )

    return Column(f"{kind}s", cell, priority=1)


def _resource(kind: str) -> Resource:
    """The resource of one of the four kinds: a role or a binding, namespaced or cluster-scoped."""
    shared: Json = {
        "group": GROUP,
        "kind": kind,
        "plural": f"{kind.lower()}s",
        "namespaced": not kind.startswith("Cluster"),
        "name_rule": "path",
    }
    if kind.endswith("Role"):
        columns = (NAME, cells.CREATED)
        return Resource(**shared, prepare=prepare_role, check=_check_role, admit=_admit_role, columns=columns)
    return Resource(
        **shared,
        immutable=("roleRef",),
        prepare=_prepare_binding,
        admit=_admit_binding,
        check=_check_binding,
        columns=(
            NAME,
            Column("Role", lambda obj, now: f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"),
            AGE,
            *(_subjects(subject_kind) for subject_kind in ("User", "Group", "ServiceAccount")),
        ),
    )


RESOURCES = tuple(_resource(kind) for kind in ("ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role"))
