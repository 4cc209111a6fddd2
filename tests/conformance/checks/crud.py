"""Create, get, update, patch and delete."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.mutations import answers, drops, handles_as, ignores, replaced, sets, swaps, without

AREA = "objects"


def config_map(name: str, **more: Any) -> dict[str, Any]:
    meta = {"name": name, **more.pop("meta", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more}


@check(
    "A create returns 201 and an object with uid, creationTimestamp and resourceVersion; a get returns the same.",
    area=AREA,
    mutation=answers(201, 200),
)
async def created(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "b"})
    meta = created["metadata"]
    assert len(meta["uid"]) == 36 and meta["creationTimestamp"].endswith("Z") and meta["resourceVersion"].isdigit()
    assert meta["namespace"] == cluster.namespace and created["data"] == {"a": "b"}
    assert (await cluster.request("GET", cluster.path("configmaps", "one"))).expect(200) == created


@check(
    "A create with an existing name is rejected with 409 AlreadyExists.", area=AREA, mutation=sets("reason", "Conflict")
)
async def existing_name(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    error = (await cluster.request("POST", cluster.path("configmaps"), config_map("one"))).expect_error(
        409, "AlreadyExists"
    )
    assert error["message"] == 'configmaps "one" already exists'
    assert error["details"] == {"name": "one", "kind": "configmaps"}


@check(
    "An object that does not exist gives 404 NotFound with its name, group and kind in the details.",
    area=AREA,
    mutation=without("details"),
)
async def not_found(cluster: Cluster) -> None:
    error = (await cluster.request("GET", cluster.path("jobs", "none"))).expect_error(404, "NotFound")
    assert error["message"] == 'jobs.batch "none" not found'
    assert error["details"] == {"name": "none", "group": "batch", "kind": "jobs"}


@check(
    "In a missing namespace a create and a get give 404, and a list is empty.",
    area=AREA,
    mutation=replaced(
        "registry.writes:Writes.require_creatable", lambda *_: None, "creates objects in missing namespaces"
    ),
)
async def missing_namespace(cluster: Cluster) -> None:
    namespace = cluster.unique_name("nowhere")
    path = cluster.path("configmaps", namespace=namespace)
    (await cluster.request("POST", path, config_map("one"))).expect_error(
        404, "NotFound", f'namespaces "{namespace}" not found'
    )
    assert (await cluster.request("GET", path)).expect(200)["items"] == []
    (await cluster.request("GET", f"{path}/one")).expect_error(404, "NotFound")


@check(
    "generateName gets five random characters appended; the response has both names.",
    area=AREA,
    mutation=replaced("registry.metadata:generate_name", lambda prefix: prefix + "x"),
)
async def generated(cluster: Cluster) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    first = (await cluster.request("POST", cluster.path("configmaps"), obj)).expect(201)["metadata"]
    second = (await cluster.request("POST", cluster.path("configmaps"), obj)).expect(201)["metadata"]
    assert first["generateName"] == "made-" and first["name"].startswith("made-") and len(first["name"]) == 10
    assert first["name"] != second["name"]


@check(
    "A generateName that is too long is truncated, so that the name has 63 characters.",
    area=AREA,
    mutation=replaced("registry.metadata:generate_name", lambda prefix: prefix + "bcdfg"),
)
async def generated_long(cluster: Cluster) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 80}}
    assert len((await cluster.request("POST", cluster.path("configmaps"), obj)).expect(201)["metadata"]["name"]) == 63


@check("With a name, generateName is stored but not used.", area=AREA, mutation=drops("metadata.name"))
async def name_over_generate_name(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", generateName="two-")
    assert created["metadata"]["name"] == "one" and created["metadata"]["generateName"] == "two-"


@check(
    "A create without name and generateName is rejected with 422 on metadata.name.",
    area=AREA,
    mutation=sets("details.causes", []),
)
async def missing_name(cluster: Cluster) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    error = (await cluster.request("POST", cluster.path("configmaps"), obj)).expect_error(422, "Invalid")
    assert error["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


@check(
    "A create whose namespace differs from its path is rejected with 400.",
    area=AREA,
    mutation=drops("metadata.namespace"),
)
async def other_namespace(cluster: Cluster) -> None:
    mismatched = config_map("one", meta={"namespace": "other"})
    (await cluster.request("POST", cluster.path("configmaps"), mismatched)).expect_error(
        400, "BadRequest", "does not match the namespace"
    )


@check(
    "An update replaces the whole object: fields that are not sent are removed.",
    area=AREA,
    mutation=handles_as("PUT", "PATCH"),
)
async def full_update(cluster: Cluster) -> None:
    await cluster.create_config_map("one", data={"a": "1", "b": "2"}, labels={"x": "y"})
    updated = (
        await cluster.request("PUT", cluster.path("configmaps", "one"), config_map("one", data={"a": "3"}))
    ).expect(200)
    assert updated["data"] == {"a": "3"} and "labels" not in updated["metadata"]


@check("An update of a missing object gives 404 and creates nothing.", area=AREA, mutation=answers(404, 200))
async def no_upsert(cluster: Cluster) -> None:
    (await cluster.request("PUT", cluster.path("configmaps", "one"), config_map("one"))).expect_error(404, "NotFound")
    (await cluster.request("GET", cluster.path("configmaps", "one"))).expect_error(404, "NotFound")


@check("A patch of a missing object gives 404.", area=AREA, mutation=answers(404, 200))
async def no_patch(cluster: Cluster) -> None:
    (await cluster.request("PATCH", cluster.path("configmaps", "one"), {"data": {"a": "b"}})).expect_error(
        404, "NotFound"
    )


@check("An update whose name differs from its path is rejected with 400.", area=AREA, mutation=answers(400, 200))
async def same_name(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    (await cluster.request("PUT", path, config_map("two"))).expect_error(
        400, "BadRequest", "does not match the name on the URL"
    )
    without_name = {"apiVersion": "v1", "kind": "ConfigMap"}
    (await cluster.request("PUT", path, without_name)).expect_error(400, "BadRequest", "name must be provided")
    (await cluster.request("PATCH", path, {"metadata": {"name": "two"}})).expect_error(400, "BadRequest")
    (await cluster.request("PATCH", path, {"metadata": {"namespace": "two"}})).expect_error(400, "BadRequest")


@check(
    "A write without changes keeps the resourceVersion.",
    area=AREA,
    mutation=replaced("registry.writes:json_equal", lambda new, old: False),
)
async def unchanged_writes(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "b"})
    path = cluster.path("configmaps", "one")
    updated = (await cluster.request("PUT", path, config_map("one", data={"a": "b"}))).expect(200)
    patched = (await cluster.request("PATCH", path, {"data": {"a": "b"}})).expect(200)
    versions = {obj["metadata"]["resourceVersion"] for obj in (created, updated, patched)}
    assert len(versions) == 1, versions


@check(
    "A client can neither choose nor change uid and creationTimestamp.",
    area=AREA,
    mutation=replaced("registry.metadata:sanitized", lambda meta, old: {**(old or {}), **meta}),
)
async def server_set_fields(cluster: Cluster) -> None:
    uid, time = "11111111-1111-1111-1111-111111111111", "2001-01-01T00:00:00Z"
    created = await cluster.create_config_map("one", uid=uid, creationTimestamp=time)
    assert created["metadata"]["uid"] != uid and created["metadata"]["creationTimestamp"] != time
    manifest = config_map("one", meta={"creationTimestamp": time}, data={"a": "b"})
    updated = (await cluster.request("PUT", cluster.path("configmaps", "one"), manifest)).expect(200)
    assert updated["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]


@check(
    "A delete returns a Status with name, kind and uid of the deleted object.",
    area=AREA,
    mutation=without("details.uid"),
)
async def deleted(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    status = (await cluster.request("DELETE", cluster.path("configmaps", "one"))).expect(200)
    assert status["kind"] == "Status" and status["status"] == "Success" and status["metadata"] == {}
    assert status["details"] == {"name": "one", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    (await cluster.request("DELETE", cluster.path("configmaps", "one"))).expect_error(404, "NotFound")


@check(
    "A deletecollection deletes the selected objects and returns them as a list.",
    area=AREA,
    mutation=ignores("labelSelector"),
)
async def delete_collection(cluster: Cluster) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await cluster.create_config_map(name, labels={"l": label})
    deleted_list = (await cluster.request("DELETE", cluster.path("configmaps"), labelSelector="l=x")).expect(200)
    assert deleted_list["kind"] == "ConfigMapList" and [item["metadata"]["name"] for item in deleted_list["items"]] == [
        "a",
        "b",
    ]
    remaining = (await cluster.request("GET", cluster.path("configmaps"), labelSelector="l")).expect(200)["items"]
    assert [item["metadata"]["name"] for item in remaining] == ["c"]


@check(
    "A deletecollection across all namespaces, or of namespaces, gives 405.",
    area=AREA,
    mutation=answers(405, 200),
)
async def no_delete_in_all_namespaces(cluster: Cluster) -> None:
    no_match = {"labelSelector": f"none={cluster.unique_name('x')}"}
    for path in ("/api/v1/configmaps", "/api/v1/pods", "/api/v1/namespaces", "/apis/batch/v1/jobs"):
        (await cluster.request("DELETE", path, **no_match)).expect_error(405, "MethodNotAllowed")


@check(
    "A create of a namespaced object without a namespace in the path gives 405.", area=AREA, mutation=answers(405, 201)
)
async def create_in_all_namespaces(cluster: Cluster) -> None:
    (await cluster.request("POST", "/api/v1/configmaps", config_map("one"))).expect_error(405, "MethodNotAllowed")


@check(
    "A list across all namespaces has the objects of each namespace.", area=AREA, mutation=swaps(b"check-", b"other-")
)
async def list_in_all_namespaces(cluster: Cluster) -> None:
    await cluster.create_config_map("one", labels={"l": cluster.unique_name("x")})
    items = (await cluster.request("GET", "/api/v1/configmaps", labelSelector=f"l={cluster.unique_name('x')}")).expect(
        200
    )["items"]
    assert [item["metadata"]["namespace"] for item in items] == [cluster.namespace]


@check(
    "A fieldManager over 128 bytes or with unprintable characters is rejected with 422, even for a missing object.",
    area=AREA,
    mutation=replaced("patch.dispatch:manager_problems", lambda request: []),
)
async def field_manager(cluster: Cluster) -> None:
    problem = "fieldManager: Too long: may not be more than 128 bytes"
    for method, path, kind in (
        ("POST", cluster.path("configmaps"), "CreateOptions"),
        ("PUT", cluster.path("configmaps", "one"), "UpdateOptions"),
        ("PATCH", cluster.path("configmaps", "one"), "PatchOptions"),
    ):
        for manager in ("m" * 129, "\u00e9" * 65):
            error = (await cluster.request(method, path, config_map("one"), fieldManager=manager)).expect_error(
                422, "Invalid"
            )
            assert error["message"] == f'{kind}.meta.k8s.io "" is invalid: {problem}'
    response = await cluster.request("POST", cluster.path("configmaps"), config_map("one"), fieldManager="a\u00e9\x01")
    invalid_character = "invalid character U+0001 (at position 3)"
    response.expect_error(422, "Invalid", f'fieldManager: Invalid value: "a\u00e9\\x01": {invalid_character}')
    (await cluster.request("POST", cluster.path("configmaps"), config_map("one"), fieldManager="m" * 128)).expect(201)
