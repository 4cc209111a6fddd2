"""Definitions of custom resources: how they come, change, serve and go."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, original, replaced, sets, without
from trainyard.testing.check_server.subject import Kind

AREA = "definitions"
LOOSE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NUMBERED: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "word": {"type": "string"}, "when": {"type": "string"}},
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
    },
}


def version(name: str = "v1", schema: Json | None = None, **more: Any) -> Json:
    first = {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or LOOSE}}
    return {**first, **more}


def at(kind: Kind) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.name}"


async def conditions(yard: Subject, path: str) -> dict[str, Json]:
    crd = (await yard.ask("GET", path)).must(200)
    return {one["type"]: one for one in crd["status"].get("conditions") or ()}


@check(
    "A posted definition gets listKind, singular and conversion, and is soon NamesAccepted and Established.",
    area=AREA,
    breaks=without("status.conditions"),
)
async def established(yard: Subject) -> None:
    kind = await yard.crd(names={"plural": "things", "kind": "Thing"})
    spec = kind.definition["spec"]
    assert spec["names"]["listKind"] == "ThingList" and spec["names"]["singular"] == "thing"
    assert spec["conversion"] == {"strategy": "None"}
    assert kind.definition["status"]["storedVersions"] == ["v1"]
    found = await conditions(yard, at(kind))
    assert (found["NamesAccepted"]["status"], found["NamesAccepted"]["reason"]) == ("True", "NoConflicts")
    assert (found["Established"]["status"], found["Established"]["reason"]) == ("True", "InitialNamesAccepted")
    accepted = (await yard.ask("GET", at(kind))).must(200)["status"]["acceptedNames"]
    assert accepted["plural"] == "things" and accepted["kind"] == "Thing"


@check(
    "A definition whose kind another one of the group has is accepted, says KindConflict, and is not served.",
    area=AREA,
    breaks=replaced("crd.names:_taken", lambda crd, site: iter(())),
)
async def names_taken(yard: Subject) -> None:
    kind = await yard.crd()
    other = {**kind.definition["spec"], "names": {"plural": "others", "kind": "Thing", "listKind": "OtherList"}}
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"others.{kind.group}"},
        "spec": other,
    }
    path = yard.at("customresourcedefinitions", f"others.{kind.group}")
    yard.remove(path)
    (await yard.ask("POST", yard.at("customresourcedefinitions"), obj)).must(201)

    async def judged() -> bool:
        return "NamesAccepted" in await conditions(yard, path)

    await yard.until(judged)
    found = await conditions(yard, path)
    assert (found["NamesAccepted"]["status"], found["NamesAccepted"]["reason"]) == ("False", "KindConflict")
    assert (found["Established"]["status"], found["Established"]["reason"]) == ("False", "NotAccepted")
    assert (await yard.ask("GET", kind.collection.replace("/things", "/others"))).code == 404


@check("A name that is not plural.group is refused at metadata.name.", area=AREA, breaks=answers(422, 201))
async def misnamed(yard: Subject) -> None:
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "wrong.example.org"},
        "spec": {
            "group": "x.example.org",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version()],
        },
    }
    path = yard.at("customresourcedefinitions")
    said = (await yard.ask("POST", path, obj, dryRun="All")).refused(422, "Invalid", "must be spec.names.plural")
    assert [one["field"] for one in said["details"]["causes"]] == ["metadata.name"]


@check(
    "Two versions of a definition are one object; each is answered in its own apiVersion.",
    area=AREA,
    breaks=replaced("crd.definitions:_as_version", lambda api_version: lambda obj: obj),
)
async def two_versions(yard: Subject) -> None:
    kind = await yard.crd(versions=[version(), version("v2", storage=False)])
    made = (await yard.ask("POST", kind.path(), kind.obj("a", spec={"x": 1}))).must(201)
    newer = kind.path("a").replace("/v1/", "/v2/")

    async def served() -> bool:
        return (await yard.ask("GET", newer)).code == 200

    await yard.until(served)
    seen = (await yard.ask("GET", newer)).must(200)
    assert seen["apiVersion"] == f"{kind.group}/v2" and seen["metadata"]["uid"] == made["metadata"]["uid"]
    changed = (await yard.ask("PATCH", newer, {"spec": {"x": 2}})).must(200)
    assert changed["apiVersion"] == f"{kind.group}/v2"
    assert (await yard.ask("GET", kind.path("a"))).must(200)["spec"] == {"x": 2}


@check(
    "A version that is not served any more is 404, and its objects are still there in the other.",
    area=AREA,
    breaks=drops("spec"),
)
async def not_served(yard: Subject) -> None:
    kind = await yard.crd(versions=[version(), version("v2", storage=False)])
    (await yard.ask("POST", kind.path(), kind.obj("a"))).must(201)
    old = [version(served=False), version("v2", storage=False)]
    (await yard.ask("PATCH", at(kind), {"spec": {"versions": old}})).must(200)
    await yard.gone(kind.path("a"))

    async def there() -> bool:
        return (await yard.ask("GET", kind.path("a").replace("/v1/", "/v2/"))).code == 200

    await yard.until(there)


@check(
    "A changed schema holds for the next write.",
    area=AREA,
    breaks=replaced("schema.compiled:Schema.validate", lambda schema, obj, path="": []),
)
async def schema_changes(yard: Subject) -> None:
    kind = await yard.crd(schema=NUMBERED)
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"word": "x"}))).must(201)
    tighter = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"word": {"type": "integer"}}}},
    }
    (await yard.ask("PATCH", at(kind), {"spec": {"versions": [version(schema=tighter)]}})).must(200)

    async def refused() -> bool:
        path = kind.path()
        return (await yard.ask("POST", path, kind.obj("b", spec={"word": "x"}), dryRun="All")).code == 422

    await yard.until(refused)


@check(
    "scope and group of a definition cannot change.", area=AREA, breaks=replaced("crd.validation:_fixed", lambda *_: ())
)
async def scope_is_fixed(yard: Subject) -> None:
    kind = await yard.crd()
    said = (await yard.ask("PATCH", at(kind), {"spec": {"scope": "Cluster"}})).refused(422, "Invalid")
    assert "spec.scope" in [one["field"] for one in said["details"]["causes"]]


@check(
    "Deleting a definition deletes its instances, waits for their finalizers, and then ends to serve.",
    area=AREA,
    breaks=replaced("registry.deletion:_close", lambda *_: None),
)
async def deletion(yard: Subject) -> None:
    kind = await yard.crd()
    held = kind.obj("held", metadata={"finalizers": ["example.org/wait"]})
    (await yard.ask("POST", kind.path(), held)).must(201)
    (await yard.ask("POST", kind.path(), kind.obj("free"))).must(201)
    (await yard.ask("DELETE", at(kind))).must(200)

    async def marked() -> bool:
        found = await yard.ask("GET", kind.path("held"))
        return "deletionTimestamp" in found.json.get("metadata", {})

    await yard.until(marked)
    crd = (await yard.ask("GET", at(kind))).must(200)
    assert crd["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert "deletionTimestamp" in crd["metadata"]
    (await yard.ask("PATCH", kind.path("held"), {"metadata": {"finalizers": None}})).must(200)
    await yard.gone(at(kind))
    await yard.gone(kind.path())


@check("Cluster-scoped resources are served without a namespace.", area=AREA, breaks=drops("spec.scope"))
async def cluster_scoped(yard: Subject) -> None:
    kind = await yard.crd(scope="Cluster")
    made = (await yard.ask("POST", kind.path(), kind.obj("a"))).must(201)
    assert "namespace" not in made["metadata"]
    inside = f"/apis/{kind.group}/v1/namespaces/{yard.namespace}/things"
    assert (await yard.ask("POST", inside, kind.obj("b"))).code == 404


@check(
    "With /status the main path leaves the status alone, and /status all else.",
    area=AREA,
    breaks=replaced(
        "registry.admission:update_status", lambda resource, obj, old: {**obj, "metadata": old["metadata"]}
    ),
)
async def status_path(yard: Subject) -> None:
    kind = await yard.crd(version={"subresources": {"status": {}}})
    made = (await yard.ask("POST", kind.path(), kind.obj("a", spec={"x": 1}, status={"y": 1}))).must(201)
    assert "status" not in made and made["metadata"]["generation"] == 1
    both = {"spec": {"x": 2}, "status": {"y": 2}, "metadata": {"labels": {"a": "b"}}}
    told = (await yard.ask("PATCH", kind.path("a", "status"), both)).must(200)
    assert told["spec"] == {"x": 1} and told["status"] == {"y": 2} and told["metadata"]["generation"] == 1
    assert "labels" not in told["metadata"]
    changed = (await yard.ask("PATCH", kind.path("a"), {**both, "status": {"y": 3}})).must(200)
    assert changed["spec"] == {"x": 2} and changed["status"] == {"y": 2} and changed["metadata"]["generation"] == 2


@check("Without /status the path is 404 and the status is a field like others.", area=AREA, breaks=answers(404, 200))
async def no_status_path(yard: Subject) -> None:
    kind = await yard.crd()
    made = (await yard.ask("POST", kind.path(), kind.obj("a", status={"y": 1}))).must(201)
    assert made["status"] == {"y": 1}
    assert (await yard.ask("GET", kind.path("a", "status"))).code == 404


_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


@check(
    "/scale shows the numbers at the definition's paths, and a change of it is a change of the spec.",
    area=AREA,
    breaks=replaced("registry.scale:with_replicas", lambda scaled, obj, number: dict(obj)),
)
async def scale(yard: Subject) -> None:
    kind = await yard.crd(schema=NUMBERED, version={"subresources": {"status": {}, "scale": _SCALE}})
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"replicas": 2}))).must(201)
    told = {"status": {"replicas": 1, "selector": "a=b"}}
    (await yard.ask("PATCH", kind.path("a", "status"), told)).must(200)
    seen = (await yard.ask("GET", kind.path("a", "scale"))).must(200)
    assert seen["kind"] == "Scale" and seen["apiVersion"] == "autoscaling/v1"
    assert seen["spec"] == {"replicas": 2} and seen["status"] == {"replicas": 1, "selector": "a=b"}
    changed = (await yard.ask("PATCH", kind.path("a", "scale"), {"spec": {"replicas": 5}})).must(200)
    assert changed["spec"] == {"replicas": 5}
    after = (await yard.ask("GET", kind.path("a"))).must(200)
    assert after["spec"]["replicas"] == 5 and after["metadata"]["generation"] == 2


@check("/scale refuses a number below zero.", area=AREA, breaks=answers(422, 200))
async def negative_scale(yard: Subject) -> None:
    kind = await yard.crd(schema=NUMBERED, version={"subresources": {"scale": _SCALE}})
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"replicas": 2}))).must(201)
    said = (await yard.ask("PATCH", kind.path("a", "scale"), {"spec": {"replicas": -1}})).refused(422, "Invalid")
    assert "spec.replicas: Invalid value: -1" in said["message"]


_COLUMNS = [
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "description": "how many"},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    {"name": "Word", "type": "string", "jsonPath": ".spec.word", "priority": 1, "format": "password"},
]


@check(
    "A Table of a custom resource has Name and the columns of its definition, with types, formats and priorities.",
    area=AREA,
    breaks=replaced("crd.definitions:_columns", lambda version: original("crd.definitions:_columns")({})),
)
async def columns(yard: Subject) -> None:
    kind = await yard.crd(schema=NUMBERED, version={"additionalPrinterColumns": _COLUMNS})
    spec = {"replicas": 3, "when": "2001-02-03T04:05:06Z", "word": "x"}
    (await yard.ask("POST", kind.path(), kind.obj("a", spec=spec))).must(201)
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = (await yard.ask("GET", kind.path(), headers=accept)).must(200)
    heads = [(one["name"], one["type"], one["format"], one["priority"]) for one in table["columnDefinitions"]]
    assert heads == [
        ("Name", "string", "name", 0),
        ("Replicas", "integer", "", 0),
        ("When", "date", "", 0),
        ("Word", "string", "password", 1),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[0] == "a" and cells[1] == 3 and cells[3] == "x" and cells[2].endswith("y")


@check(
    "Without columns of its own a custom resource shows Name and Age.",
    area=AREA,
    breaks=sets("columnDefinitions", [{"name": "Name"}]),
)
async def default_columns(yard: Subject) -> None:
    kind = await yard.crd()
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = (await yard.ask("GET", kind.path(), headers=accept)).must(200)
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Age"]


@check("Discovery knows a definition's short names, singular and categories.", area=AREA, breaks=without("resources"))
async def discovered(yard: Subject) -> None:
    names = {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]}
    kind = await yard.crd(names=names)

    async def listed() -> Any:
        found = (await yard.ask("GET", f"/apis/{kind.group}/v1")).json.get("resources") or ()
        return [one for one in found if one["name"] == "things"]

    (found,) = await yard.until(listed)
    assert found["singularName"] == "thing" and found["kind"] == "Thing" and found["namespaced"] is True
    assert found["shortNames"] == ["th"] and found["categories"] == ["all"]
    assert {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} == set(found["verbs"])


@check(
    "Selectable fields of a definition can be asked for, in lists and watches.",
    area=AREA,
    breaks=replaced("crd.definitions:_field_reader", lambda paths: lambda obj: dict.fromkeys(paths, "")),
)
async def selectable(yard: Subject) -> None:
    kind = await yard.crd(schema=NUMBERED, version={"selectableFields": [{"jsonPath": ".spec.word"}]})
    for name in ("a", "b"):
        (await yard.ask("POST", kind.path(), kind.obj(name, spec={"word": name}))).must(201)
    found = (await yard.ask("GET", kind.path(), fieldSelector="spec.word=b")).must(200)
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]
    said = await yard.ask("GET", kind.path(), fieldSelector="spec.other=b")
    assert said.code == 400
