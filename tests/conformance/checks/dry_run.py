"""dryRun=All: the request is processed but nothing is stored."""

from __future__ import annotations

from tests.conformance import Cluster, check
from tests.conformance.checks.crud import config_map
from tests.conformance.mutations import answers, ignores, sets

AREA = "dry run"
DRY = {"dryRun": "All"}


@check(
    "A dry-run create returns 201 without a resourceVersion and stores nothing.", area=AREA, mutation=ignores("dryRun")
)
async def dry_create(cluster: Cluster) -> None:
    created = (await cluster.request("POST", cluster.path("configmaps"), config_map("one"), **DRY)).expect(201)
    assert created["metadata"]["uid"] and "resourceVersion" not in created["metadata"]
    (await cluster.request("GET", cluster.path("configmaps", "one"))).expect_error(404, "NotFound")


@check("A dry-run create is rejected like a real one.", area=AREA, mutation=answers(409, 201))
async def dry_taken(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    (await cluster.request("POST", cluster.path("configmaps"), config_map("one"), **DRY)).expect_error(
        409, "AlreadyExists"
    )
    (await cluster.request("POST", cluster.path("configmaps"), config_map("B"), **DRY)).expect_error(422, "Invalid")


@check(
    "A dry-run update or patch returns the result with the old resourceVersion and stores nothing.",
    area=AREA,
    mutation=ignores("dryRun"),
)
async def dry_update(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "1"})
    path = cluster.path("configmaps", "one")
    put = (await cluster.request("PUT", path, config_map("one", data={"a": "2"}), **DRY)).expect(200)
    patched = (await cluster.request("PATCH", path, {"data": {"b": "3"}}, **DRY)).expect(200)
    assert put["data"] == {"a": "2"} and patched["data"] == {"a": "1", "b": "3"}
    assert put["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    assert (await cluster.request("GET", path)).expect(200) == created


@check(
    "A dry-run delete, in the query or the body, returns the same response and deletes nothing.",
    area=AREA,
    mutation=ignores("dryRun"),
)
async def dry_delete(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    assert (await cluster.request("DELETE", path, **DRY)).expect(200)["status"] == "Success"
    assert (await cluster.request("DELETE", path, {"dryRun": ["All"]})).expect(200)["status"] == "Success"
    assert (await cluster.request("DELETE", cluster.path("configmaps"), labelSelector="!none", **DRY)).expect(200)
    assert (await cluster.request("GET", path)).expect(200) == created


@check("A dry-run status update stores nothing.", area=AREA, mutation=ignores("dryRun"))
async def dry_status(cluster: Cluster) -> None:
    resource = await cluster.create_crd(version={"subresources": {"status": {}}})
    await cluster.request("POST", resource.path(), resource.obj("one"))
    patched = (await cluster.request("PATCH", resource.path("one", "status"), {"status": {"a": 1}}, **DRY)).expect(200)
    assert patched["status"] == {"a": 1}
    assert "status" not in (await cluster.request("GET", resource.path("one"))).expect(200)


@check(
    "A dryRun value other than All is rejected with 422 and the kind of the options.",
    area=AREA,
    mutation=sets("details.kind", "Options"),
)
async def dry_word(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    object_path = cluster.path("configmaps", "one")
    for method, path, body, kind in (
        ("POST", cluster.path("configmaps"), config_map("two"), "CreateOptions"),
        ("PUT", object_path, config_map("one"), "UpdateOptions"),
        ("PATCH", object_path, {"data": {}}, "PatchOptions"),
        ("DELETE", object_path, None, "DeleteOptions"),
    ):
        error = (await cluster.request(method, path, body, dryRun="Some")).expect_error(422, "Invalid")
        assert error["details"]["kind"] == kind and error["details"]["group"] == "meta.k8s.io", error
        assert error["details"]["causes"][0]["field"] == "dryRun"
