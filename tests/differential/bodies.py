"""Objects to send. Good ones first; `spoiled` makes one nearly good, and `NO_OBJECTS` are bodies that are none.

The definitions: `gadgets` has everything a structural schema can say, with /status and /scale and a second version;
`gizmos` keeps what it does not know and has neither.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from trainyard.objects import Json

GROUP = "fuzz.example.org"
_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_FREE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _map_list(key: str, **properties: Json) -> Json:
    items = {"type": "object", "required": [key], "properties": {key: _STRING, **properties}}
    return {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key], "items": items}


_GADGET_SPEC: Json = {
    "type": "object",
    "required": ["replicas"],
    "properties": {
        "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100},
        "mode": {"type": "string", "default": "fast", "enum": ["fast", "slow"]},
        "note": {"type": "string", "nullable": True, "maxLength": 12, "pattern": "^[a-z ]*$"},
        "level": {"type": "number", "nullable": True, "default": 1.5, "exclusiveMinimum": True, "minimum": 0},
        "port": {"x-kubernetes-int-or-string": True},
        "ratio": {"type": "number", "multipleOf": 2},
        "on": {"type": "boolean"},
        "when": {"type": "string", "format": "date-time"},
        "free": _FREE,
        "half": {**_FREE, "properties": {"known": {"type": "object", "properties": {"a": _INTEGER}}}},
        "table": {"type": "object", "additionalProperties": _INTEGER, "maxProperties": 2},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": _STRING, "maxItems": 3},
        "parts": _map_list("name", size={"type": "integer", "default": 1}, color=_STRING),
        "words": {"type": "array", "items": {"type": "string", "minLength": 1}},
        "deep": {
            "type": "object",
            "default": {},
            "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "array", "items": _INTEGER}},
        },
        "either": {
            "type": "object",
            "properties": {"left": _INTEGER, "right": _INTEGER},
            "oneOf": [{"required": ["left"]}, {"required": ["right"]}],
        },
        "pod": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
_GADGET_STATUS: Json = {
    "type": "object",
    "properties": {
        "replicas": _INTEGER,
        "phase": {"type": "string", "enum": ["New", "Done"]},
        "selector": _STRING,
        "conditions": _map_list("type", status={"type": "string", "default": "Unknown"}),
    },
}
_COLUMNS: list[Json] = [
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def _version(name: str, schema: Json, **more: Any) -> Json:
    return {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}, **more}


def _definition(plural: str, kind: str, *versions: Json) -> Json:
    names = {"plural": plural, "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": list(versions)},
    }


_GADGET: Json = {"type": "object", "properties": {"spec": _GADGET_SPEC, "status": _GADGET_STATUS}}
_SUBRESOURCES: Json = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}
_MORE: Json = {
    "subresources": _SUBRESOURCES,
    "additionalPrinterColumns": _COLUMNS,
    "selectableFields": [{"jsonPath": ".spec.mode"}],
}
DEFINITIONS = (
    _definition("gadgets", "Gadget", _version("v1", _GADGET, **_MORE), _version("v1beta1", _GADGET, **_MORE)),
    _definition("gizmos", "Gizmo", _version("v1", _FREE)),
)


def some(rng: Random, fields: Json, most: int = 4) -> Json:
    """A few of these."""
    chosen = rng.sample(sorted(fields), min(rng.randint(0, most), len(fields)))
    return {name: copy.deepcopy(fields[name]) for name in chosen}


def gadget(rng: Random) -> Json:
    good: Json = {
        "mode": rng.choice(["fast", "slow"]),
        "note": rng.choice(["abc", "", None]),
        "level": rng.choice([2, 0.5, None]),
        "port": rng.choice([80, "http"]),
        "ratio": rng.choice([4, 4, 3]),
        "on": rng.choice([True, False]),
        "when": "2026-01-02T03:04:05Z",
        "free": {"x": [1, {"y": None}]},
        "half": {"known": {"a": 1, "b": 2}, "other": True},
        "table": {"a": 1, "b": 2},
        "tags": ["x", "y"],
        "parts": [{"name": "a"}, {"name": "b", "size": 3, "color": "red"}],
        "words": ["one", "two"],
        "deep": {"b": [1, 2]},
        "either": {"left": 1},
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"odd": 1}},
        "surprise": 1,
    }
    body: Json = {"spec": {"replicas": rng.randint(0, 3), **some(rng, good, 5)}}
    if rng.random() < 0.2:
        body["status"] = gadget_status(rng)
    return body


def gadget_status(rng: Random) -> Json:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Slow"}]
    return some(rng, {"replicas": 2, "phase": rng.choice(["New", "Done"]), "selector": "a=b", "conditions": conditions})


def gizmo(rng: Random) -> Json:
    return some(rng, {"spec": {"a": 1, "b": [1, 2]}, "status": {"x": 1}, "anything": {"deep": {"er": None}}})


def config_map(rng: Random) -> Json:
    fields = {"data": {"a": "1", "b": "two"}, "binaryData": {"c": "YWJj"}, "immutable": rng.choice([True, False])}
    return some(rng, fields, 3)


def _container(rng: Random) -> Json:
    more: Json = {
        "command": ["sleep", "1"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "web", "protocol": "UDP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "imagePullPolicy": rng.choice(["Always", "IfNotPresent", "Never"]),
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "securityContext": {"runAsUser": 1},
        "workingDir": "/work",
    }
    return {"name": "main", "image": rng.choice(["busybox", "busybox:1", "busybox:latest"]), **some(rng, more, 3)}


def _pod_spec(rng: Random) -> Json:
    more: Json = {
        "nodeName": "nowhere",
        "restartPolicy": rng.choice(["Never", "OnFailure", "Always"]),
        "terminationGracePeriodSeconds": rng.choice([0, 5]),
        "initContainers": [{"name": "first", "image": "busybox:1"}],
        "hostname": "h",
        "subdomain": "s",
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "automountServiceAccountToken": False,
        "activeDeadlineSeconds": 10,
        "securityContext": {"runAsNonRoot": True},
        "dnsPolicy": "Default",
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccountName": rng.choice(["default", "nobody"]),
        "priorityClassName": "system-cluster-critical",
        "affinity": {"podAntiAffinity": {}},
        "schedulingGates": [{"name": "example.org/gate"}],
        "hostNetwork": True,
        "enableServiceLinks": False,
    }
    source: Json = rng.choice([{"emptyDir": {}}, {"secret": {"secretName": "s"}}, {"configMap": {"name": "c"}}])
    volumes = {"volumes": [{"name": "v", **source}]}
    return {"containers": [_container(rng)], **(volumes if rng.random() < 0.5 else {}), **some(rng, more)}


def pod(rng: Random) -> Json:
    return {"spec": _pod_spec(rng)}


def job(rng: Random) -> Json:
    more: Json = {
        "suspend": rng.choice([True, False]),
        "parallelism": rng.randint(0, 3),
        "completions": rng.randint(0, 3),
        "backoffLimit": rng.randint(0, 3),
        "completionMode": rng.choice(["Indexed", "NonIndexed"]),
        "activeDeadlineSeconds": 10,
        "ttlSecondsAfterFinished": 100,
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        "manualSelector": True,
        "selector": {"matchLabels": {"a": "b"}},
        "podReplacementPolicy": "Failed",
    }
    spec = _pod_spec(rng)
    spec["restartPolicy"] = rng.choice(["Never", "Never", "OnFailure", "Always"])
    template = {"metadata": some(rng, {"labels": {"a": "b"}, "annotations": {"x": "y"}}), "spec": spec}
    return {"spec": {"template": template, **some(rng, more)}}


def pod_status(rng: Random) -> Json:
    state = {"name": "main", "ready": True, "restartCount": 0, "image": "busybox", "imageID": "x"}
    fields = {
        "phase": rng.choice(["Running", "Succeeded", "Failed", "Pending"]),
        "podIP": "10.244.0.7",
        "message": "because",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{**state, "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}],
    }
    return some(rng, fields)


def job_status(rng: Random) -> Json:
    return some(rng, {"active": 1, "ready": 0, "startTime": "2026-01-02T03:04:05Z", "failed": 0})


VALUES: tuple[Any, ...] = (None, "", "text", "Never", 0, 1, -1, 7.5, 2**40, True, [], ["x"], [None], {}, {"x": "y"})


def spoiled(rng: Random, obj: Json) -> Json:
    """One field of the object gets another value, is removed, or gets an unknown sibling."""
    body = copy.deepcopy(obj)
    places = list(_places(body))
    if not places:
        return body
    inside, key = rng.choice(places)
    how = rng.random()
    if how < 0.6:
        inside[key] = copy.deepcopy(rng.choice(VALUES))
    elif how < 0.8:
        del inside[key]
    elif isinstance(inside, dict):
        inside["surprise"] = rng.choice(VALUES)
    else:
        inside.append(copy.deepcopy(inside[key]))
    return body


def _places(value: Any) -> Any:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(pairs):
        yield value, key
        yield from _places(part)


NO_OBJECTS = ("{", "[]", "null", '"text"', "7", "{}", '{"kind": "List"}', "\x00\x01", '{"metadata": "x"}', "a: b: c")
"""Bodies that are no object of any kind."""
