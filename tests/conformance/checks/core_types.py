"""The small built-in types: ConfigMaps, Secrets, Leases, Events, EndpointSlices, Nodes, claims, namespaces."""

from __future__ import annotations

import base64
from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.mutations import answers, drops, ignores, replaced, sets, without
from trainyard.objects import Json

AREA = "built-in types"


async def create(cluster: Cluster, plural: str, obj: Json) -> Json:
    created: Json = (await cluster.request("POST", cluster.path(plural), obj)).expect(201)
    return created


async def rejected_fields(cluster: Cluster, plural: str, obj: Json) -> set[tuple[str, str]]:
    """Field and reason of each cause for which the server rejects a create."""
    response = await cluster.request("POST", cluster.path(plural), obj, dryRun="All")
    return causes_of(response.expect_error(422, "Invalid"))


def causes_of(status: Json) -> set[tuple[str, str]]:
    return {(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in status["details"]["causes"]}


def manifest(api: str, kind: str, name: str, /, *, meta: Json | None = None, **more: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **(meta or {})}, **more}


@check(
    "The data of an immutable ConfigMap or Secret cannot change, nor can its `immutable`.",
    area=AREA,
    mutation=replaced("builtin.core_resources:_frozen", lambda new, old: []) | drops("immutable"),
)
async def immutable(cluster: Cluster) -> None:
    await create(cluster, "configmaps", manifest("v1", "ConfigMap", "a", data={"k": "v"}, immutable=True))
    await create(cluster, "secrets", manifest("v1", "Secret", "a", data={"k": "dg=="}, immutable=True))
    for plural, value in (("configmaps", "w"), ("secrets", "dw==")):
        path = cluster.path(plural, "a")
        (await cluster.request("PATCH", path, {"metadata": {"labels": {"a": "b"}}})).expect(200)
        causes = causes_of((await cluster.request("PATCH", path, {"data": {"k": value}})).expect_error(422, "Invalid"))
        assert causes == {("data", "Forbidden")}
        causes = causes_of((await cluster.request("PATCH", path, {"immutable": False})).expect_error(422, "Invalid"))
        assert causes == {("immutable", "Forbidden")}


@check(
    "Keys of ConfigMaps and Secrets are letters, digits, '-', '_' and '.'.",
    area=AREA,
    mutation=replaced("builtin.core_resources:_frozen", lambda new, old: []),
)
async def data_keys(cluster: Cluster) -> None:
    assert await rejected_fields(cluster, "configmaps", manifest("v1", "ConfigMap", "a", data={"a b": ""})) == {
        ("data[a b]", "Invalid")
    }
    assert await rejected_fields(cluster, "secrets", manifest("v1", "Secret", "a", data={"a/b": ""})) == {
        ("data[a/b]", "Invalid")
    }


@check(
    "ConfigMap or Secret values of more than 1 MiB in total, decoded, are rejected with 422.",
    area=AREA,
    mutation=replaced("builtin.core_resources:_too_large", lambda size, path: []),
)
async def too_large(cluster: Cluster) -> None:
    half_mib, encoded_half_mib = "x" * 2**19, base64.b64encode(b"x" * 2**19).decode()
    for plural, kind, field, large in (
        ("configmaps", "ConfigMap", "[]", {"data": {"a": half_mib, "b": half_mib + "x"}}),
        ("configmaps", "ConfigMap", "[]", {"data": {"a": half_mib + "x"}, "binaryData": {"b": encoded_half_mib}}),
        ("secrets", "Secret", "data", {"data": {"a": encoded_half_mib}, "stringData": {"b": half_mib + "x"}}),
    ):
        message = "Too long: may not be more than 1048576 bytes"
        error = (await cluster.request("POST", cluster.path(plural), manifest("v1", kind, "a", **large))).expect_error(
            422, "Invalid"
        )
        assert error["message"] == f'{kind} "a" is invalid: {field}: {message}'
        assert error["details"]["causes"] == [{"reason": "FieldValueTooLong", "message": message, "field": field}]
    largest = manifest("v1", "ConfigMap", "a", data={"a": half_mib}, binaryData={"b": encoded_half_mib})
    assert (await cluster.request("POST", cluster.path("configmaps"), largest, dryRun="All")).code == 201


@check("A key in both data and binaryData of a ConfigMap is rejected.", area=AREA, mutation=drops("binaryData"))
async def shared_keys(cluster: Cluster) -> None:
    obj = manifest("v1", "ConfigMap", "a", data={"k": "v"}, binaryData={"k": "dg=="})
    causes = await rejected_fields(cluster, "configmaps", obj)
    assert {field for field, _ in causes} == {"data[k]"}


