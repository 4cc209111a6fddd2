"""What is sent: bodies that are malformed, of the wrong type, too large, of unknown fields; names and metadata."""

from __future__ import annotations

from typing import Any

from trainyard.testing.check_server import Reply, Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, replaced, sets, unsent, without
from trainyard.testing.check_server.checks.crud import config_map

AREA = "bodies"
JSON = {"Content-Type": "application/json"}


async def post(yard: Subject, body: Any, headers: Any = None, **query: Any) -> Reply:
    return await yard.ask("POST", yard.at("configmaps"), body, headers=headers, **query)


@check("A body that is not JSON, or not an object, is refused with 400.", area=AREA, breaks=answers(400, 201))
async def malformed(yard: Subject) -> None:
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
        (await post(yard, body, JSON)).refused(400, "BadRequest", "the object provided is unrecognized")


@check("A built-in object need not say its apiVersion and kind: the path does.", area=AREA, breaks=answers(201, 400))
async def unnamed_kind(yard: Subject) -> None:
    for name, obj in (("a", {}), ("b", {"apiVersion": "v1"}), ("c", {"kind": "ConfigMap"})):
        said = (await post(yard, {**obj, "metadata": {"name": name}})).must(201)
        assert (said["apiVersion"], said["kind"]) == ("v1", "ConfigMap")


@check("A custom object must say its kind.", area=AREA, breaks=answers(400, 201))
async def unnamed_custom_kind(yard: Subject) -> None:
    kind = await yard.crd()
    (await yard.ask("POST", kind.path(), {"metadata": {"name": "a"}})).refused(400, "BadRequest", "is missing in")


@check("An object of another kind or version than its path is refused with 400.", area=AREA, breaks=answers(400, 201))
async def other_kind(yard: Subject) -> None:
    (await post(yard, {**config_map("x"), "kind": "Secret"})).refused(400, "BadRequest")
    (await post(yard, {**config_map("x"), "apiVersion": "v2"})).refused(400, "BadRequest")
    kind = await yard.crd()
    wrong = {**kind.obj("x"), "apiVersion": "example.org/v1"}
    (await yard.ask("POST", kind.path(), wrong)).refused(400, "BadRequest", "does not match the expected")


@check("Metadata of a wrong type is refused with 400.", area=AREA, breaks=answers(400, 201))
async def wrong_metadata(yard: Subject) -> None:
    for meta in (
        "x",
        {"name": 5},
        {"name": "x", "labels": {"a": 1}},
        {"name": "x", "finalizers": "x"},
        {"name": "x", "labels": []},
    ):
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        (await post(yard, obj)).refused(
            400, "BadRequest", 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        )


@check("A content type that nobody reads, or none, is refused with 415.", area=AREA, breaks=answers(415, 201))
async def content_type(yard: Subject) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}'
    for kind in ("text/plain", "application/xml", "application/octet-stream", "application/merge-patch+json"):
        (await post(yard, body, {"Content-Type": kind})).refused(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: ",
        )


@check("A content type may have a charset, and capitals.", area=AREA, breaks=answers(201, 415))
async def charset(yard: Subject) -> None:
    for name, kind in (("a", "application/json; charset=utf-8"), ("b", "Application/JSON")):
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%b"}}' % name.encode()
        (await post(yard, body, {"Content-Type": kind})).must(201)


@check(
    "A patch of an unknown type is refused with 415, and one that is malformed with 400.",
    area=AREA,
    breaks=answers(415, 200) | answers(400, 200),
)
async def patches(yard: Subject) -> None:
    await yard.map("one")
    path = yard.at("configmaps", "one")
    for kind in ("application/json", "text/plain", "application/yaml"):
        (await yard.ask("PATCH", path, b"{}", headers={"Content-Type": kind})).refused(415, "UnsupportedMediaType")
    for kind, body in (
        ("merge-patch", b"{"),
        ("merge-patch", b"[]"),
        ("json-patch", b"{}"),
    ):
        headers = {"Content-Type": f"application/{kind}+json"}
        (await yard.ask("PATCH", path, body, headers=headers)).refused(400, "BadRequest")


@check("A body of more than 3 MiB is refused with 413.", area=AREA, breaks=answers(413, 400))
async def huge(yard: Subject) -> None:
    body = {**config_map("x"), "data": {"x": "a" * (3 * 1024 * 1024 + 1)}}
    for method, path in (("POST", yard.at("configmaps")), ("PUT", yard.at("configmaps", "x"))):
        (await yard.ask(method, path, body)).refused(413, "RequestEntityTooLarge", "limit is 3145728")


@check(
    "fieldValidation=Strict refuses unknown fields and fields that are there twice with 400, and names them.",
    area=AREA,
    breaks=ignores("fieldValidation"),
)
async def strict(yard: Subject) -> None:
    path = yard.at("configmaps")
    (await yard.ask("POST", path, {**config_map("x"), "foo": 1}, fieldValidation="Strict")).refused(
        400,
        "BadRequest",
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo"',
    )
    for twice in (
        rb'"a":"b","a":"c"',
        rb' "a" : "b", "a" : ":" ',
        rb'"a":"b\u003a","a":"c"',
        rb'"a":"\":","\u0061":"c"',
    ):
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{%b}}' % twice
        (await post(yard, body, JSON, fieldValidation="Strict")).refused(400, "BadRequest", 'duplicate field "data.a"')
    (await yard.ask("GET", f"{path}/x")).refused(404, "NotFound")


