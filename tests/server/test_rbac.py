"""RBAC: what rules allow, where bindings apply, the text of a refusal, and that no user grants more than he has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.server_clients import (
    ACCOUNTS,
    BINDINGS,
    CRDS,
    MAPS,
    PODS,
    RBAC,
    ROLES,
    Cluster,
    account,
    binding,
    config_map,
    crd,
    pod,
    role,
    rule,
)
from trainyard.server.auth import authorization, rbac
from trainyard.server.auth.rbac import Attributes
from trainyard.server.builtin import bootstrap_objects
from trainyard.server.model.users import User, impersonated_user

ROBOT = impersonated_user("system:serviceaccount:default:robot")
STRANGER = impersonated_user("system:serviceaccount:default:stranger")
ALLOWED = [
    (rule("get", "pods"), Attributes("get", "", "pods", name="a"), True),
    (rule("get", "pods"), Attributes("list", "", "pods"), False),
    (rule("get", "pods"), Attributes("get", "apps", "pods"), False),
    (rule("get", "pods"), Attributes("get", "", "pods", "log"), False),
    (rule("get", "pods/log"), Attributes("get", "", "pods", "log"), True),
    (rule("get", "pods/log"), Attributes("get", "", "pods"), False),
    (rule("get", "*/log"), Attributes("get", "", "pods", "log"), True),
    (rule("get", "*/log"), Attributes("get", "", "pods"), False),
    (rule("*", "*", "*"), Attributes("delete", "x.io", "things", "scale"), True),
    (rule("get", "*"), Attributes("get", "", "pods", "exec"), True),
    (rule("get", "pods", names="a b"), Attributes("get", "", "pods", name="b"), True),
    (rule("get", "pods", names="a b"), Attributes("get", "", "pods", name="c"), False),
    (rule("list", "pods", names="a"), Attributes("list", "", "pods"), False),
    ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Attributes("get", path="/api/v1"), True),
    ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Attributes("get", path="/api"), False),
    ({"verbs": ["get"], "nonResourceURLs": ["*"]}, Attributes("get", path="/x"), True),
    ({"verbs": ["get"], "nonResourceURLs": ["/x"]}, Attributes("post", path="/x"), False),
    (rule("*", "*", "*"), Attributes("get", path="/x"), False),
    ({"verbs": ["get"], "nonResourceURLs": ["*"]}, Attributes("get", "", "pods"), False),
    ({}, Attributes("get", "", "pods"), False),
    ({"verbs": "get", "apiGroups": None, "resources": {"a": 1}}, Attributes("get", "", "pods"), False),
]  # fmt: skip


@pytest.mark.parametrize(("rule_", "attributes", "allowed"), ALLOWED)
def test_a_rule_allows_or_not(rule_: Any, attributes: Attributes, allowed: bool) -> None:
    assert rbac.is_allowed([rule_], attributes) is allowed


COVERED = [
    ([rule("get list", "pods")], rule("get", "pods"), True),
    ([rule("get", "pods"), rule("list", "pods")], rule("get list", "pods"), True),
    ([rule("get", "pods")], rule("get", "pods secrets"), False),
    ([rule("get", "pods", names="a")], rule("get", "pods"), False),
    ([rule("get", "pods", names="a b")], rule("get", "pods", names="a"), True),
    ([rule("get", "pods", names="a")], rule("get", "pods", names="a b"), False),
    ([rule("get", "pods")], rule("*", "pods"), False),
    ([rule("*", "pods")], rule("*", "pods"), True),
    ([rule("get", "*")], rule("get", "pods/exec"), True),
    ([rule("get", "*/exec")], rule("get", "pods/exec"), True),
    ([rule("get", "pods")], rule("get", "*"), False),
    ([rule("get", "pods", "*")], rule("get", "pods", "apps"), True),
    ([{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}], {"verbs": ["get"], "nonResourceURLs": ["/a/b"]}, True),
    ([{"verbs": ["get"], "nonResourceURLs": ["/a"]}], {"verbs": ["get"], "nonResourceURLs": ["/a", "/b"]}, False),
]  # fmt: skip


@pytest.mark.parametrize(("held", "wanted", "covered"), COVERED)
def test_a_rule_is_covered_by_others_or_not(held: Any, wanted: Any, covered: bool) -> None:
    assert (rbac.missing_rules(held, [wanted]) == []) is covered


@pytest.fixture
def world(cluster: Cluster) -> Cluster:
    """A cluster with its usual roles, a second namespace, and a robot that may do nothing."""
    for path, obj in bootstrap_objects.objects():
        if obj["metadata"]["name"] != "default":
            cluster.make(path, obj)
    cluster.make(ACCOUNTS, account("robot"))
    return cluster


def no(world: Cluster, user: User, method: str, path: str, body: Any = None, kind: str = "application/json") -> str:
    """The text of the 403 that this request must meet."""
    with world.acting(user):
        refused = world.refused(method, path, body, kind)
    assert (refused.code, refused.reason) == (403, "Forbidden"), refused.message
    return refused.message


def test_a_service_account_has_no_permissions_by_default(world: Cluster) -> None:
    user = 'User "system:serviceaccount:default:robot" cannot'
    where = 'in API group "" in the namespace "default"'
    assert no(world, ROBOT, "GET", f"{PODS}/x") == f'pods "x" is forbidden: {user} get resource "pods" {where}'
    assert no(world, ROBOT, "GET", PODS) == f'pods is forbidden: {user} list resource "pods" {where}'
    assert no(world, ROBOT, "POST", PODS, pod("a")) == f'pods is forbidden: {user} create resource "pods" {where}'
    assert no(world, ROBOT, "GET", f"{PODS}/x/log") == f'pods "x" is forbidden: {user} get resource "pods/log" {where}'
    scope = 'in API group "" at the cluster scope'
    assert no(world, ROBOT, "GET", "/api/v1/nodes") == f'nodes is forbidden: {user} list resource "nodes" {scope}'
    assert no(world, ROBOT, "GET", "/api/v1/pods") == f'pods is forbidden: {user} list resource "pods" {scope}'
    text = f'jobs.batch "j" is forbidden: {user} delete resource "jobs" in API group "batch" in the namespace "default"'
    assert no(world, ROBOT, "DELETE", "/apis/batch/v1/namespaces/default/jobs/j") == text
    assert "cannot get path" in no(world, ROBOT, "GET", "/metrics")
    assert "cannot list resource" in no(world, ROBOT, "GET", "/apis/nope.io/v1/namespaces/default/nopes")


VERBS = [
    ("GET", f"{MAPS}/a", None, "get"), ("GET", MAPS, None, "list"), ("GET", f"{MAPS}?watch=true", None, "watch"),
    ("POST", MAPS, config_map("b"), "create"), ("PUT", f"{MAPS}/a", config_map("a"), "update"),
    ("PATCH", f"{MAPS}/a", {}, "patch"), ("DELETE", f"{MAPS}/a", None, "delete"),
    ("DELETE", MAPS, None, "deletecollection"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "verb"), VERBS)
def test_each_verb_needs_its_own_right(world: Cluster, method: str, path: str, body: Any, verb: str) -> None:
    world.make(MAPS, config_map("a"))
    path, _, query = path.partition("?")
    query_parameters = dict([query.split("=")]) if query else {}
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    everything = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    world.make(
        ROLES, role("r", rule(" ".join(other_verb for other_verb in everything if other_verb != verb), "configmaps"))
    )
    world.make(BINDINGS, binding("b", "r", "robot"))
    with world.acting(ROBOT):
        refused = world.refused(method, path, body, kind, **query_parameters)
        assert refused.code == 403 and f'cannot {verb} resource "configmaps"' in refused.message
    world.merge(f"{ROLES}/r", {"rules": [rule(verb, "configmaps")]})
    with world.acting(ROBOT):
        if verb == "watch":
            assert world.watch(path).revision
        else:
            assert world.ask(method, path, body, kind)


def test_a_binding_counts_in_its_namespace_and_for_its_account_only(world: Cluster) -> None:
    world.make(ROLES, role("reads", rule("get list", "configmaps")))
    world.make(BINDINGS, binding("b", "reads", "robot"))
    with world.acting(ROBOT):
        assert world.get(MAPS)["items"] == []
    no(world, ROBOT, "GET", "/api/v1/namespaces/kube-system/configmaps")
    no(world, ROBOT, "GET", "/api/v1/configmaps")
    no(world, STRANGER, "GET", MAPS)
    no(world, impersonated_user("system:serviceaccount:kube-system:robot"), "GET", MAPS)
    world.delete(f"{BINDINGS}/b")
    no(world, ROBOT, "GET", MAPS)


def test_a_cluster_role_applies_where_it_is_bound(world: Cluster) -> None:
    world.make(f"{RBAC}/clusterroles", role("reads", rule("list", "configmaps nodes"), kind="ClusterRole"))
    world.make(BINDINGS, binding("b", "reads", "robot", role_kind="ClusterRole"))
    with world.acting(ROBOT):
        assert world.get(MAPS)["items"] == []
    no(world, ROBOT, "GET", "/api/v1/nodes")
    bound = binding("all", "reads", "robot", kind="ClusterRoleBinding", role_kind="ClusterRole")
    world.make(f"{RBAC}/clusterrolebindings", bound)
    with world.acting(ROBOT):
        assert world.get("/api/v1/nodes")["items"] == []
        assert world.get("/api/v1/configmaps")["items"] == []


def test_groups_and_users_are_subjects_too(world: Cluster) -> None:
    world.make(ROLES, role("reads", rule("list", "configmaps")))
    for index, subject in enumerate((
        {"kind": "Group", "name": "system:serviceaccounts:default"},
        {"kind": "User", "name": "jane"},
    )):  # fmt: skip
        created = world.make(BINDINGS, {**binding(f"b{index}", "reads"), "subjects": [subject]})
        assert created["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    for user in (ROBOT, STRANGER, impersonated_user("jane")):
        with world.acting(user):
            world.get(MAPS)
    no(world, impersonated_user("john"), "GET", MAPS)
    no(world, impersonated_user("system:serviceaccount:kube-system:robot"), "GET", MAPS)


def test_a_binding_to_a_missing_role_grants_nothing(world: Cluster) -> None:
    world.make(BINDINGS, binding("b", "nope", "robot"))
    no(world, ROBOT, "GET", MAPS)


def test_a_list_of_one_name_needs_the_right_for_that_name(world: Cluster) -> None:
    world.make(ROLES, role("r", rule("list watch get", "configmaps", names="mine")))
    world.make(BINDINGS, binding("b", "r", "robot"))
    with world.acting(ROBOT):
        assert world.get(MAPS, fieldSelector="metadata.name=mine")["items"] == []
        assert world.refused("GET", MAPS, fieldSelector="metadata.name=theirs").code == 403
    no(world, ROBOT, "GET", MAPS)


@pytest.mark.parametrize(
    "fields", [r"metadata.namespace!=x\,metadata.name=mine", "metadata.name!=mine", "metadata.name=mine,metadata.name"]
)
def test_resource_names_need_a_matching_field_selector(world: Cluster, fields: str) -> None:
    world.make(ROLES, role("r", rule("list watch", "configmaps", names="mine")))
    world.make(BINDINGS, binding("b", "r", "robot"))
    world.make(MAPS, config_map("theirs"))
    with world.acting(ROBOT):
        assert world.refused("GET", MAPS, fieldSelector=fields).code in (400, 403)


def test_every_authenticated_user_may_use_discovery_and_self_reviews(world: Cluster) -> None:
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    kinds = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    wanted = {"namespace": "default", "verb": "get", "resource": "configmaps"}
    with world.acting(ROBOT):
        for path in ("/api", "/api/v1", "/apis", "/apis/batch/v1", "/version", "/readyz", "/openapi/v3"):
            world.raw("GET", path)
        access_review = {**kinds, "spec": {"resourceAttributes": wanted}}
        assert world.make(review, access_review)["status"] == {"allowed": False}
        attributes = {**kinds, "spec": {"nonResourceAttributes": {"path": "/api", "verb": "get"}}}
        assert world.make(review, attributes)["status"] == {"allowed": True}
        me = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        user_info = world.make("/apis/authentication.k8s.io/v1/selfsubjectreviews", me)["status"]["userInfo"]
        assert user_info["username"] == ROBOT.name and "system:authenticated" in user_info["groups"]
        rules = {**kinds, "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}}
        listed = world.make("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", rules)["status"]
        assert listed["nonResourceRules"] and not listed["incomplete"]
        assert world.refused("POST", review, {**kinds, "spec": {}}).code == 422
        assert world.refused("POST", review, {**kinds, "spec": {"resourceAttributes": 5}}).code == 400
    assert world.make(review, access_review)["status"] == {"allowed": True}
    assert world.refused("GET", review).code == 405
    assert not [key for key, _ in world.log.list("selfsubjectaccessreviews.authorization.k8s.io")]


@pytest.mark.parametrize("spec", [{"user": 5}, {"groups": 5}, {"groups": [5]}, {"user": "a", "groups": "b"}, {}])
def test_a_review_without_a_user_is_refused(world: Cluster, spec: dict[str, Any]) -> None:
    kinds = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review = {**kinds, "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}, **spec}}
    code = 400 if spec else 422  # a wrong type is no SubjectAccessReview at all, as for every built-in type
    assert world.refused("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review).code == code


def test_a_role_cannot_grant_permissions_that_its_author_lacks(world: Cluster) -> None:
    world.make(ROLES, role("maker", rule("create update patch", "roles rolebindings", "rbac.authorization.k8s.io"),
                           rule("get", "pods")))  # fmt: skip
    world.make(ROLES, role("strong", rule("delete", "secrets")))
    world.make(ROLES, role("weak", rule("get", "pods")))
    world.make(BINDINGS, binding("b", "maker", "robot"))
    text = no(world, ROBOT, "POST", ROLES, role("mine", rule("get list", "pods")))
    assert text.startswith('roles.rbac.authorization.k8s.io "mine" is forbidden: user "system:serviceaccount:default:')
    assert "is attempting to grant RBAC permissions not currently held:\n" in text
    assert text.endswith('{APIGroups:[""], Resources:["pods"], Verbs:["list"]}')
    assert "not currently held" in no(world, ROBOT, "POST", BINDINGS, binding("mine", "strong", "stranger"))
    everything = binding("mine", "cluster-admin", "robot", role_kind="ClusterRole")
    assert "not currently held" in no(world, ROBOT, "POST", BINDINGS, everything)
    with world.acting(ROBOT):
        world.make(ROLES, role("mine", rule("get", "pods")))
        world.make(BINDINGS, binding("mine", "weak", "stranger"))
        world.merge(f"{ROLES}/strong", {"metadata": {"labels": {"a": "b"}}})
    grown = {"rules": [rule("*", "*", "*")]}
    assert "not currently held" in no(world, ROBOT, "PATCH", f"{ROLES}/mine", grown, "application/merge-patch+json")


def test_a_crd_for_a_built_in_resource_neither_replaces_it_nor_takes_its_objects(world: Cluster) -> None:
    definition = crd("roles", "Role", "rbac.authorization.k8s.io")
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.org"}
    world.make(ROLES, role("old", rule("get", "pods")))
    world.make(CRDS, definition)
    assert world.refused("POST", ROLES, role("new", {"verbs": []})).code == 422
    world.delete(f"{CRDS}/roles.rbac.authorization.k8s.io")
    assert [item["metadata"]["name"] for item in world.get(ROLES)["items"]] == ["old"]


def test_escalate_and_bind_allow_to_grant_more(world: Cluster) -> None:
    group = "rbac.authorization.k8s.io"
    rules = rule("create escalate", "roles", group), rule("create", "rolebindings", group)
    world.make(ROLES, role("maker", *rules, rule("bind", "roles", group, names="strong")))
    world.make(BINDINGS, binding("b", "maker", "robot"))
    with world.acting(ROBOT):
        world.make(ROLES, role("strong", rule("delete", "secrets")))
        world.make(ROLES, role("other", rule("delete", "secrets")))
        world.make(BINDINGS, binding("mine", "strong", "stranger"))
    no(world, ROBOT, "POST", BINDINGS, binding("more", "other", "robot"))


BAD = [
    (ROLES, role("r", {"verbs": [], "apiGroups": [""], "resources": ["pods"]}), "rules[0].verbs"),
    (ROLES, role("r", {"verbs": ["get"], "resources": ["pods"]}), "rules[0].apiGroups"),
    (ROLES, role("r", {"verbs": ["get"], "apiGroups": [""]}), "rules[0].resources"),
    (ROLES, role("r", {"apiGroups": [""], "resources": ["pods"]}), "rules[0].verbs"),
    (ROLES, role("r", {"verbs": ["get"], "nonResourceURLs": ["/x"]}), "rules[0].nonResourceURLs"),
    (ROLES, role("a/b", rule("get", "pods")), "metadata.name"),
    (f"{RBAC}/clusterrolebindings", {**binding("b", "r", "x", kind="ClusterRoleBinding"),
     "subjects": [{"kind": "ServiceAccount", "name": "x"}]}, "subjects[0].namespace"),
    (BINDINGS, {**binding("b", "r", "x"), "subjects": [{"kind": "ServiceAccount", "name": "x:y"}]}, "subjects[0].name"),
    (BINDINGS, {**binding("b", "r", "x"), "subjects": [{"kind": "User", "name": "x", "apiGroup": "odd"}]},
     "subjects[0].apiGroup"),
    (BINDINGS, {**binding("b", "r", "x"), "subjects": [{"kind": "Robot", "name": "x"}]}, "subjects[0].kind"),
    (BINDINGS, binding("b", "r", "x", role_kind="Pod"), "roleRef.kind"),
    (f"{RBAC}/clusterrolebindings", binding("b", "r", "x", kind="ClusterRoleBinding"), "roleRef.kind"),
    (BINDINGS, binding("b", "", "x"), "roleRef.name"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "obj", "field"), BAD)
def test_a_wrong_role_or_binding_is_refused_at_its_place(cluster: Cluster, path: str, obj: Any, field: str) -> None:
    refused = cluster.refused("POST", path, obj)
    assert refused.code == 422, refused.message
    assert field in [cause["field"] for cause in (refused.details or {})["causes"]]


def test_an_account_without_a_namespace_is_one_of_the_bindings(world: Cluster) -> None:
    world.make(ROLES, role("r", rule("get", "secrets")))
    account = {"kind": "ServiceAccount", "name": "x"}
    created = world.make(BINDINGS, {**binding("b", "r", "x"), "subjects": [account]})
    assert created["subjects"] == [account]
    attributes = Attributes("get", "", "secrets", "", "default", "a")
    here, there = (impersonated_user(f"system:serviceaccount:{namespace}:x") for namespace in ("default", "other"))
    assert authorization.is_allowed(world.log, here, attributes) and not authorization.is_allowed(
        world.log, there, attributes
    )


def test_a_binding_keeps_its_role(cluster: Cluster) -> None:
    cluster.make(BINDINGS, binding("b", "r", "x"))
    changed = {"roleRef": {"name": "other"}}
    refused = cluster.refused("PATCH", f"{BINDINGS}/b", changed, "application/merge-patch+json")
    assert refused.code == 422 and "field is immutable" in refused.message
    assert "subjects" not in cluster.merge(f"{BINDINGS}/b", {"subjects": []})


def test_names_of_roles_may_have_colons(cluster: Cluster) -> None:
    created = cluster.make(ROLES, role("system:x:Y", rule("get", "pods")))
    assert cluster.get(f"{ROLES}/system:x:Y")["metadata"]["uid"] == created["metadata"]["uid"]


def test_only_bind_allows_a_binding_to_a_missing_role(world: Cluster) -> None:
    """The missing role may be created later by another user, with more permissions."""
    world.make(ROLES, role("maker", rule("create", "rolebindings", "rbac.authorization.k8s.io")))
    world.make(BINDINGS, binding("b", "maker", "robot"))
    with world.acting(ROBOT):
        refused = world.refused("POST", BINDINGS, binding("early", "later", "robot"))
        assert refused.code == 404 and 'roles.rbac.authorization.k8s.io "later" not found' in refused.message
    assert authorization.rules_of(world.log, STRANGER, "default")[0]["verbs"] == ["create"]
    world.make(BINDINGS, binding("early", "later", "robot"))
