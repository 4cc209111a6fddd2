"""The RBAC authorizer: the rules that (Cluster)RoleBindings grant to a user, read from the log at each request.

    User -> bindings -> rules -> rbac.allowed

Rules for this file:
- A RoleBinding grants its rules in its own namespace only; a ClusterRoleBinding grants them in all namespaces.
- A binding to a role that does not exist grants nothing.
- A user can only grant permissions that the user holds, unless the user has the verb `escalate` on roles, or `bind` on
  the role in question.
- The group `system:masters` may do everything; the other components of this process are in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, NamespacedName, decode
from trainyard.server.auth import rbac
from trainyard.server.auth.rbac import Attributes
from trainyard.server.model import errors
from trainyard.server.model.paths import Target
from trainyard.server.model.requests import Request
from trainyard.server.model.selection import name_in_field_selector
from trainyard.server.model.store import ObjectReader
from trainyard.server.model.users import ACCOUNT_PREFIX, User

GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = f"roles.{GROUP}", f"rolebindings.{GROUP}"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"clusterroles.{GROUP}", f"clusterrolebindings.{GROUP}"
STREAMED = ("exec", "attach", "portforward")


def rules_of(log: ObjectReader, user: User, namespace: str) -> list[Json]:
    """Every rule that applies to this user in that namespace; with "", the cluster-wide rules only."""
    rules: list[Json] = []
    for binding in _bindings(log, namespace):
        if any(_subject_matches(subject, user, binding) for subject in binding.get("subjects") or ()):
            rules += role_rules(log, binding) or []
    return rules


def _bindings(log: ObjectReader, namespace: str) -> Iterator[Json]:
    for _, record in log.list(CLUSTER_BINDINGS):
        yield decode(record.body)
    if namespace:
        for key, record in log.list(BINDINGS):
            if key.namespace == namespace:
                yield decode(record.body)


def _subject_matches(subject: Json, user: User, binding: Json) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
        return user.name == f"{ACCOUNT_PREFIX}{namespace}:{name}"
    return (kind == "User" and user.name == name) or (kind == "Group" and name in user.groups)


def role_rules(log: ObjectReader, binding: Json) -> list[Json] | None:
    """The rules of the role in the binding's roleRef; None when the role does not exist."""
    role = binding.get("roleRef") or {}
    if role.get("kind") == "ClusterRole":
        record = log.get(CLUSTER_ROLES, NamespacedName("", str(role.get("name"))))
    else:
        record = log.get(ROLES, NamespacedName(binding["metadata"].get("namespace", ""), str(role.get("name"))))
    return None if record is None else list(decode(record.body).get("rules") or ())


def is_allowed(log: ObjectReader, user: User, attributes: Attributes) -> bool:
    """Whether an RBAC rule of the user allows the request; admins may do everything."""
    return user.is_admin or rbac.is_allowed(rules_of(log, user, attributes.namespace), attributes)


def require_allowed(log: ObjectReader, user: User, attributes: Attributes) -> None:
    """Raises StatusError 403 with kube-apiserver's message when the user is not allowed."""
    # A WebSocket upgrade is a GET (verb get), but exec starts a program: both get and create are needed, as in
    # Kubernetes 1.35 and later.
    verbs = {attributes.verb, "create"} if attributes.subresource in STREAMED else {attributes.verb}
    for verb in sorted(verbs, reverse=True):
        if not is_allowed(log, user, attributes._replace(verb=verb)):
            raise forbidden_error(user, attributes._replace(verb=verb))


def forbidden_error(user: User, attributes: Attributes) -> errors.StatusError:
    """The StatusError 403 of kube-apiserver for a request that no rule allows."""
    if attributes.path:
        text = f'forbidden: User "{user.name}" cannot {attributes.verb} path "{errors.printable(attributes.path)}"'
        return errors.StatusError(403, "Forbidden", text, {})
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    subject = f'User "{user.name}" cannot {attributes.verb} resource "{attributes.resource_path}"'
    reason = f'{subject} in API group "{attributes.group}" {scope}'
    return errors.forbidden(attributes.resource, attributes.group, attributes.name, errors.printable(reason))


def attributes_of(verb: str, target: Target, request: Request) -> Attributes:
    """The authorizer attributes of a request about objects."""
    namespace, name = target.namespace, target.name
    if target.plural == "namespaces" and not target.group:
        namespace = name
    if not name and verb in ("list", "watch", "deletecollection"):
        name = name_in_field_selector(request.query.get("fieldSelector", ""))
    return Attributes(verb, target.group, target.plural, target.subresource, namespace, name)


def require_no_escalation(
    log: ObjectReader, user: User, granted_rules: list[Json], obj: Json, exemption: Attributes
) -> None:
    """Raises StatusError 403 when the rules `granted_rules` grant permissions that the user does not hold. A user who
    is allowed `exemption` (escalate or bind) is exempt."""
    if user.is_admin or is_allowed(log, user, exemption):
        return
    missing = rbac.missing_rules(rules_of(log, user, exemption.namespace), granted_rules)
    if not missing:
        return
    groups = " ".join(f'"{group}"' for group in user.groups)
    plural = f"{obj['kind'].lower()}s"
    lines = "\n".join(rbac.rule_text(rule) for rule in missing)
    reason = (
        f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{lines}'
    )
    raise errors.forbidden(plural, GROUP, obj["metadata"].get("name", ""), reason)