@check(
    "stringData of a Secret is stored in data as base64; the default type is Opaque.",
    area=AREA,
    mutation=drops("stringData"),
)
async def secrets(cluster: Cluster) -> None:
    created = await create(
        cluster, "secrets", manifest("v1", "Secret", "a", data={"a": "YQ=="}, stringData={"a": "b", "c": "d"})
    )
    assert "stringData" not in created and created["type"] == "Opaque"
    assert {key: base64.b64decode(value) for key, value in created["data"].items()} == {"a": b"b", "c": b"d"}


@check("The type of a Secret cannot change.", area=AREA, mutation=drops("type"))
async def secret_type(cluster: Cluster) -> None:
    await create(cluster, "secrets", manifest("v1", "Secret", "a"))
    error = (await cluster.request("PATCH", cluster.path("secrets", "a"), {"type": "example.org/x"})).expect_error(
        422, "Invalid"
    )
    assert causes_of(error) == {("type", "Invalid")}


@check(
    "A typed Secret requires the keys of its type: tls.crt and tls.key, .dockerconfigjson.",
    area=AREA,
    mutation=drops("type"),
)
async def typed_secrets(cluster: Cluster) -> None:
    tls_secret = manifest("v1", "Secret", "a", type="kubernetes.io/tls")
    assert {("data[tls.crt]", "Required"), ("data[tls.key]", "Required")} <= await rejected_fields(
        cluster, "secrets", tls_secret
    )
    docker_config = manifest("v1", "Secret", "a", type="kubernetes.io/dockerconfigjson")
    assert await rejected_fields(cluster, "secrets", docker_config) == {("data[.dockerconfigjson]", "Required")}


@check("Secret data that is not base64 is rejected with 400.", area=AREA, mutation=answers(400, 201))
async def not_base64(cluster: Cluster) -> None:
    response = await cluster.request("POST", cluster.path("secrets"), manifest("v1", "Secret", "a", data={"k": "?"}))
    response.expect_error(400, "BadRequest")


@check(
    "A Lease stores the fields of its holder, with times to the microsecond.",
    area=AREA,
    mutation=drops("spec.renewTime"),
)
async def leases(cluster: Cluster) -> None:
    spec = {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2020-01-01T00:00:00.000001Z",
        "renewTime": "2020-01-01T00:00:01.000002Z",
        "leaseTransitions": 1,
    }
    created = await create(cluster, "leases", manifest("coordination.k8s.io/v1", "Lease", "a", spec=spec))
    assert created["spec"] == spec


@check("A Lease duration of zero is rejected.", area=AREA, mutation=answers(422, 201))
async def lease_duration(cluster: Cluster) -> None:
    obj = manifest("coordination.k8s.io/v1", "Lease", "a", spec={"leaseDurationSeconds": 0})
    assert await rejected_fields(cluster, "leases", obj) == {("spec.leaseDurationSeconds", "Invalid")}


def event_manifest(cluster: Cluster, name: str) -> Json:
    pod = {"kind": "Pod", "namespace": cluster.namespace, "name": "p", "uid": "u-1"}
    return manifest(
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
    "A core Event is the same object in events.k8s.io, with that group's field names.",
    area=AREA,
    mutation=without("regarding", "note"),
)
async def events(cluster: Cluster) -> None:
    created = await create(cluster, "events", event_manifest(cluster, "a"))
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events/a"
    event = (await cluster.request("GET", path)).expect(200)
    assert event["metadata"]["uid"] == created["metadata"]["uid"] and event["apiVersion"] == "events.k8s.io/v1"
    assert event["regarding"]["name"] == "p" and event["note"] == "well" and event["reason"] == "Tested"
    assert event["deprecatedCount"] == 2 and event["deprecatedSource"] == {"component": "me"}


@check(
    "Events can be selected by involvedObject.name, reason and type.",
    area=AREA,
    mutation=ignores("fieldSelector"),
)
async def event_fields(cluster: Cluster) -> None:
    await create(cluster, "events", event_manifest(cluster, "a"))
    await create(cluster, "events", {**event_manifest(cluster, "b"), "reason": "Other"})
    selector = "involvedObject.name=p,involvedObject.kind=Pod,reason=Other,type!=Warning"
    object_list = (await cluster.request("GET", cluster.path("events"), fieldSelector=selector)).expect(200)
    assert [item["metadata"]["name"] for item in object_list["items"]] == ["b"]


