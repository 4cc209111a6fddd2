"""The small built-in types: ConfigMaps, Secrets, Leases, Events, EndpointSlices, Nodes, claims, namespaces."""

from __future__ import annotations

import base64
from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, ignores, replaced, sets, without

AREA = "built-in types"


async def make(yard: Subject, plural: str, obj: Json) -> Json:
    made: Json = (await yard.ask("POST", yard.at(plural), obj)).must(201)
    return made


async def bad(yard: Subject, plural: str, obj: Json) -> set[tuple[str, str]]:
    """Field and reason of each cause of the refusal of a create."""
    reply = await yard.ask("POST", yard.at(plural), obj, dryRun="All")
    return fields_of(reply.refused(422, "Invalid"))


def fields_of(status: Json) -> set[tuple[str, str]]:
    return {(one["field"], one["reason"].removeprefix("FieldValue")) for one in status["details"]["causes"]}


def thing(api: str, kind: str, name: str, /, *, meta: Json | None = None, **more: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **(meta or {})}, **more}


@check(
    "An immutable ConfigMap or Secret keeps its data, and stays immutable.",
    area=AREA,
    breaks=replaced("builtin.core_resources:_frozen", lambda new, old: []) | drops("immutable"),
)
async def immutable(yard: Subject) -> None:
    await make(yard, "configmaps", thing("v1", "ConfigMap", "a", data={"k": "v"}, immutable=True))
    await make(yard, "secrets", thing("v1", "Secret", "a", data={"k": "dg=="}, immutable=True))
    for plural, value in (("configmaps", "w"), ("secrets", "dw==")):
        path = yard.at(plural, "a")
        (await yard.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}})).must(200)
        found = fields_of((await yard.ask("PATCH", path, {"data": {"k": value}})).refused(422, "Invalid"))
        assert found == {("data", "Forbidden")}
        found = fields_of((await yard.ask("PATCH", path, {"immutable": False})).refused(422, "Invalid"))
        assert found == {("immutable", "Forbidden")}


@check(
    "Keys of ConfigMaps and Secrets are letters, digits, '-', '_' and '.'.",
    area=AREA,
    breaks=replaced("builtin.core_resources:_frozen", lambda new, old: []),
)
async def keys(yard: Subject) -> None:
    assert await bad(yard, "configmaps", thing("v1", "ConfigMap", "a", data={"a b": ""})) == {("data[a b]", "Invalid")}
    assert await bad(yard, "secrets", thing("v1", "Secret", "a", data={"a/b": ""})) == {("data[a/b]", "Invalid")}


@check(
    "The values of a ConfigMap or a Secret are 1 MiB at most, all together, decoded: 422.",
    area=AREA,
    breaks=replaced("builtin.core_resources:_too_large", lambda size, path: []),
)
async def too_large(yard: Subject) -> None:
    half, coded = "x" * 2**19, base64.b64encode(b"x" * 2**19).decode()
    for plural, kind, place, large in (
        ("configmaps", "ConfigMap", "[]", {"data": {"a": half, "b": half + "x"}}),
        ("configmaps", "ConfigMap", "[]", {"data": {"a": half + "x"}, "binaryData": {"b": coded}}),
        ("secrets", "Secret", "data", {"data": {"a": coded}, "stringData": {"b": half + "x"}}),
    ):
        words = "Too long: may not be more than 1048576 bytes"
        said = (await yard.ask("POST", yard.at(plural), thing("v1", kind, "a", **large))).refused(422, "Invalid")
        assert said["message"] == f'{kind} "a" is invalid: {place}: {words}'
        assert said["details"]["causes"] == [{"reason": "FieldValueTooLong", "message": words, "field": place}]
    most = thing("v1", "ConfigMap", "a", data={"a": half}, binaryData={"b": coded})
    assert (await yard.ask("POST", yard.at("configmaps"), most, dryRun="All")).code == 201


@check("binaryData and data of a ConfigMap share no key.", area=AREA, breaks=drops("binaryData"))
async def both_data(yard: Subject) -> None:
    obj = thing("v1", "ConfigMap", "a", data={"k": "v"}, binaryData={"k": "dg=="})
    found = await bad(yard, "configmaps", obj)
    assert {place for place, _ in found} == {"data[k]"}


