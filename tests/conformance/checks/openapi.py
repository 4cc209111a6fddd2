"""OpenAPI v3, and validation of unknown fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.mutations import (
    answers,
    ignores,
    ignores_header,
    replaced,
    swaps,
    without,
    without_header,
)
from trainyard.objects import Json, encode

AREA = "OpenAPI and field validation"
_NO_FIELD_VALIDATION = replaced("registry.field_validation:_reported_fields", lambda *all: [], "accepts every field")
GROUP_VERSIONS = (
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
FIELDS = (
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


async def _document(cluster: Cluster, group_version: str) -> Json:
    document: Json = (await cluster.request("GET", f"/openapi/v3/{group_version}")).expect(200)
    return document


def _schema_of(document: Json, kind: str) -> Json:
    """The schema of a kind, looked up as kubectl does."""
    for schema in document["components"]["schemas"].values():
        if any(
            group_version_kind["kind"] == kind
            for group_version_kind in schema.get("x-kubernetes-group-version-kind") or ()
        ):
            return dict(schema)
    raise AssertionError(f"no schema for the kind {kind}")


def _resolved(document: Json, schema: Json) -> Json:
    """The schema, merged over the one it refers to."""
    schemas = [schema, *(schema.get("allOf") or ())]
    name = next((candidate["$ref"].rpartition("/")[2] for candidate in schemas if "$ref" in candidate), None)
    return schema if name is None else {**document["components"]["schemas"][name], **schema}


def _field_schema(document: Json, schema: Json, path: str) -> Json:
    for step in path.split("."):
        schema = _resolved(document, schema)
        if "items" in schema:
            schema = _resolved(document, schema["items"])
        schema = schema["properties"][step]
    return _resolved(document, schema)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "$ref" and isinstance(part, str):
                yield part.rpartition("/")[2]
            else:
                yield from _references(part)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


@check(
    "The OpenAPI v3 index has the URL of a document for each group version, with its hash.",
    area=AREA,
    mutation=swaps(b"?hash=", b""),
)
async def index(cluster: Cluster) -> None:
    paths = (await cluster.request("GET", "/openapi/v3")).expect(200)["paths"]
    for group_version in GROUP_VERSIONS:
        url = paths[group_version]["serverRelativeURL"]
        assert url.startswith(f"/openapi/v3/{group_version}?hash=") and len(url.partition("=")[2]) > 30, url
    url, _, digest = paths["apis/batch/v1"]["serverRelativeURL"].partition("?hash=")
    response = await cluster.request("GET", url, hash=digest)
    assert response.expect(200)["openapi"].startswith("3.0") and "immutable" in response.headers["cache-control"]


@check(
    "A document has an ETag; If-None-Match with that ETag gives 304.",
    area=AREA,
    mutation=ignores_header("If-None-Match"),
)
async def etag(cluster: Cluster) -> None:
    tag = (await cluster.request("GET", "/openapi/v3/apis/batch/v1")).headers["etag"]
    response = await cluster.request("GET", "/openapi/v3/apis/batch/v1", headers={"If-None-Match": tag})
    assert response.code == 304 and not response.body, response


@check("A document contains every schema that it refers to.", area=AREA, mutation=swaps(b'ObjectMeta":{', b'Other":{'))
async def references(cluster: Cluster) -> None:
    for group_version in GROUP_VERSIONS:
        document = await _document(cluster, group_version)
        missing = set(_references(document)) - set(document["components"]["schemas"])
        assert not missing, (group_version, missing)


@check("Built-in kinds have schemas for all fields, at every depth.", area=AREA, mutation=without("components.schemas"))
async def described(cluster: Cluster) -> None:
    documents = {
        group_version: await _document(cluster, group_version)
        for group_version in dict.fromkeys(row[0] for row in FIELDS)
    }
    for group_version, kind, path, expected in FIELDS:
        field_schema = _field_schema(documents[group_version], _schema_of(documents[group_version], kind), path)
        assert expected in (field_schema.get("type"), field_schema.get("format")), (kind, path, field_schema)


@check(
    "Schemas have merge keys, list types, required fields and enums.",
    area=AREA,
    mutation=swaps(b"x-kubernetes-list", b"x-l"),
)
async def extensions(cluster: Cluster) -> None:
    document = await _document(cluster, "api/v1")
    ports = _field_schema(document, _schema_of(document, "Pod"), "spec.containers.ports")
    assert ports["x-kubernetes-patch-merge-key"] == "containerPort" and ports["x-kubernetes-patch-strategy"] == "merge"
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    spec = _field_schema(document, _schema_of(document, "Pod"), "spec")
    assert spec["required"] == ["containers"]
    policy = _field_schema(document, _schema_of(document, "Pod"), "spec.restartPolicy")
    assert policy["enum"] == ["Always", "Never", "OnFailure"]


@check(
    "The schema of a custom resource is published.",
    area=AREA,
    mutation=replaced("registry.openapi:_custom", lambda resource: {}, "does not describe custom resources"),
)
async def custom(cluster: Cluster) -> None:
    spec: Json = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer", "description": "How many."}},
    }
    resource = await cluster.create_crd(schema={"type": "object", "properties": {"spec": spec}})
    group_version = f"apis/{resource.group}/v1"

    async def published() -> bool:
        return (await cluster.request("GET", f"/openapi/v3/{group_version}")).code == 200

    await cluster.wait_until(published)
    document = await _document(cluster, group_version)
    schema = _schema_of(document, resource.kind)
    assert _field_schema(document, schema, "spec") == spec
    assert _field_schema(document, schema, "metadata.labels")["type"] == "object"
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": resource.group, "version": "v1", "kind": resource.kind}
    ]


@check(
    "The PATCH operation of a kind has the parameter fieldValidation, which kubectl looks for.",
    area=AREA,
    mutation=swaps(b"fieldValidation", b"nothing"),
)
async def parameters(cluster: Cluster) -> None:
    for group_version, kind in (("api/v1", "Pod"), ("apis/batch/v1", "Job")):
        operations = [
            item["patch"]
            for item in (await _document(cluster, group_version))["paths"].values()
            if item.get("patch", {}).get("x-kubernetes-group-version-kind", {}).get("kind") == kind
        ]
        assert operations
        for operation in operations:
            assert "fieldValidation" in [parameter.get("name") for parameter in operation["parameters"]]


POD_WITH_UNKNOWN_FIELDS = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "labelz": {}},
    "spec": {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 1, "x": 1}]}], "bad": {"y": 1}},
}
_UNKNOWN_FIELDS = ("metadata.labelz", "spec.bad", "spec.containers[0].ports[0].x")


@check(
    "Strict rejects unknown fields and names each with its path.",
    area=AREA,
    mutation=_NO_FIELD_VALIDATION,
    needs=("pods",),
)
async def strict(cluster: Cluster) -> None:
    error = (
        await cluster.request("POST", cluster.path("pods"), POD_WITH_UNKNOWN_FIELDS, fieldValidation="Strict")
    ).expect_error(400, "BadRequest")
    assert error["message"].startswith('Pod in version "v1" cannot be handled as a Pod: strict decoding error: ')
    for path in _UNKNOWN_FIELDS:
        assert f'unknown field "{path}"' in error["message"], error["message"]
    (await cluster.request("GET", cluster.path("pods", "one"))).expect_error(404, "NotFound")


@check(
    "Warn, also the default, creates the object and returns warnings.",
    area=AREA,
    mutation=without_header("Warning"),
    needs=("pods",),
)
async def warned(cluster: Cluster) -> None:
    for mode in ("Warn", ""):
        response = await cluster.request(
            "POST", cluster.path("pods"), POD_WITH_UNKNOWN_FIELDS, dryRun="All", fieldValidation=mode
        )
        response.expect(201)
        assert response.headers["warning"].startswith('299 - "unknown field'), response.headers


@check("Ignore returns no warnings.", area=AREA, mutation=ignores("fieldValidation"), needs=("pods",))
async def ignored(cluster: Cluster) -> None:
    response = await cluster.request(
        "POST", cluster.path("pods"), POD_WITH_UNKNOWN_FIELDS, dryRun="All", fieldValidation="Ignore"
    )
    response.expect(201)
    assert "warning" not in response.headers


@check("Strict rejects a duplicate field; otherwise the last value is used.", area=AREA, mutation=_NO_FIELD_VALIDATION)
async def duplicate_fields(cluster: Cluster) -> None:
    body = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","labels":{"a":"1","a":"2"}},"data":{"x":"1"}}'
    )
    headers = {"Content-Type": "application/json"}
    path = cluster.path("configmaps")
    error = (await cluster.request("POST", path, body, headers=headers, fieldValidation="Strict")).expect_error(
        400, "BadRequest"
    )
    assert 'duplicate field "metadata.labels.a"' in error["message"]
    created = (await cluster.request("POST", path, body, headers=headers, fieldValidation="Ignore")).expect(201)
    assert created["metadata"]["labels"] == {"a": "2"}


@check("Strict applies to updates and patches, too.", area=AREA, mutation=_NO_FIELD_VALIDATION)
async def strict_updates(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "1"})
    path = cluster.path("configmaps", "one")
    (await cluster.request("PUT", path, {**created, "dato": 1}, fieldValidation="Strict")).expect_error(
        400, "BadRequest", '"dato"'
    )
    error = (await cluster.request("PATCH", path, {"dato": 1}, fieldValidation="Strict")).expect_error(422, "Invalid")
    assert 'unknown field "dato"' in error["message"]
    assert (await cluster.request("GET", path)).expect(200) == created


@check(
    "Strict rejects fields that a schema prunes, but not those it preserves.", area=AREA, mutation=_NO_FIELD_VALIDATION
)
async def pruned(cluster: Cluster) -> None:
    any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"n": {"type": "integer"}, "free": any_object}}
    resource = await cluster.create_crd(schema={"type": "object", "properties": {"spec": spec}})
    obj = resource.obj("one", spec={"n": 1, "free": {"any": {"thing": 1}}})
    (await cluster.request("POST", resource.path(), obj, fieldValidation="Strict", dryRun="All")).expect(201)
    obj = resource.obj("one", spec={"n": 1, "bad": 1})
    error = (await cluster.request("POST", resource.path(), obj, fieldValidation="Strict")).expect_error(
        400, "BadRequest"
    )
    assert 'unknown field "spec.bad"' in error["message"]


@check("An unknown value of fieldValidation gives 422.", area=AREA, mutation=answers(422, 400))
async def invalid_field_validation(cluster: Cluster) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    headers = {"Content-Type": "application/json"}
    path = cluster.path("configmaps")
    response = await cluster.request("POST", path, encode(obj), headers=headers, fieldValidation="maybe")
    error = response.expect_error(422, "Invalid")
    assert error["details"]["causes"][0]["reason"] == "FieldValueNotSupported"
