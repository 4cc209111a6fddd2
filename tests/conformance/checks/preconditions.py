"""Optimistic concurrency and preconditions: resourceVersion and uid."""

from __future__ import annotations

import asyncio

from tests.conformance import Cluster, check
from tests.conformance.checks.crud import config_map
from tests.conformance.mutations import answers, drops, replaced, sets
from trainyard.server.registry.deletion import DeleteOptions

AREA = "preconditions"
OTHER_UID = "11111111-1111-1111-1111-111111111111"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@check(
    "An update with a stale resourceVersion is rejected with 409 Conflict.",
    area=AREA,
    mutation=drops("metadata.resourceVersion"),
)
async def stale_update(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    (await cluster.request("PATCH", path, {"data": {"a": "b"}})).expect(200)
    error = (await cluster.request("PUT", path, {**created, "data": {"c": "d"}})).expect_error(
        409, "Conflict", MODIFIED
    )
    assert error["message"].startswith('Operation cannot be fulfilled on configmaps "one": ')
    assert error["details"] == {"name": "one", "kind": "configmaps"}
    assert (await cluster.request("GET", path)).expect(200)["data"] == {"a": "b"}


@check(
    "An update with the current resourceVersion succeeds and changes the resourceVersion.",
    area=AREA,
    mutation=answers(200, 409),
)
async def fresh_update(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    updated = (await cluster.request("PUT", cluster.path("configmaps", "one"), {**created, "data": {"c": "d"}})).expect(
        200
    )
    assert updated["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]


@check(
    "An update of a built-in object without a resourceVersion is unconditional.", area=AREA, mutation=answers(200, 422)
)
async def unconditional_update(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    (await cluster.request("PUT", cluster.path("configmaps", "one"), config_map("one", data={"c": "d"}))).expect(200)


@check(
    "An update of a custom object without a resourceVersion is rejected with 422.",
    area=AREA,
    mutation=answers(422, 200),
)
async def unconditional_custom_update(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    (await cluster.request("POST", resource.path(), resource.obj("one"))).expect(201)
    error = (await cluster.request("PUT", resource.path("one"), resource.obj("one", spec={"a": 1}))).expect_error(
        422, "Invalid"
    )
    assert error["details"]["causes"][0]["field"] == "metadata.resourceVersion"


@check(
    "A patch with a stale resourceVersion is rejected with 409.", area=AREA, mutation=drops("metadata.resourceVersion")
)
async def stale_patch(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    patch = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"a": "b"}}
    (await cluster.request("PATCH", path, patch)).expect(200)
    (await cluster.request("PATCH", path, {**patch, "data": {"a": "c"}})).expect_error(409, "Conflict", MODIFIED)


@check(
    "Of concurrent updates with the same resourceVersion exactly one succeeds.",
    area=AREA,
    mutation=drops("metadata.resourceVersion"),
)
async def concurrent_updates(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    requests = [cluster.request("PUT", path, {**created, "data": {"who": str(number)}}) for number in range(8)]
    codes = sorted(response.code for response in await asyncio.gather(*requests))
    assert codes == [200] + [409] * 7, codes


@check("Of concurrent creates with the same name exactly one succeeds.", area=AREA, mutation=answers(409, 201))
async def concurrent_creates(cluster: Cluster) -> None:
    requests = [cluster.request("POST", cluster.path("configmaps"), config_map("one")) for _ in range(8)]
    codes = sorted(response.code for response in await asyncio.gather(*requests))
    assert codes == [201] + [409] * 7, codes


@check("An update with another uid is rejected with 409.", area=AREA, mutation=drops("metadata.uid"))
async def other_uid(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    manifest = config_map("one", meta={"uid": OTHER_UID})
    (await cluster.request("PUT", cluster.path("configmaps", "one"), manifest)).expect_error(
        409, "Conflict", f"Precondition failed: UID in precondition: {OTHER_UID}, UID in object meta: "
    )


@check("A patch of the uid is rejected with 422: it is immutable.", area=AREA, mutation=drops("metadata.uid"))
async def patched_uid(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    error = (
        await cluster.request("PATCH", cluster.path("configmaps", "one"), {"metadata": {"uid": OTHER_UID}})
    ).expect_error(422, "Invalid")
    assert error["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": f'Invalid value: "{OTHER_UID}": field is immutable',
            "field": "metadata.uid",
        }
    ]


@check(
    "The resourceVersion increases with every write to any object.",
    area=AREA,
    mutation=sets("metadata.resourceVersion", "7"),
)
async def versions_grow(cluster: Cluster) -> None:
    versions = []
    for name in "abc":
        versions.append(int((await cluster.create_config_map(name))["metadata"]["resourceVersion"]))
        response = await cluster.request("PATCH", cluster.path("configmaps", "a"), {"data": {"last": name}})
        versions.append(int(response.expect(200)["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions)), versions


@check(
    "A delete with another uid as precondition is rejected with 409.",
    area=AREA,
    mutation=drops("preconditions"),
)
async def delete_uid(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    error = (await cluster.request("DELETE", path, {"preconditions": {"uid": OTHER_UID}})).expect_error(409, "Conflict")
    assert f"the UID in the precondition ({OTHER_UID}) does not match the UID in record" in error["message"]
    assert error["details"] == {"name": "one", "kind": "ConfigMap"}
    (await cluster.request("DELETE", path, {"preconditions": {"uid": created["metadata"]["uid"]}})).expect(200)


@check(
    "A delete with a stale resourceVersion as precondition is rejected with 409.",
    area=AREA,
    mutation=drops("preconditions"),
)
async def delete_version(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    stale_options = {"preconditions": {"resourceVersion": created["metadata"]["resourceVersion"]}}
    meta = (await cluster.request("PATCH", path, {"data": {"a": "b"}})).expect(200)["metadata"]
    (await cluster.request("DELETE", path, stale_options)).expect_error(
        409, "Conflict", "does not match the ResourceVersion in record"
    )
    options = {"preconditions": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}}
    (await cluster.request("DELETE", path, options)).expect(200)


@check(
    "A delete with another uid is rejected also for a terminating pod.",
    area=AREA,
    mutation=replaced("registry.deletion:read_options", lambda request: DeleteOptions()),
    needs=("pods",),
)
async def delete_uid_again(cluster: Cluster) -> None:
    await cluster.create_pod("one", nodeName="nowhere")
    (await cluster.request("DELETE", cluster.path("pods", "one"))).expect(200)
    (await cluster.request("DELETE", cluster.path("pods", "one"), {"preconditions": {"uid": OTHER_UID}})).expect_error(
        409, "Conflict"
    )


@check(
    "A status update with a stale resourceVersion is rejected with 409.",
    area=AREA,
    mutation=drops("metadata.resourceVersion"),
)
async def stale_status(cluster: Cluster) -> None:
    resource = await cluster.create_crd(version={"subresources": {"status": {}}})
    created = (await cluster.request("POST", resource.path(), resource.obj("one"))).expect(201)
    (await cluster.request("PATCH", resource.path("one"), {"spec": {"a": 1}})).expect(200)
    stale = {**created, "status": {"a": 1}}
    (await cluster.request("PUT", resource.path("one", "status"), stale)).expect_error(409, "Conflict", MODIFIED)