@check(
    "fieldValidation=Warn, which is the default, takes them and says so in Warning headers.",
    area=AREA,
    breaks=unsent("Warning"),
)
async def warn(yard: Subject) -> None:
    for name, query in (("a", {}), ("b", {"fieldValidation": "Warn"})):
        reply = await post(yard, {**config_map(name), "foo": 1}, **query)
        assert reply.headers["warning"] == '299 - "unknown field \\"foo\\""'
        assert "foo" not in reply.must(201)


@check(
    "fieldValidation=Ignore says nothing; any other word is refused with 422.",
    area=AREA,
    breaks=ignores("fieldValidation"),
)
async def ignored(yard: Subject) -> None:
    reply = await post(yard, {**config_map("a"), "foo": 1}, fieldValidation="Ignore")
    assert "warning" not in reply.headers and "foo" not in reply.must(201)
    said = (await post(yard, config_map("b"), fieldValidation="Junk")).refused(422, "Invalid")
    assert said["details"]["causes"][0]["field"] == "fieldValidation"


@check(
    "An unknown field of a built-in object is not stored, however deep.",
    area=AREA,
    breaks=replaced(
        "registry.field_validation:without_unknown_fields", lambda resource, obj: obj, "stores what it does not know"
    ),
    needs=("pods",),
)
async def unknown_fields(yard: Subject) -> None:
    made = await yard.pod(
        "one", nodeName="nowhere", foo=1, containers=[{"name": "main", "image": "busybox:1", "bar": {"x": 1}}]
    )
    assert "foo" not in made["spec"] and "bar" not in made["spec"]["containers"][0]
    changed = {"spec": {"foo": 1}, "metadata": {"bar": 1}, "baz": 1}
    said = (await yard.ask("PATCH", yard.at("pods", "one"), changed)).must(200)
    assert "foo" not in said["spec"] and "bar" not in said["metadata"] and "baz" not in said
    assert said["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@check(
    "The fields of a custom object that its schema does not know are named, too.", area=AREA, breaks=unsent("Warning")
)
async def unknown_custom_fields(yard: Subject) -> None:
    spec = {"type": "object", "properties": {"a": {"type": "integer"}}}
    kind = await yard.crd(schema={"type": "object", "properties": {"spec": spec}})
    reply = await yard.ask("POST", kind.path(), kind.obj("a", spec={"a": 1, "b": 2}))
    assert reply.headers["warning"] == '299 - "unknown field \\"spec.b\\""' and reply.must(201)["spec"] == {"a": 1}
    strict = await yard.ask("POST", kind.path(), kind.obj("b", spec={"b": 2}), fieldValidation="Strict")
    strict.refused(
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
    "Names, labels, annotations and finalizers that are not legal are refused with 422, the field in the cause.",
    area=AREA,
    breaks=replaced("registry.metadata:problems", lambda *_, **__: [], "takes any name"),
)
async def bad_metadata(yard: Subject) -> None:
    for meta, field, words in NAMES:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        said = (await post(yard, obj)).refused(422, "Invalid", words)
        assert said["details"]["causes"][0]["field"] == field, said
        assert said["message"].startswith(f'ConfigMap "{meta["name"]}" is invalid: {field}: ')


@check("All that is wrong is told at once, in brackets and as causes.", area=AREA, breaks=sets("details.causes", []))
async def all_problems(yard: Subject) -> None:
    said = (await post(yard, config_map("B", meta={"labels": {"-": "x"}, "annotations": {"-": ""}}))).refused(
        422, "Invalid"
    )
    assert [one["field"] for one in said["details"]["causes"]] == [
        "metadata.name",
        "metadata.labels",
        "metadata.annotations",
    ]
    assert said["message"].startswith('ConfigMap "B" is invalid: [metadata.name: ')


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}


@check(
    "An owner reference needs apiVersion, kind, name and uid, one at most is the controller, and Events own nothing.",
    area=AREA,
    breaks=replaced("registry.metadata:_owner_problems", lambda owners: [], "takes any owner"),
)
async def owners(yard: Subject) -> None:
    said = (await post(yard, config_map("a", meta={"ownerReferences": [{"kind": "x"}]}))).refused(422, "Invalid")
    fields = [(one["field"], one["reason"]) for one in said["details"]["causes"]]
    wanted = [f"metadata.ownerReferences[0].{name}" for name in ("apiVersion", "name", "uid")]
    assert fields == [(name, "FieldValueRequired") for name in wanted]
    two = [{**OWNER, "controller": True}, {**OWNER, "uid": "2", "controller": True}]
    (await post(yard, config_map("a", meta={"ownerReferences": two}))).refused(
        422, "Invalid", "Only one reference can have Controller set to true"
    )
    event = [{**OWNER, "kind": "Event"}]
    (await post(yard, config_map("a", meta={"ownerReferences": event}))).refused(
        422, "Invalid", "disallowed from being an owner"
    )


@check("A generateName that is not legal is refused, too.", area=AREA, breaks=sets("details.causes", []))
async def bad_prefix(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "Bad_"}}
    said = (await post(yard, obj)).refused(422, "Invalid", "metadata.generateName: Invalid value")
    assert [one["field"] for one in said["details"]["causes"]] == ["metadata.generateName", "metadata.name"]


@check(
    "Labels and annotations are merged by a patch, and null takes one away.",
    area=AREA,
    breaks=without("metadata.labels"),
)
async def merged(yard: Subject) -> None:
    await yard.map("one", labels={"a": "1", "b": "2"}, annotations={"x": "y"})
    change = {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": None}}
    said = (await yard.ask("PATCH", yard.at("configmaps", "one"), change)).must(200)["metadata"]
    assert said["labels"] == {"b": "2", "c": "3"} and "annotations" not in said
