"""Accounts, tokens, RBAC, and the questions that kubectl asks about them."""

from __future__ import annotations

import base64
from typing import Any

from trainyard.objects import Json, decode
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, replaced, sets, without
from trainyard.testing.check_server.checks.small import bad, fields_of, make, thing

AREA = "access"
RBAC = "rbac.authorization.k8s.io"
ASK = "/apis/authorization.k8s.io/v1"
ALL = replaced("auth.authorization:is_allowed", lambda log, user, asked: True)


def role(name: str, /, *rules: Json, kind: str = "Role") -> Json:
    return thing(f"{RBAC}/v1", kind, name, rules=list(rules))


def rule(verbs: str, resources: str, group: str = "", names: tuple[str, ...] = ()) -> Json:
    made: Json = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**made, "resourceNames": list(names)} if names else made


def binding(yard: Subject, name: str, to: str, account: str) -> Json:
    reference = {"apiGroup": RBAC, "kind": "Role", "name": to}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": yard.namespace}
    return thing(f"{RBAC}/v1", "RoleBinding", name, roleRef=reference, subjects=[subject])


async def account(yard: Subject, *rules: Json) -> str:
    """An account that holds these rules in the namespace; who it is."""
    await make(yard, "serviceaccounts", thing("v1", "ServiceAccount", "robot"))
    if rules:
        await make(yard, "roles", role("some", *rules))
        await make(yard, "rolebindings", binding(yard, "some", "some", "robot"))
    return f"system:serviceaccount:{yard.namespace}:robot"


async def soon(yard: Subject, user: str, code: int, path: str) -> None:
    """An authorizer learns of roles a moment later."""

    async def told() -> bool:
        return (await yard.ask("GET", path, user=user)).code == code

    await yard.until(told)


async def token(yard: Subject, **spec: Any) -> Json:
    obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made: Json = (await yard.ask("POST", yard.at("serviceaccounts", "robot", "token"), obj)).must(201)
    return made


def claims(said: Json) -> Any:
    part = said["status"]["token"].split(".")[1]
    return decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@check(
    "An account without rights is refused with 403 and the real server's sentence.",
    area=AREA,
    breaks=ALL,
)
async def forbidden(yard: Subject) -> None:
    user = await account(yard)
    said = (await yard.ask("GET", yard.at("pods"), user=user)).refused(403, "Forbidden")
    text = f'pods is forbidden: User "{user}" cannot list resource "pods" in API group "" in the namespace '
    assert said["message"] == f'{text}"{yard.namespace}"' and said["details"] == {"kind": "pods"}
    said = (await yard.ask("GET", yard.at("secrets", "x"), user=user)).refused(403, "Forbidden")
    assert said["details"] == {"name": "x", "kind": "secrets"}
    said = (await yard.ask("GET", "/api/v1/nodes", user=user)).refused(403, "Forbidden", "at the cluster scope")


@check(
    "A role that a binding gives holds for its verbs, resources and names, in its namespace.",
    area=AREA,
    breaks=replaced("auth.authorization:is_allowed", lambda log, user, asked: user.all_rights),
)
async def allowed(yard: Subject) -> None:
    user = await account(yard, rule("get list", "configmaps"), rule("get", "secrets", names=("one",)))
    await soon(yard, user, 200, yard.at("configmaps"))
    assert (await yard.ask("GET", yard.at("secrets", "one"), user=user)).code == 404
    assert (await yard.ask("GET", yard.at("secrets", "two"), user=user)).code == 403
    obj = thing("v1", "ConfigMap", "a")
    assert (await yard.ask("POST", yard.at("configmaps"), obj, user=user)).code == 403
    assert (await yard.ask("GET", "/api/v1/namespaces/default/configmaps", user=user)).code == 403
    assert (await yard.ask("GET", "/api/v1/configmaps", user=user)).code == 403


@check("Taking the binding away takes the right away.", area=AREA, breaks=ALL)
async def revoked(yard: Subject) -> None:
    user = await account(yard, rule("list", "configmaps"))
    await soon(yard, user, 200, yard.at("configmaps"))
    (await yard.ask("DELETE", yard.at("rolebindings", "some"))).must(200)
    await soon(yard, user, 403, yard.at("configmaps"))


@check("Rights on a subresource are rights of their own: pods/log, pods/*.", area=AREA, breaks=ALL)
async def subresources(yard: Subject) -> None:
    user = await account(yard, rule("get", "pods/log"))
    await soon(yard, user, 404, yard.at("pods", "x", "log"))
    assert (await yard.ask("GET", yard.at("pods", "x"), user=user)).code == 403
    said = await yard.ask("GET", yard.at("pods", "x", "status"), user=user)
    said.refused(403, "Forbidden", 'cannot get resource "pods/status"')


