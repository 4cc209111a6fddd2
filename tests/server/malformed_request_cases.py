"""Requests that are nearly right: what a connection sends to a server that must survive it (garbage.py)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TOKEN = "-".join(("canary", "of", "the", "garbage"))
CORE, GROUPS = "/api/v1/namespaces/default", "/apis"
PATHS = (
    f"{CORE}/configmaps", f"{CORE}/pods", f"{CORE}/secrets", f"{CORE}/services", f"{CORE}/events", f"{CORE}/bindings",
    "/api/v1/namespaces", "/api/v1/nodes", f"{CORE}/serviceaccounts/default/token",
    f"{GROUPS}/batch/v1/namespaces/default/jobs", f"{GROUPS}/apps/v1/namespaces/default/deployments",
    f"{GROUPS}/coordination.k8s.io/v1/namespaces/default/leases",
    f"{GROUPS}/apiextensions.k8s.io/v1/customresourcedefinitions",
    f"{GROUPS}/authorization.k8s.io/v1/selfsubjectaccessreviews", f"{GROUPS}/rbac.authorization.k8s.io/v1/clusterroles",
    "/openapi/v3", "/version", "/healthz", "/", "//", "/api//v1", "/%00", "/%", "/%zz", "/\xff\xfe", "/api/v1/../..",
)  # fmt: skip
ENDS = ("", "/a", "/a/status", "/a/scale", "/a/log", "/a/exec", "/a/proxy/x", "/%2F", "/%F0%9F%92%A9", "/\xe9", "/a%00")
QUERIES = (
    "limit=-1", "limit=99999999999999999999", "limit=x", "continue=%ff", "continue=e30", "resourceVersion=-1",
    "resourceVersion=1e3", "resourceVersion=99999999", "labelSelector=%00", "labelSelector=a in (", "dryRun=Some",
    "fieldSelector=metadata.name=a,=", "fieldSelector===", "timeoutSeconds=-1", "gracePeriodSeconds=NaN", "=&=&;",
    "watch=1&timeoutSeconds=1&resourceVersion=0", "propagationPolicy=None", "fieldManager=" + "x" * 300, "%",
    "\xff=\xff",
    "fieldValidation=Strict", "command=&command=a&stdin=maybe", "sendInitialEvents=1&watch=1&timeoutSeconds=1",
)  # fmt: skip
TYPES = (
    "application/json", "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml",
    "application/strategic-merge-patch+json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain",
    "application/json; charset=utf-16", "application/json;", ";;", "",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get")
ACCEPTS = (
    "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf", "*/*;q=",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/yaml", "\xff", ",;,",
)  # fmt: skip
BODIES = (
    b"", b"{", b"[]", b"null", b'"a"', b"1", b"NaN", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}',
    b'{"a": 1e999}', b'{"a": -0}', b'{"a": ' + b"9" * 400 + b"}", b'{"a": 1.' + b"9" * 400 + b"}",
    b'{"metadata": {"name": "\\ud800"}}', b'{"\\ud800": 1}', b'{"metadata": {"name": "a", "name": "b"}}',
    b'{"kind": "Pod", "kind": "ConfigMap", "metadata": {"name": "a"}}', b"[" * 100_000, b'{"a":' * 50_000,
    b"kind: ConfigMap\nmetadata: {name: a}\n", b"a: &a [*a, *a]\n", b"\xef\xbb\xbf{}", b"\xff\xfe\x00", b"\x00" * 64,
    b"k8s\x00", b"k8s\x00\x0a\xff\xff\xff\xff\x0f", b"k8s\x00" + b"\x0a\x02" * 500, b'{"metadata": []}',
    b'{"metadata": {"name": {"a": 1}}}', b'{"metadata": {"name": 1}}', b'{"spec": null, "metadata": null}', b"{} {}",
    b'[{"op": "add", "path": "/metadata/labels/a", "value": 1}]', b'[{"op": "copy", "from": "", "path": "/data/a"}]',
    b'[{"op": "test", "path": "/~2"}]', b'[{"op": "remove", "path": "/metadata"}]', b'[{"op": 1}]', b"[1]",
    b'{"metadata": {"finalizers": [null]}}', b'{"metadata": {"labels": {"a": {}}}}', b'{"data": {"a": "\\u0000"}}',
    b'{"metadata": {"ownerReferences": [{"uid": 1}]}}', b'{"metadata": {"creationTimestamp": "x"}}',
    b'{"metadata": {"managedFields": [{}]}}', b'{"$patch": "delete"}', b'{"spec": {"$retainKeys": 1}}',
)  # fmt: skip
KINDS = ("ConfigMap", "Pod", "Secret", "Service", "Namespace", "Node", "Job", "Deployment", "Lease", "\\ud83d", "")
ODD = (b"null", b"1", b'"x"', b"{}", b"[]", b'{"a": "b"}', b"-1", b"1e5", b"true", b'[{"a": null}]', b'{"": {"": []}}')
WRITTEN = (
    (f"{CORE}/configmaps", "v1", "ConfigMap"), (f"{CORE}/secrets", "v1", "Secret"), (f"{CORE}/pods", "v1", "Pod"),
    (f"{CORE}/services", "v1", "Service"), (f"{CORE}/events", "v1", "Event"), ("/api/v1/nodes", "v1", "Node"),
    (f"{CORE}/serviceaccounts", "v1", "ServiceAccount"), ("/api/v1/namespaces", "v1", "Namespace"),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "coordination.k8s.io/v1", "Lease"),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("/apis/example.org/v1/namespaces/default/things", "example.org/v1", "Thing"),
    ("/apis/example.org/v1/namespaces/default/things", "example.org/v1", "Thing"),
)  # fmt: skip
DEFINITION = (
    b'{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": '
    b'"things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "things", '
    b'"kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, '
    b'"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}, "schema": '
    b'{"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}'
)


def request(
    method: str, target: str, body: bytes = b"", kind: str = "application/json", accept: str = "", more: bytes = b""
) -> bytes:
    """The bytes of one request, as the administrator; the connection ends with its answer."""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    head += f"Accept: {accept}\r\n" if accept else ""
    head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    return head.encode("latin-1") + more + b"\r\n" + body


def _document(dice: random.Random, version: str, kind: str) -> bytes:
    """A body that gets past the first checks, with something odd in it."""
    piece = dice.choice(BODIES)
    odd = piece if piece and len(piece) < 1000 and dice.random() < 0.3 else dice.choice(ODD)
    name = dice.choice((b"a", b"a", b"a", b"b", b"A", b"a/b", b"..", b"x" * 300, b"\\u0000", b"\\udfff"))
    spot = dice.choice((b"spec", b"data", b"status", b"template", b"rules", b"subsets", b"type", b"stringData", b"x"))
    meta = b'{"name": "%b"%b}' % (name, dice.choice((b"", b"", b', "labels": %b' % odd, b', "generateName": "a-"')))
    right = b'"spec": {"replicas": 1, "ports": [{"port": 1}], "containers": [{"name": "a", "image": "b"}]}, '
    fields = (version.encode(), kind.encode(), meta, dice.choice((right, b"")), spot, odd)
    return b'{"apiVersion": "%b", "kind": "%b", "metadata": %b, %b"%b": %b}' % fields


def whole(dice: random.Random) -> bytes:
    """A request that is HTTP, whatever it asks."""
    query = "?" + "&".join(dice.sample(QUERIES, dice.randint(1, 3))) if dice.random() < 0.3 else ""
    if dice.random() < 0.5:  # apt: the right path and type for the kind
        path, version, kind = dice.choice(WRITTEN)
        method = dice.choice(("POST", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "GET"))
        target = path if method == "POST" else path + dice.choice(("/a", "/a", "/a", "/b", "/a/status", "/a/scale"))
        sent = dice.choice(TYPES[1:5]) if method == "PATCH" else TYPES[0]
        body = dice.choice((_document(dice, version, kind), _document(dice, version, kind), dice.choice(BODIES)))
        return request(method, target + query.replace(" ", "%20"), body, sent)
    target = dice.choice(PATHS) + dice.choice(ENDS) + query
    body = dice.choice((b"", dice.choice(BODIES), _document(dice, "v1", dice.choice(KINDS))))
    kind, accept = dice.choice(TYPES), dice.choice((*ACCEPTS, "", ""))
    return request(dice.choice(METHODS), target.replace(" ", "%20"), body, kind, accept)


def _truncated(dice: random.Random, raw: bytes) -> bytes:
    return raw[: dice.randint(0, len(raw))]


def _flipped(dice: random.Random, raw: bytes) -> bytes:
    mutated = bytearray(raw)
    for _ in range(dice.randint(1, 8)):
        mutated[dice.randrange(min(len(mutated), 600))] = dice.randrange(256)
    return bytes(mutated)


def _spliced(dice: random.Random, raw: bytes) -> bytes:
    start, end = sorted((dice.randrange(len(raw)), dice.randrange(len(raw))))
    return raw[:start] + raw[start:end] * dice.choice((0, 2, 3)) + raw[end:]


def _length(dice: random.Random, raw: bytes) -> bytes:
    length = dice.choice(
        (b"0", b"1", b"99999", b"-1", b"+1", b"0x10", b"1e3", b"9" * 30, b"", b"2, 2", b"2\r\nContent-Length: 3")
    )
    return re.sub(rb"Content-Length: \d+", b"Content-Length: " + length, raw)


def _chunked(dice: random.Random, raw: bytes) -> bytes:
    head, _, body = raw.partition(b"\r\n\r\n")
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    size = dice.choice(
        (b"%x" % len(body), b"zz", b"-1", b"ffffffffffffffffff", b"0", b"", b"%x;a=b" % len(body), b"\x00")
    )
    return (
        head
        + b"\r\n\r\n"
        + size
        + b"\r\n"
        + body
        + dice.choice((b"\r\n0\r\n\r\n", b"", b"0\r\n", b"\r\n0\r\nX: \xff\r\n\r\n"))
    )


def _header(dice: random.Random, raw: bytes) -> bytes:
    line = dice.choice((
        b"X: " + b"x" * 40_000, b"\r\n".join(b"X-%d: y" % n for n in range(200)), b"X: \xff\xfe", b"X\x00: y", b": y",
        b"Host: evil.example", b"Expect: 100-continue", b"Expect: tea", b"Content-Encoding: gzip", b" folded", b"X : y",
        b"Transfer-Encoding: gzip, chunked", b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c",
        b"Cookie: \x07",
        b"Impersonate-User: \xff", b"Impersonate-User: a\r\nImpersonate-Group: \xff", b"Authorization: Basic \xff",
        b"If-None-Match: \xff", b"Accept-Encoding: gzip;q=\xff", b"Origin: null", b"Sec-WebSocket-Protocol: ,,",
    ))  # fmt: skip
    return raw.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)


def _piped(dice: random.Random, raw: bytes) -> bytes:
    kept = raw.replace(b"Connection: close\r\n", b"")
    return kept * dice.randint(1, 40) + whole(dice)


def _foreign(dice: random.Random, raw: bytes) -> bytes:
    return dice.choice((
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(dice.randrange(256) for _ in range(40)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(dice.randrange(256) for _ in range(200)),
        bytes(dice.randrange(256) for _ in range(dice.randint(1, 400))),
        b"\r\n" * dice.randint(1, 50) + raw, raw.replace(b"\r\n", b"\n"), raw.replace(b"HTTP/1.1", b"HTTP/9.9", 1),
        b"GET http://evil.example/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x00" + raw, b"SSH-2.0-x\r\n",
    ))  # fmt: skip


BREAKS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda _, raw: raw, lambda _, raw: raw, _truncated, _flipped, _spliced, _length, _chunked, _header, _piped,
    _foreign,
)  # fmt: skip


def case(seed: int, number: int) -> bytes:
    """What one connection sends."""
    dice = random.Random(f"{seed}/{number}")
    return dice.choice(BREAKS)(dice, whole(dice))
