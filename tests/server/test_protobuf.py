"""What kubectl's typed commands send, recorded from kubectl 1.32, and what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.server_clients import MAPS, ROLES, Cluster
from trainyard.server.model import protobuf

AUTH = "authorization.k8s.io/v1"
RECORDED: list[tuple[str, str, dict[str, Any]]] = [
    ("create serviceaccount robot",
     "6b3873000a140a027631120e536572766963654163636f756e7412170a150a05726f626f7412001a0022002a003200380042001a002200",
     {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
    ("create token robot --duration 1h --bound-object-kind Pod --bound-object-name p --bound-object-uid u",
     "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e52657175657374122e0a100a0012001a"
     "0022002a0032003800420012141a0f0a03506f64120276311a017022017520901c1a040a0012001a002200",
     {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
      "spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"},
               "expirationSeconds": 3600}}),
    ("auth whoami",
     "6b3873000a2d0a1861757468656e7469636174696f6e2e6b38732e696f2f7631121153656c665375626a656374526576696577121a0a10"
     "0a0012001a0022002a0032003800420012060a040a0012001a002200",
     {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
    ("auth can-i get pods/exec -n x",
     "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a6563744163636573735265766965"
     "77123a0a100a0012001a0022002a00320038004200121c0a1a0a017812036765741a0022002a04706f647332003a04657865631a080800"
     "12001a0020001a002200",
     {"apiVersion": AUTH, "kind": "SelfSubjectAccessReview",
      "spec": {"resourceAttributes": {"namespace": "x", "verb": "get", "resource": "pods", "name": "exec"}}}),
    ("auth can-i get /api",
     "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a6563744163636573735265766965"
     "77122b0a100a0012001a0022002a00320038004200120d120b0a042f61706912036765741a08080012001a0020001a002200",
     {"apiVersion": AUTH, "kind": "SelfSubjectAccessReview",
      "spec": {"nonResourceAttributes": {"path": "/api", "verb": "get"}}}),
    ("create role r --verb=get,list --resource=pods --resource-name=a",
     "6b3873000a240a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f76311204526f6c65122b0a110a017212001a002200"
     "2a0032003800420012160a036765740a046c69737412001a04706f64732201611a002200",
     {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
      "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]}),
    ("create rolebinding rb --role=r --serviceaccount=default:robot --user=u",
     "6b3873000a2b0a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631120b526f6c6542696e64696e671286010a120a"
     "02726212001a0022002a0032003800420012260a04557365721219726261632e617574686f72697a6174696f6e2e6b38732e696f1a0175"
     "220012220a0e536572766963654163636f756e7412001a05726f626f74220764656661756c741a240a19726261632e617574686f72697a"
     "6174696f6e2e6b38732e696f1204526f6c651a01721a002200",
     {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "rb"},
      "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"},
                   {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
      "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
    ("create configmap c --from-literal=a=b",
     "6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a016312001a0022002a0032003800420012060a01611201621a002200",
     {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}),
    ("create secret generic s --from-literal=a=b",
     "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a0032003800420012060a01611201621a001a002200",
     {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}}),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "meant"), [pytest.param(*row[1:], id=row[0]) for row in RECORDED])
def test_protobuf_from_kubectl_is_decoded(sent: str, meant: dict[str, Any]) -> None:
    assert protobuf.decode(bytes.fromhex(sent)) == meant


@pytest.mark.parametrize(("path", "index"), [(ROLES, 5), (MAPS, 7)])
def test_an_object_is_created_from_protobuf(cluster: Cluster, path: str, index: int) -> None:
    _, sent, meant = RECORDED[index]
    cluster.raw("POST", path, bytes.fromhex(sent), protobuf.CONTENT_TYPE)
    stored = cluster.get(f"{path}/{meant['metadata']['name']}")
    assert {**stored, "metadata": meant["metadata"]} == meant


def envelope(kind: str, raw: bytes) -> bytes:
    about = b"\x0a\x02v1\x12" + bytes([len(kind)]) + kind.encode()
    return protobuf.MAGIC + b"\x0a" + bytes([len(about)]) + about + b"\x12" + bytes([len(raw)]) + raw


BAD = [
    (b"", "does not begin"),
    (b"{}", "does not begin"),
    (envelope("DaemonSet", b""), "DaemonSet is not served in protobuf; send JSON or YAML"),
    (envelope("PolicyRule", b""), "PolicyRule is not served"),
    (envelope("ConfigMap", b"\x4a\x01x"), "field 9 of ConfigMap is not served"),
    (envelope("ConfigMap", b"\x0a\x05x"), "ends too early"),
    (envelope("ConfigMap", b"\x08\x01"), "is a number where a message is expected"),
    (envelope("ConfigMap", b"\x0d\x01\x01\x01\x01"), "unknown form"),
    (envelope("ConfigMap", b"\xff" * 11), "too long"),
    (envelope("ConfigMap", b"\x22\x01\x01"), "a number is malformed"),
    (envelope("ConfigMap", b"\x12\x06\x0a\x01\xff\x12\x01b"), "decode"),
]


@pytest.mark.parametrize(("body", "text"), BAD)
def test_malformed_protobuf_is_refused(cluster: Cluster, body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        protobuf.decode(body)
    with pytest.raises(Exception, match="the object provided is unrecognized") as caught:
        cluster.raw("POST", MAPS, body, protobuf.CONTENT_TYPE)
    assert getattr(caught.value, "code", None) == 400


@given(st.binary(max_size=60), st.sampled_from(protobuf.KINDS))
def test_random_bytes_are_decoded_or_refused_without_another_error(raw: bytes, kind: str) -> None:
    try:
        assert protobuf.decode(envelope(kind, raw))["kind"] == kind
    except ValueError:
        return
