"""The three patches that do not apply: JSON, merge, strategic merge."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Reply, Subject, check
from trainyard.testing.check_server.breaks import answers, replaced, sets

AREA = "patches"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_REPLACES = replaced(
    "patch.strategic_merge:_merged_list", lambda old, patch, shape, level: patch, "replaces every list"
)
_WRITES = replaced("registry.writes:json_equal", lambda a, b: False, "writes what changes nothing")
_PLAIN = replaced(
    "patch.strategic_merge:merge", lambda original, patch, shape: {**original, **patch}, "merges nothing below"
)


async def _patch(yard: Subject, path: str, kind: str, patch: Any, **query: str) -> Reply:
    headers = {"Content-Type": kind}
    return await yard.ask("PATCH", path, patch, headers=headers, **query)


async def _deployment(yard: Subject, **pod: Any) -> str:
    """One without pods; two containers, main and side."""
    containers = [
        {"name": "main", "image": "i:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}]},
        {"name": "side", "image": "j:1"},
    ]
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **pod}}
    spec = {"replicas": 0, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec}
    (await yard.ask("POST", yard.at("deployments"), obj)).must(201)
    return yard.at("deployments", "one")


def _spec(reply: Reply) -> Json:
    said: Json = reply.must(200)["spec"]["template"]["spec"]
    return said


def _pod(**spec: Any) -> Json:
    return {"spec": {"template": {"spec": spec}}}


@check("A strategic merge patch merges containers by name; what is new comes first.", area=AREA, breaks=_REPLACES)
async def by_name(yard: Subject) -> None:
    path = await _deployment(yard)
    patch = _pod(containers=[{"name": "new", "image": "k"}, {"name": "side", "image": "j:2"}])
    found = _spec(await _patch(yard, path, STRATEGIC, patch))["containers"]
    assert [one["name"] for one in found] in (["new", "main", "side"], ["main", "new", "side"]), found
    assert [one["image"] for one in found if one["name"] != "new"] == ["i:1", "j:2"]
    assert next(one for one in found if one["name"] == "main")["env"] == [{"name": "A", "value": "1"}]


@check("A strategic merge patch replaces a list that has no merge key.", area=AREA, breaks=_PLAIN)
async def atomic(yard: Subject) -> None:
    path = await _deployment(yard)
    found = _spec(await _patch(yard, path, STRATEGIC, _pod(containers=[{"name": "main", "args": ["c"]}])))
    assert [one.get("args") for one in found["containers"]] == [["c"], None]


@check("$patch: delete takes an item of a list away.", area=AREA, breaks=_REPLACES)
async def deleted_item(yard: Subject) -> None:
    path = await _deployment(yard)
    found = _spec(await _patch(yard, path, STRATEGIC, _pod(containers=[{"name": "side", "$patch": "delete"}])))
    assert [one["name"] for one in found["containers"]] == ["main"]


@check(
    "$patch: replace replaces an object or a whole list.",
    area=AREA,
    breaks=replaced("patch.strategic_merge:DIRECTIVE", "$no", "knows no $patch"),
)
async def replaced_whole(yard: Subject) -> None:
    path = await _deployment(yard, nodeSelector={"a": "b"})
    only = [{"$patch": "replace"}, {"name": "solo", "image": "s"}]
    found = _spec(
        await _patch(yard, path, STRATEGIC, _pod(containers=only, nodeSelector={"$patch": "replace", "c": "d"}))
    )
    assert [one["name"] for one in found["containers"]] == ["solo"]
    assert found["nodeSelector"] == {"c": "d"}


@check(
    "$retainKeys takes away what it does not name.",
    area=AREA,
    breaks=replaced("patch.strategic_merge:_retained", lambda original, patch: dict(original), "ignores $retainKeys"),
)
async def retained(yard: Subject) -> None:
    path = await _deployment(yard)
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    said = (await _patch(yard, path, STRATEGIC, patch)).must(200)
    assert said["spec"]["strategy"] == {"type": "Recreate"}


@check(
    "$setElementOrder puts a list in that order.",
    area=AREA,
    breaks=replaced("patch.strategic_merge:_in_order", lambda items, named, before, of: items, "keeps the order"),
)
async def ordered(yard: Subject) -> None:
    path = await _deployment(yard)
    patch = _pod(**{"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]})
    found = _spec(await _patch(yard, path, STRATEGIC, patch))
    assert [one["name"] for one in found["containers"]] == ["side", "main"]


@check(
    "Finalizers are merged as a set, and $deleteFromPrimitiveList takes one away.",
    area=AREA,
    breaks=replaced("patch.strategic_merge:_take_out", lambda result, name, gone: None),
)
async def finalizers(yard: Subject) -> None:
    await yard.map("one", finalizers=["a.b/one", "a.b/two"])
    path = yard.at("configmaps", "one")
    said = (await _patch(yard, path, STRATEGIC, {"metadata": {"finalizers": ["a.b/two", "a.b/three"]}})).must(200)
    assert sorted(said["metadata"]["finalizers"]) == ["a.b/one", "a.b/three", "a.b/two"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/two"]}}
    said = (await _patch(yard, path, STRATEGIC, patch)).must(200)
    assert sorted(said["metadata"]["finalizers"]) == ["a.b/one", "a.b/three"]


@check("An item without its merge key cannot be merged.", area=AREA, breaks=_REPLACES)
async def keyless(yard: Subject) -> None:
    path = await _deployment(yard)
    reply = await _patch(yard, path, STRATEGIC, _pod(containers=[{"image": "z"}]))
    assert reply.must(500)["message"].endswith("does not contain declared merge key: name"), reply.body


@check("null in a strategic merge patch takes a field away.", area=AREA, breaks=_PLAIN)
async def nulls(yard: Subject) -> None:
    await yard.map("one", data={"a": "1", "b": "2"}, labels={"x": "y"})
    patch = {"data": {"a": None}, "metadata": {"labels": None}}
    said = (await _patch(yard, yard.at("configmaps", "one"), STRATEGIC, patch)).must(200)
    assert said["data"] == {"b": "2"} and "labels" not in said["metadata"] and said["metadata"]["name"] == "one"


@check("A custom resource takes no strategic merge patch: 415.", area=AREA, breaks=answers(415, 200))
async def custom(yard: Subject) -> None:
    kind = await yard.crd()
    (await yard.ask("POST", kind.path(), kind.obj("one"))).must(201)
    reply = await _patch(yard, kind.path("one"), STRATEGIC, {"spec": {"a": 1}})
    reply.refused(415, "UnsupportedMediaType", MERGE, JSON_PATCH)


@check("A PATCH of another media type is 415.", area=AREA, breaks=sets("reason", "BadRequest"))
async def other_types(yard: Subject) -> None:
    await yard.map("one")
    for kind in ("text/plain", "application/json"):
        reply = await _patch(yard, yard.at("configmaps", "one"), kind, b"{}")
        reply.refused(415, "UnsupportedMediaType")


@check("A JSON patch adds, replaces, moves, copies, removes and tests.", area=AREA, breaks=sets("data.d", "x"))
async def operations(yard: Subject) -> None:
    await yard.map("one", data={"a": "1", "b": "2"}, annotations={"x/y": "v"})
    patch = [
        {"op": "test", "path": "/metadata/annotations/x~1y", "value": "v"},
        {"op": "add", "path": "/data/c", "value": "3"},
        {"op": "replace", "path": "/data/a", "value": "4"},
        {"op": "replace", "path": "/data/new", "value": "5"},
        {"op": "copy", "from": "/data/c", "path": "/data/d"},
        {"op": "move", "from": "/data/b", "path": "/data/e"},
        {"op": "remove", "path": "/metadata/annotations/x~1y"},
    ]
    said = (await _patch(yard, yard.at("configmaps", "one"), JSON_PATCH, patch)).must(200)
    assert said["data"] == {"a": "4", "c": "3", "d": "3", "e": "2", "new": "5"}
    assert "annotations" not in said["metadata"]


@check(
    "A JSON patch that does not fit the object is 422 and changes nothing.",
    area=AREA,
    breaks=answers(422, 400),
)
async def unfitting(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "1"})
    path = yard.at("configmaps", "one")
    for last in (
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/none", "value": "2"},
        {"op": "add", "path": "/data/x/y", "value": "2"},
        {"op": "add", "path": "data", "value": "2"},
        {"op": "frobnicate", "path": "/data/a"},
        {"op": "remove", "path": ""},
    ):
        patch = [{"op": "add", "path": "/data/b", "value": "2"}, last]
        (await _patch(yard, path, JSON_PATCH, patch)).refused(422, "Invalid")
    assert (await yard.ask("GET", path)).must(200) == made


@check("What is no JSON patch, or no merge patch, is 400.", area=AREA, breaks=answers(400, 422))
async def malformed(yard: Subject) -> None:
    await yard.map("one")
    path = yard.at("configmaps", "one")
    for kind, patches in (
        (JSON_PATCH, (b"{}", b"[1]", b'"x"', b"[")),
        (MERGE, (b"[]", b'"x"', b"{")),
        (STRATEGIC, (b"[]", b'"x"', b"{")),
    ):
        for patch in patches:
            (await _patch(yard, path, kind, patch)).refused(400, "BadRequest")


@check(
    "A merge patch merges objects, replaces lists, and null takes away.",
    area=AREA,
    breaks=replaced(
        "patch.json_patch:merge_patch", lambda target, patch, level=0: {**target, **patch}, "merges nothing below"
    ),
)
async def merged(yard: Subject) -> None:
    await yard.map("one", data={"a": "1", "b": "2"}, finalizers=["a.b/one", "a.b/two"])
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"finalizers": ["a.b/three"]}}
    said = (await _patch(yard, yard.at("configmaps", "one"), MERGE, patch)).must(200)
    assert said["data"] == {"b": "2", "c": "3"} and said["metadata"]["finalizers"] == ["a.b/three"]


@check("A patch that changes nothing makes no new version.", area=AREA, breaks=_WRITES)
async def nothing(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "1"})
    for kind, patch in (
        (MERGE, {"data": {"a": "1"}}),
        (STRATEGIC, {"data": {"a": "1"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/data/a", "value": "1"}]),
    ):
        said = (await _patch(yard, yard.at("configmaps", "one"), kind, patch)).must(200)
        assert said["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@check("Only an apply may force.", area=AREA, breaks=answers(422, 200))
async def forced(yard: Subject) -> None:
    await yard.map("one")
    said = (await _patch(yard, yard.at("configmaps", "one"), MERGE, {}, force="true")).refused(422, "Invalid")
    assert said["details"]["causes"][0]["field"] == "force"
