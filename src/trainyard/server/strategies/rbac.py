"""rbac.authorization.k8s.io: roles and bindings. What they mean is in rbac.py and access.py; here they are objects."""

from __future__ import annotations

from trainyard.objects import Json, Problem
from trainyard.schema import Schema
from trainyard.schema.checks import shown
from trainyard.server import access, errors
from trainyard.server.access import GROUP
from trainyard.server.rbac import Asked
from trainyard.server.resources import Column, Resource
from trainyard.server.same import same
from trainyard.server.site import Site
from trainyard.server.strategies import cells
from trainyard.server.strategies.refusing import one_of
from trainyard.server.strategies.shapes import STRING, STRINGS, fill, many, needed, obj, text
from trainyard.server.tables import AGE, NAME

_RULE = obj(
    ("verbs",),
    verbs=needed(STRINGS),
    apiGroups=STRINGS,
    resources=STRINGS,
    resourceNames=STRINGS,
    nonResourceURLs=STRINGS,
)
_ROLE = Schema(obj(rules=many(_RULE)))
_SUBJECT = obj(("kind", "name"), kind=needed(STRING), name=needed(STRING), namespace=STRING, apiGroup=STRING)
_REFERENCE = obj(("kind", "name"), kind=needed(STRING), name=needed(STRING), apiGroup=STRING)
_BINDING = Schema(obj(("roleRef",), subjects=many(_SUBJECT), roleRef=needed(_REFERENCE)))
_ROLE_KINDS = {"Role": "roles", "ClusterRole": "clusterroles"}


def check_role(new: Json, old: Json | None) -> list[Problem]:
    found = []
    for index, rule in enumerate(new.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule["verbs"]:
            found.append(Problem(f"{path}.verbs", "Required value: verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if new["kind"] == "Role":
                problem = "namespaced rules cannot apply to non-resource URLs"
                found.append(Problem(f"{path}.nonResourceURLs", f"Invalid value: {problem}"))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                problem = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(Problem(f"{path}.nonResourceURLs", f"Invalid value: {problem}"))
            continue
        if not rule.get("apiGroups"):
            problem = 'resource rules must supply at least one api group; "" is the core group'
            found.append(Problem(f"{path}.apiGroups", f"Required value: {problem}"))
        if not rule.get("resources"):
            found.append(
                Problem(f"{path}.resources", "Required value: resource rules must supply at least one resource")
            )
    return found


def admit_role(new: Json, old: Json | None, site: Site) -> None:
    if old is not None and same(new.get("rules"), old.get("rules")):
        return
    meta, plural = new["metadata"], _ROLE_KINDS[new["kind"]]
    asked = Asked("escalate", GROUP, plural, "", meta.get("namespace", ""), meta.get("name", ""))
    access.must_not_escalate(site.log, site.user, new.get("rules") or [], new, asked)


def prepare_binding(new: Json, old: Json | None, site: Site) -> None:
    fill(new["roleRef"], apiGroup=GROUP)
    for subject in new.get("subjects") or ():
        fill(subject, **({} if subject["kind"] == "ServiceAccount" else {"apiGroup": GROUP}))


def admit_binding(new: Json, old: Json | None, site: Site) -> None:
    unchanged = ("roleRef", "subjects")
    if old is not None and all(same(new.get(name), old.get(name)) for name in unchanged):
        return
    role = new["roleRef"]
    plural = _ROLE_KINDS.get(role["kind"], "")
    asked = Asked("bind", GROUP, plural, "", new["metadata"].get("namespace", ""), role["name"])
    wanted = access.role_rules(site.log, new)
    if wanted is None and not access.may(site.log, site.user, asked):
        raise errors.not_found(plural, GROUP, role["name"])
    access.must_not_escalate(site.log, site.user, wanted or [], new, asked)


def check_binding(new: Json, old: Json | None) -> list[Problem]:
    found: list[Problem] = []
    role = new["roleRef"]
    kinds = ("Role", "ClusterRole") if new["kind"] == "RoleBinding" else ("ClusterRole",)
    found += one_of(role["apiGroup"], (GROUP,), "roleRef.apiGroup")
    found += one_of(role["kind"], kinds, "roleRef.kind")
    if not role["name"]:
        found.append(Problem("roleRef.name", "Required value"))
    if old is not None and not same(role, old["roleRef"]):
        found.append(Problem("roleRef", f"Invalid value: {shown(role)}: cannot change roleRef"))
    for index, subject in enumerate(new.get("subjects") or ()):
        found += _subject_problems(subject, f"subjects[{index}]")
    return found


def _subject_problems(subject: Json, path: str) -> list[Problem]:
    found = [*one_of(subject["kind"], ("Group", "ServiceAccount", "User"), f"{path}.kind")]
    if not subject["name"]:
        found.append(Problem(f"{path}.name", "Required value"))
    if subject["kind"] == "ServiceAccount":
        if not subject.get("namespace"):
            found.append(Problem(f"{path}.namespace", "Required value"))
        found += one_of(subject.get("apiGroup"), ("",), f"{path}.apiGroup")
    return found


def _subjects(kind: str) -> Column:
    def cell(binding: Json, now: float) -> str:
        chosen = [one for one in binding.get("subjects") or () if one.get("kind") == kind]
        spaced = kind == "ServiceAccount"
        return ", ".join(f"{text(one.get('namespace'))}/{one['name']}" if spaced else one["name"] for one in chosen)

    return Column(f"{kind}s", cell, priority=1)


def _resource(kind: str) -> Resource:
    """One of the four: a role or a binding, of a namespace or of the cluster."""
    shared: Json = {
        "group": GROUP,
        "kind": kind,
        "plural": f"{kind.lower()}s",
        "namespaced": not kind.startswith("Cluster"),
        "name_rule": "path",
    }
    if kind.endswith("Role"):
        columns = (NAME, cells.CREATED)
        return Resource(**shared, schema=_ROLE, check=check_role, admit=admit_role, columns=columns)
    return Resource(
        **shared,
        schema=_BINDING,
        prepare=prepare_binding,
        admit=admit_binding,
        check=check_binding,
        columns=(
            NAME,
            Column("Role", lambda obj, now: f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"),
            AGE,
            *(_subjects(one) for one in ("User", "Group", "ServiceAccount")),
        ),
    )


RESOURCES = tuple(_resource(kind) for kind in ("ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role"))
