"""Structural schemas at work: what is pruned, filled in and refused, where, and of which kind the refusal is."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, replaced
from trainyard.testing.check_server.subject import Kind

AREA = "schemas"
TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
FREE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SILENT = replaced("schema.compiled:Schema.validate", lambda schema, obj, path="": [])
BARE = replaced("schema.compiled:Schema.default", lambda schema, obj: obj)
UNPRUNED = replaced("schema.compiled:Schema.prune", lambda schema, obj: obj)


async def kind_of(yard: Subject, **fields: Json) -> Kind:
    """A kind whose spec has these fields."""
    spec = {"type": "object", "properties": fields}
    return await yard.crd(schema={"type": "object", "properties": {"spec": spec}})


async def stored(yard: Subject, kind: Kind, **spec: Any) -> Any:
    """What becomes of a spec."""
    said = (await yard.ask("POST", kind.path(), kind.obj("a", spec=spec), dryRun="All")).must(201)
    return said["spec"]


async def refused(yard: Subject, kind: Kind, **spec: Any) -> list[tuple[str, str]]:
    """Field and reason of each cause of the refusal, those without a field left out."""
    reply = await yard.ask("POST", kind.path(), kind.obj("a", spec=spec), dryRun="All")
    causes = reply.refused(422, "Invalid")["details"]["causes"]
    found = [(one["field"], one["reason"].removeprefix("FieldValue")) for one in causes]
    return sorted({one for one in found if one[0] != "<nil>"})


@check("Fields that the schema does not know are pruned, at every depth.", area=AREA, breaks=UNPRUNED)
async def pruned(yard: Subject) -> None:
    inner = {"type": "object", "properties": {"a": TEXT}}
    kind = await kind_of(yard, o=inner, l={"type": "array", "items": inner})
    sent = {"o": {"a": "x", "b": 1}, "l": [{"a": "x", "c": {}}], "z": 1}
    assert await stored(yard, kind, **sent) == {"o": {"a": "x"}, "l": [{"a": "x"}]}


@check(
    "Under preserve-unknown-fields everything stays; named fields below it are pruned by their own schema.",
    area=AREA,
    breaks=replaced("schema.compiled:Schema.prune", lambda schema, obj: {**obj, "spec": {}}),
)
async def preserved(yard: Subject) -> None:
    named = {**FREE, "properties": {"a": {"type": "object", "properties": {"b": TEXT}}}}
    kind = await kind_of(yard, f=FREE, g=named, h={"x-kubernetes-preserve-unknown-fields": True})
    sent = {"f": {"x": [1, None]}, "g": {"a": {"b": "x", "c": 1}, "z": 1}, "h": [1]}
    assert await stored(yard, kind, **sent) == {**sent, "g": {"a": {"b": "x"}, "z": 1}}


@check(
    "Defaults fill what is missing: nested ones in what is there, in every item of a list, in every value of a map.",
    area=AREA,
    breaks=BARE,
)
async def defaults(yard: Subject) -> None:
    part = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    kind = await kind_of(
        yard,
        o=part,
        p={**part, "default": {}},
        l={"type": "array", "items": part},
        m={"type": "object", "additionalProperties": part},
    )
    assert await stored(yard, kind, o={}, l=[{}, {"a": "y"}], m={"k": {}}) == {
        "o": {"a": "x"},
        "p": {"a": "x"},
        "l": [{"a": "x"}, {"a": "y"}],
        "m": {"k": {"a": "x"}},
    }
    assert await stored(yard, kind) == {"p": {"a": "x"}}


@check(
    "A null goes where it may not be, gives way to a default, and stays where the schema is nullable.",
    area=AREA,
    breaks=BARE,
)
async def nulls(yard: Subject) -> None:
    kind = await kind_of(
        yard,
        plain=TEXT,
        filled={"type": "string", "default": "x"},
        nullable={"type": "string", "nullable": True},
        both={"type": "string", "nullable": True, "default": "x"},
        free={"x-kubernetes-preserve-unknown-fields": True},
        map={"type": "object", "additionalProperties": WHOLE},
    )
    sent = {"plain": None, "filled": None, "nullable": None, "both": None, "free": None, "map": {"a": None, "b": 1}}
    assert await stored(yard, kind, **sent) == {"filled": "x", "nullable": None, "both": None, "map": {"b": 1}}
    listed = await kind_of(yard, l={"type": "array", "items": TEXT})
    assert await refused(yard, listed, l=[None]) == [("spec.l[0]", "TypeInvalid")]


@check("A whole number may be written as 2.0 and is stored as 2.", area=AREA, breaks=BARE)
async def whole_numbers(yard: Subject) -> None:
    kind = await kind_of(yard, i=WHOLE)
    said = await yard.ask("POST", kind.path(), kind.obj("a", spec={"i": 2.0}), dryRun="All")
    assert said.must(201)["spec"] == {"i": 2} and b"2.0" not in said.body


@check(
    "A value of the wrong type is refused with FieldValueTypeInvalid at its path.",
    area=AREA,
    breaks=replaced("errors:_invalid_reason", lambda problem: "FieldValueInvalid"),
)
async def types(yard: Subject) -> None:
    many = {"type": "array", "items": TEXT}
    maps = {"type": "object", "additionalProperties": WHOLE}
    kind = await kind_of(
        yard, i=WHOLE, n={"type": "number"}, s=TEXT, b={"type": "boolean"}, l=many, o={"type": "object"}, m=maps
    )
    for name, value, place in (
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
        assert await refused(yard, kind, **{name: value}) == [(place, "TypeInvalid")], (name, value)


@check("An int-or-string takes a whole number or a string and nothing else.", area=AREA, breaks=SILENT)
async def mixed(yard: Subject) -> None:
    kind = await kind_of(yard, v={"x-kubernetes-int-or-string": True})
    for good in (1, "50%"):
        assert await stored(yard, kind, v=good) == {"v": good}
    wrong: tuple[Any, ...] = (1.5, True, {})
    for bad in wrong:
        assert await refused(yard, kind, v=bad) == [("spec.v", "TypeInvalid")], bad


@check("Minimum, maximum, their exclusive forms and multipleOf bound numbers.", area=AREA, breaks=SILENT)
async def numbers(yard: Subject) -> None:
    kind = await kind_of(
        yard,
        a={"type": "integer", "minimum": 1, "maximum": 5},
        b={"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True},
        c={"type": "number", "multipleOf": 0.5},
    )
    assert await stored(yard, kind, a=1, b=0.5, c=1.5) == {"a": 1, "b": 0.5, "c": 1.5}
    for name, value in (("a", 0), ("a", 6), ("b", 0), ("b", 1), ("c", 0.7)):
        assert await refused(yard, kind, **{name: value}) == [(f"spec.{name}", "Invalid")], (name, value)


@check("minLength and pattern are Invalid, maxLength is TooLong, an enum is NotSupported.", area=AREA, breaks=SILENT)
async def strings(yard: Subject) -> None:
    kind = await kind_of(
        yard,
        s={"type": "string", "minLength": 2, "maxLength": 3},
        p={"type": "string", "pattern": "^a+$"},
        e={"type": "string", "enum": ["x", "y"]},
    )
    assert await stored(yard, kind, s="abc", p="aa", e="x") == {"s": "abc", "p": "aa", "e": "x"}
    assert await refused(yard, kind, s="a") == [("spec.s", "Invalid")]
    assert await refused(yard, kind, s="aaaa") == [("spec.s", "TooLong")]
    assert await refused(yard, kind, p="b") == [("spec.p", "Invalid")]
    assert await refused(yard, kind, p="a\n") == [("spec.p", "Invalid")]
    assert await refused(yard, kind, e="z") == [("spec.e", "NotSupported")]


@check(
    "Sizes of lists and maps: too few is Invalid, too many is TooMany.",
    area=AREA,
    breaks=SILENT,
)
async def sizes(yard: Subject) -> None:
    kind = await kind_of(
        yard,
        l={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2},
        m={"type": "object", "additionalProperties": TEXT, "minProperties": 1, "maxProperties": 2},
    )
    assert await refused(yard, kind, l=[]) == [("spec.l", "Invalid")]
    assert await refused(yard, kind, l=["a", "b", "c"]) == [("spec.l", "TooMany")]
    assert await refused(yard, kind, m={}) == [("spec.m", "Invalid")]
    assert await refused(yard, kind, m={"a": "", "b": "", "c": ""}) == [("spec.m", "TooMany")]


@check("A required field that is missing is named with its whole path.", area=AREA, breaks=SILENT)
async def required(yard: Subject) -> None:
    inner = {"type": "object", "required": ["r"], "properties": {"r": TEXT}}
    kind = await kind_of(yard, o=inner, l={"type": "array", "items": inner})
    wanted = [("spec.l[1].r", "Required"), ("spec.o.r", "Required")]
    assert await refused(yard, kind, o={}, l=[{"r": "x"}, {}]) == wanted
    assert await refused(yard, kind, o={"r": None}) == [("spec.o.r", "Required")]


@check("No two items of a set, and no two of a map-list with the same keys.", area=AREA, breaks=SILENT)
async def unique(yard: Subject) -> None:
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": TEXT, "port": {"type": "integer", "default": 80}, "v": WHOLE},
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"]}
    kind = await kind_of(
        yard,
        s={"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        m={"type": "array", **keyed, "items": item},
    )
    assert await stored(yard, kind, s=["a", "b"], m=[{"name": "a"}, {"name": "a", "port": 81}])
    assert await refused(yard, kind, s=["a", "b", "a"]) == [("spec.s[2]", "Duplicate")]
    same = [{"name": "a"}, {"name": "b"}, {"name": "a", "port": 80, "v": 1}]
    assert await refused(yard, kind, m=same) == [("spec.m[2]", "Duplicate")]


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
    "Formats of strings are checked; one that nobody knows says nothing.",
    area=AREA,
    breaks=SILENT,
)
async def formats(yard: Subject) -> None:
    fields = {f"f{index}": {"type": "string", "format": row[0]} for index, row in enumerate(FORMATS)}
    kind = await kind_of(yard, **fields, odd={"type": "string", "format": "of-my-own"})
    good = {f"f{index}": row[1] for index, row in enumerate(FORMATS)}
    assert await stored(yard, kind, **good, odd="?") == {**good, "odd": "?"}
    bad = {f"f{index}": row[2] for index, row in enumerate(FORMATS)}
    assert await refused(yard, kind, **bad) == sorted((f"spec.{name}", "TypeInvalid") for name in fields)


@check("anyOf, oneOf, allOf and not narrow what a value may be.", area=AREA, breaks=SILENT)
async def logic(yard: Subject) -> None:
    starts, ends = {"pattern": "^a"}, {"pattern": "a$"}
    kind = await kind_of(
        yard,
        any={"type": "string", "anyOf": [starts, ends]},
        one={"type": "string", "oneOf": [starts, ends]},
        all={"type": "string", "allOf": [starts, ends]},
        no={"type": "string", "not": starts},
    )
    good = {"any": "xa", "one": "ax", "all": "aa", "no": "b"}
    assert await stored(yard, kind, **good) == good
    for name, value in (("any", "x"), ("one", "x"), ("one", "aa"), ("all", "ax"), ("no", "a")):
        path, obj = kind.path(), kind.obj("a", spec={name: value})
        (await yard.ask("POST", path, obj, dryRun="All")).refused(422, "Invalid", f"spec.{name}")


@check(
    "An embedded resource needs apiVersion and kind, keeps what is preserved, and loses unknown metadata.",
    area=AREA,
    breaks=replaced("schema.pruning_and_defaulting:_prune_embedded_metadata", lambda meta: meta) | UNPRUNED,
)
async def embedded(yard: Subject) -> None:
    kind = await kind_of(yard, t={**FREE, "x-kubernetes-embedded-resource": True})
    wanted = [("spec.t.apiVersion", "Required"), ("spec.t.kind", "Required")]
    assert await refused(yard, kind, t={"a": 1}) == wanted
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "spec": {"free": True}}
    assert await stored(yard, kind, t=pod) == {"t": {**pod, "metadata": {"name": "x"}}}


@check("All problems of an object are told at once.", area=AREA, breaks=replaced("schema.checks:MAX_PROBLEMS", 1))
async def all_at_once(yard: Subject) -> None:
    kind = await kind_of(yard, i={"type": "integer", "minimum": 1}, s=TEXT, e={"type": "string", "enum": ["x"]})
    wanted = [("spec.e", "NotSupported"), ("spec.i", "Invalid"), ("spec.s", "TypeInvalid")]
    assert await refused(yard, kind, i=0, s=1, e="z") == wanted


async def _tightened(yard: Subject) -> Kind:
    """A kind that got stricter after its object `a` had been stored."""
    kind = await kind_of(yard, old=TEXT, new=WHOLE, o={"type": "object", "properties": {"a": TEXT, "b": TEXT}})
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"old": "long", "o": {"a": "x"}}))).must(201)
    short = {"type": "string", "maxLength": 1}
    inner = {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["b"]}
    spec = {"type": "object", "properties": {"old": short, "new": WHOLE, "o": inner}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.name}"
    (await yard.ask("PATCH", path, {"spec": {"versions": [version]}})).must(200)

    async def holds() -> bool:
        obj = kind.obj("b", spec={"old": "long"})
        return (await yard.ask("POST", kind.path(), obj, dryRun="All")).code == 422

    await yard.until(holds)
    return kind


@check(
    "A field that was valid once and is not touched does not keep an update out.",
    area=AREA,
    breaks=replaced("registry.admission:_made_worse", lambda schema, found, new, old: found),
)
async def ratcheting(yard: Subject) -> None:
    kind = await _tightened(yard)
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"new": 1}}
    assert (await yard.ask("PATCH", kind.path("a"), patch)).must(200)["spec"]["new"] == 1


@check(
    "A field that is touched must be valid, and what its object lacks is missed.",
    area=AREA,
    breaks=replaced("registry.admission:_made_worse", lambda schema, found, new, old: found if old is None else []),
)
async def no_ratcheting(yard: Subject) -> None:
    kind = await _tightened(yard)
    for spec, place in (({"old": "else"}, "spec.old"), ({"o": {"a": "y"}}, "spec.o.b")):
        said = (await yard.ask("PATCH", kind.path("a"), {"spec": spec})).refused(422, "Invalid")
        assert place in [one["field"] for one in said["details"]["causes"]]


@check("A spec that is null is one that is not there.", area=AREA, breaks=answers(201, 422) | BARE)
async def null_spec(yard: Subject) -> None:
    kind = await kind_of(yard, a=TEXT)
    said = await yard.ask("POST", kind.path(), kind.obj("a", spec=None), dryRun="All")
    assert "spec" not in said.must(201)