@check(
    "Nobody grants what he does not hold.",
    area=AREA,
    breaks=replaced("auth.authorization:require_no_escalation", lambda *_: None),
)
async def escalation(yard: Subject) -> None:
    user = await account(yard, rule("create get", "roles rolebindings", RBAC), rule("get", "configmaps"))
    await soon(yard, user, 404, yard.at("roles", "none"))
    more = role("more", rule("get", "configmaps"), rule("delete", "secrets"))
    said = (await yard.ask("POST", yard.at("roles"), more, user=user)).refused(403, "Forbidden")
    assert "is attempting to grant RBAC permissions not currently held" in said["message"]
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["delete"]}' in said["message"]
    (await yard.ask("POST", yard.at("roles"), role("less", rule("get", "configmaps")), user=user)).must(201)
    await make(yard, "roles", more)
    bound = binding(yard, "more", "more", "robot")
    (await yard.ask("POST", yard.at("rolebindings"), bound, user=user)).refused(403, "Forbidden")


@check("A wrong rule or binding is refused at its place.", area=AREA, breaks=answers(422, 201))
async def wrong_roles(yard: Subject) -> None:
    assert await bad(yard, "roles", role("a", {"verbs": [], "apiGroups": [""], "resources": ["pods"]})) == {
        ("rules[0].verbs", "Required")
    }
    found = await bad(yard, "roles", role("a", {"verbs": ["get"], "resources": ["pods"]}))
    assert found == {("rules[0].apiGroups", "Required")}
    obj = binding(yard, "a", "some", "robot")
    odd = {**obj, "roleRef": {**obj["roleRef"], "kind": "Odd"}}
    assert ("roleRef.kind", "NotSupported") in await bad(yard, "rolebindings", odd)
    nobody = {**obj, "subjects": [{"kind": "Odd", "name": "x"}]}
    assert ("subjects[0].kind", "NotSupported") in await bad(yard, "rolebindings", nobody)


@check("The role of a binding cannot change.", area=AREA, breaks=drops("roleRef"))
async def fixed_binding(yard: Subject) -> None:
    await account(yard, rule("get", "pods"))
    patch = {"roleRef": {"name": "other"}}
    said = (await yard.ask("PATCH", yard.at("rolebindings", "some"), patch)).refused(422, "Invalid")
    assert fields_of(said) == {("roleRef", "Invalid")}


@check(
    "A token is for an account, an hour and this server, unless it is asked for otherwise.",
    area=AREA,
    breaks=without("status.expirationTimestamp"),
)
async def tokens(yard: Subject) -> None:
    user = await account(yard)
    said = await token(yard)
    assert said["kind"] == "TokenRequest" and said["spec"]["expirationSeconds"] == 3600
    assert said["status"]["expirationTimestamp"].endswith("Z")
    found = claims(said)
    assert found["sub"] == user and found["exp"] - found["iat"] == 3600
    bound = found["kubernetes.io"]
    assert bound["namespace"] == yard.namespace and bound["serviceaccount"]["name"] == "robot"
    other = claims(await token(yard, audiences=["elsewhere"], expirationSeconds=600))
    assert other["aud"] == ["elsewhere"] and other["exp"] - other["iat"] == 600


@check(
    "A token lets its account in, and one for another audience does not.",
    area=AREA,
    breaks=replaced("auth.tokens:TokenAuthority.validate", lambda tokens, token: None),
)
async def let_in(yard: Subject) -> None:
    user = await account(yard, rule("list", "configmaps"))
    await soon(yard, user, 200, yard.at("configmaps"))
    good = (await token(yard))["status"]["token"]
    headers = {"Authorization": f"Bearer {good}"}
    (await yard.ask("GET", yard.at("configmaps"), headers=headers)).must(200)
    (await yard.ask("GET", yard.at("pods"), headers=headers)).refused(403, "Forbidden", user)
    other = (await token(yard, audiences=["elsewhere"]))["status"]["token"]
    said = await yard.ask("GET", yard.at("configmaps"), headers={"Authorization": f"Bearer {other}"})
    said.refused(401, "Unauthorized")


@check("A token dies with its account.", area=AREA, breaks=replaced("auth.tokens:TokenAuthority._is", lambda *_: True))
async def token_dies(yard: Subject) -> None:
    await account(yard)
    headers = {"Authorization": f"Bearer {(await token(yard))['status']['token']}"}
    assert (await yard.ask("GET", yard.at("configmaps"), headers=headers)).code == 403
    (await yard.ask("DELETE", yard.at("serviceaccounts", "robot"))).must(200)

    async def out() -> bool:
        return (await yard.ask("GET", yard.at("configmaps"), headers=headers)).code == 401

    await yard.until(out)


