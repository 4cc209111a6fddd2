"""Service accounts, tokens, RBAC and access reviews."""

from __future__ import annotations

import base64
from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.core_types import causes_of, create, manifest, rejected_fields
from tests.conformance.mutations import answers, drops, replaced, sets, without
from trainyard.objects import Json, decode

AREA = "access"
RBAC = "rbac.authorization.k8s.io"
ALLOWS_ALL = replaced("auth.authorization:is_allowed", lambda log, user, request: True)


def role(name: str, /, *rules: Json, kind: str = "Role") -> Json:
    return manifest(f"{RBAC}/v1", kind, name, rules=list(rules))


def rule(verbs: str, resources: str, group: str = "", names: tuple[str, ...] = ()) -> Json:
    policy_rule: Json = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**policy_rule, "resourceNames": list(names)} if names else policy_rule


def binding(cluster: Cluster, name: str, role_name: str, account: str) -> Json:
    role_ref = {"apiGroup": RBAC, "kind": "Role", "name": role_name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": cluster.namespace}
    return manifest(f"{RBAC}/v1", "RoleBinding", name, roleRef=role_ref, subjects=[subject])


async def create_account(cluster: Cluster, *rules: Json) -> str:
    """Create a service account with these rules in the namespace, and return its user name."""
    await create(cluster, "serviceaccounts", manifest("v1", "ServiceAccount", "robot"))
    if rules:
        await create(cluster, "roles", role("some", *rules))
        await create(cluster, "rolebindings", binding(cluster, "some", "some", "robot"))
    return f"system:serviceaccount:{cluster.namespace}:robot"


async def wait_for_code(cluster: Cluster, user: str, code: int, path: str) -> None:
    """Wait for a response with this code: an authorizer sees a new role with a delay."""

    async def has_code() -> bool:
        return (await cluster.request("GET", path, user=user)).code == code

    await cluster.wait_until(has_code, f"{user} gets {code} for {path}")


async def request_token(cluster: Cluster, **spec: Any) -> Json:
    obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    created: Json = (await cluster.request("POST", cluster.path("serviceaccounts", "robot", "token"), obj)).expect(201)
    return created


def token_claims(token_request: Json) -> Any:
    part = token_request["status"]["token"].split(".")[1]
    return decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@check(
    "An account without permissions gets 403 with the message of the real server.",
    area=AREA,
    mutation=ALLOWS_ALL,
)
async def forbidden(cluster: Cluster) -> None:
    user = await create_account(cluster)
    error = (await cluster.request("GET", cluster.path("pods"), user=user)).expect_error(403, "Forbidden")
    text = f'pods is forbidden: User "{user}" cannot list resource "pods" in API group "" in the namespace '
    assert error["message"] == f'{text}"{cluster.namespace}"' and error["details"] == {"kind": "pods"}
    error = (await cluster.request("GET", cluster.path("secrets", "x"), user=user)).expect_error(403, "Forbidden")
    assert error["details"] == {"name": "x", "kind": "secrets"}
    error = (await cluster.request("GET", "/api/v1/nodes", user=user)).expect_error(
        403, "Forbidden", "at the cluster scope"
    )


@check(
    "A bound role grants its verbs, resources and names in its namespace only.",
    area=AREA,
    mutation=replaced("auth.authorization:is_allowed", lambda log, user, request: user.is_admin),
)
async def allowed(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("get list", "configmaps"), rule("get", "secrets", names=("one",)))
    await wait_for_code(cluster, user, 200, cluster.path("configmaps"))
    assert (await cluster.request("GET", cluster.path("secrets", "one"), user=user)).code == 404
    assert (await cluster.request("GET", cluster.path("secrets", "two"), user=user)).code == 403
    obj = manifest("v1", "ConfigMap", "a")
    assert (await cluster.request("POST", cluster.path("configmaps"), obj, user=user)).code == 403
    assert (await cluster.request("GET", "/api/v1/namespaces/default/configmaps", user=user)).code == 403
    assert (await cluster.request("GET", "/api/v1/configmaps", user=user)).code == 403


@check("Deleting a binding revokes its permissions.", area=AREA, mutation=ALLOWS_ALL)
async def revoked(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("list", "configmaps"))
    await wait_for_code(cluster, user, 200, cluster.path("configmaps"))
    (await cluster.request("DELETE", cluster.path("rolebindings", "some"))).expect(200)
    await wait_for_code(cluster, user, 403, cluster.path("configmaps"))


@check(
    "Permissions on a subresource (pods/log) are separate from those on the resource.", area=AREA, mutation=ALLOWS_ALL
)
async def subresources(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("get", "pods/log"))
    await wait_for_code(cluster, user, 404, cluster.path("pods", "x", "log"))
    assert (await cluster.request("GET", cluster.path("pods", "x"), user=user)).code == 403
    response = await cluster.request("GET", cluster.path("pods", "x", "status"), user=user)
    response.expect_error(403, "Forbidden", 'cannot get resource "pods/status"')


@check(
    "A user cannot grant permissions that the user does not have.",
    area=AREA,
    mutation=replaced("auth.authorization:require_no_escalation", lambda *_: None),
)
async def escalation(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("create get", "roles rolebindings", RBAC), rule("get", "configmaps"))
    await wait_for_code(cluster, user, 404, cluster.path("roles", "none"))
    broader_role = role("more", rule("get", "configmaps"), rule("delete", "secrets"))
    error = (await cluster.request("POST", cluster.path("roles"), broader_role, user=user)).expect_error(
        403, "Forbidden"
    )
    assert "is attempting to grant RBAC permissions not currently held" in error["message"]
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["delete"]}' in error["message"]
    (await cluster.request("POST", cluster.path("roles"), role("less", rule("get", "configmaps")), user=user)).expect(
        201
    )
    await create(cluster, "roles", broader_role)
    role_binding = binding(cluster, "more", "more", "robot")
    (await cluster.request("POST", cluster.path("rolebindings"), role_binding, user=user)).expect_error(
        403, "Forbidden"
    )


