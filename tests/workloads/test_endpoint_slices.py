"""Where the pods behind a Service are: the slice says it, follows them, and goes with the Service."""

from __future__ import annotations

from typing import Any

from tests.workloads.workload_world import World, running, template
from trainyard.objects import Json, labels_of, name_of, uid_of
from trainyard.objects.resources import ENDPOINT_SLICE, POD, SERVICE
from trainyard.objects.writes import Create
from trainyard.workloads import endpoint_slices

LABELS = {"app": "web"}


def a_service(**spec: object) -> Json:
    return {"metadata": {"name": "web"}, "spec": {"selector": LABELS, "ports": [{"name": "http", "port": 80}], **spec}}


def observed_pod(name: str, ready: bool = True, ip: str = "10.0.0.1", **meta: Any) -> Json:
    status = {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": str(ready)}]}
    whole = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": LABELS, **meta}
    return {"metadata": whole, "spec": {}, "status": status}


def decided(service: Json, *pods: Json) -> list[Json]:
    whole = {**service, "metadata": {"name": "web", "namespace": "default", "uid": "s"}}
    decision = endpoint_slices.decide(whole, list(pods), [])
    return [write.obj for write in decision.writes if isinstance(write, Create)]


def states(slices: list[Json]) -> dict[str, tuple[bool, bool, bool]]:
    endpoints = [endpoint for part in slices for endpoint in part["endpoints"]]
    return {endpoint["targetRef"]["name"]: tuple(endpoint["conditions"].values()) for endpoint in endpoints}


def test_a_pod_is_ready_serving_or_terminating_and_one_without_a_place_is_not_there() -> None:
    going: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    ended = observed_pod("ended") | {"status": {"phase": "Succeeded", "podIP": "10.0.0.1"}}
    pods = [
        observed_pod("a"),
        observed_pod("b", ready=False),
        observed_pod("c", **going),
        observed_pod("d", ip=""),
        ended,
    ]
    conditions = {"a": (True, True, False), "b": (False, False, False), "c": (False, True, True)}
    assert states(decided(a_service(), *pods)) == conditions
    early = states(decided(a_service(publishNotReadyAddresses=True), *pods))
    assert early == {"a": (True, True, False), "b": (True, False, False), "c": (True, True, True)}


def test_a_port_is_a_number_of_the_service_or_a_name_of_its_pods() -> None:
    pod = observed_pod("a") | {"spec": {"containers": [{"ports": [{"name": "board", "containerPort": 6006}]}]}}
    ports = [{"port": 80, "targetPort": 8080}, {"name": "b", "port": 81, "targetPort": "board", "protocol": "UDP"}]
    (created,) = decided(a_service(ports=[*ports, {"name": "c", "port": 82, "targetPort": "none"}]), pod)
    assert created["ports"] == [
        {"name": "", "port": 8080, "protocol": "TCP"},
        {"name": "b", "port": 6006, "protocol": "UDP"},
    ]


def test_a_slice_has_at_most_the_endpoints_that_the_api_allows() -> None:
    created = decided(a_service(), *[observed_pod(f"pod-{number:04}") for number in range(2001)])
    assert [len(obj["endpoints"]) for obj in created] == [1000, 1000, 1]
    assert len({name_of(obj) for obj in created}) == 3


def test_a_service_without_a_selector_gets_no_endpoint_slice() -> None:
    assert decided(a_service(selector=None)) == decided(a_service(type="ExternalName")) == []


async def test_the_slice_follows_the_pods_and_is_deleted_with_the_service(world: World) -> None:
    service = await world.make(SERVICE, a_service(clusterIP="None"))
    (empty,) = await world.until(ENDPOINT_SLICE, lambda slices: len(slices) == 1)
    assert empty["endpoints"] is None and labels_of(empty)["kubernetes.io/service-name"] == "web"
    pod = await world.make(POD, {**template(), "metadata": {"name": "a", "labels": LABELS}})
    await world.make(POD, {**template(), "metadata": {"name": "b", "labels": {"app": "other"}}})
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in ("a", "b"):
        await world.api.patch(POD, "default", name, {"status": status}, "status")
    (full,) = await world.until(ENDPOINT_SLICE, lambda slices: bool(slices[0]["endpoints"]))
    assert [(endpoint["addresses"], endpoint["targetRef"]["uid"]) for endpoint in full["endpoints"]] == [
        (["10.0.0.7"], uid_of(pod))
    ]
    await world.api.delete(ENDPOINT_SLICE, "default", name_of(full), uid_of(full))
    await world.until(ENDPOINT_SLICE, lambda slices: [slice_["endpoints"] for slice_ in slices] == [full["endpoints"]])
    await world.api.patch(POD, "default", "a", {"metadata": {"labels": {"app": "gone"}}})
    await world.until(ENDPOINT_SLICE, lambda slices: slices[0]["endpoints"] is None)
    await world.api.delete(SERVICE, "default", "web", uid_of(service))
    await world.until(ENDPOINT_SLICE, lambda slices: slices == [])


async def test_an_unchanged_slice_is_not_written(world: World) -> None:
    await world.make(SERVICE, a_service())
    (created,) = await world.until(ENDPOINT_SLICE, lambda slices: len(slices) == 1)
    async with running(world.api, world.clock) as again:  # it looks at everything anew
        await again.synced
        await world.make(SERVICE, {**a_service(), "metadata": {"name": "later"}})
        await world.until(ENDPOINT_SLICE, lambda slices: len(slices) == 2)
    by_name = {name_of(item): item for item in (await world.api.list(ENDPOINT_SLICE, "default"))["items"]}
    assert by_name[name_of(created)]["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
