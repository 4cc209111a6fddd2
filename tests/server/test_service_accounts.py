"""ServiceAccounts: tokens and when they die, and what a pod gets of its account."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.server.server_clients import ACCOUNTS, PODS, START, Cluster, account, pod
from trainyard.objects import decode, encode
from trainyard.server.auth.tokens import TokenAuthority
from trainyard.server.model.users import User
from trainyard.server.registry.service_accounts import TOKEN_MOUNT_PATH


def request_token(cluster: Cluster, name: str = "robot", **spec: Any) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(cluster.make(f"{ACCOUNTS}/{name}/token", body)["status"]["token"])


def sender(cluster: Cluster, token: str) -> User | None:
    return cluster.verbs.tokens.validate(token)


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return dict(decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


@pytest.fixture
def robot(cluster: Cluster) -> Cluster:
    cluster.make(ACCOUNTS, account("robot"))
    return cluster


def test_a_token_authenticates_its_service_account(robot: Cluster) -> None:
    uid = robot.get(f"{ACCOUNTS}/robot")["metadata"]["uid"]
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = robot.make(f"{ACCOUNTS}/robot/token", body)
    assert answer["status"]["expirationTimestamp"] == "2027-01-15T08:10:00Z"
    claims = claims_of(answer["status"]["token"])
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert (claims["iat"], claims["exp"]) == (START, START + 600)
    assert claims["kubernetes.io"] == {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}}
    user = sender(robot, answer["status"]["token"])
    assert user is not None and (user.name, user.uid) == ("system:serviceaccount:default:robot", uid)
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    assert not user.is_admin


def test_a_token_dies_with_its_time(robot: Cluster) -> None:
    token = request_token(robot, expirationSeconds=600)
    robot.now += 599
    assert sender(robot, token)
    robot.now += 1
    assert sender(robot, token) is None
    robot.now = START - 1
    assert sender(robot, token) is None


def test_a_token_dies_with_its_account(robot: Cluster) -> None:
    token = request_token(robot)
    robot.delete(f"{ACCOUNTS}/robot")
    assert sender(robot, token) is None
    robot.make(ACCOUNTS, account("robot"))
    assert sender(robot, token) is None, "an account of the same name is another account"


def bound(cluster: Cluster, name: str = "p", **more: Any) -> str:
    uid = cluster.get(f"{PODS}/{name}")["metadata"]["uid"]
    return request_token(cluster, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}, **more)


def test_a_token_dies_with_its_pod(robot: Cluster) -> None:
    robot.make(PODS, pod("p", serviceAccountName="robot"))
    token = bound(robot)
    user = sender(robot, token)
    assert user is not None and user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    robot.delete(f"{PODS}/p")
    assert sender(robot, token) is None
    robot.make(PODS, pod("p", serviceAccountName="robot"))
    assert sender(robot, token) is None, "a pod of the same name is another pod"


def test_a_pod_that_ends_may_ask_until_a_minute_after_its_grace(robot: Cluster) -> None:
    robot.make(PODS, pod("p", serviceAccountName="robot", nodeName="n"))
    token = bound(robot)
    robot.delete(f"{PODS}/p")
    assert sender(robot, token)
    robot.now += 30 + 59
    assert sender(robot, token)
    robot.now += 2
    assert sender(robot, token) is None


def forged(token: str) -> list[str]:
    head, claims, signature = token.split(".")
    none = base64.urlsafe_b64encode(encode({"alg": "none", "typ": "JWT"})).decode().rstrip("=")
    return [
        f"{head}.{claims}.{signature[:-2]}AA", f"{head}.{claims}.", f"{none}.{claims}.", f"{head}.{claims}",
        f"{none}.{claims}.{signature}", f"{head}.e30.{signature}", "", ".", "..", "a.b.c", "é.é.é", "x" * 100_000,
    ]  # fmt: skip


def test_a_token_of_another_issuer_is_unauthorized(robot: Cluster) -> None:
    token = request_token(robot)
    assert sender(robot, token)
    for wrong in forged(token):
        assert sender(robot, wrong) is None, wrong[:80]
    other = TokenAuthority(robot.log, lambda: robot.now)
    assert other.validate(token) is None, "each server has its own key"


def test_a_token_for_others_does_not_open_this_server(robot: Cluster) -> None:
    token = request_token(robot, audiences=["vault"])
    assert claims_of(token)["aud"] == ["vault"]
    assert sender(robot, token) is None


REFUSED = [
    ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
    ({"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds"),
    ({"expirationSeconds": "x"}, 422, "must be a number of seconds"),
    ({"boundObjectRef": {"kind": "Pod", "name": "nope"}}, 404, 'pods "nope" not found'),
    ({"boundObjectRef": {"kind": "Pod", "name": "p", "uid": "x"}}, 409, "does not match the UID in record"),
    ({"boundObjectRef": {"kind": "Pod", "name": "others"}}, 400, "different serviceaccount name"),
    ({"boundObjectRef": {"kind": "Node", "name": "n"}}, 400, "a token can be bound to a Pod"),
    ({"audiences": "x"}, 400, "spec.audiences"),
]


@pytest.mark.parametrize(("spec", "code", "text"), REFUSED)
def test_a_token_is_not_given_for_a_wrong_request(robot: Cluster, spec: Any, code: int, text: str) -> None:
    robot.make(PODS, pod("p", serviceAccountName="robot"))
    robot.make(PODS, pod("others"))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    refused = robot.refused("POST", f"{ACCOUNTS}/robot/token", body)
    assert refused.code == code and text in refused.message


def test_a_token_is_for_an_account_that_exists_and_only_made(robot: Cluster) -> None:
    assert robot.refused("POST", f"{ACCOUNTS}/nope/token", {}).code == 404
    assert robot.refused("GET", f"{ACCOUNTS}/robot/token").code == 405
    assert robot.refused("POST", "/api/v1/namespaces/default/configmaps/a/token", {}).code == 404


@pytest.fixture
def reachable(robot: Cluster) -> Cluster:
    robot.verbs.has_tls_listener = True
    return robot


def mounts(pod_created: dict[str, Any], group: str = "containers") -> list[list[str]]:
    return [
        [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        for container in pod_created["spec"].get(group, ())
    ]


def test_every_container_of_a_pod_gets_the_folder_of_its_account(reachable: Cluster) -> None:
    two = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    created = reachable.make(PODS, pod("p", containers=two, initContainers=[{"name": "c", "image": "i"}]))
    assert created["spec"]["serviceAccountName"] == created["spec"]["serviceAccount"] == "default"
    (volume,) = created["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-") and len(volume["name"]) == len("kube-api-access-") + 5
    token, ca, namespace = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert ca == {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    assert namespace["downwardAPI"]["items"][0]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    assert volume["projected"]["defaultMode"] == 0o644
    assert mounts(created) == [[TOKEN_MOUNT_PATH], [TOKEN_MOUNT_PATH]] and mounts(created, "initContainers") == [
        [TOKEN_MOUNT_PATH]
    ]
    mount = created["spec"]["containers"][0]["volumeMounts"][0]
    assert mount == {"name": volume["name"], "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
    again = reachable.ask("PUT", f"{PODS}/p", reachable.get(f"{PODS}/p"))
    assert again["spec"] == created["spec"], "an update adds nothing"


def test_a_container_with_its_own_mount_at_the_token_path_keeps_it(reachable: Cluster) -> None:
    own = {"name": "a", "image": "i", "volumeMounts": [{"name": "mine", "mountPath": TOKEN_MOUNT_PATH}]}
    volumes = [{"name": "mine", "emptyDir": {}}]
    both = reachable.make(PODS, pod("both", volumes=volumes, containers=[own, {"name": "b", "image": "i"}]))
    assert both["spec"]["containers"][0]["volumeMounts"] == own["volumeMounts"]
    assert [volume["name"][:5] for volume in both["spec"]["volumes"]] == ["mine", "kube-"]
    assert mounts(both) == [[TOKEN_MOUNT_PATH], [TOKEN_MOUNT_PATH]]
    alone = reachable.make(PODS, pod("alone", volumes=volumes, containers=[own]))
    assert alone["spec"]["volumes"] == volumes


def test_a_pod_or_its_service_account_may_disable_the_token(reachable: Cluster) -> None:
    reachable.make(ACCOUNTS, account("quiet", automountServiceAccountToken=False))
    for name, spec, gets in (
        ("pod-no", {"automountServiceAccountToken": False}, False),
        ("account-no", {"serviceAccountName": "quiet"}, False),
        ("pod-yes", {"serviceAccountName": "quiet", "automountServiceAccountToken": True}, True),
    ):
        assert (mounts(reachable.make(PODS, pod(name, **spec))) == [[TOKEN_MOUNT_PATH]]) is gets, name


def test_a_server_without_a_listener_for_pods_mounts_no_token(robot: Cluster) -> None:
    created = robot.make(PODS, pod("p", serviceAccountName="robot"))
    assert mounts(created) == [[]] and "volumes" not in created["spec"]


def test_a_pod_of_an_account_that_does_not_exist_is_refused(robot: Cluster) -> None:
    refused = robot.refused("POST", PODS, pod("p", serviceAccountName="nope"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    why = 'error looking up service account default/nope: serviceaccount "nope" not found'
    assert refused.message == f'pods "p" is forbidden: {why}'
    robot.make(ACCOUNTS, account("nope"))
    assert robot.make(PODS, pod("p", serviceAccountName="nope"))["spec"]["serviceAccountName"] == "nope"


def test_a_pod_takes_over_the_pull_secrets_of_its_account(robot: Cluster) -> None:
    robot.make(ACCOUNTS, account("puller", imagePullSecrets=[{"name": "s"}]))
    created = robot.make(PODS, pod("p", serviceAccountName="puller"))
    assert created["spec"]["imagePullSecrets"] == [{"name": "s"}]
    own = robot.make(PODS, pod("q", serviceAccountName="puller", imagePullSecrets=[{"name": "t"}]))
    assert own["spec"]["imagePullSecrets"] == [{"name": "t"}]
