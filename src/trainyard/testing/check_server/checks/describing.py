"""OpenAPI v3, and what the server says about fields that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, encode
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, replaced, swaps, unheard, unsent, without

AREA = "OpenAPI and field validation"
_SILENT = replaced("registry.field_validation:_found", lambda *all: [], "knows every field")
PLACES = (
    "api/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/authorization.k8s.io/v1",
    "apis/batch/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/rbac.authorization.k8s.io/v1",
)
PATHS = (
    ("api/v1", "Pod", "spec.containers.ports", "array"),
    ("api/v1", "Pod", "spec.terminationGracePeriodSeconds", "integer"),
    ("api/v1", "Service", "spec.ports.targetPort", "int-or-string"),
    ("api/v1", "ConfigMap", "data", "object"),
    ("api/v1", "Event", "involvedObject.fieldPath", "string"),
    ("apis/apps/v1", "Deployment", "spec.strategy.rollingUpdate.maxSurge", "int-or-string"),
    ("apis/apps/v1", "StatefulSet", "spec.volumeClaimTemplates.spec.accessModes", "array"),
    ("apis/batch/v1", "Job", "spec.template.spec.initContainers.env.valueFrom.secretKeyRef.key", "string"),
    ("apis/batch/v1", "Job", "status.conditions.lastTransitionTime", "string"),
    ("apis/coordination.k8s.io/v1", "Lease", "spec.renewTime", "string"),
    ("apis/rbac.authorization.k8s.io/v1", "Role", "rules.verbs", "array"),
)


async def _document(yard: Subject, place: str) -> Json:
    found: Json = (await yard.ask("GET", f"/openapi/v3/{place}")).must(200)
    return found


def _of(document: Json, kind: str) -> Json:
    """The schema of a kind, found as kubectl finds it."""
    for schema in document["components"]["schemas"].values():
        if any(one["kind"] == kind for one in schema.get("x-kubernetes-group-version-kind") or ()):
            return dict(schema)
    raise AssertionError(f"no schema says that it is of {kind}")


def _whole(document: Json, schema: Json) -> Json:
    """The schema that it refers to, or itself."""
    refers = [schema, *(schema.get("allOf") or ())]
    name = next((one["$ref"].rpartition("/")[2] for one in refers if "$ref" in one), None)
    return schema if name is None else {**document["components"]["schemas"][name], **schema}


def _at(document: Json, schema: Json, path: str) -> Json:
    for step in path.split("."):
        schema = _whole(document, schema)
        if "items" in schema:
            schema = _whole(document, schema["items"])
        schema = schema["properties"][step]
    return _whole(document, schema)


def _refers(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "$ref" and isinstance(part, str):
                yield part.rpartition("/")[2]
            else:
                yield from _refers(part)
    elif isinstance(value, list):
        for one in value:
            yield from _refers(one)


@check(
    "The index of OpenAPI v3 names a document for each version, with its hash.", area=AREA, breaks=swaps(b"?hash=", b"")
)
async def index(yard: Subject) -> None:
    paths = (await yard.ask("GET", "/openapi/v3")).must(200)["paths"]
    for place in PLACES:
        url = paths[place]["serverRelativeURL"]
        assert url.startswith(f"/openapi/v3/{place}?hash=") and len(url.partition("=")[2]) > 30, url
    url, _, digest = paths["apis/batch/v1"]["serverRelativeURL"].partition("?hash=")
    reply = await yard.ask("GET", url, hash=digest)
    assert reply.must(200)["openapi"].startswith("3.0") and "immutable" in reply.headers["cache-control"]


@check("A document has an ETag, and who has it already is answered 304.", area=AREA, breaks=unheard("If-None-Match"))
async def etag(yard: Subject) -> None:
    tag = (await yard.ask("GET", "/openapi/v3/apis/batch/v1")).headers["etag"]
    reply = await yard.ask("GET", "/openapi/v3/apis/batch/v1", headers={"If-None-Match": tag})
    assert reply.code == 304 and not reply.body, reply


@check("Everything that a document refers to is in it.", area=AREA, breaks=swaps(b'ObjectMeta":{', b'Other":{'))
async def closed(yard: Subject) -> None:
    for place in PLACES:
        document = await _document(yard, place)
        lacking = set(_refers(document)) - set(document["components"]["schemas"])
        assert not lacking, (place, lacking)


@check(
    "Built-in kinds are described field by field, as deep as they go.", area=AREA, breaks=without("components.schemas")
)
async def described(yard: Subject) -> None:
    documents = {place: await _document(yard, place) for place in dict.fromkeys(one[0] for one in PATHS)}
    for place, kind, path, wanted in PATHS:
        found = _at(documents[place], _of(documents[place], kind), path)
        assert wanted in (found.get("type"), found.get("format")), (kind, path, found)


@check(
    "Merge keys, list types and required fields are part of the description.",
    area=AREA,
    breaks=swaps(b"x-kubernetes-list", b"x-l"),
)
async def facts(yard: Subject) -> None:
    document = await _document(yard, "api/v1")
    ports = _at(document, _of(document, "Pod"), "spec.containers.ports")
    assert ports["x-kubernetes-patch-merge-key"] == "containerPort" and ports["x-kubernetes-patch-strategy"] == "merge"
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    spec = _at(document, _of(document, "Pod"), "spec")
    assert spec["required"] == ["containers"]
    policy = _at(document, _of(document, "Pod"), "spec.restartPolicy")
    assert policy["enum"] == ["Always", "Never", "OnFailure"]


@check(
    "A definition's schema is published, and gone with the definition.",
    area=AREA,
    breaks=replaced("registry.openapi:_custom", lambda resource: {}, "does not describe custom resources"),
)
async def custom(yard: Subject) -> None:
    spec: Json = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer", "description": "How many."}},
    }
    kind = await yard.crd(schema={"type": "object", "properties": {"spec": spec}})
    place = f"apis/{kind.group}/v1"

    async def published() -> bool:
        return (await yard.ask("GET", f"/openapi/v3/{place}")).code == 200

    await yard.until(published)
    document = await _document(yard, place)
    schema = _of(document, kind.kind)
    assert _at(document, schema, "spec") == spec
    assert _at(document, schema, "metadata.labels")["type"] == "object"
    assert schema["x-kubernetes-group-version-kind"] == [{"group": kind.group, "version": "v1", "kind": kind.kind}]


@check(
    "The PATCH of a kind says that it takes fieldValidation: kubectl looks for it.",
    area=AREA,
    breaks=swaps(b"fieldValidation", b"nothing"),
)
async def parameters(yard: Subject) -> None:
    for place, kind in (("api/v1", "Pod"), ("apis/batch/v1", "Job")):
        found = [
            item["patch"]
            for item in (await _document(yard, place))["paths"].values()
            if item.get("patch", {}).get("x-kubernetes-group-version-kind", {}).get("kind") == kind
        ]
        assert found
        for one in found:
            assert "fieldValidation" in [parameter.get("name") for parameter in one["parameters"]]


WRONG = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "labelz": {}},
    "spec": {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 1, "x": 1}]}], "bad": {"y": 1}},
}
_UNKNOWN = ("metadata.labelz", "spec.bad", "spec.containers[0].ports[0].x")


@check(
    "Strict refuses fields that the kind does not have, and names each with its path.",
    area=AREA,
    breaks=_SILENT,
    needs=("pods",),
)
async def strict(yard: Subject) -> None:
    said = (await yard.ask("POST", yard.at("pods"), WRONG, fieldValidation="Strict")).refused(400, "BadRequest")
    assert said["message"].startswith('Pod in version "v1" cannot be handled as a Pod: strict decoding error: ')
    for path in _UNKNOWN:
        assert f'unknown field "{path}"' in said["message"], said["message"]
    (await yard.ask("GET", yard.at("pods", "one"))).refused(404, "NotFound")


@check("Warn makes the object and warns; so does saying nothing.", area=AREA, breaks=unsent("Warning"), needs=("pods",))
async def warned(yard: Subject) -> None:
    for way in ("Warn", ""):
        reply = await yard.ask("POST", yard.at("pods"), WRONG, dryRun="All", fieldValidation=way)
        reply.must(201)
        assert reply.headers["warning"].startswith('299 - "unknown field'), reply.headers


@check("Ignore says nothing.", area=AREA, breaks=ignores("fieldValidation"), needs=("pods",))
async def ignored(yard: Subject) -> None:
    reply = await yard.ask("POST", yard.at("pods"), WRONG, dryRun="All", fieldValidation="Ignore")
    reply.must(201)
    assert "warning" not in reply.headers


@check("A field that is there twice is refused by Strict; otherwise the last one counts.", area=AREA, breaks=_SILENT)
async def twice(yard: Subject) -> None:
    body = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","labels":{"a":"1","a":"2"}},"data":{"x":"1"}}'
    )
    headers = {"Content-Type": "application/json"}
    path = yard.at("configmaps")
    said = (await yard.ask("POST", path, body, headers=headers, fieldValidation="Strict")).refused(400, "BadRequest")
    assert 'duplicate field "metadata.labels.a"' in said["message"]
    made = (await yard.ask("POST", path, body, headers=headers, fieldValidation="Ignore")).must(201)
    assert made["metadata"]["labels"] == {"a": "2"}


@check("Strict holds for updates and patches, too.", area=AREA, breaks=_SILENT)
async def changed(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "1"})
    path = yard.at("configmaps", "one")
    (await yard.ask("PUT", path, {**made, "dato": 1}, fieldValidation="Strict")).refused(400, "BadRequest", '"dato"')
    said = (await yard.ask("PATCH", path, {"dato": 1}, fieldValidation="Strict")).refused(422, "Invalid")
    assert 'unknown field "dato"' in said["message"]
    assert (await yard.ask("GET", path)).must(200) == made


@check("Fields that a schema prunes are told of, those it preserves are not.", area=AREA, breaks=_SILENT)
async def pruned(yard: Subject) -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"n": {"type": "integer"}, "free": free}}
    kind = await yard.crd(schema={"type": "object", "properties": {"spec": spec}})
    obj = kind.obj("one", spec={"n": 1, "free": {"any": {"thing": 1}}})
    (await yard.ask("POST", kind.path(), obj, fieldValidation="Strict", dryRun="All")).must(201)
    obj = kind.obj("one", spec={"n": 1, "bad": 1})
    said = (await yard.ask("POST", kind.path(), obj, fieldValidation="Strict")).refused(400, "BadRequest")
    assert 'unknown field "spec.bad"' in said["message"]


@check("Another word for fieldValidation is 422.", area=AREA, breaks=answers(422, 400))
async def words(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    said = (await yard.ask("POST", yard.at("configmaps"), encode(obj), headers={"Content-Type": "application/json"},
                           fieldValidation="maybe")).refused(422, "Invalid")  # fmt: skip
    assert said["details"]["causes"][0]["reason"] == "FieldValueNotSupported"
