"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, Response, check
from tests.conformance.mutations import answers, replaced, sets
from trainyard.objects import Json

AREA = "patches"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_REPLACES_LISTS = replaced(
    "api_types.strategic_merge:_merged_list", lambda old, patch, shape, level: patch, "replaces all lists"
)
_WRITES_UNCHANGED = replaced("registry.writes:json_equal", lambda a, b: False, "writes unchanged objects")
_SHALLOW_MERGE = replaced(
    "patch.strategic_merge:merge", lambda original, patch, shape: {**original, **patch}, "merges only the top level"
)


async def _patch(cluster: Cluster, path: str, media_type: str, patch: Any, **query: str) -> Response:
    headers = {"Content-Type": media_type}
    return await cluster.request("PATCH", path, patch, headers=headers, **query)


async def _deployment(cluster: Cluster, **pod: Any) -> str:
    """Create a Deployment with 0 replicas and two containers, main and side."""
    containers = [
        {"name": "main", "image": "i:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}]},
        {"name": "side", "image": "j:1"},
    ]
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **pod}}
    spec = {"replicas": 0, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec}
    (await cluster.request("POST", cluster.path("deployments"), obj)).expect(201)
    return cluster.path("deployments", "one")


def _pod_spec(response: Response) -> Json:
    pod_spec: Json = response.expect(200)["spec"]["template"]["spec"]
    return pod_spec


def _pod_patch(**spec: Any) -> Json:
    return {"spec": {"template": {"spec": spec}}}


@check("A strategic merge patch merges containers by name.", area=AREA, mutation=_REPLACES_LISTS)
async def by_name(cluster: Cluster) -> None:
    path = await _deployment(cluster)
    patch = _pod_patch(containers=[{"name": "new", "image": "k"}, {"name": "side", "image": "j:2"}])
    containers = _pod_spec(await _patch(cluster, path, STRATEGIC, patch))["containers"]
    assert [container["name"] for container in containers] in (["new", "main", "side"], ["main", "new", "side"]), (
        containers
    )
    assert [container["image"] for container in containers if container["name"] != "new"] == ["i:1", "j:2"]
    assert next(container for container in containers if container["name"] == "main")["env"] == [
        {"name": "A", "value": "1"}
    ]


@check("A strategic merge patch replaces a list without a merge key.", area=AREA, mutation=_SHALLOW_MERGE)
async def atomic(cluster: Cluster) -> None:
    path = await _deployment(cluster)
    pod_spec = _pod_spec(
        await _patch(cluster, path, STRATEGIC, _pod_patch(containers=[{"name": "main", "args": ["c"]}]))
    )
    assert [container.get("args") for container in pod_spec["containers"]] == [["c"], None]


@check("$patch: delete removes an item of a list.", area=AREA, mutation=_REPLACES_LISTS)
async def deleted_item(cluster: Cluster) -> None:
    path = await _deployment(cluster)
    pod_spec = _pod_spec(
        await _patch(cluster, path, STRATEGIC, _pod_patch(containers=[{"name": "side", "$patch": "delete"}]))
    )
    assert [container["name"] for container in pod_spec["containers"]] == ["main"]


@check(
    "$patch: replace replaces an object or a whole list.",
    area=AREA,
    mutation=replaced("api_types.strategic_merge:DIRECTIVE", "$no", "ignores $patch"),
)
async def replaced_whole(cluster: Cluster) -> None:
    path = await _deployment(cluster, nodeSelector={"a": "b"})
    containers = [{"$patch": "replace"}, {"name": "solo", "image": "s"}]
    pod_spec = _pod_spec(
        await _patch(
            cluster, path, STRATEGIC, _pod_patch(containers=containers, nodeSelector={"$patch": "replace", "c": "d"})
        )
    )
    assert [container["name"] for container in pod_spec["containers"]] == ["solo"]
    assert pod_spec["nodeSelector"] == {"c": "d"}


@check(
    "$retainKeys removes the fields that it does not list.",
    area=AREA,
    mutation=replaced(
        "api_types.strategic_merge:_retained", lambda original, patch: dict(original), "ignores $retainKeys"
    ),
)
async def retained(cluster: Cluster) -> None:
    path = await _deployment(cluster)
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    patched = (await _patch(cluster, path, STRATEGIC, patch)).expect(200)
    assert patched["spec"]["strategy"] == {"type": "Recreate"}


