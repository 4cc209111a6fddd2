"""Users of the API: name and groups, as in kube-apiserver. auth/authorization.py authorizes them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ACCOUNTS = "system:serviceaccounts"
ACCOUNT_PREFIX = "system:serviceaccount:"


class User(msgspec.Struct, frozen=True):
    """An authenticated user and the groups that RBAC uses."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = (AUTHENTICATED,)
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Whether the user is in the group system:masters, to which no authorization applies."""
        return MASTERS in self.groups


ADMIN = User("trainyard-admin", groups=(MASTERS, AUTHENTICATED))
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))


def account_name(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount: `system:serviceaccount:NAMESPACE:NAME`."""
    return f"{ACCOUNT_PREFIX}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of every ServiceAccount of a namespace."""
    return (ACCOUNTS, f"{ACCOUNTS}:{namespace}", AUTHENTICATED)


def impersonated_user(name: str, groups: tuple[str, ...] = ()) -> User:
    """The impersonated user. A ServiceAccount without explicit groups gets its standard groups."""
    if name.startswith(ACCOUNT_PREFIX) and not groups:
        return User(name, groups=account_groups(name.removeprefix(ACCOUNT_PREFIX).partition(":")[0]))
    return User(name, groups=tuple(dict.fromkeys([*groups, AUTHENTICATED])))
