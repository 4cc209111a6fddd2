"""Definitions of custom resources that are refused, each mistake at its place."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import drops, replaced
from trainyard.testing.check_server.checks.definitions import AREA, LOOSE, NUMBERED, version


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


@check(
    "Exactly one version is stored, no two have the same name, and each has a schema.",
    area=AREA,
    breaks=replaced("crd.validation:_versions", lambda spec: iter(())),
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
    breaks=replaced("crd.validation:PROTECTED", ("nobody",)),
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
    breaks=replaced("crd.validation:structure_problems", lambda schema, path: []),
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
    breaks=replaced("schema.structural:_list_problems", lambda schema, path: iter(())),
)
async def list_types(yard: Subject) -> None:
    for part, place, reason in BAD_LISTS:
        schema = {"type": "object", "properties": {"spec": part}}
        assert await offered(yard, schema) == (422, {(f"{_SPEC}.{place}", reason)}), part


@check(
    "A default that its own schema does not take is refused.",
    area=AREA,
    breaks=replaced("schema.structural:_default_problems", lambda schema, path: iter(())),
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
    breaks=replaced("crd.validation:_columns", lambda *_: iter(())),
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
    breaks=replaced("crd.validation:_subresources", lambda *_: iter(())),
)
async def bad_scale(yard: Subject) -> None:
    place = "spec.subresources.scale"
    empty = {(f"{place}.specReplicasPath", "Required"), (f"{place}.statusReplicasPath", "Required")}
    assert await offered(yard, versions=[version(subresources={"scale": {}})]) == (422, empty)
    paths = {"specReplicasPath": ".foo.a", "statusReplicasPath": ".status.a"}
    wrong = [version(subresources={"scale": paths})]
    assert await offered(yard, versions=wrong) == (422, {(f"{place}.specReplicasPath", "Invalid")})
