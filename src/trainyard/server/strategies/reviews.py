"""authentication.k8s.io and authorization.k8s.io: reviews. A create returns the review with its status; nothing is
stored."""

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
_REVIEW_SPEC = obj(resourceAttributes=_ATTRIBUTES, nonResourceAttributes=_PATH, user=STRING, groups=STRINGS)
_ACCESS = Schema.trusted(obj(("spec",), spec=needed(_REVIEW_SPEC)))
_RULES = Schema.trusted(obj(("spec",), spec=needed(obj(namespace=STRING))))
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"


def who(review: Json, site: Site) -> Json:
    return {**review, "status": {"userInfo": _user_info(site.user)}}


def _user_info(user: User) -> Json:
    user_info: Json = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        user_info["uid"] = user.uid
    if user.extra:
        user_info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return user_info


def may(review: Json, site: Site) -> Json:
    spec = review["spec"]
    resource, non_resource = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) is (non_resource is None):
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problem = Problem("spec.resourceAttributes", text)
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [problem])
    return {
        **review,
        "status": {"allowed": access.may(site.log, site.user, _request_attributes(resource, non_resource))},
    }


def may_they(review: Json, site: Site) -> Json:
    """Completes a SubjectAccessReview: whether the user or group of its spec may do it."""
    spec = review["spec"]
    resource, non_resource = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    groups = tuple(spec.get("groups") or ())
    if not spec.get("user") and not groups:
        text = "Invalid value: at least one of user or group must be specified"
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [Problem("spec.user", text)])
    if (resource is None) is (non_resource is None):
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [Problem("spec.resourceAttributes", text)])
    user = User(spec.get("user") or "", groups=groups)
    return {**review, "status": {"allowed": access.may(site.log, user, _request_attributes(resource, non_resource))}}


def whose(review: Json, site: Site) -> Json:
    """Completes a TokenReview. The administrator's token is a secret of this machine: a review does not authenticate
    it."""
    user = site.whose(review["spec"].get("token") or "")
    if user is None:
        return {**review, "status": {"user": {}, "error": "the token is nobody's here, or has expired"}}
    return {**review, "status": {"authenticated": True, "user": _user_info(user)}}


def _request_attributes(resource: Json | None, non_resource: Json | None) -> Asked:
    if resource is not None:
        fields = ("verb", "group", "resource", "subresource", "namespace", "name")
        return Asked(*(resource.get(field) or "" for field in fields))
    non_resource = non_resource or {}
    return Asked(non_resource.get("verb") or "", path=non_resource.get("path") or "/")


def rules(review: Json, site: Site) -> Json:
    """Completes a SelfSubjectRulesReview: the user's rules in a namespace, for `kubectl auth can-i --list`."""
    user_rules = access.rules_of(site.log, site.user, review["spec"].get("namespace") or "default")
    resource_rules = [rule for rule in user_rules if rule.get("resources")]
    non_resource_rules = [rule for rule in user_rules if rule.get("nonResourceURLs")]
    return {
        **review,
        "status": {"resourceRules": resource_rules, "nonResourceRules": non_resource_rules, "incomplete": False},
    }


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
    _resource(AUTHENTICATION, "SelfSubjectReview", Schema.trusted(obj())),
    _resource(AUTHENTICATION, "TokenReview", Schema.trusted(obj(("spec",), spec=needed(obj(token=STRING))))),
    _resource(AUTHORIZATION, "SelfSubjectAccessReview", _ACCESS),
    _resource(AUTHORIZATION, "SubjectAccessReview", _ACCESS),
    _resource(AUTHORIZATION, "SelfSubjectRulesReview", _RULES),
)
