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


async def offered(yard: Subject, schema: Json | None = None, **spec: Any) -> tuple[int, set[tuple[str, str]]]:
    """The answer to a definition that is not kept: the code, and of its causes field and reason."""
    group = f"{yard.name('g')}.example.org"
    names = {"plural": "things", "kind": "Thing"}
    whole = {"group": group, "scope": "Namespaced", "names": names, "versions": [version(schema=schema)], **spec}
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{whole['names'].get('plural')}.{whole['group']}"},
        "spec": whole,
    }
    reply = await yard.ask("POST", yard.at("customresourcedefinitions"), obj, dryRun="All")
    causes = (reply.json.get("details") or {}).get("causes") or ()
    return reply.code, {(one["field"], one["reason"].removeprefix("FieldValue")) for one in causes}


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
    breaks=replaced("naming:_taken", lambda crd, site: iter(())),
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
    "Exactly one version is stored, no two have the same name, and each has a schema.",
    area=AREA,
    breaks=replaced("examining:_versions", lambda spec: iter(())),
)
async def versions(yard: Subject) -> None:
    both = [version(), version("v2")]
    assert ("spec.versions", "Invalid") in (await offered(yard, versions=both))[1]
    none = [version(storage=False)]
    assert ("spec.versions", "Invalid") in (await offered(yard, versions=none))[1]
    twins = [version(), version(storage=False)]
    assert await offered(yard, versions=twins) == (422, {("spec.versions", "Invalid")})
    bare = [{"name": "v1", "served": True, "storage": True}]
    wanted = {("spec.versions[0].schema.openAPIV3Schema", "Required")}
    assert await offered(yard, versions=bare) == (422, wanted)


@check(
    "Bad names are refused where they stand: scope, version, short names, categories.", area=AREA, breaks=drops("spec")
)
async def bad_names(yard: Subject) -> None:
    assert await offered(yard, scope="Odd") == (422, {("spec.scope", "NotSupported")})
    assert ("spec.versions[0].name", "Invalid") in (await offered(yard, versions=[version("V1")]))[1]
    for word, name in (("shortNames", "A"), ("categories", "A b")):
        names = {"plural": "things", "kind": "Thing", word: [name]}
        assert await offered(yard, names=names) == (422, {(f"spec.names.{word}[0]", "Invalid")})


@check(
    "A group of Kubernetes' own (k8s.io) needs the annotation that says it was approved.",
    area=AREA,
    breaks=replaced("examining:PROTECTED", ("nobody",)),
)
async def protected(yard: Subject) -> None:
    wanted = {("metadata.annotations[api-approved.kubernetes.io]", "Required")}
    assert await offered(yard, group="foo.k8s.io") == (422, wanted)


_PLACE = "spec.validation.openAPIV3Schema"
_SPEC = f"{_PLACE}.properties[spec]"
NOT_STRUCTURAL: tuple[tuple[Json, str, str], ...] = (
    ({"properties": {}}, f"{_PLACE}.type", "Required"),
    ({"type": "string"}, f"{_PLACE}.type", "Invalid"),
    ({"type": "object", "properties": {"spec": {"properties": {}}}}, f"{_SPEC}.type", "Required"),
    ({"type": "object", "properties": {"spec": {"type": "text"}}}, f"{_SPEC}.type", "NotSupported"),
    ({"type": "object", "properties": {"spec": {"type": "array"}}}, f"{_SPEC}.items", "Required"),
    ({"type": "object", "properties": {"spec": {"$ref": "#/x"}}}, f"{_SPEC}.$ref", "Forbidden"),
    (
        {"type": "object", "properties": {"spec": {"type": "string", "pattern": "("}}},
        f"{_SPEC}.pattern",
        "Invalid",
    ),
    (
        {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"a": LOOSE}, "additionalProperties": {"type": "string"}}
            },
        },
        f"{_SPEC}.additionalProperties",
        "Forbidden",
    ),
    (
        {"type": "object", "properties": {"spec": {"type": "string", "anyOf": [{"type": "string"}]}}},
        f"{_SPEC}.anyOf[0].type",
        "Forbidden",
    ),
    (
        {
            "type": "object",
            "properties": {"spec": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}},
        },
        f"{_SPEC}.uniqueItems",
        "Forbidden",
    ),
    (
        {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": LOOSE}}}},
        f"{_PLACE}.properties[metadata]",
        "Forbidden",
    ),
)


@check(
    "A schema that is not structural is refused at the place in the schema.",
    area=AREA,
    breaks=replaced("examining:structure_problems", lambda schema, path: []),
)
async def structural(yard: Subject) -> None:
    for schema, place, reason in NOT_STRUCTURAL:
        assert await offered(yard, schema) == (422, {(place, reason)}), schema