@check("An invalid rule or binding is rejected with the field in the cause.", area=AREA, mutation=answers(422, 201))
async def invalid_roles(cluster: Cluster) -> None:
    assert await rejected_fields(
        cluster, "roles", role("a", {"verbs": [], "apiGroups": [""], "resources": ["pods"]})
    ) == {("rules[0].verbs", "Required")}
    causes = await rejected_fields(cluster, "roles", role("a", {"verbs": ["get"], "resources": ["pods"]}))
    assert causes == {("rules[0].apiGroups", "Required")}
    obj = binding(cluster, "a", "some", "robot")
    unknown_kind = {**obj, "roleRef": {**obj["roleRef"], "kind": "Odd"}}
    assert ("roleRef.kind", "NotSupported") in await rejected_fields(cluster, "rolebindings", unknown_kind)
    unknown_subject = {**obj, "subjects": [{"kind": "Odd", "name": "x"}]}
    assert ("subjects[0].kind", "NotSupported") in await rejected_fields(cluster, "rolebindings", unknown_subject)


@check("The roleRef of a binding cannot change.", area=AREA, mutation=drops("roleRef"))
async def immutable_role_ref(cluster: Cluster) -> None:
    await create_account(cluster, rule("get", "pods"))
    patch = {"roleRef": {"name": "other"}}
    error = (await cluster.request("PATCH", cluster.path("rolebindings", "some"), patch)).expect_error(422, "Invalid")
    assert causes_of(error) == {("roleRef", "Invalid")}


@check(
    "A token is issued for an account and an hour by default; audience and duration can be requested.",
    area=AREA,
    mutation=without("status.expirationTimestamp"),
)
async def tokens(cluster: Cluster) -> None:
    user = await create_account(cluster)
    token_request = await request_token(cluster)
    assert token_request["kind"] == "TokenRequest" and token_request["spec"]["expirationSeconds"] == 3600
    assert token_request["status"]["expirationTimestamp"].endswith("Z")
    claims = token_claims(token_request)
    assert claims["sub"] == user and claims["exp"] - claims["iat"] == 3600
    private_claims = claims["kubernetes.io"]
    assert private_claims["namespace"] == cluster.namespace and private_claims["serviceaccount"]["name"] == "robot"
    other_claims = token_claims(await request_token(cluster, audiences=["elsewhere"], expirationSeconds=600))
    assert other_claims["aud"] == ["elsewhere"] and other_claims["exp"] - other_claims["iat"] == 600


@check(
    "A token authenticates its account; a token for another audience does not.",
    area=AREA,
    mutation=replaced("auth.tokens:TokenAuthority.validate", lambda tokens, token: None),
)
async def token_authenticates(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("list", "configmaps"))
    await wait_for_code(cluster, user, 200, cluster.path("configmaps"))
    valid_token = (await request_token(cluster))["status"]["token"]
    headers = {"Authorization": f"Bearer {valid_token}"}
    (await cluster.request("GET", cluster.path("configmaps"), headers=headers)).expect(200)
    (await cluster.request("GET", cluster.path("pods"), headers=headers)).expect_error(403, "Forbidden", user)
    other_token = (await request_token(cluster, audiences=["elsewhere"]))["status"]["token"]
    response = await cluster.request(
        "GET", cluster.path("configmaps"), headers={"Authorization": f"Bearer {other_token}"}
    )
    response.expect_error(401, "Unauthorized")


@check(
    "A token becomes invalid when its account is deleted.",
    area=AREA,
    mutation=replaced("auth.tokens:TokenAuthority._is", lambda *_: True),
)
async def token_of_deleted_account(cluster: Cluster) -> None:
    await create_account(cluster)
    headers = {"Authorization": f"Bearer {(await request_token(cluster))['status']['token']}"}
    assert (await cluster.request("GET", cluster.path("configmaps"), headers=headers)).code == 403
    (await cluster.request("DELETE", cluster.path("serviceaccounts", "robot"))).expect(200)

    async def is_rejected() -> bool:
        return (await cluster.request("GET", cluster.path("configmaps"), headers=headers)).code == 401

    await cluster.wait_until(is_rejected)


