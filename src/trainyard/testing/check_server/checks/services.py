"""Services: addresses, ports, and what may change."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, replaced, sets
from trainyard.testing.check_server.checks.small import bad, fields_of, make, thing

AREA = "services"


def service(name: str, /, **spec: Any) -> Json:
    return thing("v1", "Service", name, spec={"ports": [{"port": 80}], **spec})


@check(
    "A Service gets an address of its own, a protocol, a target port, and says that it is of one family.",
    area=AREA,
    breaks=sets("spec.clusterIP", "10.0.0.1"),
)
async def filled(yard: Subject) -> None:
    one, other = await make(yard, "services", service("a")), await make(yard, "services", service("b"))
    spec = one["spec"]
    assert spec["clusterIP"] != other["spec"]["clusterIP"] and spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["type"] == "ClusterIP" and spec["sessionAffinity"] == "None"
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert spec["ipFamilies"] == ["IPv4"] and spec["ipFamilyPolicy"] == "SingleStack"
    assert spec["internalTrafficPolicy"] == "Cluster" and one["status"] == {"loadBalancer": {}}


@check("A headless Service has the address None and needs no ports.", area=AREA, breaks=drops("spec.clusterIP"))
async def headless(yard: Subject) -> None:
    obj = thing("v1", "Service", "a", spec={"clusterIP": "None", "selector": {"a": "b"}})
    made = await make(yard, "services", obj)
    assert made["spec"]["clusterIP"] == "None" and made["spec"]["clusterIPs"] == ["None"]


@check("A Service without ports, or with a port that is none, is refused.", area=AREA, breaks=answers(422, 201))
async def ports(yard: Subject) -> None:
    assert await bad(yard, "services", service("a", ports=[])) == {("spec.ports", "Required")}
    assert ("spec.ports[0].port", "Invalid") in await bad(yard, "services", service("a", ports=[{"port": 0}]))
    odd = [{"port": 80, "protocol": "ODD"}]
    assert await bad(yard, "services", service("a", ports=odd)) == {("spec.ports[0].protocol", "NotSupported")}
    assert await bad(yard, "services", service("a", type="Odd")) == {("spec.type", "NotSupported")}


@check("Of several ports each has a name, and no two are the same.", area=AREA, breaks=answers(422, 201))
async def named_ports(yard: Subject) -> None:
    two = [{"name": "a", "port": 80}, {"port": 81}]
    assert await bad(yard, "services", service("a", ports=two)) == {("spec.ports[1].name", "Required")}
    same = [{"name": "a", "port": 80}, {"name": "a", "port": 81}]
    assert await bad(yard, "services", service("a", ports=same)) == {("spec.ports[1].name", "Duplicate")}
    twice = [{"name": "a", "port": 80}, {"name": "b", "port": 80}]
    assert await bad(yard, "services", service("a", ports=twice)) == {("spec.ports[1]", "Duplicate")}


@check(
    "An address that is outside of the range, or taken, is refused.",
    area=AREA,
    breaks=replaced("builtin.services:outside_service_cidr", lambda address: None) | answers(422, 201),
)
async def addresses(yard: Subject) -> None:
    assert await bad(yard, "services", service("a", clusterIP="192.0.2.1")) == {("spec.clusterIPs", "Invalid")}
    assert ("spec.clusterIPs[0]", "Invalid") in await bad(yard, "services", service("a", clusterIP="odd"))
    taken = (await make(yard, "services", service("a")))["spec"]["clusterIP"]
    said = (await yard.ask("POST", yard.at("services"), service("b", clusterIP=taken))).refused(422, "Invalid")
    assert fields_of(said) == {("spec.clusterIPs", "Invalid")}


@check("The address of a Service stays, and an update may leave it out.", area=AREA, breaks=answers(422, 200))
async def fixed(yard: Subject) -> None:
    made = await make(yard, "services", service("a"))
    sent = service("a", ports=[{"port": 81}], selector={"a": "b"})
    put = (await yard.ask("PUT", yard.at("services", "a"), sent)).must(200)
    assert put["spec"]["clusterIP"] == made["spec"]["clusterIP"] and put["spec"]["ports"][0]["targetPort"] == 81
    for other in ("None", "10.0.0.250"):
        patch = {"spec": {"clusterIP": other, "clusterIPs": [other]}}
        said = (await yard.ask("PATCH", yard.at("services", "a"), patch)).refused(422, "Invalid")
        assert ("spec.clusterIPs[0]", "Invalid") in fields_of(said)


@check(
    "A freed address can be asked for again.",
    area=AREA,
    breaks=replaced("registry.context:ClusterIPAllocator.is_allocated", lambda *_: True),
)
async def freed(yard: Subject) -> None:
    address = (await make(yard, "services", service("a")))["spec"]["clusterIP"]
    (await yard.ask("DELETE", yard.at("services", "a"))).must(200)

    async def again() -> bool:
        return (await yard.ask("POST", yard.at("services"), service("b", clusterIP=address))).code == 201

    await yard.until(again)


@check("An ExternalName Service has a name and no address.", area=AREA, breaks=drops("spec.externalName"))
async def external(yard: Subject) -> None:
    obj = thing("v1", "Service", "a", spec={"type": "ExternalName", "externalName": "example.org"})
    made = await make(yard, "services", obj)
    assert "clusterIP" not in made["spec"] and made["spec"]["externalName"] == "example.org"
    nameless = thing("v1", "Service", "b", spec={"type": "ExternalName"})
    assert await bad(yard, "services", nameless) == {("spec.externalName", "Required")}


@check("A Service's name has no dots; it may start with a digit.", area=AREA, breaks=answers(422, 201))
async def names(yard: Subject) -> None:
    assert await bad(yard, "services", service("a.b")) == {("metadata.name", "Invalid")}
    assert (await make(yard, "services", service("1a")))["spec"]["clusterIP"]
