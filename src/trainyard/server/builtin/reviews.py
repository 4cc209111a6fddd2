"""authentication.k8s.io and authorization.k8s.io: reviews. A create returns the review with its status; nothing is
stored."""

from __future__ import annotations

from trainyard.objects import Json, Problem
from trainyard.server.auth import authorization
from trainyard.server.auth.rbac import Attributes
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Resource
from trainyard.server.model.users import User

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"


def self_subject_review(review: Json, context: RequestContext) -> Json:
    """The review with the user of the request (`kubectl auth whoami`)."""
    return {**review, "status": {"userInfo": _user_info(context.user)}}


def _user_info(user: User) -> Json:
    user_info: Json = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        user_info["uid"] = user.uid
    if user.extra:
        user_info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return user_info


def self_subject_access_review(review: Json, context: RequestContext) -> Json:
    """The review with the answer whether the user may send that request (`kubectl auth can-i`). Raises StatusError
    422."""
    spec = review["spec"]
    resource, non_resource = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) is (non_resource is None):
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problem = Problem("spec.resourceAttributes", text)
        raise errors.invalid(review["kind"], AUTHORIZATION, "", [problem])
    return {
        **review,
        "status": {
            "allowed": authorization.is_allowed(context.log, context.user, _request_attributes(resource, non_resource))
        },
    }


def subject_access_review(review: Json, context: RequestContext) -> Json:
    """Complete a SubjectAccessReview: whether the user or group of its spec may do it."""
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
    return {
        **review,
        "status": {"allowed": authorization.is_allowed(context.log, user, _request_attributes(resource, non_resource))},
    }


def token_review(review: Json, context: RequestContext) -> Json:
    """Complete a TokenReview. The administrator's token is a secret of this machine: a review does not authenticate
    it."""
    user = context.user_of_token(review["spec"].get("token") or "")
    if user is None:
        return {**review, "status": {"user": {}, "error": "the token is unknown or has expired"}}
    return {**review, "status": {"authenticated": True, "user": _user_info(user)}}


def _request_attributes(resource: Json | None, non_resource: Json | None) -> Attributes:
    if resource is not None:
        fields = ("verb", "group", "resource", "subresource", "namespace", "name")
        return Attributes(*(resource.get(field) or "" for field in fields))
    non_resource = non_resource or {}
    return Attributes(non_resource.get("verb") or "", path=non_resource.get("path") or "/")


def self_subject_rules_review(review: Json, context: RequestContext) -> Json:
    """Complete a SelfSubjectRulesReview: the user's rules in a namespace, for `kubectl auth can-i --list`."""
    user_rules = authorization.rules_of(context.log, context.user, review["spec"].get("namespace") or "default")
    resource_rules = [rule for rule in user_rules if rule.get("resources")]
    non_resource_rules = [rule for rule in user_rules if rule.get("nonResourceURLs")]
    return {
        **review,
        "status": {"resourceRules": resource_rules, "nonResourceRules": non_resource_rules, "incomplete": False},
    }


def _resource(group: str, kind: str) -> Resource:
    respond = {
        "SelfSubjectReview": self_subject_review,
        "TokenReview": token_review,
        "SelfSubjectAccessReview": self_subject_access_review,
        "SubjectAccessReview": subject_access_review,
        "SelfSubjectRulesReview": self_subject_rules_review,
    }[kind]
    return Resource(group=group, kind=kind, plural=f"{kind.lower()}s", namespaced=False, review=respond)


RESOURCES = (
    _resource(AUTHENTICATION, "SelfSubjectReview"),
    _resource(AUTHENTICATION, "TokenReview"),
    _resource(AUTHORIZATION, "SelfSubjectAccessReview"),
    _resource(AUTHORIZATION, "SubjectAccessReview"),
    _resource(AUTHORIZATION, "SelfSubjectRulesReview"),
)