@check("A token duration of less than ten minutes is rejected.", area=AREA, mutation=answers(422, 201))
async def short_tokens(cluster: Cluster) -> None:
    await create_account(cluster)
    obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 5}}
    response = await cluster.request("POST", cluster.path("serviceaccounts", "robot", "token"), obj)
    assert causes_of(response.expect_error(422, "Invalid")) == {("spec.expirationSeconds", "Invalid")}


@check(
    "A token can only be bound to a pod of the same account.", area=AREA, mutation=answers(400, 201), needs=("pods",)
)
async def bound_tokens(cluster: Cluster) -> None:
    await create_account(cluster)
    await cluster.create_pod("mine", serviceAccountName="robot")
    await cluster.create_pod("other")
    claims = token_claims(
        await request_token(cluster, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "mine"})
    )
    assert claims["kubernetes.io"]["pod"]["name"] == "mine"
    path = cluster.path("serviceaccounts", "robot", "token")
    for name, code in (("other", 400), ("none", 404)):
        reference = {"kind": "Pod", "apiVersion": "v1", "name": name}
        obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}
        assert (await cluster.request("POST", path, obj)).code == code


async def review(
    cluster: Cluster, kind: str, spec: Json, user: str | None = None, group: str = "authorization"
) -> Json:
    obj = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
    path = f"/apis/{group}.k8s.io/v1/{kind.lower()}s"
    status: Json = (await cluster.request("POST", path, obj, user=user)).expect(201)["status"]
    return status


@check(
    "SelfSubjectAccessReview returns whether the caller is allowed an action.",
    area=AREA,
    mutation=sets("status.allowed", True),
)
async def self_subject_access_review(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("list", "configmaps"))
    await wait_for_code(cluster, user, 200, cluster.path("configmaps"))
    attributes = {"namespace": cluster.namespace, "verb": "list", "resource": "configmaps"}
    kind = "SelfSubjectAccessReview"
    assert (await review(cluster, kind, {"resourceAttributes": attributes}, user))["allowed"] is True
    forbidden_attributes = {**attributes, "verb": "delete"}
    assert (await review(cluster, kind, {"resourceAttributes": forbidden_attributes}, user))["allowed"] is False
    path = {"path": "/version", "verb": "get"}
    assert (await review(cluster, kind, {"nonResourceAttributes": path}, user))["allowed"] is True
    assert (await review(cluster, kind, {"resourceAttributes": forbidden_attributes}))["allowed"] is True


@check(
    "SubjectAccessReview returns whether another user is allowed an action.",
    area=AREA,
    mutation=sets("status.allowed", True),
)
async def subject_access_review(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("list", "configmaps"))
    await wait_for_code(cluster, user, 200, cluster.path("configmaps"))
    attributes = {"namespace": cluster.namespace, "verb": "list", "resource": "configmaps"}
    spec = {"user": user, "resourceAttributes": attributes}
    assert (await review(cluster, "SubjectAccessReview", spec))["allowed"] is True
    assert (await review(cluster, "SubjectAccessReview", {**spec, "user": "nobody"}))["allowed"] is False
    in_masters = {**spec, "user": "nobody", "groups": ["system:masters"]}
    assert (await review(cluster, "SubjectAccessReview", in_masters))["allowed"] is True


@check(
    "SelfSubjectRulesReview lists the caller's rules in a namespace.",
    area=AREA,
    mutation=without("status.resourceRules"),
)
async def self_subject_rules_review(cluster: Cluster) -> None:
    user = await create_account(cluster, rule("list", "configmaps"))
    await wait_for_code(cluster, user, 200, cluster.path("configmaps"))
    status = await review(cluster, "SelfSubjectRulesReview", {"namespace": cluster.namespace}, user)
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]} in status["resourceRules"]
    assert any("/version" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])


@check("SelfSubjectReview returns the caller's user info.", area=AREA, mutation=without("status.userInfo"))
async def self_subject_review(cluster: Cluster) -> None:
    user = await create_account(cluster)
    status = await review(cluster, "SelfSubjectReview", {}, user, group="authentication")
    assert status["userInfo"]["username"] == user
    assert set(status["userInfo"]["groups"]) >= {"system:serviceaccounts", "system:authenticated"}


@check(
    "TokenReview returns the user of a token, or that the token is not valid.",
    area=AREA,
    mutation=without("status.user"),
)
async def token_review(cluster: Cluster) -> None:
    user = await create_account(cluster)
    valid_token = (await request_token(cluster))["status"]["token"]
    status = await review(cluster, "TokenReview", {"token": valid_token}, group="authentication")
    assert status["authenticated"] is True and status["user"]["username"] == user
    status = await review(cluster, "TokenReview", {"token": "nonsense"}, group="authentication")
    assert status.get("authenticated") is not True and status.get("user", {}) == {}
