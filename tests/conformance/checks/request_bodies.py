"""Request bodies: malformed, of the wrong type, too large, with unknown fields; names and metadata."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, Response, check
from tests.conformance.checks.crud import config_map
from tests.conformance.mutations import answers, ignores, replaced, sets, without, without_header

AREA = "bodies"
JSON = {"Content-Type": "application/json"}


async def post(cluster: Cluster, body: Any, headers: Any = None, **query: Any) -> Response:
    return await cluster.request("POST", cluster.path("configmaps"), body, headers=headers, **query)


@check("A body that is not a JSON object is rejected with 400.", area=AREA, mutation=answers(400, 201))
async def malformed(cluster: Cluster) -> None:
    for body in (
        b"",
        b"{",
        b"not",
        b"[1]",
        b'"x"',
        b"5",
        b'{"metadata":{"name":"x"}} x',
        b"\x00\xff",
        b'{"a":' * 11000,
    ):
        (await post(cluster, body, JSON)).expect_error(400, "BadRequest", "the object provided is unrecognized")


@check(
    "apiVersion and kind of a built-in object are optional and default to those of the path.",
    area=AREA,
    mutation=answers(201, 400),
)
async def missing_kind(cluster: Cluster) -> None:
    for name, obj in (("a", {}), ("b", {"apiVersion": "v1"}), ("c", {"kind": "ConfigMap"})):
        created = (await post(cluster, {**obj, "metadata": {"name": name}})).expect(201)
        assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")


@check("A custom object without a kind is rejected with 400.", area=AREA, mutation=answers(400, 201))
async def missing_custom_kind(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    (await cluster.request("POST", resource.path(), {"metadata": {"name": "a"}})).expect_error(
        400, "BadRequest", "is missing in"
    )


@check(
    "An object whose kind or version differs from its path is rejected with 400.", area=AREA, mutation=answers(400, 201)
)
async def other_kind(cluster: Cluster) -> None:
    (await post(cluster, {**config_map("x"), "kind": "Secret"})).expect_error(400, "BadRequest")
    (await post(cluster, {**config_map("x"), "apiVersion": "v2"})).expect_error(400, "BadRequest")
    resource = await cluster.create_crd()
    mismatched = {**resource.obj("x"), "apiVersion": "example.org/v1"}
    (await cluster.request("POST", resource.path(), mismatched)).expect_error(
        400, "BadRequest", "does not match the expected"
    )


@check("Metadata fields of the wrong type are rejected with 400.", area=AREA, mutation=answers(400, 201))
async def wrong_metadata(cluster: Cluster) -> None:
    for meta in (
        "x",
        {"name": 5},
        {"name": "x", "labels": {"a": 1}},
        {"name": "x", "finalizers": "x"},
        {"name": "x", "labels": []},
    ):
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        (await post(cluster, obj)).expect_error(
            400, "BadRequest", 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        )


@check("An unsupported content type is rejected with 415.", area=AREA, mutation=answers(415, 201))
async def content_type(cluster: Cluster) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}'
    for media_type in ("text/plain", "application/xml", "application/octet-stream", "application/merge-patch+json"):
        (await post(cluster, body, {"Content-Type": media_type})).expect_error(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: ",
        )


@check("A content type may have a charset parameter and upper-case letters.", area=AREA, mutation=answers(201, 415))
async def charset(cluster: Cluster) -> None:
    for name, media_type in (("a", "application/json; charset=utf-8"), ("b", "Application/JSON")):
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%b"}}' % name.encode()
        (await post(cluster, body, {"Content-Type": media_type})).expect(201)


@check(
    "A patch with an unknown content type is rejected with 415, a malformed patch with 400.",
    area=AREA,
    mutation=answers(415, 200) | answers(400, 200),
)
async def patches(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    for patch_type in ("application/json", "text/plain", "application/yaml"):
        (await cluster.request("PATCH", path, b"{}", headers={"Content-Type": patch_type})).expect_error(
            415, "UnsupportedMediaType"
        )
    for patch_type, body in (
        ("merge-patch", b"{"),
        ("merge-patch", b"[]"),
        ("json-patch", b"{}"),
    ):
        headers = {"Content-Type": f"application/{patch_type}+json"}
        (await cluster.request("PATCH", path, body, headers=headers)).expect_error(400, "BadRequest")


@check("A body of more than 3 MiB is rejected with 413.", area=AREA, mutation=answers(413, 400))
async def too_large(cluster: Cluster) -> None:
    body = {**config_map("x"), "data": {"x": "a" * (3 * 1024 * 1024 + 1)}}
    for method, path in (("POST", cluster.path("configmaps")), ("PUT", cluster.path("configmaps", "x"))):
        (await cluster.request(method, path, body)).expect_error(413, "RequestEntityTooLarge", "limit is 3145728")


@check(
    "fieldValidation=Strict rejects unknown and duplicate fields with 400 and names them.",
    area=AREA,
    mutation=ignores("fieldValidation"),
)
async def strict(cluster: Cluster) -> None:
    path = cluster.path("configmaps")
    (await cluster.request("POST", path, {**config_map("x"), "foo": 1}, fieldValidation="Strict")).expect_error(
        400,
        "BadRequest",
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo"',
    )
    for duplicates in (
        rb'"a":"b","a":"c"',
        rb' "a" : "b", "a" : ":" ',
        rb'"a":"b\u003a","a":"c"',
        rb'"a":"\":","\u0061":"c"',
    ):
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{%b}}' % duplicates
        (await post(cluster, body, JSON, fieldValidation="Strict")).expect_error(
            400, "BadRequest", 'duplicate field "data.a"'
        )
    (await cluster.request("GET", f"{path}/x")).expect_error(404, "NotFound")


@check(
    "fieldValidation=Warn, the default, accepts unknown fields and reports them in Warning headers.",
    area=AREA,
    mutation=without_header("Warning"),
)
async def warn(cluster: Cluster) -> None:
    for name, query in (("a", {}), ("b", {"fieldValidation": "Warn"})):
        response = await post(cluster, {**config_map(name), "foo": 1}, **query)
        assert response.headers["warning"] == '299 - "unknown field \\"foo\\""'
        assert "foo" not in response.expect(201)


@check(
    "fieldValidation=Ignore reports nothing; an invalid value is rejected with 422.",
    area=AREA,
    mutation=ignores("fieldValidation"),
)
async def ignored(cluster: Cluster) -> None:
    response = await post(cluster, {**config_map("a"), "foo": 1}, fieldValidation="Ignore")
    assert "warning" not in response.headers and "foo" not in response.expect(201)
    error = (await post(cluster, config_map("b"), fieldValidation="Junk")).expect_error(422, "Invalid")
    assert error["details"]["causes"][0]["field"] == "fieldValidation"


@check(
    "Unknown fields of a built-in object are not stored, at any depth.",
    area=AREA,
    mutation=replaced(
        "registry.field_validation:without_unknown_fields", lambda resource, obj: obj, "stores unknown fields"
    ),
    needs=("pods",),
)
async def unknown_fields(cluster: Cluster) -> None:
    created = await cluster.create_pod(
        "one", nodeName="nowhere", foo=1, containers=[{"name": "main", "image": "busybox:1", "bar": {"x": 1}}]
    )
    assert "foo" not in created["spec"] and "bar" not in created["spec"]["containers"][0]
    patch = {"spec": {"foo": 1}, "metadata": {"bar": 1}, "baz": 1}
    patched = (await cluster.request("PATCH", cluster.path("pods", "one"), patch)).expect(200)
    assert "foo" not in patched["spec"] and "bar" not in patched["metadata"] and "baz" not in patched
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


@check("Unknown fields of a custom object are reported by path, too.", area=AREA, mutation=without_header("Warning"))
async def unknown_custom_fields(cluster: Cluster) -> None:
    spec = {"type": "object", "properties": {"a": {"type": "integer"}}}
    resource = await cluster.create_crd(schema={"type": "object", "properties": {"spec": spec}})
    response = await cluster.request("POST", resource.path(), resource.obj("a", spec={"a": 1, "b": 2}))
    assert response.headers["warning"] == '299 - "unknown field \\"spec.b\\""' and response.expect(201)["spec"] == {
        "a": 1
    }
    rejected = await cluster.request(
        "POST", resource.path(), resource.obj("b", spec={"b": 2}), fieldValidation="Strict"
    )
    rejected.expect_error(
        400, "BadRequest", 'Thing in version "v1" cannot be handled as a Thing: strict decoding error: unknown'
    )


NAMES = (
    ({"name": "Bad_Name"}, "metadata.name", "a lowercase RFC 1123 subdomain must consist of"),
    ({"name": "a" * 254}, "metadata.name", "must be no more than 253 characters"),
    ({"name": "x", "labels": {"-a": "b"}}, "metadata.labels", "name part must consist of alphanumeric characters"),
    ({"name": "x", "labels": {"a": "b!"}}, "metadata.labels", "a valid label must be an empty string or consist of"),
    ({"name": "x", "labels": {"a": "b" * 64}}, "metadata.labels", "must be no more than 63 bytes"),
    ({"name": "x", "annotations": {"a b": ""}}, "metadata.annotations", "name part must consist of"),
    ({"name": "x", "annotations": {"a": "x" * 262145}}, "metadata.annotations", "may not be more than 262144 bytes"),
    (
        {"name": "x", "finalizers": ["short"]},
        "metadata.finalizers[0]",
        "neither a standard finalizer name nor is it fully",
    ),
)


@check(
    "Invalid names, labels, annotations and finalizers are rejected with 422, with the field in the cause.",
    area=AREA,
    mutation=replaced("registry.metadata:problems", lambda *_, **__: [], "accepts any name"),
)
async def invalid_metadata(cluster: Cluster) -> None:
    for meta, field, message in NAMES:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        error = (await post(cluster, obj)).expect_error(422, "Invalid", message)
        assert error["details"]["causes"][0]["field"] == field, error
        assert error["message"].startswith(f'ConfigMap "{meta["name"]}" is invalid: {field}: ')


@check(
    "All problems of the metadata are reported at once, in the message and as causes.",
    area=AREA,
    mutation=sets("details.causes", []),
)
async def all_problems(cluster: Cluster) -> None:
    error = (await post(cluster, config_map("B", meta={"labels": {"-": "x"}, "annotations": {"-": ""}}))).expect_error(
        422, "Invalid"
    )
    assert [cause["field"] for cause in error["details"]["causes"]] == [
        "metadata.name",
        "metadata.labels",
        "metadata.annotations",
    ]
    assert error["message"].startswith('ConfigMap "B" is invalid: [metadata.name: ')


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}


@check(
    "An owner reference requires apiVersion, kind, name and uid; only one is the controller; an Event is no owner.",
    area=AREA,
    mutation=replaced("registry.metadata:_owner_problems", lambda owners: [], "accepts any owner"),
)
async def owner_references(cluster: Cluster) -> None:
    error = (await post(cluster, config_map("a", meta={"ownerReferences": [{"kind": "x"}]}))).expect_error(
        422, "Invalid"
    )
    fields = [(cause["field"], cause["reason"]) for cause in error["details"]["causes"]]
    expected = [f"metadata.ownerReferences[0].{name}" for name in ("apiVersion", "name", "uid")]
    assert fields == [(name, "FieldValueRequired") for name in expected]
    two_controllers = [{**OWNER, "controller": True}, {**OWNER, "uid": "2", "controller": True}]
    (await post(cluster, config_map("a", meta={"ownerReferences": two_controllers}))).expect_error(
        422, "Invalid", "Only one reference can have Controller set to true"
    )
    event_owner = [{**OWNER, "kind": "Event"}]
    (await post(cluster, config_map("a", meta={"ownerReferences": event_owner}))).expect_error(
        422, "Invalid", "disallowed from being an owner"
    )


@check("An invalid generateName is rejected.", area=AREA, mutation=sets("details.causes", []))
async def invalid_generate_name(cluster: Cluster) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "Bad_"}}
    error = (await post(cluster, obj)).expect_error(422, "Invalid", "metadata.generateName: Invalid value")
    assert [cause["field"] for cause in error["details"]["causes"]] == ["metadata.generateName", "metadata.name"]


@check(
    "A patch merges labels and annotations; null removes one.",
    area=AREA,
    mutation=without("metadata.labels"),
)
async def merged_labels(cluster: Cluster) -> None:
    await cluster.create_config_map("one", labels={"a": "1", "b": "2"}, annotations={"x": "y"})
    patch = {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": None}}
    meta = (await cluster.request("PATCH", cluster.path("configmaps", "one"), patch)).expect(200)["metadata"]
    assert meta["labels"] == {"b": "2", "c": "3"} and "annotations" not in meta
