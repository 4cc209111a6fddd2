"""Who may do what: the Roles and ClusterRoles that bindings give to a user, read from the log at the request.

    User -> bindings -> rules -> rbac.allowed

Rules for this file:
- What a namespace's binding gives holds in that namespace only; a ClusterRoleBinding's holds everywhere.
- A binding to a role that is not there gives nothing.
- Nobody grants what he does not hold, unless he has the verb `escalate` on roles or `bind` on the role in question.
- `system:masters` may do everything; that is how the rest of this process asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Key, decode
from trainyard.server import errors, rbac
from trainyard.server.log import Log
from trainyard.server.paths import Target
from trainyard.server.rbac import Asked
from trainyard.server.requests import Request
from trainyard.server.selection import one_name
from trainyard.server.users import ACCOUNT_PREFIX, User

GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = f"roles.{GROUP}", f"rolebindings.{GROUP}"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"clusterroles.{GROUP}", f"clusterrolebindings.{GROUP}"
STREAMED = ("exec", "attach", "portforward")


def rules_of(log: Log, user: User, namespace: str) -> list[Json]:
    """Every rule that counts for this user in that namespace; "" asks for what counts in the whole cluster."""
    found: list[Json] = []
    for binding in _bindings(log, namespace):
        if any(_means(subject, user, binding) for subject in binding.get("subjects") or ()):
            found += role_rules(log, binding) or []
    return found


def _bindings(log: Log, namespace: str) -> Iterator[Json]:
    for _, record in log.list(CLUSTER_BINDINGS):
        yield decode(record.body)
    if namespace:
        for key, record in log.list(BINDINGS):
            if key.namespace == namespace:
                yield decode(record.body)


def _means(subject: Json, user: User, binding: Json) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
        return user.name == f"{ACCOUNT_PREFIX}{namespace}:{name}"
    return (kind == "User" and user.name == name) or (kind == "Group" and name in user.groups)


def role_rules(log: Log, binding: Json) -> list[Json] | None:
    """The rules of the role that a binding refers to, None when there is no such role."""
    role = binding.get("roleRef") or {}
    if role.get("kind") == "ClusterRole":
        record = log.get(CLUSTER_ROLES, Key("", str(role.get("name"))))
    else:
        record = log.get(ROLES, Key(binding["metadata"].get("namespace", ""), str(role.get("name"))))
    return None if record is None else list(decode(record.body).get("rules") or ())


def may(log: Log, user: User, asked: Asked) -> bool:
    return user.all_rights or rbac.allowed(rules_of(log, user, asked.namespace), asked)


def must_allow(log: Log, user: User, asked: Asked) -> None:
    """Raises Refused 403 with the real server's text."""
    # A WebSocket is a GET. It starts a program all the same, so both verbs are needed, as from Kubernetes 1.35 on.
    verbs = {asked.verb, "create"} if asked.subresource in STREAMED else {asked.verb}
    for verb in sorted(verbs, reverse=True):
        if not may(log, user, asked._replace(verb=verb)):
            raise refusal(user, asked._replace(verb=verb))


def refusal(user: User, asked: Asked) -> errors.Refused:
    if asked.path:
        text = f'forbidden: User "{user.name}" cannot {asked.verb} path "{errors.printable(asked.path)}"'
        return errors.Refused(403, "Forbidden", text, {})
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {asked.verb} resource "{asked.what}" in API group "{asked.group}" {where}'
    return errors.forbidden(asked.resource, asked.group, asked.name, errors.printable(why))


def asked_of(verb: str, target: Target, request: Request) -> Asked:
    """A request about objects, as an authorizer sees it."""
    namespace, name = target.namespace, target.name
    if target.plural == "namespaces" and not target.group:
        namespace = name
    if not name and verb in ("list", "watch", "deletecollection"):
        name = one_name(request.query.get("fieldSelector", ""))
    return Asked(verb, target.group, target.plural, target.subresource, namespace, name)


def must_not_escalate(log: Log, user: User, wanted: list[Json], obj: Json, asked: Asked) -> None:
    """Raises Refused 403 when `wanted` grants what this user does not hold, unless `asked` (escalate, bind) is his."""
    if user.all_rights or may(log, user, asked):
        return
    missing = rbac.beyond(rules_of(log, user, asked.namespace), wanted)
    if not missing:
        return
    groups = " ".join(f'"{group}"' for group in user.groups)
    plural = f"{obj['kind'].lower()}s"
    lines = "\n".join(rbac.shown(rule) for rule in missing)
    why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{lines}'
    raise errors.forbidden(plural, GROUP, obj["metadata"].get("name", ""), why)