@check("A token lives at least ten minutes.", area=AREA, breaks=answers(422, 201))
async def short_tokens(yard: Subject) -> None:
    await account(yard)
    obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 5}}
    said = await yard.ask("POST", yard.at("serviceaccounts", "robot", "token"), obj)
    assert fields_of(said.refused(422, "Invalid")) == {("spec.expirationSeconds", "Invalid")}


@check("A token can be bound to a pod of the same account only.", area=AREA, breaks=answers(400, 201), needs=("pods",))
async def bound_tokens(yard: Subject) -> None:
    await account(yard)
    await yard.pod("mine", serviceAccountName="robot")
    await yard.pod("other")
    found = claims(await token(yard, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "mine"}))
    assert found["kubernetes.io"]["pod"]["name"] == "mine"
    path = yard.at("serviceaccounts", "robot", "token")
    for name, code in (("other", 400), ("none", 404)):
        reference = {"kind": "Pod", "apiVersion": "v1", "name": name}
        obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}
        assert (await yard.ask("POST", path, obj)).code == code


async def question(yard: Subject, kind: str, spec: Json, user: str | None = None, group: str = "authorization") -> Json:
    obj = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
    path = f"/apis/{group}.k8s.io/v1/{kind.lower()}s"
    status: Json = (await yard.ask("POST", path, obj, user=user)).must(201)["status"]
    return status


@check(
    "SelfSubjectAccessReview says what the asker may do.",
    area=AREA,
    breaks=sets("status.allowed", True),
)
async def may_i(yard: Subject) -> None:
    user = await account(yard, rule("list", "configmaps"))
    await soon(yard, user, 200, yard.at("configmaps"))
    thing_asked = {"namespace": yard.namespace, "verb": "list", "resource": "configmaps"}
    kind = "SelfSubjectAccessReview"
    assert (await question(yard, kind, {"resourceAttributes": thing_asked}, user))["allowed"] is True
    other = {**thing_asked, "verb": "delete"}
    assert (await question(yard, kind, {"resourceAttributes": other}, user))["allowed"] is False
    path = {"path": "/version", "verb": "get"}
    assert (await question(yard, kind, {"nonResourceAttributes": path}, user))["allowed"] is True
    assert (await question(yard, kind, {"resourceAttributes": other}))["allowed"] is True


@check(
    "SubjectAccessReview says what somebody else may do.",
    area=AREA,
    breaks=sets("status.allowed", True),
)
async def may_they(yard: Subject) -> None:
    user = await account(yard, rule("list", "configmaps"))
    await soon(yard, user, 200, yard.at("configmaps"))
    thing_asked = {"namespace": yard.namespace, "verb": "list", "resource": "configmaps"}
    spec = {"user": user, "resourceAttributes": thing_asked}
    assert (await question(yard, "SubjectAccessReview", spec))["allowed"] is True
    assert (await question(yard, "SubjectAccessReview", {**spec, "user": "nobody"}))["allowed"] is False
    masters = {**spec, "user": "nobody", "groups": ["system:masters"]}
    assert (await question(yard, "SubjectAccessReview", masters))["allowed"] is True


@check(
    "SelfSubjectRulesReview lists the asker's rules in a namespace.", area=AREA, breaks=without("status.resourceRules")
)
async def my_rules(yard: Subject) -> None:
    user = await account(yard, rule("list", "configmaps"))
    await soon(yard, user, 200, yard.at("configmaps"))
    told = await question(yard, "SelfSubjectRulesReview", {"namespace": yard.namespace}, user)
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]} in told["resourceRules"]
    assert any("/version" in one["nonResourceURLs"] for one in told["nonResourceRules"])


@check("SelfSubjectReview says who asks.", area=AREA, breaks=without("status.userInfo"))
async def who_am_i(yard: Subject) -> None:
    user = await account(yard)
    told = await question(yard, "SelfSubjectReview", {}, user, group="authentication")
    assert told["userInfo"]["username"] == user
    assert set(told["userInfo"]["groups"]) >= {"system:serviceaccounts", "system:authenticated"}


@check(
    "TokenReview says whose token it is, or that it is nobody's.",
    area=AREA,
    breaks=without("status.user"),
)
async def whose_token(yard: Subject) -> None:
    user = await account(yard)
    good = (await token(yard))["status"]["token"]
    told = await question(yard, "TokenReview", {"token": good}, group="authentication")
    assert told["authenticated"] is True and told["user"]["username"] == user
    told = await question(yard, "TokenReview", {"token": "nonsense"}, group="authentication")
    assert told.get("authenticated") is not True and told.get("user", {}) == {}
