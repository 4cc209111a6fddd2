"""Structural schemas: pruning, defaulting and validation of custom objects."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.cluster import CustomResource
from tests.conformance.mutations import answers, replaced
from trainyard.objects import Json

AREA = "schemas"
STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
ANY_OBJECT: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NO_VALIDATION = replaced("schema.compiled:Schema.validate", lambda schema, obj, path="": [])
NO_DEFAULTING = replaced("schema.compiled:Schema.default", lambda schema, obj: obj)
NO_PRUNING = replaced("schema.compiled:Schema.prune", lambda schema, obj: obj)


async def create_resource(cluster: Cluster, **fields: Json) -> CustomResource:
    """Create a custom resource whose spec has these fields."""
    spec = {"type": "object", "properties": fields}
    return await cluster.create_crd(schema={"type": "object", "properties": {"spec": spec}})


async def stored_spec(cluster: Cluster, resource: CustomResource, **spec: Any) -> Any:
    """The spec that the server would store."""
    created = (await cluster.request("POST", resource.path(), resource.obj("a", spec=spec), dryRun="All")).expect(201)
    return created["spec"]


async def rejected_fields(cluster: Cluster, resource: CustomResource, **spec: Any) -> list[tuple[str, str]]:
    """Field and reason of each cause for which the server rejects the spec, except causes without a field."""
    response = await cluster.request("POST", resource.path(), resource.obj("a", spec=spec), dryRun="All")
    causes = response.expect_error(422, "Invalid")["details"]["causes"]
    pairs = [(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in causes]
    return sorted({pair for pair in pairs if pair[0] != "<nil>"})


@check("Fields that are not in the schema are pruned, at every depth.", area=AREA, mutation=NO_PRUNING)
async def pruned(cluster: Cluster) -> None:
    object_schema = {"type": "object", "properties": {"a": STRING}}
    resource = await create_resource(cluster, o=object_schema, l={"type": "array", "items": object_schema})
    spec = {"o": {"a": "x", "b": 1}, "l": [{"a": "x", "c": {}}], "z": 1}
    assert await stored_spec(cluster, resource, **spec) == {"o": {"a": "x"}, "l": [{"a": "x"}]}


@check(
    "preserve-unknown-fields keeps all fields; specified fields below it are pruned by their own schema.",
    area=AREA,
    mutation=replaced("schema.compiled:Schema.prune", lambda schema, obj: {**obj, "spec": {}}),
)
async def preserved(cluster: Cluster) -> None:
    partly_specified = {**ANY_OBJECT, "properties": {"a": {"type": "object", "properties": {"b": STRING}}}}
    resource = await create_resource(
        cluster, f=ANY_OBJECT, g=partly_specified, h={"x-kubernetes-preserve-unknown-fields": True}
    )
    spec = {"f": {"x": [1, None]}, "g": {"a": {"b": "x", "c": 1}, "z": 1}, "h": [1]}
    assert await stored_spec(cluster, resource, **spec) == {**spec, "g": {"a": {"b": "x"}, "z": 1}}


@check(
    "Defaults are set for missing fields, also nested, in list items and in map values.",
    area=AREA,
    mutation=NO_DEFAULTING,
)
async def defaults(cluster: Cluster) -> None:
    object_schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    resource = await create_resource(
        cluster,
        o=object_schema,
        p={**object_schema, "default": {}},
        l={"type": "array", "items": object_schema},
        m={"type": "object", "additionalProperties": object_schema},
    )
    assert await stored_spec(cluster, resource, o={}, l=[{}, {"a": "y"}], m={"k": {}}) == {
        "o": {"a": "x"},
        "p": {"a": "x"},
        "l": [{"a": "x"}, {"a": "y"}],
        "m": {"k": {"a": "x"}},
    }
    assert await stored_spec(cluster, resource) == {"p": {"a": "x"}}


@check(
    "null is kept if nullable, replaced by a default, and dropped otherwise.",
    area=AREA,
    mutation=NO_DEFAULTING,
)
async def nulls(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster,
        plain=STRING,
        filled={"type": "string", "default": "x"},
        nullable={"type": "string", "nullable": True},
        both={"type": "string", "nullable": True, "default": "x"},
        free={"x-kubernetes-preserve-unknown-fields": True},
        map={"type": "object", "additionalProperties": INTEGER},
    )
    spec = {"plain": None, "filled": None, "nullable": None, "both": None, "free": None, "map": {"a": None, "b": 1}}
    assert await stored_spec(cluster, resource, **spec) == {
        "filled": "x",
        "nullable": None,
        "both": None,
        "map": {"b": 1},
    }
    list_resource = await create_resource(cluster, l={"type": "array", "items": STRING})
    assert await rejected_fields(cluster, list_resource, l=[None]) == [("spec.l[0]", "TypeInvalid")]


@check("An integer written as 2.0 is stored as 2.", area=AREA, mutation=NO_DEFAULTING)
async def whole_numbers(cluster: Cluster) -> None:
    resource = await create_resource(cluster, i=INTEGER)
    response = await cluster.request("POST", resource.path(), resource.obj("a", spec={"i": 2.0}), dryRun="All")
    assert response.expect(201)["spec"] == {"i": 2} and b"2.0" not in response.body


@check(
    "A value of the wrong type is rejected with FieldValueTypeInvalid at its path.",
    area=AREA,
    mutation=replaced("model.errors:_invalid_reason", lambda problem: "FieldValueInvalid"),
)
async def types(cluster: Cluster) -> None:
    list_schema = {"type": "array", "items": STRING}
    map_schema = {"type": "object", "additionalProperties": INTEGER}
    resource = await create_resource(
        cluster,
        i=INTEGER,
        n={"type": "number"},
        s=STRING,
        b={"type": "boolean"},
        l=list_schema,
        o={"type": "object"},
        m=map_schema,
    )
    for name, value, field in (
        ("i", "x", "spec.i"),
        ("i", 1.5, "spec.i"),
        ("i", True, "spec.i"),
        ("n", "1", "spec.n"),
        ("s", 1, "spec.s"),
        ("b", "true", "spec.b"),
        ("l", "x", "spec.l"),
        ("l", ["a", 1], "spec.l[1]"),
        ("o", [], "spec.o"),
        ("m", {"a": "x"}, "spec.m.a"),
        ("m", {"a-b/c": "x"}, "spec.m.a-b/c"),
    ):
        assert await rejected_fields(cluster, resource, **{name: value}) == [(field, "TypeInvalid")], (name, value)


@check("An int-or-string accepts only integers and strings.", area=AREA, mutation=NO_VALIDATION)
async def int_or_string(cluster: Cluster) -> None:
    resource = await create_resource(cluster, v={"x-kubernetes-int-or-string": True})
    for valid in (1, "50%"):
        assert await stored_spec(cluster, resource, v=valid) == {"v": valid}
    invalid: tuple[Any, ...] = (1.5, True, {})
    for value in invalid:
        assert await rejected_fields(cluster, resource, v=value) == [("spec.v", "TypeInvalid")], value


@check("minimum, maximum, their exclusive forms and multipleOf are enforced.", area=AREA, mutation=NO_VALIDATION)
async def numbers(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster,
        a={"type": "integer", "minimum": 1, "maximum": 5},
        b={"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True},
        c={"type": "number", "multipleOf": 0.5},
    )
    assert await stored_spec(cluster, resource, a=1, b=0.5, c=1.5) == {"a": 1, "b": 0.5, "c": 1.5}
    for name, value in (("a", 0), ("a", 6), ("b", 0), ("b", 1), ("c", 0.7)):
        assert await rejected_fields(cluster, resource, **{name: value}) == [(f"spec.{name}", "Invalid")], (name, value)


@check(
    "A violated minLength or pattern is Invalid, maxLength TooLong, enum NotSupported.",
    area=AREA,
    mutation=NO_VALIDATION,
)
async def strings(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster,
        s={"type": "string", "minLength": 2, "maxLength": 3},
        p={"type": "string", "pattern": "^a+$"},
        e={"type": "string", "enum": ["x", "y"]},
    )
    assert await stored_spec(cluster, resource, s="abc", p="aa", e="x") == {"s": "abc", "p": "aa", "e": "x"}
    assert await rejected_fields(cluster, resource, s="a") == [("spec.s", "Invalid")]
    assert await rejected_fields(cluster, resource, s="aaaa") == [("spec.s", "TooLong")]
    assert await rejected_fields(cluster, resource, p="b") == [("spec.p", "Invalid")]
    assert await rejected_fields(cluster, resource, p="a\n") == [("spec.p", "Invalid")]
    assert await rejected_fields(cluster, resource, e="z") == [("spec.e", "NotSupported")]


@check(
    "Too few list items or map entries are Invalid, too many are TooMany.",
    area=AREA,
    mutation=NO_VALIDATION,
)
async def sizes(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster,
        l={"type": "array", "items": STRING, "minItems": 1, "maxItems": 2},
        m={"type": "object", "additionalProperties": STRING, "minProperties": 1, "maxProperties": 2},
    )
    assert await rejected_fields(cluster, resource, l=[]) == [("spec.l", "Invalid")]
    assert await rejected_fields(cluster, resource, l=["a", "b", "c"]) == [("spec.l", "TooMany")]
    assert await rejected_fields(cluster, resource, m={}) == [("spec.m", "Invalid")]
    assert await rejected_fields(cluster, resource, m={"a": "", "b": "", "c": ""}) == [("spec.m", "TooMany")]


@check("A missing required field is reported with its full path.", area=AREA, mutation=NO_VALIDATION)
async def required(cluster: Cluster) -> None:
    object_schema = {"type": "object", "required": ["r"], "properties": {"r": STRING}}
    resource = await create_resource(cluster, o=object_schema, l={"type": "array", "items": object_schema})
    expected = [("spec.l[1].r", "Required"), ("spec.o.r", "Required")]
    assert await rejected_fields(cluster, resource, o={}, l=[{"r": "x"}, {}]) == expected
    assert await rejected_fields(cluster, resource, o={"r": None}) == [("spec.o.r", "Required")]


@check("Duplicate items of a set, and duplicate keys of a map list, are rejected.", area=AREA, mutation=NO_VALIDATION)
async def unique(cluster: Cluster) -> None:
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": STRING, "port": {"type": "integer", "default": 80}, "v": INTEGER},
    }
    list_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"]}
    resource = await create_resource(
        cluster,
        s={"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        m={"type": "array", **list_type, "items": item},
    )
    assert await stored_spec(cluster, resource, s=["a", "b"], m=[{"name": "a"}, {"name": "a", "port": 81}])
    assert await rejected_fields(cluster, resource, s=["a", "b", "a"]) == [("spec.s[2]", "Duplicate")]
    duplicates = [{"name": "a"}, {"name": "b"}, {"name": "a", "port": 80, "v": 1}]
    assert await rejected_fields(cluster, resource, m=duplicates) == [("spec.m[2]", "Duplicate")]


FORMATS = (
    ("date-time", "2020-01-01T00:00:00Z", "yesterday"),
    ("date", "2020-01-31", "2020-13-01"),
    ("duration", "1h30m", "long"),
    ("ipv4", "10.0.0.1", "10.0.0.256"),
    ("ipv6", "::1", "10.0.0.1"),
    ("cidr", "10.0.0.0/8", "10.0.0.0"),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000", "1"),
    ("byte", "YWJj", "!"),
    ("email", "a@example.org", "a"),
    ("uri", "https://example.org/a", "::"),
    ("hostname", "a.example.org", "_"),
    ("mac", "00:00:5e:00:53:01", "1"),
)


@check(
    "Known string formats are validated, unknown ones ignored.",
    area=AREA,
    mutation=NO_VALIDATION,
)
async def formats(cluster: Cluster) -> None:
    fields = {f"f{index}": {"type": "string", "format": row[0]} for index, row in enumerate(FORMATS)}
    resource = await create_resource(cluster, **fields, odd={"type": "string", "format": "of-my-own"})
    valid = {f"f{index}": row[1] for index, row in enumerate(FORMATS)}
    assert await stored_spec(cluster, resource, **valid, odd="?") == {**valid, "odd": "?"}
    invalid = {f"f{index}": row[2] for index, row in enumerate(FORMATS)}
    assert await rejected_fields(cluster, resource, **invalid) == sorted(
        (f"spec.{name}", "TypeInvalid") for name in fields
    )


@check("anyOf, oneOf, allOf and not are enforced.", area=AREA, mutation=NO_VALIDATION)
async def combinators(cluster: Cluster) -> None:
    starts, ends = {"pattern": "^a"}, {"pattern": "a$"}
    resource = await create_resource(
        cluster,
        any={"type": "string", "anyOf": [starts, ends]},
        one={"type": "string", "oneOf": [starts, ends]},
        all={"type": "string", "allOf": [starts, ends]},
        no={"type": "string", "not": starts},
    )
    valid = {"any": "xa", "one": "ax", "all": "aa", "no": "b"}
    assert await stored_spec(cluster, resource, **valid) == valid
    for name, value in (("any", "x"), ("one", "x"), ("one", "aa"), ("all", "ax"), ("no", "a")):
        path, obj = resource.path(), resource.obj("a", spec={name: value})
        (await cluster.request("POST", path, obj, dryRun="All")).expect_error(422, "Invalid", f"spec.{name}")


@check(
    "An embedded resource requires apiVersion and kind; its unknown metadata is pruned.",
    area=AREA,
    mutation=replaced("schema.pruning_and_defaulting:_prune_embedded_metadata", lambda meta: meta) | NO_PRUNING,
)
async def embedded(cluster: Cluster) -> None:
    resource = await create_resource(cluster, t={**ANY_OBJECT, "x-kubernetes-embedded-resource": True})
    expected = [("spec.t.apiVersion", "Required"), ("spec.t.kind", "Required")]
    assert await rejected_fields(cluster, resource, t={"a": 1}) == expected
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "spec": {"free": True}}
    assert await stored_spec(cluster, resource, t=pod) == {"t": {**pod, "metadata": {"name": "x"}}}


@check("All problems of an object are reported at once.", area=AREA, mutation=replaced("schema.checks:MAX_PROBLEMS", 1))
async def all_at_once(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster, i={"type": "integer", "minimum": 1}, s=STRING, e={"type": "string", "enum": ["x"]}
    )
    expected = [("spec.e", "NotSupported"), ("spec.i", "Invalid"), ("spec.s", "TypeInvalid")]
    assert await rejected_fields(cluster, resource, i=0, s=1, e="z") == expected


async def _create_tightened(cluster: Cluster) -> CustomResource:
    """Create a custom resource whose schema became stricter after its object `a` was stored."""
    resource = await create_resource(
        cluster, old=STRING, new=INTEGER, o={"type": "object", "properties": {"a": STRING, "b": STRING}}
    )
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"old": "long", "o": {"a": "x"}}))).expect(
        201
    )
    short_string = {"type": "string", "maxLength": 1}
    object_schema = {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["b"]}
    spec = {"type": "object", "properties": {"old": short_string, "new": INTEGER, "o": object_schema}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.name}"
    (await cluster.request("PATCH", path, {"spec": {"versions": [version]}})).expect(200)

    async def is_enforced() -> bool:
        obj = resource.obj("b", spec={"old": "long"})
        return (await cluster.request("POST", resource.path(), obj, dryRun="All")).code == 422

    await cluster.wait_until(is_enforced)
    return resource


@check(
    "An update is not rejected for an unchanged field that became invalid.",
    area=AREA,
    mutation=replaced("registry.admission:_made_worse", lambda schema, problems, new, old: problems),
)
async def ratcheting(cluster: Cluster) -> None:
    resource = await _create_tightened(cluster)
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"new": 1}}
    assert (await cluster.request("PATCH", resource.path("a"), patch)).expect(200)["spec"]["new"] == 1


@check(
    "A changed field must be valid, and its object must have its required fields.",
    area=AREA,
    mutation=replaced(
        "registry.admission:_made_worse", lambda schema, problems, new, old: problems if old is None else []
    ),
)
async def no_ratcheting(cluster: Cluster) -> None:
    resource = await _create_tightened(cluster)
    for spec, field in (({"old": "else"}, "spec.old"), ({"o": {"a": "y"}}, "spec.o.b")):
        error = (await cluster.request("PATCH", resource.path("a"), {"spec": spec})).expect_error(422, "Invalid")
        assert field in [cause["field"] for cause in error["details"]["causes"]]


@check("A null spec is treated as missing.", area=AREA, mutation=answers(201, 422) | NO_DEFAULTING)
async def null_spec(cluster: Cluster) -> None:
    resource = await create_resource(cluster, a=STRING)
    response = await cluster.request("POST", resource.path(), resource.obj("a", spec=None), dryRun="All")
    assert "spec" not in response.expect(201)
