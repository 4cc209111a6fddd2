"""Server-side apply and field ownership."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, Response, check
from tests.conformance.mutations import Mutation, answers, ignores, replaced, sets, without
from tests.support.schemas import LIST_BY_NAME
from trainyard.objects import Json

AREA = "server-side apply"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
_KEEPS_FIELDS = replaced("patch.apply:remove_paths", lambda value, *more: value, "never removes a field")
_NO_CONFLICTS = replaced(
    "patch.apply:_without_changed_paths", lambda conflicting, *more: conflicting, "detects no conflict"
)
_NO_TRACKING: Mutation = replaced("patch.apply:track_update", lambda *all: None, "does not track updates")
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "items": LIST_BY_NAME,
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


async def _apply(cluster: Cluster, path: str, obj: Json | bytes, manager: str = "me", **query: str) -> Response:
    headers = {"Content-Type": APPLY}
    return await cluster.request("PATCH", path, obj, headers=headers, fieldManager=manager, **query)


def _config_map(data: Json | None = None, **meta: Any) -> Json:
    obj: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", **meta}}
    return obj if data is None else {**obj, "data": data}


def _entry(obj: Json, manager: str, operation: str = "Apply") -> Json:
    entries = [
        entry
        for entry in obj["metadata"].get("managedFields") or ()
        if (entry["manager"], entry["operation"]) == (manager, operation)
    ]
    assert len(entries) == 1, (manager, operation, obj["metadata"].get("managedFields"))
    return dict(entries[0])


@check(
    "An apply of a missing object creates it with 201 and records the owner of its fields.",
    area=AREA,
    mutation=answers(201, 200),
)
async def creation(cluster: Cluster) -> None:
    applied = (
        await _apply(cluster, cluster.path("configmaps", "one"), _config_map({"a": "1"}, labels={"x": "y"}))
    ).expect(201)
    entry = _entry(applied, "me")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}
    assert (entry["apiVersion"], entry["fieldsType"]) == ("v1", "FieldsV1") and entry["time"].endswith("Z")


@check(
    "Repeating an apply keeps the resourceVersion.",
    area=AREA,
    mutation=replaced("registry.writes:json_equal", lambda a, b: False, "writes unchanged objects"),
)
async def unchanged_apply(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    first = (await _apply(cluster, path, _config_map({"a": "1"}))).expect(201)
    assert (await _apply(cluster, path, _config_map({"a": "1"}))).expect(200) == first


@check("An apply accepts YAML.", area=AREA, mutation=sets("data.a", "?"))
async def yaml(cluster: Cluster) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata: {a: '2026-01-01'}\n"
    applied = (await _apply(cluster, cluster.path("configmaps", "one"), body)).expect(201)
    assert applied["data"] == {"a": "2026-01-01"}


@check("A field that its owner no longer applies is removed.", area=AREA, mutation=_KEEPS_FIELDS)
async def removed_field(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1", "b": "2"}, labels={"x": "y"}))).expect(201)
    applied = (await _apply(cluster, path, _config_map({"a": "3"}))).expect(200)
    assert applied["data"] == {"a": "3"} and "labels" not in applied["metadata"]


@check("Two managers can own different fields of an object.", area=AREA, mutation=without("metadata.managedFields"))
async def two_managers(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1"}), "first")).expect(201)
    applied = (await _apply(cluster, path, _config_map({"b": "2"}), "second")).expect(200)
    assert applied["data"] == {"a": "1", "b": "2"}
    assert _entry(applied, "first")["fieldsV1"] == {"f:data": {"f:a": {}}}
    assert _entry(applied, "second")["fieldsV1"] == {"f:data": {"f:b": {}}}


@check(
    "Changing a field of another manager gives 409 with the manager and the field.", area=AREA, mutation=_NO_CONFLICTS
)
async def conflict(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1"}), "first")).expect(201)
    error = (await _apply(cluster, path, _config_map({"a": "2"}), "second")).expect_error(409, "Conflict")
    assert error["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.a"}
    assert error["details"]["causes"] == [cause]


@check("A forced apply takes over the ownership of a field.", area=AREA, mutation=ignores("force"))
async def forced(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1", "b": "1"}), "first")).expect(201)
    applied = (await _apply(cluster, path, _config_map({"a": "2"}), "second", force="true")).expect(200)
    assert applied["data"] == {"a": "2", "b": "1"}
    assert _entry(applied, "first")["fieldsV1"] == {"f:data": {"f:b": {}}}


@check("A field with two owners stays until both stop applying it.", area=AREA, mutation=_KEEPS_FIELDS)
async def shared_field(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    for manager in ("first", "second"):
        (await _apply(cluster, path, _config_map({"a": "1", manager: "x"}), manager)).expect()
    applied = (await _apply(cluster, path, _config_map({"first": "x"}), "first")).expect(200)
    assert applied["data"] == {"a": "1", "first": "x", "second": "x"}
    applied = (await _apply(cluster, path, _config_map({"second": "x"}), "second")).expect(200)
    assert applied["data"] == {"first": "x", "second": "x"}


@check("An update that changes an applied field takes over its ownership.", area=AREA, mutation=_NO_TRACKING)
async def ownership_by_update(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1", "b": "1"}))).expect(201)
    patched = (await cluster.request("PATCH", path, {"data": {"a": "2"}}, fieldManager="hand")).expect(200)
    assert _entry(patched, "hand", "Update")["fieldsV1"] == {"f:data": {"f:a": {}}}
    assert _entry(patched, "me")["fieldsV1"] == {"f:data": {"f:b": {}}}
    error = (await _apply(cluster, path, _config_map({"a": "1", "b": "1"}))).expect_error(409, "Conflict")
    assert error["message"] == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.a'


@check("An apply without fieldManager gives 422.", area=AREA, mutation=answers(422, 400))
async def missing_manager(cluster: Cluster) -> None:
    headers = {"Content-Type": APPLY}
    response = await cluster.request("PATCH", cluster.path("configmaps", "one"), _config_map(), headers=headers)
    assert response.expect_error(422, "Invalid")["details"]["causes"][0]["field"] == "fieldManager"


@check("A dry-run apply returns the result and stores nothing.", area=AREA, mutation=ignores("dryRun"))
async def dry_run(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1"}), dryRun="All")).expect(201)
    (await cluster.request("GET", path)).expect_error(404, "NotFound")
    (await _apply(cluster, path, _config_map({"a": "1"}))).expect(201)
    assert (await _apply(cluster, path, _config_map({"a": "2"}), dryRun="All")).expect(200)["data"] == {"a": "2"}
    assert (await cluster.request("GET", path)).expect(200)["data"] == {"a": "1"}


@check("An apply with an unknown field or a wrong type gives 500.", area=AREA, mutation=answers(500, 200))
async def unknown_fields(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    for obj, message in (
        ({**_config_map(), "dato": {}}, ".dato: field not declared in schema"),
        (_config_map({"a": 1}), ".data.a: expected string"),
    ):
        error = (await _apply(cluster, path, obj)).expect(500)
        assert message in error["message"], error


@check(
    "An apply with another kind or name, with managedFields, or malformed gives 400.",
    area=AREA,
    mutation=answers(400, 200),
)
async def invalid_applies(cluster: Cluster) -> None:
    path = cluster.path("configmaps", "one")
    (await _apply(cluster, path, _config_map({"a": "1"}))).expect(201)
    for obj in (
        {**_config_map(), "kind": "Secret"},
        {**_config_map(), "metadata": {"name": "two"}},
        _config_map({"a": "1"}, managedFields=[{"manager": "x"}]),
        b"a: : b",
        b"[1]",
    ):
        (await _apply(cluster, path, obj)).expect_error(400, "BadRequest")


@check("Each item of a map list and of a set has its own owner.", area=AREA, mutation=_KEEPS_FIELDS)
async def list_items(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=SCHEMA)
    path = resource.path("one")
    spec = {"items": [{"name": "a", "v": 1}, {"name": "b", "v": 1}], "words": ["x", "y"]}
    (await _apply(cluster, path, resource.obj("one", spec=spec), "first")).expect(201)
    spec = {"items": [{"name": "c", "v": 3}], "words": ["z"]}
    (await _apply(cluster, path, resource.obj("one", spec=spec), "second")).expect(200)
    spec = {"items": [{"name": "b", "v": 2}], "words": ["y"]}
    applied_spec = (await _apply(cluster, path, resource.obj("one", spec=spec), "first")).expect(200)["spec"]
    assert sorted(applied_spec["words"]) == ["y", "z"]
    assert sorted(applied_spec["items"], key=lambda item: item["name"]) == [
        {"name": "b", "v": 2},
        {"name": "c", "v": 3},
    ]
    entry = _entry((await cluster.request("GET", path)).expect(200), "second")["fieldsV1"]["f:spec"]
    assert entry == {
        "f:items": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:v": {}}},
        "f:words": {'v:"z"': {}},
    }


@check("An atomic list or map has a single owner.", area=AREA, mutation=_NO_CONFLICTS)
async def atomic_values(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=SCHEMA)
    path = resource.path("one")
    spec: Json = {"plain": ["a"], "whole": {"k": "v"}}
    applied = (await _apply(cluster, path, resource.obj("one", spec=spec), "first")).expect(201)
    assert _entry(applied, "first")["fieldsV1"] == {"f:spec": {"f:plain": {}, "f:whole": {}}}
    other_spec = {"plain": ["b"], "whole": {"l": "v"}}
    error = (await _apply(cluster, path, resource.obj("one", spec=other_spec), "second")).expect_error(409, "Conflict")
    assert sorted(cause["field"] for cause in error["details"]["causes"]) == [".spec.plain", ".spec.whole"]
    applied = (await _apply(cluster, path, resource.obj("one", spec=other_spec), "second", force="true")).expect(200)
    assert applied["spec"] == other_spec


@check("In preserved unknown fields, maps are owned per key and lists as a whole.", area=AREA, mutation=_KEEPS_FIELDS)
async def preserved_fields(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=SCHEMA)
    path = resource.path("one")
    spec = {"free": {"a": {"b": [1, 2], "c": 1}}}
    applied = (await _apply(cluster, path, resource.obj("one", spec=spec))).expect(201)
    assert _entry(applied, "me")["fieldsV1"] == {"f:spec": {"f:free": {"f:a": {".": {}, "f:b": {}, "f:c": {}}}}}
    spec = {"free": {"a": {"b": [3]}}}
    assert (await _apply(cluster, path, resource.obj("one", spec=spec))).expect(200)["spec"] == spec


@check(
    "The status is applied through /status, with its own managedFields entry.",
    area=AREA,
    mutation=replaced(
        "patch.apply:_own", lambda resource, sent, manager: set(sent), "does not separate the fields of /status"
    ),
)
async def status(cluster: Cluster) -> None:
    resource = await cluster.create_crd(schema=SCHEMA, version={"subresources": {"status": {}}})
    path = resource.path("one")
    obj = resource.obj("one", spec={"n": 1}, status={"phase": "x"})
    applied = (await _apply(cluster, path, obj)).expect(201)
    assert "status" not in applied and _entry(applied, "me")["fieldsV1"] == {"f:spec": {"f:n": {}}}
    obj = resource.obj("one", spec={"n": 7}, status={"phase": "x", "n": 1})
    applied = (await _apply(cluster, resource.path("one", "status"), obj, "other")).expect(200)
    assert applied["spec"] == {"n": 1} and applied["status"] == {"phase": "x", "n": 1}
    entry = _entry(applied, "other")
    assert entry["subresource"] == "status" and entry["fieldsV1"] == {"f:status": {"f:n": {}, "f:phase": {}}}
    applied = (
        await _apply(cluster, resource.path("one", "status"), resource.obj("one", status={"n": 1}), "other")
    ).expect(200)
    assert applied["status"] == {"n": 1}


@check("An apply of a Deployment removes fields that are no longer in the manifest.", area=AREA, mutation=_KEEPS_FIELDS)
async def deployment(cluster: Cluster) -> None:
    path = cluster.path("deployments", "one")
    main_container: Json = {
        "name": "main",
        "image": "i:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}],
    }
    labels = {"app": "x"}
    spec: Json = {"replicas": 0, "selector": {"matchLabels": labels}}
    template: Json = {
        "metadata": {"labels": labels},
        "spec": {"containers": [main_container, {"name": "side", "image": "j"}]},
    }
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}}
    (await _apply(cluster, path, {**obj, "spec": {**spec, "template": template}})).expect(201)
    template = {
        **template,
        "spec": {"containers": [{"name": "main", "image": "i:2", "ports": main_container["ports"]}]},
    }
    applied = (await _apply(cluster, path, {**obj, "spec": {**spec, "template": template}})).expect(200)
    (container,) = applied["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "i:2" and "env" not in container and container["terminationMessagePolicy"] == "File"
    owned_fields = _entry(applied, "me")["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"][
        'k:{"name":"main"}'
    ]
    assert owned_fields["f:ports"] == {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}


@check(
    "kubectl migrates from client-side apply without conflicts, by its last-applied annotation.",
    area=AREA,
    mutation=replaced(
        "patch.apply:_last_applied_paths", lambda live, resource: set(), "ignores the last-applied annotation"
    ),
)
async def migrated(cluster: Cluster) -> None:
    last_applied = '{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"one"}}'
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": last_applied}
    await cluster.create_config_map("one", data={"a": "1", "b": "1"}, annotations=annotations)
    path = cluster.path("configmaps", "one")
    applied = (await _apply(cluster, path, _config_map({"a": "2"}), "kubectl")).expect(200)
    assert applied["data"] == {"a": "2", "b": "1"}
    (await _apply(cluster, path, _config_map({"a": "2", "b": "2"}), "kubectl")).expect_error(409, "Conflict", ".data.b")
