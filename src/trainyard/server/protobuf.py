"""Requests in Kubernetes' protobuf form: what kubectl's typed commands (`create token`, `auth can-i`) send.

    4 magic bytes, then a message {1: {1: apiVersion, 2: kind}, 2: the object as a message of its own}

Rules for this file:
- Only requests: every client that sends this takes JSON for an answer.
- A kind that is not in the table, or a field of it, is refused. Nothing that a client writes is silently lost.
- What Go writes for "not set" (an empty text, an empty message) is left out, as in its JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.server import protobuf_pods
from trainyard.server.protobuf_pods import COUNT, EITHER, FLAG, QUANTITY

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
TEXT, NUMBER, BOOLEAN, BYTES, IGNORED = "text", "number", "boolean", "bytes", "ignored"
_DEPTH = 16
_JSON = "send JSON or YAML: kubectl create -f, kubectl apply"
_INSTEAD = {"Pod": f"look into one that runs (kubectl exec -it POD -- COMMAND), it needs no copy; else {_JSON}"}

# message -> field number -> (its name, what it is). [x]: many of x. {x}: a map from texts to x.
_META = (1, "metadata", "ObjectMeta")
_TABLE: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ObjectMeta": (
        (1, "name", TEXT),
        (2, "generateName", TEXT),
        (3, "namespace", TEXT),
        (4, "selfLink", TEXT),
        (5, "uid", TEXT),
        (6, "resourceVersion", TEXT),
        (7, "generation", IGNORED),
        (8, "creationTimestamp", IGNORED),
        (9, "deletionTimestamp", IGNORED),
        (10, "deletionGracePeriodSeconds", IGNORED),
        (11, "labels", "{text}"),
        (12, "annotations", "{text}"),
        (13, "ownerReferences", "[OwnerReference]"),
        (14, "finalizers", "[text]"),
        (17, "managedFields", IGNORED),
    ),
    "OwnerReference": (
        (1, "kind", TEXT),
        (3, "name", TEXT),
        (4, "uid", TEXT),
        (5, "apiVersion", TEXT),
        (6, "controller", BOOLEAN),
        (7, "blockOwnerDeletion", BOOLEAN),
    ),
    "DeleteOptions": (
        (1, "gracePeriodSeconds", NUMBER),
        (2, "preconditions", "Preconditions"),
        (3, "orphanDependents", BOOLEAN),
        (4, "propagationPolicy", TEXT),
        (5, "dryRun", "[text]"),
    ),
    "Preconditions": ((1, "uid", TEXT), (2, "resourceVersion", TEXT)),
    "Namespace": (_META, (2, "spec", "NamespaceSpec"), (3, "status", IGNORED)),
    "NamespaceSpec": ((1, "finalizers", "[text]"),),
    "ConfigMap": (_META, (2, "data", "{text}"), (3, "binaryData", "{bytes}"), (4, "immutable", BOOLEAN)),
    "Secret": (
        _META,
        (2, "data", "{bytes}"),
        (3, "type", TEXT),
        (4, "stringData", "{text}"),
        (5, "immutable", BOOLEAN),
    ),
    "ServiceAccount": (
        _META,
        (2, "secrets", "[ObjectReference]"),
        (3, "imagePullSecrets", "[LocalObjectReference]"),
        (4, "automountServiceAccountToken", BOOLEAN),
    ),
    "LocalObjectReference": ((1, "name", TEXT),),
    "ObjectReference": (
        (1, "kind", TEXT),
        (2, "namespace", TEXT),
        (3, "name", TEXT),
        (4, "uid", TEXT),
        (5, "apiVersion", TEXT),
        (6, "resourceVersion", TEXT),
        (7, "fieldPath", TEXT),
    ),
    "TokenRequest": (_META, (2, "spec", "TokenRequestSpec"), (3, "status", IGNORED)),
    "TokenRequestSpec": (
        (1, "audiences", "[text]"),
        (3, "boundObjectRef", "BoundObjectReference"),
        (4, "expirationSeconds", NUMBER),
    ),
    "BoundObjectReference": ((1, "kind", TEXT), (2, "apiVersion", TEXT), (3, "name", TEXT), (4, "uid", TEXT)),
    "SelfSubjectReview": (_META, (2, "status", IGNORED)),
    "SelfSubjectAccessReview": (_META, (2, "spec", "SelfSubjectAccessReviewSpec"), (3, "status", IGNORED)),
    "SelfSubjectAccessReviewSpec": (
        (1, "resourceAttributes", "ResourceAttributes"),
        (2, "nonResourceAttributes", "NonResourceAttributes"),
    ),
    "ResourceAttributes": (
        (1, "namespace", TEXT),
        (2, "verb", TEXT),
        (3, "group", TEXT),
        (4, "version", TEXT),
        (5, "resource", TEXT),
        (6, "subresource", TEXT),
        (7, "name", TEXT),
    ),
    "NonResourceAttributes": ((1, "path", TEXT), (2, "verb", TEXT)),
    "SelfSubjectRulesReview": (_META, (2, "spec", "SelfSubjectRulesReviewSpec"), (3, "status", IGNORED)),
    "SelfSubjectRulesReviewSpec": ((1, "namespace", TEXT),),
    "Role": (_META, (2, "rules", "[PolicyRule]")),
    "ClusterRole": (_META, (2, "rules", "[PolicyRule]")),
    "PolicyRule": (
        (1, "verbs", "[text]"),
        (2, "apiGroups", "[text]"),
        (3, "resources", "[text]"),
        (4, "resourceNames", "[text]"),
        (5, "nonResourceURLs", "[text]"),
    ),
    "RoleBinding": (_META, (2, "subjects", "[Subject]"), (3, "roleRef", "RoleRef")),
    "ClusterRoleBinding": (_META, (2, "subjects", "[Subject]"), (3, "roleRef", "RoleRef")),
    "Subject": ((1, "kind", TEXT), (2, "apiGroup", TEXT), (3, "name", TEXT), (4, "namespace", TEXT)),
    "RoleRef": ((1, "apiGroup", TEXT), (2, "kind", TEXT), (3, "name", TEXT)),
}
_TABLE |= protobuf_pods.TABLE
KINDS = tuple(name for name, fields in _TABLE.items() if _META in fields)
_FIELDS = {message: {number: (name, what) for number, name, what in fields} for message, fields in _TABLE.items()}


def read(body: bytes) -> Json:
    """The object in a request. Raises ValueError, as a sentence, when it cannot be read."""
    if not body.startswith(MAGIC):
        raise ValueError("the body does not begin as Kubernetes' protobuf does; send JSON")
    envelope = dict(_fields(body[len(MAGIC) :]))
    about = dict(_fields(_part(envelope.get(1, b""))))
    kind = _part(about.get(2, b"")).decode("utf-8", "replace")
    if kind not in _FIELDS or (kind not in KINDS and kind != "DeleteOptions"):
        raise ValueError(f"{kind[:60]} is not served in protobuf; {_INSTEAD.get(kind, _JSON)}")
    obj = _message(kind, _part(envelope.get(2, b"")), 0)
    return {"apiVersion": _text(about.get(1, b"")), "kind": kind, **obj}


def _message(kind: str, content: bytes, level: int) -> Json:
    if level > _DEPTH:
        raise ValueError("the object is nested too deep")
    made: Json = {}
    for number, value in _fields(content):
        if number not in _FIELDS[kind]:
            raise ValueError(f"field {number} of {kind} is not served in protobuf; send JSON or YAML")
        name, what = _FIELDS[kind][number]
        if what.startswith("["):
            made.setdefault(name, []).append(_value(what[1:-1], value, level))
        elif what.startswith("{"):
            pair = dict(_fields(_part(value)))
            made.setdefault(name, {})[_text(pair.get(1, b""))] = _value(what[1:-1], pair.get(2, b""), level)
        elif what != IGNORED:
            found = _value(what, value, level)
            if found not in ("", {}) and (found or what not in (COUNT, FLAG)):
                made[name] = found
    return made


def _value(what: str, value: bytes | int, level: int) -> Any:
    if what in (NUMBER, BOOLEAN, COUNT, FLAG):
        if not isinstance(value, int):
            raise ValueError("a number is malformed")
        signed = value - 2**64 if value >= 2**63 else value
        return bool(value) if what in (BOOLEAN, FLAG) else signed
    if what == TEXT:
        return _text(value)
    if what == BYTES:
        return base64.b64encode(_part(value)).decode()
    if what == QUANTITY:
        return _text(dict(_fields(_part(value))).get(1, b""))
    if what == EITHER:
        parts = dict(_fields(_part(value)))
        return _text(parts.get(3, b"")) if parts.get(1) else _value(NUMBER, parts.get(2, 0), level)
    return _message(what, _part(value), level + 1)


def _fields(content: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message as they come: its number, and its bytes or number."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, at = _varint(content, at)
            yield number, value
        elif form == 2:
            size, at = _varint(content, at)
            if at + size > len(content):
                raise ValueError("the message ends too early")
            yield number, content[at : at + size]
            at += size
        else:
            raise ValueError(f"a field has the unknown form {form}")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise ValueError("the message ends too early")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ValueError("a number is too long")


def _part(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field is a number where a message is expected")
    return value


def _text(value: bytes | int) -> str:
    return _part(value).decode("utf-8")
