"""CustomResourceDefinitions: creation, changes, serving and deletion."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.cluster import CustomResource
from tests.conformance.mutations import answers, drops, original, replaced, sets, without
from trainyard.objects import Json
from trainyard.server.registry.admission import Result

AREA = "definitions"
ANY_OBJECT: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
REPLICAS_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "word": {"type": "string"}, "when": {"type": "string"}},
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
    },
}


def crd_version(name: str = "v1", schema: Json | None = None, **more: Any) -> Json:
    base = {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or ANY_OBJECT}}
    return {**base, **more}


def crd_path(resource: CustomResource) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.name}"


async def conditions_of(cluster: Cluster, path: str) -> dict[str, Json]:
    crd = (await cluster.request("GET", path)).expect(200)
    return {condition["type"]: condition for condition in crd["status"].get("conditions") or ()}


@check(
    "A new definition gets default names and conversion, then the conditions NamesAccepted and Established.",
    area=AREA,
    mutation=without("status.conditions"),
)
async def established(cluster: Cluster) -> None:
    resource = await cluster.create_crd(names={"plural": "things", "kind": "Thing"})
    spec = resource.definition["spec"]
    assert spec["names"]["listKind"] == "ThingList" and spec["names"]["singular"] == "thing"
    assert spec["conversion"] == {"strategy": "None"}
    assert resource.definition["status"]["storedVersions"] == ["v1"]
    by_type = await conditions_of(cluster, crd_path(resource))
    assert (by_type["NamesAccepted"]["status"], by_type["NamesAccepted"]["reason"]) == ("True", "NoConflicts")
    assert (by_type["Established"]["status"], by_type["Established"]["reason"]) == ("True", "InitialNamesAccepted")
    accepted = (await cluster.request("GET", crd_path(resource))).expect(200)["status"]["acceptedNames"]
    assert accepted["plural"] == "things" and accepted["kind"] == "Thing"


@check(
    "A definition with an existing kind of its group is stored, gets reason KindConflict, and is not served.",
    area=AREA,
    mutation=replaced("crd.names:_taken", lambda crd, context: iter(())),
)
async def names_taken(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    conflicting_spec = {
        **resource.definition["spec"],
        "names": {"plural": "others", "kind": "Thing", "listKind": "OtherList"},
    }
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"others.{resource.group}"},
        "spec": conflicting_spec,
    }
    path = cluster.path("customresourcedefinitions", f"others.{resource.group}")
    cluster.delete_at_end(path)
    (await cluster.request("POST", cluster.path("customresourcedefinitions"), obj)).expect(201)

    async def names_checked() -> bool:
        return "NamesAccepted" in await conditions_of(cluster, path)

    await cluster.wait_until(names_checked)
    by_type = await conditions_of(cluster, path)
    assert (by_type["NamesAccepted"]["status"], by_type["NamesAccepted"]["reason"]) == ("False", "KindConflict")
    assert (by_type["Established"]["status"], by_type["Established"]["reason"]) == ("False", "NotAccepted")
    assert (await cluster.request("GET", resource.collection.replace("/things", "/others"))).code == 404


@check(
    "A definition that is not named `plural.group` is rejected at metadata.name.", area=AREA, mutation=answers(422, 201)
)
async def wrong_name(cluster: Cluster) -> None:
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "wrong.example.org"},
        "spec": {
            "group": "x.example.org",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [crd_version()],
        },
    }
    path = cluster.path("customresourcedefinitions")
    error = (await cluster.request("POST", path, obj, dryRun="All")).expect_error(
        422, "Invalid", "must be spec.names.plural"
    )
    assert [cause["field"] for cause in error["details"]["causes"]] == ["metadata.name"]


@check(
    "An object is served in all versions of its definition, each with its own apiVersion.",
    area=AREA,
    mutation=replaced("crd.definitions:_as_version", lambda api_version: lambda obj: obj),
)
async def two_versions(cluster: Cluster) -> None:
    resource = await cluster.create_crd(versions=[crd_version(), crd_version("v2", storage=False)])
    created = (await cluster.request("POST", resource.path(), resource.obj("a", spec={"x": 1}))).expect(201)
    v2_path = resource.path("a").replace("/v1/", "/v2/")

    async def served() -> bool:
        return (await cluster.request("GET", v2_path)).code == 200

    await cluster.wait_until(served)
    obj = (await cluster.request("GET", v2_path)).expect(200)
    assert obj["apiVersion"] == f"{resource.group}/v2" and obj["metadata"]["uid"] == created["metadata"]["uid"]
    changed = (await cluster.request("PATCH", v2_path, {"spec": {"x": 2}})).expect(200)
    assert changed["apiVersion"] == f"{resource.group}/v2"
    assert (await cluster.request("GET", resource.path("a"))).expect(200)["spec"] == {"x": 2}


@check(
    "A version that is no longer served gives 404; its objects remain in the other versions.",
    area=AREA,
    mutation=drops("spec"),
)
async def not_served(cluster: Cluster) -> None:
    resource = await cluster.create_crd(versions=[crd_version(), crd_version("v2", storage=False)])
    (await cluster.request("POST", resource.path(), resource.obj("a"))).expect(201)
    versions = [crd_version(served=False), crd_version("v2", storage=False)]
    (await cluster.request("PATCH", crd_path(resource), {"spec": {"versions": versions}})).expect(200)
    await cluster.wait_gone(resource.path("a"))

    async def is_served() -> bool:
        return (await cluster.request("GET", resource.path("a").replace("/v1/", "/v2/"))).code == 200

    await cluster.wait_until(is_served)


@check(
    "A changed schema applies to subsequent writes.",
    area=AREA,
    mutation=replaced("schema.compiled:Schema.validate", lambda schema, obj, path="": []),
)
async def schema_changes(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=REPLICAS_SCHEMA)
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"word": "x"}))).expect(201)
    stricter_schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"word": {"type": "integer"}}}},
    }
    (
        await cluster.request(
            "PATCH", crd_path(resource), {"spec": {"versions": [crd_version(schema=stricter_schema)]}}
        )
    ).expect(200)

    async def is_rejected() -> bool:
        path = resource.path()
        return (await cluster.request("POST", path, resource.obj("b", spec={"word": "x"}), dryRun="All")).code == 422

    await cluster.wait_until(is_rejected)


@check(
    "scope and group of a definition cannot change.",
    area=AREA,
    mutation=replaced("crd.validation:_fixed", lambda *_: ()),
)
async def scope_is_fixed(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    error = (await cluster.request("PATCH", crd_path(resource), {"spec": {"scope": "Cluster"}})).expect_error(
        422, "Invalid"
    )
    assert "spec.scope" in [cause["field"] for cause in error["details"]["causes"]]


@check(
    "Deleting a definition deletes its objects, waits for their finalizers, and then stops serving them.",
    area=AREA,
    mutation=replaced("registry.deletion:_close", lambda *_: None),
)
async def deletion(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    obj_with_finalizer = resource.obj("held", metadata={"finalizers": ["example.org/wait"]})
    (await cluster.request("POST", resource.path(), obj_with_finalizer)).expect(201)
    (await cluster.request("POST", resource.path(), resource.obj("free"))).expect(201)
    (await cluster.request("DELETE", crd_path(resource))).expect(200)

    async def is_marked() -> bool:
        response = await cluster.request("GET", resource.path("held"))
        return "deletionTimestamp" in response.json.get("metadata", {})

    await cluster.wait_until(is_marked)
    crd = (await cluster.request("GET", crd_path(resource))).expect(200)
    assert crd["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert "deletionTimestamp" in crd["metadata"]
    (await cluster.request("PATCH", resource.path("held"), {"metadata": {"finalizers": None}})).expect(200)
    await cluster.wait_gone(crd_path(resource))
    await cluster.wait_gone(resource.path())


@check("Cluster-scoped resources are served without a namespace.", area=AREA, mutation=drops("spec.scope"))
async def cluster_scoped(cluster: Cluster) -> None:
    resource = await cluster.create_crd(scope="Cluster")
    created = (await cluster.request("POST", resource.path(), resource.obj("a"))).expect(201)
    assert "namespace" not in created["metadata"]
    namespaced_path = f"/apis/{resource.group}/v1/namespaces/{cluster.namespace}/things"
    assert (await cluster.request("POST", namespaced_path, resource.obj("b"))).code == 404


@check(
    "With a status subresource, a write to the object ignores the status, and /status everything else.",
    area=AREA,
    mutation=replaced(
        "registry.admission:update_status",
        lambda resource, sent, old: Result({**sent.object, "metadata": old["metadata"]}),
    ),
)
async def status_path(cluster: Cluster) -> None:
    resource = await cluster.create_crd(version={"subresources": {"status": {}}})
    created = (
        await cluster.request("POST", resource.path(), resource.obj("a", spec={"x": 1}, status={"y": 1}))
    ).expect(201)
    assert "status" not in created and created["metadata"]["generation"] == 1
    patch = {"spec": {"x": 2}, "status": {"y": 2}, "metadata": {"labels": {"a": "b"}}}
    status_updated = (await cluster.request("PATCH", resource.path("a", "status"), patch)).expect(200)
    assert (
        status_updated["spec"] == {"x": 1}
        and status_updated["status"] == {"y": 2}
        and status_updated["metadata"]["generation"] == 1
    )
    assert "labels" not in status_updated["metadata"]
    updated = (await cluster.request("PATCH", resource.path("a"), {**patch, "status": {"y": 3}})).expect(200)
    assert updated["spec"] == {"x": 2} and updated["status"] == {"y": 2} and updated["metadata"]["generation"] == 2


@check(
    "Without a status subresource, /status gives 404 and the status is an ordinary field.",
    area=AREA,
    mutation=answers(404, 200),
)
async def no_status_path(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    created = (await cluster.request("POST", resource.path(), resource.obj("a", status={"y": 1}))).expect(201)
    assert created["status"] == {"y": 1}
    assert (await cluster.request("GET", resource.path("a", "status"))).code == 404


_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


@check(
    "/scale reads the definition's replica paths, and an update of it changes the spec.",
    area=AREA,
    mutation=replaced("registry.scale:with_replicas", lambda scaled, obj, number: dict(obj)),
)
async def scale(cluster: Cluster) -> None:
    resource = await cluster.create_crd(
        schema=REPLICAS_SCHEMA, version={"subresources": {"status": {}, "scale": _SCALE}}
    )
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"replicas": 2}))).expect(201)
    status_patch = {"status": {"replicas": 1, "selector": "a=b"}}
    (await cluster.request("PATCH", resource.path("a", "status"), status_patch)).expect(200)
    scale = (await cluster.request("GET", resource.path("a", "scale"))).expect(200)
    assert scale["kind"] == "Scale" and scale["apiVersion"] == "autoscaling/v1"
    assert scale["spec"] == {"replicas": 2} and scale["status"] == {"replicas": 1, "selector": "a=b"}
    scaled = (await cluster.request("PATCH", resource.path("a", "scale"), {"spec": {"replicas": 5}})).expect(200)
    assert scaled["spec"] == {"replicas": 5}
    obj = (await cluster.request("GET", resource.path("a"))).expect(200)
    assert obj["spec"]["replicas"] == 5 and obj["metadata"]["generation"] == 2


@check("/scale rejects negative replicas.", area=AREA, mutation=answers(422, 200))
async def negative_scale(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=REPLICAS_SCHEMA, version={"subresources": {"scale": _SCALE}})
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"replicas": 2}))).expect(201)
    error = (await cluster.request("PATCH", resource.path("a", "scale"), {"spec": {"replicas": -1}})).expect_error(
        422, "Invalid"
    )
    assert "spec.replicas: Invalid value: -1" in error["message"]


_COLUMNS = [
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "description": "how many"},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    {"name": "Word", "type": "string", "jsonPath": ".spec.word", "priority": 1, "format": "password"},
]


@check(
    "A Table of custom objects has Name and the printer columns, with types, formats and priorities.",
    area=AREA,
    mutation=replaced("crd.definitions:_columns", lambda version: original("crd.definitions:_columns")({})),
)
async def columns(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=REPLICAS_SCHEMA, version={"additionalPrinterColumns": _COLUMNS})
    spec = {"replicas": 3, "when": "2001-02-03T04:05:06Z", "word": "x"}
    (await cluster.request("POST", resource.path(), resource.obj("a", spec=spec))).expect(201)
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = (await cluster.request("GET", resource.path(), headers=accept)).expect(200)
    headers = [
        (column["name"], column["type"], column["format"], column["priority"]) for column in table["columnDefinitions"]
    ]
    assert headers == [
        ("Name", "string", "name", 0),
        ("Replicas", "integer", "", 0),
        ("When", "date", "", 0),
        ("Word", "string", "password", 1),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[0] == "a" and cells[1] == 3 and cells[3] == "x" and cells[2].endswith("y")


@check(
    "Without printer columns a Table of custom objects has Name and Age.",
    area=AREA,
    mutation=sets("columnDefinitions", [{"name": "Name"}]),
)
async def default_columns(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = (await cluster.request("GET", resource.path(), headers=accept)).expect(200)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]


@check(
    "Discovery has the short names, singular and categories of a definition.", area=AREA, mutation=without("resources")
)
async def discovered(cluster: Cluster) -> None:
    names = {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]}
    resource = await cluster.create_crd(names=names)

    async def listed_resource() -> Any:
        resources = (await cluster.request("GET", f"/apis/{resource.group}/v1")).json.get("resources") or ()
        return [resource_entry for resource_entry in resources if resource_entry["name"] == "things"]

    (discovered,) = await cluster.wait_until(listed_resource)
    assert discovered["singularName"] == "thing" and discovered["kind"] == "Thing" and discovered["namespaced"] is True
    assert discovered["shortNames"] == ["th"] and discovered["categories"] == ["all"]
    assert {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} == set(
        discovered["verbs"]
    )


@check(
    "Field selectors support the selectable fields of a definition; others give 400.",
    area=AREA,
    mutation=replaced("crd.definitions:_field_reader", lambda paths: lambda obj: dict.fromkeys(paths, "")),
)
async def selectable(cluster: Cluster) -> None:
    resource = await cluster.create_crd(
        schema=REPLICAS_SCHEMA, version={"selectableFields": [{"jsonPath": ".spec.word"}]}
    )
    for name in ("a", "b"):
        (await cluster.request("POST", resource.path(), resource.obj(name, spec={"word": name}))).expect(201)
    selected = (await cluster.request("GET", resource.path(), fieldSelector="spec.word=b")).expect(200)
    assert [item["metadata"]["name"] for item in selected["items"]] == ["b"]
    response = await cluster.request("GET", resource.path(), fieldSelector="spec.other=b")
    assert response.code == 400