_ITEM: Json = {"type": "object", "properties": {"n": {"type": "string"}}}
BAD_LISTS: tuple[tuple[Json, str, str], ...] = (
    ({"type": "string", "x-kubernetes-list-type": "set"}, "type", "Invalid"),
    (
        {"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}},
        "x-kubernetes-list-type",
        "NotSupported",
    ),
    ({"type": "array", "x-kubernetes-list-type": "map", "items": _ITEM}, "x-kubernetes-list-map-keys", "Required"),
    (
        {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["m"], "items": _ITEM},
        "x-kubernetes-list-map-keys",
        "Invalid",
    ),
    (
        {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": _ITEM},
        "items.properties[n].default",
        "Required",
    ),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": _ITEM}, "items.x-kubernetes-map-type", "Invalid"),
)


@check(
    "A list that is a map names keys that its items have, and a set has plain items.",
    area=AREA,
    breaks=replaced("schema.structural:_lists", lambda schema, path: iter(())),
)
async def list_types(yard: Subject) -> None:
    for part, place, reason in BAD_LISTS:
        schema = {"type": "object", "properties": {"spec": part}}
        assert await offered(yard, schema) == (422, {(f"{_SPEC}.{place}", reason)}), part


@check(
    "A default that its own schema does not take is refused.",
    area=AREA,
    breaks=replaced("schema.structural:_all_defaults", lambda schema, path: iter(())),
)
async def bad_defaults(yard: Subject) -> None:
    for part, reason in (
        ({"type": "string", "default": 5}, "TypeInvalid"),
        ({"type": "string", "default": "z", "enum": ["a"]}, "NotSupported"),
        ({"type": "object", "default": {"z": 1}, "properties": {"x": {"type": "string"}}}, "Invalid"),
    ):
        schema = {"type": "object", "properties": {"spec": part}}
        assert await offered(yard, schema) == (422, {(f"{_SPEC}.default", reason)}), part


@check(
    "Columns and selectable fields have known types and paths that start with a dot.",
    area=AREA,
    breaks=replaced("examining:_columns", lambda *_: iter(())),
)
async def bad_columns(yard: Subject) -> None:
    column = {"name": "A", "type": "string", "jsonPath": ".spec.a"}
    for change, place in (
        ({"type": "text"}, "type"),
        ({"format": "x"}, "format"),
        ({"jsonPath": "spec.a"}, "JSONPath"),
    ):
        wrong = [version(additionalPrinterColumns=[{**column, **change}])]
        wanted = {(f"spec.additionalPrinterColumns[0].{place}", "Invalid")}
        assert await offered(yard, versions=wrong) == (422, wanted), change
    missing = [version(schema=NUMBERED, selectableFields=[{"jsonPath": ".spec.none"}])]
    assert await offered(yard, versions=missing) == (422, {("spec.selectableFields[0].jsonPath", "Invalid")})


@check(
    "The paths of /scale are needed and lead into spec and status.",
    area=AREA,
    breaks=replaced("examining:_subresources", lambda *_: iter(())),
)
async def bad_scale(yard: Subject) -> None:
    place = "spec.subresources.scale"
    empty = {(f"{place}.specReplicasPath", "Required"), (f"{place}.statusReplicasPath", "Required")}
    assert await offered(yard, versions=[version(subresources={"scale": {}})]) == (422, empty)
    paths = {"specReplicasPath": ".foo.a", "statusReplicasPath": ".status.a"}
    wrong = [version(subresources={"scale": paths})]
    assert await offered(yard, versions=wrong) == (422, {(f"{place}.specReplicasPath", "Invalid")})


@check(
    "Two versions of a definition are one object; each is answered in its own apiVersion.",
    area=AREA,
    breaks=replaced("definitions:_as_version", lambda api_version: lambda obj: obj),
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


@check("scope and group of a definition cannot change.", area=AREA, breaks=replaced("examining:_fixed", lambda *_: ()))
async def scope_is_fixed(yard: Subject) -> None:
    kind = await yard.crd()
    said = (await yard.ask("PATCH", at(kind), {"spec": {"scope": "Cluster"}})).refused(422, "Invalid")
    assert "spec.scope" in [one["field"] for one in said["details"]["causes"]]


@check(
    "Deleting a definition deletes its instances, waits for their finalizers, and then ends to serve.",
    area=AREA,
    breaks=replaced("deletion:_close", lambda *_: None),
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
    breaks=replaced("admission:update_status", lambda resource, obj, old: {**obj, "metadata": old["metadata"]}),
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
    breaks=replaced("scale:applied", lambda scaled, obj, number: dict(obj)),
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
    breaks=replaced("definitions:_columns", lambda version: original("definitions:_columns")({})),
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
    breaks=replaced("definitions:_field_reader", lambda paths: lambda obj: dict.fromkeys(paths, "")),
)
async def selectable(yard: Subject) -> None:
    kind = await yard.crd(schema=NUMBERED, version={"selectableFields": [{"jsonPath": ".spec.word"}]})
    for name in ("a", "b"):
        (await yard.ask("POST", kind.path(), kind.obj(name, spec={"word": name}))).must(201)
    found = (await yard.ask("GET", kind.path(), fieldSelector="spec.word=b")).must(200)
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]
    said = await yard.ask("GET", kind.path(), fieldSelector="spec.other=b")
    assert said.code == 400
