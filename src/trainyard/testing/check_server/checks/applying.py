"""Server-side apply: fields have owners."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Reply, Subject, check
from trainyard.testing.check_server.breaks import Break, answers, ignores, replaced, sets, without

AREA = "server-side apply"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
_KEEPS = replaced("patch.apply:remove_paths", lambda value, *more: value, "takes no field away")
_NO_CONFLICTS = replaced("patch.apply:_settled", lambda others, *more: others, "sees no conflict")
_NO_TRACKING: Break = replaced("patch.apply:track_update", lambda *all: None, "does not follow updates")
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
                    },
                },
                "words": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "n": {"type": "integer"}}},
    },
}


async def _apply(yard: Subject, path: str, obj: Json | bytes, manager: str = "me", **query: str) -> Reply:
    headers = {"Content-Type": APPLY}
    return await yard.ask("PATCH", path, obj, headers=headers, fieldManager=manager, **query)


def _map(data: Json | None = None, **meta: Any) -> Json:
    made: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", **meta}}
    return made if data is None else {**made, "data": data}


def _entry(obj: Json, manager: str, operation: str = "Apply") -> Json:
    found = [
        one
        for one in obj["metadata"].get("managedFields") or ()
        if (one["manager"], one["operation"]) == (manager, operation)
    ]
    assert len(found) == 1, (manager, operation, obj["metadata"].get("managedFields"))
    return dict(found[0])


@check("An apply makes what is not there: 201, and its fields have an owner.", area=AREA, breaks=answers(201, 200))
async def made(yard: Subject) -> None:
    said = (await _apply(yard, yard.at("configmaps", "one"), _map({"a": "1"}, labels={"x": "y"}))).must(201)
    entry = _entry(said, "me")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}
    assert (entry["apiVersion"], entry["fieldsType"]) == ("v1", "FieldsV1") and entry["time"].endswith("Z")


@check(
    "The same apply again changes nothing, not even the version.",
    area=AREA,
    breaks=replaced("registry.writes:json_equal", lambda a, b: False, "writes what changes nothing"),
)
async def again(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    first = (await _apply(yard, path, _map({"a": "1"}))).must(201)
    assert (await _apply(yard, path, _map({"a": "1"}))).must(200) == first


@check("YAML and JSON are both applied.", area=AREA, breaks=sets("data.a", "?"))
async def yaml(yard: Subject) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata: {a: '2026-01-01'}\n"
    said = (await _apply(yard, yard.at("configmaps", "one"), body)).must(201)
    assert said["data"] == {"a": "2026-01-01"}


@check("A field that its owner no longer sends goes.", area=AREA, breaks=_KEEPS)
async def dropped(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1", "b": "2"}, labels={"x": "y"}))).must(201)
    said = (await _apply(yard, path, _map({"a": "3"}))).must(200)
    assert said["data"] == {"a": "3"} and "labels" not in said["metadata"]


@check("Two managers hold different fields of one object.", area=AREA, breaks=without("metadata.managedFields"))
async def two(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1"}), "first")).must(201)
    said = (await _apply(yard, path, _map({"b": "2"}), "second")).must(200)
    assert said["data"] == {"a": "1", "b": "2"}
    assert _entry(said, "first")["fieldsV1"] == {"f:data": {"f:a": {}}}
    assert _entry(said, "second")["fieldsV1"] == {"f:data": {"f:b": {}}}


@check("Another's field is a 409 that names owner and field.", area=AREA, breaks=_NO_CONFLICTS)
async def conflict(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1"}), "first")).must(201)
    said = (await _apply(yard, path, _map({"a": "2"}), "second")).refused(409, "Conflict")
    assert said["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.a"}
    assert said["details"]["causes"] == [cause]


@check("A forced apply takes the field over.", area=AREA, breaks=ignores("force"))
async def forced(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1", "b": "1"}), "first")).must(201)
    said = (await _apply(yard, path, _map({"a": "2"}), "second", force="true")).must(200)
    assert said["data"] == {"a": "2", "b": "1"}
    assert _entry(said, "first")["fieldsV1"] == {"f:data": {"f:b": {}}}


@check("A field of two owners with one value stays until both let it go.", area=AREA, breaks=_KEEPS)
async def shared(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    for manager in ("first", "second"):
        (await _apply(yard, path, _map({"a": "1", manager: "x"}), manager)).must()
    said = (await _apply(yard, path, _map({"first": "x"}), "first")).must(200)
    assert said["data"] == {"a": "1", "first": "x", "second": "x"}
    said = (await _apply(yard, path, _map({"second": "x"}), "second")).must(200)
    assert said["data"] == {"first": "x", "second": "x"}


@check("Who changes an applied field by an update owns it then.", area=AREA, breaks=_NO_TRACKING)
async def updated(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1", "b": "1"}))).must(201)
    said = (await yard.ask("PATCH", path, {"data": {"a": "2"}}, fieldManager="hand")).must(200)
    assert _entry(said, "hand", "Update")["fieldsV1"] == {"f:data": {"f:a": {}}}
    assert _entry(said, "me")["fieldsV1"] == {"f:data": {"f:b": {}}}
    no = (await _apply(yard, path, _map({"a": "1", "b": "1"}))).refused(409, "Conflict")
    assert no["message"] == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.a'


@check("An apply says who applies, or it is 422.", area=AREA, breaks=answers(422, 400))
async def nameless(yard: Subject) -> None:
    headers = {"Content-Type": APPLY}
    reply = await yard.ask("PATCH", yard.at("configmaps", "one"), _map(), headers=headers)
    assert reply.refused(422, "Invalid")["details"]["causes"][0]["field"] == "fieldManager"


@check("A dry run of an apply answers and stores nothing.", area=AREA, breaks=ignores("dryRun"))
async def dry(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1"}), dryRun="All")).must(201)
    (await yard.ask("GET", path)).refused(404, "NotFound")
    (await _apply(yard, path, _map({"a": "1"}))).must(201)
    assert (await _apply(yard, path, _map({"a": "2"}), dryRun="All")).must(200)["data"] == {"a": "2"}
    assert (await yard.ask("GET", path)).must(200)["data"] == {"a": "1"}


@check("An apply of a field or a type that the kind does not know is refused.", area=AREA, breaks=answers(500, 200))
async def untyped(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    for obj, words in (
        ({**_map(), "dato": {}}, ".dato: field not declared in schema"),
        (_map({"a": 1}), ".data.a: expected string"),
    ):
        said = (await _apply(yard, path, obj)).must(500)
        assert words in said["message"], said


@check("An apply of another kind, another name, or with managedFields is 400.", area=AREA, breaks=answers(400, 200))
async def wrong(yard: Subject) -> None:
    path = yard.at("configmaps", "one")
    (await _apply(yard, path, _map({"a": "1"}))).must(201)
    for obj in (
        {**_map(), "kind": "Secret"},
        {**_map(), "metadata": {"name": "two"}},
        _map({"a": "1"}, managedFields=[{"manager": "x"}]),
        b"a: : b",
        b"[1]",
    ):
        (await _apply(yard, path, obj)).refused(400, "BadRequest")


@check("Items of a list with keys, and of a set, have owners one by one.", area=AREA, breaks=_KEEPS)
async def items(yard: Subject) -> None:
    kind = await yard.crd(schema=SCHEMA)
    path = kind.path("one")
    spec = {"items": [{"name": "a", "v": 1}, {"name": "b", "v": 1}], "words": ["x", "y"]}
    (await _apply(yard, path, kind.obj("one", spec=spec), "first")).must(201)
    spec = {"items": [{"name": "c", "v": 3}], "words": ["z"]}
    (await _apply(yard, path, kind.obj("one", spec=spec), "second")).must(200)
    spec = {"items": [{"name": "b", "v": 2}], "words": ["y"]}
    said = (await _apply(yard, path, kind.obj("one", spec=spec), "first")).must(200)["spec"]
    assert sorted(said["words"]) == ["y", "z"]
    assert sorted(said["items"], key=lambda one: one["name"]) == [{"name": "b", "v": 2}, {"name": "c", "v": 3}]
    entry = _entry((await yard.ask("GET", path)).must(200), "second")["fieldsV1"]["f:spec"]
    assert entry == {
        "f:items": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:v": {}}},
        "f:words": {'v:"z"': {}},
    }


@check("Lists without a key and atomic maps have one owner, whole.", area=AREA, breaks=_NO_CONFLICTS)
async def atomic(yard: Subject) -> None:
    kind = await yard.crd(schema=SCHEMA)
    path = kind.path("one")
    spec: Json = {"plain": ["a"], "whole": {"k": "v"}}
    said = (await _apply(yard, path, kind.obj("one", spec=spec), "first")).must(201)
    assert _entry(said, "first")["fieldsV1"] == {"f:spec": {"f:plain": {}, "f:whole": {}}}
    other = {"plain": ["b"], "whole": {"l": "v"}}
    no = (await _apply(yard, path, kind.obj("one", spec=other), "second")).refused(409, "Conflict")
    assert sorted(one["field"] for one in no["details"]["causes"]) == [".spec.plain", ".spec.whole"]
    said = (await _apply(yard, path, kind.obj("one", spec=other), "second", force="true")).must(200)
    assert said["spec"] == other


@check("What a schema preserves is applied as it comes: maps by key, lists whole.", area=AREA, breaks=_KEEPS)
async def free(yard: Subject) -> None:
    kind = await yard.crd(schema=SCHEMA)
    path = kind.path("one")
    spec = {"free": {"a": {"b": [1, 2], "c": 1}}}
    said = (await _apply(yard, path, kind.obj("one", spec=spec))).must(201)
    assert _entry(said, "me")["fieldsV1"] == {"f:spec": {"f:free": {"f:a": {".": {}, "f:b": {}, "f:c": {}}}}}
    spec = {"free": {"a": {"b": [3]}}}
    assert (await _apply(yard, path, kind.obj("one", spec=spec))).must(200)["spec"] == spec


@check(
    "The status is applied through its own path, by an entry of its own.",
    area=AREA,
    breaks=replaced("patch.apply:_own", lambda resource, sent, who: set(sent), "does not tell /status apart"),
)
async def status(yard: Subject) -> None:
    kind = await yard.crd(schema=SCHEMA, version={"subresources": {"status": {}}})
    path = kind.path("one")
    obj = kind.obj("one", spec={"n": 1}, status={"phase": "x"})
    said = (await _apply(yard, path, obj)).must(201)
    assert "status" not in said and _entry(said, "me")["fieldsV1"] == {"f:spec": {"f:n": {}}}
    obj = kind.obj("one", spec={"n": 7}, status={"phase": "x", "n": 1})
    said = (await _apply(yard, kind.path("one", "status"), obj, "other")).must(200)
    assert said["spec"] == {"n": 1} and said["status"] == {"phase": "x", "n": 1}
    entry = _entry(said, "other")
    assert entry["subresource"] == "status" and entry["fieldsV1"] == {"f:status": {"f:n": {}, "f:phase": {}}}
    said = (await _apply(yard, kind.path("one", "status"), kind.obj("one", status={"n": 1}), "other")).must(200)
    assert said["status"] == {"n": 1}


@check("A Deployment is applied, changed, and fields taken out of the file go.", area=AREA, breaks=_KEEPS)
async def deployment(yard: Subject) -> None:
    path = yard.at("deployments", "one")
    main: Json = {
        "name": "main",
        "image": "i:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}],
    }
    labels = {"app": "x"}
    spec: Json = {"replicas": 0, "selector": {"matchLabels": labels}}
    template: Json = {"metadata": {"labels": labels}, "spec": {"containers": [main, {"name": "side", "image": "j"}]}}
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}}
    (await _apply(yard, path, {**obj, "spec": {**spec, "template": template}})).must(201)
    template = {**template, "spec": {"containers": [{"name": "main", "image": "i:2", "ports": main["ports"]}]}}
    said = (await _apply(yard, path, {**obj, "spec": {**spec, "template": template}})).must(200)
    (left,) = said["spec"]["template"]["spec"]["containers"]
    assert left["image"] == "i:2" and "env" not in left and left["terminationMessagePolicy"] == "File"
    owned = _entry(said, "me")["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert owned["f:ports"] == {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}


@check(
    "kubectl goes over from client-side apply without a conflict: its annotation says what was its own.",
    area=AREA,
    breaks=replaced("patch.apply:_said_before", lambda live, resource: set(), "reads no annotation"),
)
async def migrated(yard: Subject) -> None:
    last = '{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"one"}}'
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": last}
    await yard.map("one", data={"a": "1", "b": "1"}, annotations=annotations)
    path = yard.at("configmaps", "one")
    said = (await _apply(yard, path, _map({"a": "2"}), "kubectl")).must(200)
    assert said["data"] == {"a": "2", "b": "1"}
    (await _apply(yard, path, _map({"a": "2", "b": "2"}), "kubectl")).refused(409, "Conflict", ".data.b")