@check(
    "$setElementOrder sorts a list in that order.",
    area=AREA,
    mutation=replaced(
        "api_types.strategic_merge:_in_order", lambda items, named, before, of: items, "ignores $setElementOrder"
    ),
)
async def ordered(cluster: Cluster) -> None:
    path = await _deployment(cluster)
    patch = _pod_patch(**{"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]})
    pod_spec = _pod_spec(await _patch(cluster, path, STRATEGIC, patch))
    assert [container["name"] for container in pod_spec["containers"]] == ["side", "main"]


@check(
    "Finalizers are merged as a set; $deleteFromPrimitiveList removes one.",
    area=AREA,
    mutation=replaced("api_types.strategic_merge:_take_out", lambda result, name, gone: None),
)
async def finalizers(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=["a.b/one", "a.b/two"])
    path = cluster.path("configmaps", "one")
    patched = (await _patch(cluster, path, STRATEGIC, {"metadata": {"finalizers": ["a.b/two", "a.b/three"]}})).expect(
        200
    )
    assert sorted(patched["metadata"]["finalizers"]) == ["a.b/one", "a.b/three", "a.b/two"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/two"]}}
    patched = (await _patch(cluster, path, STRATEGIC, patch)).expect(200)
    assert sorted(patched["metadata"]["finalizers"]) == ["a.b/one", "a.b/three"]


@check("A list item without its merge key gives 500.", area=AREA, mutation=_REPLACES_LISTS)
async def missing_merge_key(cluster: Cluster) -> None:
    path = await _deployment(cluster)
    response = await _patch(cluster, path, STRATEGIC, _pod_patch(containers=[{"image": "z"}]))
    assert response.expect(500)["message"].endswith("does not contain declared merge key: name"), response.body


@check("null in a strategic merge patch removes a field.", area=AREA, mutation=_SHALLOW_MERGE)
async def nulls(cluster: Cluster) -> None:
    await cluster.create_config_map("one", data={"a": "1", "b": "2"}, labels={"x": "y"})
    patch = {"data": {"a": None}, "metadata": {"labels": None}}
    patched = (await _patch(cluster, cluster.path("configmaps", "one"), STRATEGIC, patch)).expect(200)
    assert (
        patched["data"] == {"b": "2"} and "labels" not in patched["metadata"] and patched["metadata"]["name"] == "one"
    )


@check("A strategic merge patch of a custom object gives 415.", area=AREA, mutation=answers(415, 200))
async def custom(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    (await cluster.request("POST", resource.path(), resource.obj("one"))).expect(201)
    response = await _patch(cluster, resource.path("one"), STRATEGIC, {"spec": {"a": 1}})
    response.expect_error(415, "UnsupportedMediaType", MERGE, JSON_PATCH)


@check("A PATCH with another media type gives 415.", area=AREA, mutation=sets("reason", "BadRequest"))
async def other_types(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    for media_type in ("text/plain", "application/json"):
        response = await _patch(cluster, cluster.path("configmaps", "one"), media_type, b"{}")
        response.expect_error(415, "UnsupportedMediaType")


@check("A JSON patch adds, replaces, moves, copies, removes and tests.", area=AREA, mutation=sets("data.d", "x"))
async def operations(cluster: Cluster) -> None:
    await cluster.create_config_map("one", data={"a": "1", "b": "2"}, annotations={"x/y": "v"})
    patch = [
        {"op": "test", "path": "/metadata/annotations/x~1y", "value": "v"},
        {"op": "add", "path": "/data/c", "value": "3"},
        {"op": "replace", "path": "/data/a", "value": "4"},
        {"op": "replace", "path": "/data/new", "value": "5"},
        {"op": "copy", "from": "/data/c", "path": "/data/d"},
        {"op": "move", "from": "/data/b", "path": "/data/e"},
        {"op": "remove", "path": "/metadata/annotations/x~1y"},
    ]
    patched = (await _patch(cluster, cluster.path("configmaps", "one"), JSON_PATCH, patch)).expect(200)
    assert patched["data"] == {"a": "4", "c": "3", "d": "3", "e": "2", "new": "5"}
    assert "annotations" not in patched["metadata"]


@check(
    "A JSON patch that cannot be applied to the object gives 422 and changes nothing.",
    area=AREA,
    mutation=answers(422, 400),
)
async def failing_operations(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "1"})
    path = cluster.path("configmaps", "one")
    for operation in (
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/none", "value": "2"},
        {"op": "add", "path": "/data/x/y", "value": "2"},
        {"op": "add", "path": "data", "value": "2"},
        {"op": "frobnicate", "path": "/data/a"},
        {"op": "remove", "path": ""},
    ):
        patch = [{"op": "add", "path": "/data/b", "value": "2"}, operation]
        (await _patch(cluster, path, JSON_PATCH, patch)).expect_error(422, "Invalid")
    assert (await cluster.request("GET", path)).expect(200) == created


@check("A malformed patch gives 400.", area=AREA, mutation=answers(400, 422))
async def malformed(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    for media_type, patches in (
        (JSON_PATCH, (b"{}", b"[1]", b'"x"', b"[")),
        (MERGE, (b"[]", b'"x"', b"{")),
        (STRATEGIC, (b"[]", b'"x"', b"{")),
    ):
        for patch in patches:
            (await _patch(cluster, path, media_type, patch)).expect_error(400, "BadRequest")


@check(
    "A merge patch merges objects and replaces lists; null removes a field.",
    area=AREA,
    mutation=replaced(
        "patch.json_patch:merge_patch", lambda target, patch, level=0: {**target, **patch}, "merges only the top level"
    ),
)
async def merged(cluster: Cluster) -> None:
    await cluster.create_config_map("one", data={"a": "1", "b": "2"}, finalizers=["a.b/one", "a.b/two"])
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"finalizers": ["a.b/three"]}}
    patched = (await _patch(cluster, cluster.path("configmaps", "one"), MERGE, patch)).expect(200)
    assert patched["data"] == {"b": "2", "c": "3"} and patched["metadata"]["finalizers"] == ["a.b/three"]


@check("A patch without changes keeps the resourceVersion.", area=AREA, mutation=_WRITES_UNCHANGED)
async def unchanged_patch(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "1"})
    for media_type, patch in (
        (MERGE, {"data": {"a": "1"}}),
        (STRATEGIC, {"data": {"a": "1"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/data/a", "value": "1"}]),
    ):
        patched = (await _patch(cluster, cluster.path("configmaps", "one"), media_type, patch)).expect(200)
        assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


@check("force is rejected with 422 for any patch but apply.", area=AREA, mutation=answers(422, 200))
async def force(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    error = (await _patch(cluster, cluster.path("configmaps", "one"), MERGE, {}, force="true")).expect_error(
        422, "Invalid"
    )
    assert error["details"]["causes"][0]["field"] == "force"