@check("An Event about an object of another namespace is rejected.", area=AREA, mutation=answers(422, 201))
async def event_namespace(cluster: Cluster) -> None:
    obj = event_manifest(cluster, "a")
    obj["involvedObject"]["namespace"] = "elsewhere"
    assert await rejected_fields(cluster, "events", obj) == {("involvedObject.namespace", "Invalid")}


@check(
    "An EndpointSlice has one of three address types, which cannot change.",
    area=AREA,
    mutation=answers(422, 200),
)
async def slices(cluster: Cluster) -> None:
    def slice_manifest(address_type: str, *addresses: str) -> Json:
        endpoints = [{"addresses": list(addresses), "conditions": {"ready": True}}]
        ports = [{"port": 80}]
        return manifest(
            "discovery.k8s.io/v1", "EndpointSlice", "a", addressType=address_type, endpoints=endpoints, ports=ports
        )

    assert ("addressType", "NotSupported") in await rejected_fields(
        cluster, "endpointslices", slice_manifest("Odd", "10.0.0.1")
    )
    assert await rejected_fields(cluster, "endpointslices", slice_manifest("IPv4", "2001:db8::1")) == {
        ("endpoints[0].addresses", "Invalid")
    }
    created = await create(cluster, "endpointslices", slice_manifest("IPv4", "10.0.0.1"))
    assert created["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    path = cluster.path("endpointslices", "a")
    error = (await cluster.request("PATCH", path, {"addressType": "IPv6", "endpoints": []})).expect_error(
        422, "Invalid"
    )
    assert ("addressType", "Invalid") in causes_of(error)


@check("A Node can be created with a status and selected by spec.unschedulable.", area=AREA, mutation=drops("status"))
async def nodes(cluster: Cluster) -> None:
    name = cluster.unique_name("node")
    status = {"capacity": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "False"}]}
    cluster.delete_at_end(cluster.path("nodes", name))
    created = await create(cluster, "nodes", manifest("v1", "Node", name, status=status, spec={"unschedulable": True}))
    assert created["status"]["capacity"] == {"cpu": "2"}
    object_list = (await cluster.request("GET", cluster.path("nodes"), fieldSelector="spec.unschedulable=true")).expect(
        200
    )
    assert name in [item["metadata"]["name"] for item in object_list["items"]]


def claim_manifest(name: str, /, **spec: Any) -> Json:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return manifest("v1", "PersistentVolumeClaim", name, spec=claim_spec)


@check(
    "A PersistentVolumeClaim is Pending, defaults to Filesystem, and requires access modes and a size.",
    area=AREA,
    mutation=sets("status", {}),
)
async def claims(cluster: Cluster) -> None:
    created = await create(cluster, "persistentvolumeclaims", claim_manifest("a"))
    assert created["spec"]["volumeMode"] == "Filesystem" and created["status"] == {"phase": "Pending"}
    plural = "persistentvolumeclaims"
    assert ("spec.accessModes", "Required") in await rejected_fields(
        cluster, plural, claim_manifest("b", accessModes=[])
    )
    assert ("spec.resources[storage]", "Required") in await rejected_fields(
        cluster, plural, claim_manifest("b", resources={})
    )
    assert ("spec.accessModes", "NotSupported") in await rejected_fields(
        cluster, plural, claim_manifest("b", accessModes=["Odd"])
    )


@check("The spec of a PersistentVolumeClaim cannot change.", area=AREA, mutation=drops("spec.accessModes"))
async def immutable_claims(cluster: Cluster) -> None:
    await create(cluster, "persistentvolumeclaims", claim_manifest("a"))
    path = cluster.path("persistentvolumeclaims", "a")
    error = (await cluster.request("PATCH", path, {"spec": {"accessModes": ["ReadWriteMany"]}})).expect_error(
        422, "Invalid"
    )
    assert causes_of(error) == {("spec", "Forbidden")}


@check(
    "A namespace starts Active, with its name as a label and the finalizer kubernetes.",
    area=AREA,
    mutation=replaced("builtin.core_resources:set_defaults", lambda *_: None) | sets("status", {}),
)
async def namespaces(cluster: Cluster) -> None:
    namespace = (await cluster.request("GET", cluster.path("namespaces", cluster.namespace))).expect(200)
    assert namespace["status"] == {"phase": "Active"} and namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": cluster.namespace}