@check(
    "stringData of a Secret is stored in data, coded; the type is Opaque unless it says so.",
    area=AREA,
    breaks=drops("stringData"),
)
async def secrets(yard: Subject) -> None:
    made = await make(yard, "secrets", thing("v1", "Secret", "a", data={"a": "YQ=="}, stringData={"a": "b", "c": "d"}))
    assert "stringData" not in made and made["type"] == "Opaque"
    assert {key: base64.b64decode(value) for key, value in made["data"].items()} == {"a": b"b", "c": b"d"}


@check("The type of a Secret cannot change.", area=AREA, breaks=drops("type"))
async def secret_type(yard: Subject) -> None:
    await make(yard, "secrets", thing("v1", "Secret", "a"))
    said = (await yard.ask("PATCH", yard.at("secrets", "a"), {"type": "example.org/x"})).refused(422, "Invalid")
    assert fields_of(said) == {("type", "Invalid")}


@check(
    "A typed Secret has the keys of its type: tls.crt and tls.key, .dockerconfigjson.",
    area=AREA,
    breaks=drops("type"),
)
async def typed_secrets(yard: Subject) -> None:
    tls = thing("v1", "Secret", "a", type="kubernetes.io/tls")
    assert {("data[tls.crt]", "Required"), ("data[tls.key]", "Required")} <= await bad(yard, "secrets", tls)
    docker = thing("v1", "Secret", "a", type="kubernetes.io/dockerconfigjson")
    assert await bad(yard, "secrets", docker) == {("data[.dockerconfigjson]", "Required")}


@check("Data of a Secret that is no base64 cannot be read: 400.", area=AREA, breaks=answers(400, 201))
async def not_base64(yard: Subject) -> None:
    reply = await yard.ask("POST", yard.at("secrets"), thing("v1", "Secret", "a", data={"k": "?"}))
    reply.refused(400, "BadRequest")


@check("A Lease keeps what its holder writes, times to the microsecond.", area=AREA, breaks=drops("spec.renewTime"))
async def leases(yard: Subject) -> None:
    spec = {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2020-01-01T00:00:00.000001Z",
        "renewTime": "2020-01-01T00:00:01.000002Z",
        "leaseTransitions": 1,
    }
    made = await make(yard, "leases", thing("coordination.k8s.io/v1", "Lease", "a", spec=spec))
    assert made["spec"] == spec


@check("A Lease's duration is above zero.", area=AREA, breaks=answers(422, 201))
async def bad_leases(yard: Subject) -> None:
    obj = thing("coordination.k8s.io/v1", "Lease", "a", spec={"leaseDurationSeconds": 0})
    assert await bad(yard, "leases", obj) == {("spec.leaseDurationSeconds", "Invalid")}


def event(yard: Subject, name: str) -> Json:
    pod = {"kind": "Pod", "namespace": yard.namespace, "name": "p", "uid": "u-1"}
    return thing(
        "v1",
        "Event",
        name,
        involvedObject=pod,
        reason="Tested",
        message="well",
        type="Normal",
        source={"component": "me"},
        firstTimestamp="2020-01-01T00:00:00Z",
        lastTimestamp="2020-01-01T00:00:00Z",
        count=2,
    )


@check(
    "An event of core is the same object in events.k8s.io, in that group's words.",
    area=AREA,
    breaks=without("regarding", "note"),
)
async def events(yard: Subject) -> None:
    made = await make(yard, "events", event(yard, "a"))
    path = f"/apis/events.k8s.io/v1/namespaces/{yard.namespace}/events/a"
    seen = (await yard.ask("GET", path)).must(200)
    assert seen["metadata"]["uid"] == made["metadata"]["uid"] and seen["apiVersion"] == "events.k8s.io/v1"
    assert seen["regarding"]["name"] == "p" and seen["note"] == "well" and seen["reason"] == "Tested"
    assert seen["deprecatedCount"] == 2 and seen["deprecatedSource"] == {"component": "me"}


@check(
    "Events are found by their object: involvedObject.name, reason, type.",
    area=AREA,
    breaks=ignores("fieldSelector"),
)
async def event_fields(yard: Subject) -> None:
    await make(yard, "events", event(yard, "a"))
    await make(yard, "events", {**event(yard, "b"), "reason": "Other"})
    chosen = "involvedObject.name=p,involvedObject.kind=Pod,reason=Other,type!=Warning"
    found = (await yard.ask("GET", yard.at("events"), fieldSelector=chosen)).must(200)
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]


