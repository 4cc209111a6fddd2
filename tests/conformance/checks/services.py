"""Services: addresses, ports, and allowed changes."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.core_types import causes_of, create, manifest, rejected_fields
from tests.conformance.mutations import answers, drops, replaced, sets
from trainyard.objects import Json

AREA = "services"


def service_manifest(name: str, /, **spec: Any) -> Json:
    return manifest("v1", "Service", name, spec={"ports": [{"port": 80}], **spec})


@check(
    "A Service gets a unique cluster IP, and defaults for protocol, target port and IP family.",
    area=AREA,
    mutation=sets("spec.clusterIP", "10.0.0.1"),
)
async def defaults(cluster: Cluster) -> None:
    first, second = (
        await create(cluster, "services", service_manifest("a")),
        await create(cluster, "services", service_manifest("b")),
    )
    spec = first["spec"]
    assert spec["clusterIP"] != second["spec"]["clusterIP"] and spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["type"] == "ClusterIP" and spec["sessionAffinity"] == "None"
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert spec["ipFamilies"] == ["IPv4"] and spec["ipFamilyPolicy"] == "SingleStack"
    assert spec["internalTrafficPolicy"] == "Cluster" and first["status"] == {"loadBalancer": {}}


@check("A headless Service has clusterIP None and needs no ports.", area=AREA, mutation=drops("spec.clusterIP"))
async def headless(cluster: Cluster) -> None:
    obj = manifest("v1", "Service", "a", spec={"clusterIP": "None", "selector": {"a": "b"}})
    created = await create(cluster, "services", obj)
    assert created["spec"]["clusterIP"] == "None" and created["spec"]["clusterIPs"] == ["None"]


@check(
    "A Service without ports, or with an invalid port, protocol or type, is rejected.",
    area=AREA,
    mutation=answers(422, 201),
)
async def ports(cluster: Cluster) -> None:
    assert await rejected_fields(cluster, "services", service_manifest("a", ports=[])) == {("spec.ports", "Required")}
    assert ("spec.ports[0].port", "Invalid") in await rejected_fields(
        cluster, "services", service_manifest("a", ports=[{"port": 0}])
    )
    unknown_protocol = [{"port": 80, "protocol": "ODD"}]
    assert await rejected_fields(cluster, "services", service_manifest("a", ports=unknown_protocol)) == {
        ("spec.ports[0].protocol", "NotSupported")
    }
    assert await rejected_fields(cluster, "services", service_manifest("a", type="Odd")) == {
        ("spec.type", "NotSupported")
    }


@check(
    "Multiple ports of a Service require unique names and unique port numbers.", area=AREA, mutation=answers(422, 201)
)
async def named_ports(cluster: Cluster) -> None:
    unnamed_port = [{"name": "a", "port": 80}, {"port": 81}]
    assert await rejected_fields(cluster, "services", service_manifest("a", ports=unnamed_port)) == {
        ("spec.ports[1].name", "Required")
    }
    same_name = [{"name": "a", "port": 80}, {"name": "a", "port": 81}]
    assert await rejected_fields(cluster, "services", service_manifest("a", ports=same_name)) == {
        ("spec.ports[1].name", "Duplicate")
    }
    same_port = [{"name": "a", "port": 80}, {"name": "b", "port": 80}]
    assert await rejected_fields(cluster, "services", service_manifest("a", ports=same_port)) == {
        ("spec.ports[1]", "Duplicate")
    }


@check(
    "A cluster IP outside of the range, or in use, is rejected.",
    area=AREA,
    mutation=replaced("builtin.services:outside_service_cidr", lambda address: None) | answers(422, 201),
)
async def addresses(cluster: Cluster) -> None:
    assert await rejected_fields(cluster, "services", service_manifest("a", clusterIP="192.0.2.1")) == {
        ("spec.clusterIPs", "Invalid")
    }
    assert ("spec.clusterIPs[0]", "Invalid") in await rejected_fields(
        cluster, "services", service_manifest("a", clusterIP="odd")
    )
    used_address = (await create(cluster, "services", service_manifest("a")))["spec"]["clusterIP"]
    error = (
        await cluster.request("POST", cluster.path("services"), service_manifest("b", clusterIP=used_address))
    ).expect_error(422, "Invalid")
    assert causes_of(error) == {("spec.clusterIPs", "Invalid")}


@check("The cluster IP of a Service cannot change; an update may omit it.", area=AREA, mutation=answers(422, 200))
async def immutable_address(cluster: Cluster) -> None:
    created = await create(cluster, "services", service_manifest("a"))
    manifest = service_manifest("a", ports=[{"port": 81}], selector={"a": "b"})
    updated = (await cluster.request("PUT", cluster.path("services", "a"), manifest)).expect(200)
    assert (
        updated["spec"]["clusterIP"] == created["spec"]["clusterIP"] and updated["spec"]["ports"][0]["targetPort"] == 81
    )
    for address in ("None", "10.0.0.250"):
        patch = {"spec": {"clusterIP": address, "clusterIPs": [address]}}
        error = (await cluster.request("PATCH", cluster.path("services", "a"), patch)).expect_error(422, "Invalid")
        assert ("spec.clusterIPs[0]", "Invalid") in causes_of(error)


@check(
    "The cluster IP of a deleted Service can be requested again.",
    area=AREA,
    mutation=replaced("model.context:ClusterIPAllocator.is_allocated", lambda *_: True),
)
async def freed_address(cluster: Cluster) -> None:
    address = (await create(cluster, "services", service_manifest("a")))["spec"]["clusterIP"]
    (await cluster.request("DELETE", cluster.path("services", "a"))).expect(200)

    async def is_free() -> bool:
        return (
            await cluster.request("POST", cluster.path("services"), service_manifest("b", clusterIP=address))
        ).code == 201

    await cluster.wait_until(is_free)


@check(
    "An ExternalName Service requires externalName and has no cluster IP.",
    area=AREA,
    mutation=drops("spec.externalName"),
)
async def external(cluster: Cluster) -> None:
    obj = manifest("v1", "Service", "a", spec={"type": "ExternalName", "externalName": "example.org"})
    created = await create(cluster, "services", obj)
    assert "clusterIP" not in created["spec"] and created["spec"]["externalName"] == "example.org"
    without_name = manifest("v1", "Service", "b", spec={"type": "ExternalName"})
    assert await rejected_fields(cluster, "services", without_name) == {("spec.externalName", "Required")}


@check("A Service name must not contain dots; it may start with a digit.", area=AREA, mutation=answers(422, 201))
async def names(cluster: Cluster) -> None:
    assert await rejected_fields(cluster, "services", service_manifest("a.b")) == {("metadata.name", "Invalid")}
    assert (await create(cluster, "services", service_manifest("1a")))["spec"]["clusterIP"]
