"""Decoder for requests in Kubernetes protobuf, which kubectl's typed commands (`create token`, `auth can-i`) send.

    4 magic bytes, then a message {1: {1: apiVersion, 2: kind}, 2: the encoded object}

Rules for this file:
- Requests only: every client that sends protobuf accepts JSON responses.
- Unknown kinds and unknown fields are refused, so that no field of a request is silently lost.
- Go's encodings of unset fields (an empty string, an empty message) are left out, as in its JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.server.model import protobuf_pods
from trainyard.server.model.protobuf_pods import COUNT, EITHER, FLAG, QUANTITY

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
TEXT, NUMBER, BOOLEAN, BYTES, IGNORED = "text", "number", "boolean", "bytes", "ignored"
_DEPTH = 16
_JSON = "send JSON or YAML: kubectl create -f, kubectl apply"
_ALTERNATIVES = {"Pod": f"look into one that runs (kubectl exec -it POD -- COMMAND), it needs no copy; else {_JSON}"}

# message -> (field number, name, type). Type [x]: a repeated x. {x}: a map from strings to x.
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
_FIELDS = {
    message: {number: (name, field_type) for number, name, field_type in fields} for message, fields in _TABLE.items()
}


def decode(body: bytes) -> Json:
    """The object in a request body. Raises ValueError with a message for the user when it cannot be decoded."""
    if not body.startswith(MAGIC):
        raise ValueError("the body does not begin as Kubernetes' protobuf does; send JSON")
    envelope = dict(_fields(body[len(MAGIC) :]))
    type_meta = dict(_fields(_message_bytes(envelope.get(1, b""))))
    kind = _message_bytes(type_meta.get(2, b"")).decode("utf-8", "replace")
    if kind not in _FIELDS or (kind not in KINDS and kind != "DeleteOptions"):
        raise ValueError(f"{kind[:60]} is not served in protobuf; {_ALTERNATIVES.get(kind, _JSON)}")
    obj = _message(kind, _message_bytes(envelope.get(2, b"")), 0)
    return {"apiVersion": _text(type_meta.get(1, b"")), "kind": kind, **obj}


def _message(kind: str, content: bytes, level: int) -> Json:
    if level > _DEPTH:
        raise ValueError("the object is nested too deep")
    obj: Json = {}
    for number, value in _fields(content):
        if number not in _FIELDS[kind]:
            raise ValueError(f"field {number} of {kind} is not served in protobuf; send JSON or YAML")
        name, field_type = _FIELDS[kind][number]
        if field_type.startswith("["):
            obj.setdefault(name, []).append(_value(field_type[1:-1], value, level))
        elif field_type.startswith("{"):
            pair = dict(_fields(_message_bytes(value)))
            obj.setdefault(name, {})[_text(pair.get(1, b""))] = _value(field_type[1:-1], pair.get(2, b""), level)
        elif field_type != IGNORED:
            decoded = _value(field_type, value, level)
            if decoded not in ("", {}) and (decoded or field_type not in (COUNT, FLAG)):
                obj[name] = decoded
    return obj


def _value(field_type: str, value: bytes | int, level: int) -> Any:
    if field_type in (NUMBER, BOOLEAN, COUNT, FLAG):
        if not isinstance(value, int):
            raise ValueError("a number is malformed")
        signed = value - 2**64 if value >= 2**63 else value
        return bool(value) if field_type in (BOOLEAN, FLAG) else signed
    if field_type == TEXT:
        return _text(value)
    if field_type == BYTES:
        return base64.b64encode(_message_bytes(value)).decode()
    if field_type == QUANTITY:
        return _text(dict(_fields(_message_bytes(value))).get(1, b""))
    if field_type == EITHER:
        fields = dict(_fields(_message_bytes(value)))
        return _text(fields.get(3, b"")) if fields.get(1) else _value(NUMBER, fields.get(2, 0), level)
    return _message(field_type, _message_bytes(value), level + 1)


def _fields(content: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message in order: (field number, bytes or integer). Raises ValueError."""
    offset = 0
    while offset < len(content):
        tag, offset = _varint(content, offset)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, offset = _varint(content, offset)
            yield number, value
        elif wire_type == 2:
            size, offset = _varint(content, offset)
            if offset + size > len(content):
                raise ValueError("the message ends too early")
            yield number, content[offset : offset + size]
            offset += size
        else:
            raise ValueError(f"a field has the unknown form {wire_type}")


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(content):
            raise ValueError("the message ends too early")
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), offset
    raise ValueError("a number is too long")


def _message_bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field is a number where a message is expected")
    return value


def _text(value: bytes | int) -> str:
    return _message_bytes(value).decode("utf-8")