@check("An event is about an object of its own namespace.", area=AREA, breaks=answers(422, 201))
async def bad_events(yard: Subject) -> None:
    obj = event(yard, "a")
    obj["involvedObject"]["namespace"] = "elsewhere"
    assert await bad(yard, "events", obj) == {("involvedObject.namespace", "Invalid")}


@check(
    "An EndpointSlice has one of three types of addresses, and keeps its type.",
    area=AREA,
    breaks=answers(422, 200),
)
async def slices(yard: Subject) -> None:
    def made_of(kind: str, *addresses: str) -> Json:
        parts = [{"addresses": list(addresses), "conditions": {"ready": True}}]
        ports = [{"port": 80}]
        return thing("discovery.k8s.io/v1", "EndpointSlice", "a", addressType=kind, endpoints=parts, ports=ports)

    assert ("addressType", "NotSupported") in await bad(yard, "endpointslices", made_of("Odd", "10.0.0.1"))
    assert await bad(yard, "endpointslices", made_of("IPv4", "2001:db8::1")) == {("endpoints[0].addresses", "Invalid")}
    made = await make(yard, "endpointslices", made_of("IPv4", "10.0.0.1"))
    assert made["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    path = yard.at("endpointslices", "a")
    said = (await yard.ask("PATCH", path, {"addressType": "IPv6", "endpoints": []})).refused(422, "Invalid")
    assert ("addressType", "Invalid") in fields_of(said)


@check("A Node may bring its status; unschedulable can be selected.", area=AREA, breaks=drops("status"))
async def nodes(yard: Subject) -> None:
    name = yard.name("node")
    status = {"capacity": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "False"}]}
    yard.remove(yard.at("nodes", name))
    made = await make(yard, "nodes", thing("v1", "Node", name, status=status, spec={"unschedulable": True}))
    assert made["status"]["capacity"] == {"cpu": "2"}
    found = (await yard.ask("GET", yard.at("nodes"), fieldSelector="spec.unschedulable=true")).must(200)
    assert name in [one["metadata"]["name"] for one in found["items"]]


def claim(name: str, /, **spec: Any) -> Json:
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return thing("v1", "PersistentVolumeClaim", name, spec=whole)


@check(
    "A claim is Pending, of a filesystem, and needs access modes and a size.",
    area=AREA,
    breaks=sets("status", {}),
)
async def claims(yard: Subject) -> None:
    made = await make(yard, "persistentvolumeclaims", claim("a"))
    assert made["spec"]["volumeMode"] == "Filesystem" and made["status"] == {"phase": "Pending"}
    plural = "persistentvolumeclaims"
    assert ("spec.accessModes", "Required") in await bad(yard, plural, claim("b", accessModes=[]))
    assert ("spec.resources[storage]", "Required") in await bad(yard, plural, claim("b", resources={}))
    assert ("spec.accessModes", "NotSupported") in await bad(yard, plural, claim("b", accessModes=["Odd"]))


@check("The spec of a claim cannot change.", area=AREA, breaks=drops("spec.accessModes"))
async def fixed_claims(yard: Subject) -> None:
    await make(yard, "persistentvolumeclaims", claim("a"))
    path = yard.at("persistentvolumeclaims", "a")
    said = (await yard.ask("PATCH", path, {"spec": {"accessModes": ["ReadWriteMany"]}})).refused(422, "Invalid")
    assert fields_of(said) == {("spec", "Forbidden")}


@check(
    "A namespace is born Active, with its name as a label and Kubernetes' finalizer.",
    area=AREA,
    breaks=replaced("builtin.core_resources:set_defaults", lambda *_: None) | sets("status", {}),
)
async def namespaces(yard: Subject) -> None:
    seen = (await yard.ask("GET", yard.at("namespaces", yard.namespace))).must(200)
    assert seen["status"] == {"phase": "Active"} and seen["spec"] == {"finalizers": ["kubernetes"]}
    assert seen["metadata"]["labels"] == {"kubernetes.io/metadata.name": yard.namespace}
