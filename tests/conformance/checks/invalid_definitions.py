"""Invalid CustomResourceDefinitions and the field of each error."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.definitions import ANY_OBJECT, AREA, REPLICAS_SCHEMA, crd_version
from tests.conformance.mutations import drops, replaced
from trainyard.objects import Json


async def dry_run_create(cluster: Cluster, schema: Json | None = None, **spec: Any) -> tuple[int, set[tuple[str, str]]]:
    """Create a definition as a dry run. Returns the status code, and the field and reason of each cause."""
    group = f"{cluster.unique_name('g')}.example.org"
    names = {"plural": "things", "kind": "Thing"}
    crd_spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [crd_version(schema=schema)], **spec}
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{crd_spec['names'].get('plural')}.{crd_spec['group']}"},
        "spec": crd_spec,
    }
    response = await cluster.request("POST", cluster.path("customresourcedefinitions"), obj, dryRun="All")
    causes = (response.json.get("details") or {}).get("causes") or ()
    return response.code, {(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in causes}


@check(
    "Exactly one version is the storage version, names are unique, and each version has a schema.",
    area=AREA,
    mutation=replaced("crd.validation:_versions", lambda spec: iter(())),
)
async def versions(cluster: Cluster) -> None:
    two_stored = [crd_version(), crd_version("v2")]
    assert ("spec.versions", "Invalid") in (await dry_run_create(cluster, versions=two_stored))[1]
    none_stored = [crd_version(storage=False)]
    assert ("spec.versions", "Invalid") in (await dry_run_create(cluster, versions=none_stored))[1]
    same_name = [crd_version(), crd_version(storage=False)]
    assert await dry_run_create(cluster, versions=same_name) == (422, {("spec.versions", "Invalid")})
    no_schema = [{"name": "v1", "served": True, "storage": True}]
    expected = {("spec.versions[0].schema.openAPIV3Schema", "Required")}
    assert await dry_run_create(cluster, versions=no_schema) == (422, expected)


@check(
    "Invalid scopes, versions, short names and categories are rejected at their field.",
    area=AREA,
    mutation=drops("spec"),
)
async def invalid_names(cluster: Cluster) -> None:
    assert await dry_run_create(cluster, scope="Odd") == (422, {("spec.scope", "NotSupported")})
    assert ("spec.versions[0].name", "Invalid") in (await dry_run_create(cluster, versions=[crd_version("V1")]))[1]
    for field, name in (("shortNames", "A"), ("categories", "A b")):
        names = {"plural": "things", "kind": "Thing", field: [name]}
        assert await dry_run_create(cluster, names=names) == (422, {(f"spec.names.{field}[0]", "Invalid")})


@check(
    "A group under k8s.io requires the annotation api-approved.kubernetes.io.",
    area=AREA,
    mutation=replaced("crd.validation:PROTECTED", ("nobody",)),
)
async def protected(cluster: Cluster) -> None:
    expected = {("metadata.annotations[api-approved.kubernetes.io]", "Required")}
    assert await dry_run_create(cluster, group="foo.k8s.io") == (422, expected)


_SCHEMA_FIELD = "spec.validation.openAPIV3Schema"
_SPEC_FIELD = f"{_SCHEMA_FIELD}.properties[spec]"
NOT_STRUCTURAL: tuple[tuple[Json, str, str], ...] = (
    ({"properties": {}}, f"{_SCHEMA_FIELD}.type", "Required"),
    ({"type": "string"}, f"{_SCHEMA_FIELD}.type", "Invalid"),
    ({"type": "object", "properties": {"spec": {"properties": {}}}}, f"{_SPEC_FIELD}.type", "Required"),
    ({"type": "object", "properties": {"spec": {"type": "text"}}}, f"{_SPEC_FIELD}.type", "NotSupported"),
    ({"type": "object", "properties": {"spec": {"type": "array"}}}, f"{_SPEC_FIELD}.items", "Required"),
    ({"type": "object", "properties": {"spec": {"$ref": "#/x"}}}, f"{_SPEC_FIELD}.$ref", "Forbidden"),
    (
        {"type": "object", "properties": {"spec": {"type": "string", "pattern": "("}}},
        f"{_SPEC_FIELD}.pattern",
        "Invalid",
    ),
    (
        {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"a": ANY_OBJECT}, "additionalProperties": {"type": "string"}}
            },
        },
        f"{_SPEC_FIELD}.additionalProperties",
        "Forbidden",
    ),
    (
        {"type": "object", "properties": {"spec": {"type": "string", "anyOf": [{"type": "string"}]}}},
        f"{_SPEC_FIELD}.anyOf[0].type",
        "Forbidden",
    ),
    (
        {
            "type": "object",
            "properties": {"spec": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}},
        },
        f"{_SPEC_FIELD}.uniqueItems",
        "Forbidden",
    ),
    (
        {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": ANY_OBJECT}}}},
        f"{_SCHEMA_FIELD}.properties[metadata]",
        "Forbidden",
    ),
)


@check(
    "A schema that is not structural is rejected at the field of the schema.",
    area=AREA,
    mutation=replaced("crd.validation:structure_problems", lambda schema, path: []),
)
async def structural(cluster: Cluster) -> None:
    for schema, field, reason in NOT_STRUCTURAL:
        assert await dry_run_create(cluster, schema) == (422, {(field, reason)}), schema


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
    "A map list needs keys that its items have; the items of a set are scalars or atomic.",
    area=AREA,
    mutation=replaced("schema.structural:_list_problems", lambda schema, path: iter(())),
)
async def list_types(cluster: Cluster) -> None:
    for field_schema, field, reason in BAD_LISTS:
        schema = {"type": "object", "properties": {"spec": field_schema}}
        assert await dry_run_create(cluster, schema) == (422, {(f"{_SPEC_FIELD}.{field}", reason)}), field_schema


@check(
    "A default that is not valid in its own schema is rejected.",
    area=AREA,
    mutation=replaced("schema.structural:_default_problems", lambda schema, path: iter(())),
)
async def invalid_defaults(cluster: Cluster) -> None:
    for field_schema, reason in (
        ({"type": "string", "default": 5}, "TypeInvalid"),
        ({"type": "string", "default": "z", "enum": ["a"]}, "NotSupported"),
        ({"type": "object", "default": {"z": 1}, "properties": {"x": {"type": "string"}}}, "Invalid"),
    ):
        schema = {"type": "object", "properties": {"spec": field_schema}}
        assert await dry_run_create(cluster, schema) == (422, {(f"{_SPEC_FIELD}.default", reason)}), field_schema


@check(
    "Printer columns and selectable fields require known types and valid paths.",
    area=AREA,
    mutation=replaced("crd.validation:_columns", lambda *_: iter(())),
)
async def invalid_columns(cluster: Cluster) -> None:
    column = {"name": "A", "type": "string", "jsonPath": ".spec.a"}
    for change, field in (
        ({"type": "text"}, "type"),
        ({"format": "x"}, "format"),
        ({"jsonPath": "spec.a"}, "JSONPath"),
    ):
        versions = [crd_version(additionalPrinterColumns=[{**column, **change}])]
        expected = {(f"spec.additionalPrinterColumns[0].{field}", "Invalid")}
        assert await dry_run_create(cluster, versions=versions) == (422, expected), change
    versions = [crd_version(schema=REPLICAS_SCHEMA, selectableFields=[{"jsonPath": ".spec.none"}])]
    assert await dry_run_create(cluster, versions=versions) == (422, {("spec.selectableFields[0].jsonPath", "Invalid")})


@check(
    "/scale requires its paths, under .spec and .status.",
    area=AREA,
    mutation=replaced("crd.validation:_subresources", lambda *_: iter(())),
)
async def invalid_scale(cluster: Cluster) -> None:
    field = "spec.subresources.scale"
    missing_paths = {(f"{field}.specReplicasPath", "Required"), (f"{field}.statusReplicasPath", "Required")}
    assert await dry_run_create(cluster, versions=[crd_version(subresources={"scale": {}})]) == (422, missing_paths)
    paths = {"specReplicasPath": ".foo.a", "statusReplicasPath": ".status.a"}
    versions = [crd_version(subresources={"scale": paths})]
    assert await dry_run_create(cluster, versions=versions) == (422, {(f"{field}.specReplicasPath", "Invalid")})
