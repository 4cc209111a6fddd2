"""Questions in the form of objects: who am I, may I do that. A create is answered and nothing is stored."""

from __future__ import annotations

from trainyard.objects import Json, Problem
from trainyard.schema import Schema
from trainyard.server import access, errors
from trainyard.server.rbac import Asked
from trainyard.server.resources import Resource
from trainyard.server.site import Site
from trainyard.server.strategies.shapes import STRING, STRINGS, needed, obj
from trainyard.server.users import User

_ATTRIBUTES = obj(
    namespace=STRING, verb=STRING, group=STRING, version=STRING, resource=STRING, subresource=STRING, name=STRING
)
_PATH = obj(path=STRING, verb=STRING)
_ASKED = obj(resourceAttributes=_ATTRIBUTES, nonResourceAttributes=_PATH, user=STRING, groups=STRINGS)
_ACCESS = Schema.ours(obj(("spec",), spec=needed(_ASKED)))
_RULES = Schema.ours(obj(("spec",), spec=needed(obj(namespace=STRING))))
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"


def who(review: Json, site: Site) -> Json:
    return {**review, "status": {"userInfo": _told(site.user)}}


def _told(user: User) -> Json:
    told: Json = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        told["uid"] = user.uid
    if user.extra:
        told["extra"] = {name: list(values) for name, values in user.extra.items()}
    return told


def may(review: Json, site: Site) -> Json:
    spec = review["spec"]
    thing, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (thing is None) is (path is None):
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problem = Problem("spec.resourceAttributes", text)
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [problem])
    return {**review, "status": {"allowed": access.may(site.log, site.user, _asked(thing, path))}}


def may_they(review: Json, site: Site) -> Json:
    """The same about somebody else."""
    spec = review["spec"]
    thing, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    groups = tuple(spec.get("groups") or ())
    if not spec.get("user") and not groups:
        text = "Invalid value: at least one of user or group must be specified"
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [Problem("spec.user", text)])
    if (thing is None) is (path is None):
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [Problem("spec.resourceAttributes", text)])
    user = User(spec.get("user") or "", groups=groups)
    return {**review, "status": {"allowed": access.may(site.log, user, _asked(thing, path))}}


def whose(review: Json, site: Site) -> Json:
    """Whose token that is. The administrator's is a secret of this machine and is nobody's here."""
    user = site.whose(review["spec"].get("token") or "")
    if user is None:
        return {**review, "status": {"user": {}, "error": "the token is nobody's here, or has expired"}}
    return {**review, "status": {"authenticated": True, "user": _told(user)}}


def _asked(thing: Json | None, path: Json | None) -> Asked:
    if thing is not None:
        words = ("verb", "group", "resource", "subresource", "namespace", "name")
        return Asked(*(thing.get(word) or "" for word in words))
    path = path or {}
    return Asked(path.get("verb") or "", path=path.get("path") or "/")


def rules(review: Json, site: Site) -> Json:
    """Everything this user may do in a namespace, for `kubectl auth can-i --list`."""
    found = access.rules_of(site.log, site.user, review["spec"].get("namespace") or "default")
    things = [rule for rule in found if rule.get("resources")]
    paths = [rule for rule in found if rule.get("nonResourceURLs")]
    return {**review, "status": {"resourceRules": things, "nonResourceRules": paths, "incomplete": False}}


def _resource(group: str, kind: str, schema: Schema) -> Resource:
    respond = {
        "SelfSubjectReview": who,
        "TokenReview": whose,
        "SelfSubjectAccessReview": may,
        "SubjectAccessReview": may_they,
        "SelfSubjectRulesReview": rules,
    }[kind]
    return Resource(group=group, kind=kind, plural=f"{kind.lower()}s", namespaced=False, schema=schema, respond=respond)


RESOURCES = (
    _resource(AUTHENTICATION, "SelfSubjectReview", Schema.ours(obj())),
    _resource(AUTHENTICATION, "TokenReview", Schema.ours(obj(("spec",), spec=needed(obj(token=STRING))))),
    _resource(AUTHORIZATION, "SelfSubjectAccessReview", _ACCESS),
    _resource(AUTHORIZATION, "SubjectAccessReview", _ACCESS),
    _resource(AUTHORIZATION, "SelfSubjectRulesReview", _RULES),
)
