"""CEL rules of definitions: when they are asked, what they say, and which are refused with their definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainyard.objects import Json, Problem, decode
from trainyard.server.crd.rule_process import RuleProcess
from trainyard.server.crd.rules import compile_rules, evaluate
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import Break, replaced
from trainyard.testing.check_server.checks.refusing import offered
from trainyard.testing.check_server.checks.schemas import TEXT, WHOLE, kind_of, stored
from trainyard.testing.check_server.subject import Kind

AREA = "rules"
ASKED = "crd.rule_process:RuleProcess.problems"
UNASKED = replaced(ASKED, lambda process, schema, new, old: [])
UNREAD = replaced("crd.validation:rule_problems", lambda schema, path: [])
SHORT: Json = {"type": "string", "maxLength": 20}
_RULES = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"


def _asked_here(process: RuleProcess, schema: bytes, new: Json, old: Json | None) -> list[Problem]:
    """Without a process of its own, which no mutation reaches."""
    tree = compile_rules(decode(schema))
    return list(evaluate(tree, new, old)) if tree else []


def mutated(where: str, what: Any) -> Break:
    """Another function of rules.py, where rules are asked, too."""
    return replace(replaced(where, what), replaced=((where, what), (ASKED, _asked_here)))


def ruled(schema: Json, rule: str, **more: Any) -> Json:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more}]}


def pair(rule: str, **more: Any) -> Json:
    return ruled({"type": "object", "properties": {"a": WHOLE, "b": WHOLE, "s": SHORT}}, rule, **more)


async def said(yard: Subject, kind: Kind, **spec: Any) -> list[tuple[str, str, str]]:
    """Field, reason and message of each cause."""
    reply = await yard.ask("POST", kind.path(), kind.obj("a", spec=spec), dryRun="All")
    return causes(reply.refused(422, "Invalid"))


def causes(status: Json) -> list[tuple[str, str, str]]:
    found = status["details"]["causes"]
    return sorted((one["field"], one["reason"].removeprefix("FieldValue"), one["message"]) for one in found)


@check("A rule that does not hold refuses the object with its message, at its place.", area=AREA, breaks=UNASKED)
async def message(yard: Subject) -> None:
    kind = await kind_of(yard, o=pair("self.a < self.b", message="a must be below b"), i=ruled(WHOLE, "self > 1"))
    assert await stored(yard, kind, o={"a": 1, "b": 2}, i=2)
    assert await said(yard, kind, o={"a": 2, "b": 1}) == [("spec.o", "Invalid", "Invalid value: a must be below b")]
    assert await said(yard, kind, i=0) == [("spec.i", "Invalid", "Invalid value: 0: failed rule: self > 1")]


@check(
    "messageExpression makes the message; where it fails or is empty, message is said.",
    area=AREA,
    breaks=mutated("crd.rules:_message", lambda rule, tree, variables: rule.message),
)
async def expression(yard: Subject) -> None:
    kind = await kind_of(
        yard,
        s=ruled(SHORT, "self != 'x'", messageExpression="'got ' + self", message="fallback"),
        e=ruled(WHOLE, "self > 1", messageExpression="1/0 == 0 ? 'a' : 'b'", message="fallback"),
        n=ruled(WHOLE, "self > 1", messageExpression="' '", message="fallback"),
    )
    assert await said(yard, kind, s="x") == [("spec.s", "Invalid", 'Invalid value: "x": got x')]
    for name in ("e", "n"):
        assert await said(yard, kind, **{name: 0}) == [(f"spec.{name}", "Invalid", "Invalid value: 0: fallback")]


@check(
    "reason and fieldPath of a rule become those of the cause.",
    area=AREA,
    breaks=mutated("crd.rules:REASONS", ()) | replaced("crd.rules:_rule", lambda one: _plain(one)),
)
async def reasons(yard: Subject) -> None:
    kind = await kind_of(
        yard,
        f=pair("self.a > 1", fieldPath=".a", reason="FieldValueForbidden", message="m"),
        r=pair("has(self.a)", fieldPath=".a", reason="FieldValueRequired", message="m"),
        d=ruled(SHORT, "self != 'x'", reason="FieldValueDuplicate", message="m"),
    )
    assert await said(yard, kind, f={"a": 0}) == [("spec.f.a", "Forbidden", "Forbidden: m")]
    assert await said(yard, kind, r={}) == [("spec.r.a", "Required", "Required value: m")]
    assert await said(yard, kind, d="x") == [("spec.d", "Duplicate", 'Duplicate value: "x"')]


def _plain(one: Json) -> Any:
    from trainyard.server.crd.rules import Rule

    return Rule(one["rule"], one.get("message", ""), "", "", "", "")


@check(
    "Every rule of a schema is asked, on the object, its items and the values of its maps.", area=AREA, breaks=UNASKED
)
async def everywhere(yard: Subject) -> None:
    positive = ruled(WHOLE, "self > 0", message="positive")
    two = [{"rule": "self > 1", "message": "one"}, {"rule": "self > 2", "message": "two"}]
    kind = await kind_of(
        yard,
        l={"type": "array", "maxItems": 5, "items": positive},
        m={"type": "object", "maxProperties": 5, "additionalProperties": positive},
        w={**WHOLE, "x-kubernetes-validations": two},
    )
    assert [one[0] for one in await said(yard, kind, l=[1, 0, 2, -1])] == ["spec.l[1]", "spec.l[3]"]
    assert [one[0] for one in await said(yard, kind, m={"a": 0, "b-c/d": 0})] == ["spec.m[a]", "spec.m[b-c/d]"]
    assert [one[2][-3:] for one in await said(yard, kind, w=0)] == ["one", "two"]


@check("A rule at the root sees apiVersion, kind and metadata.name, and no other metadata.", area=AREA, breaks=UNASKED)
async def at_the_root(yard: Subject) -> None:
    spec = {"type": "object", "properties": {"a": TEXT}}
    schema = ruled({"type": "object", "properties": {"spec": spec}}, "self.metadata.name != 'bad'", message="no")
    kind = await yard.crd(schema=schema)
    (await yard.ask("POST", kind.path(), kind.obj("good"), dryRun="All")).must(201)
    reply = await yard.ask("POST", kind.path(), kind.obj("bad"), dryRun="All")
    assert causes(reply.refused(422, "Invalid")) == [("<nil>", "Invalid", "Invalid value: no")]
    labels = ruled({"type": "object", "properties": {"spec": spec}}, "has(self.metadata.labels)")
    assert (await offered(yard, labels))[0] == 422


@check(
    "Rules are not asked when types, required fields or enums are wrong, and the refusal says so.",
    area=AREA,
    breaks=replaced("registry.admission:_ruled", lambda *_: []),
)
async def unasked(yard: Subject) -> None:
    kind = await kind_of(yard, i=WHOLE, m={"type": "integer", "minimum": 5}, o=pair("self.a < self.b", message="below"))
    found = await said(yard, kind, i="x", o={"a": 2, "b": 1})
    assert [one[0] for one in found] == ["<nil>", "spec.i"]
    assert "some validation rules were not checked because the object was invalid" in found[0][2]
    found = await said(yard, kind, m=1, o={"a": 2, "b": 1})
    assert [one[0] for one in found] == ["spec.m", "spec.o"]


@check("A transition rule compares with oldSelf: never on create, always on a change.", area=AREA, breaks=UNASKED)
async def transition(yard: Subject) -> None:
    kind = await kind_of(yard, s=ruled(SHORT, "self == oldSelf", message="is immutable"), n=WHOLE)
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"s": "x"}))).must(201)
    (await yard.ask("PATCH", kind.path("a"), {"spec": {"n": 1}})).must(200)
    reply = await yard.ask("PATCH", kind.path("a"), {"spec": {"s": "y"}})
    found = causes(reply.refused(422, "Invalid"))
    assert found == [("spec.s", "Invalid", 'Invalid value: "y": is immutable')]
    (await yard.ask("PATCH", kind.path("a"), {"spec": {"s": None}})).must(200)
    (await yard.ask("PATCH", kind.path("a"), {"spec": {"s": "z"}})).must(200)


@check(
    "With optionalOldSelf a rule is asked on create, too, and oldSelf is an optional.",
    area=AREA,
    breaks=UNASKED,
)
async def optional(yard: Subject) -> None:
    rule = ruled(SHORT, "oldSelf.hasValue() || self == 'first'", optionalOldSelf=True, message="first")
    kind = await kind_of(yard, s=rule)
    assert await said(yard, kind, s="x") == [("spec.s", "Invalid", 'Invalid value: "x": first')]
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"s": "first"}))).must(201)
    (await yard.ask("PATCH", kind.path("a"), {"spec": {"s": "second"}})).must(200)


@check(
    "Items of a list that is a map are compared with the item of the same key, wherever it stands.",
    area=AREA,
    breaks=mutated("crd.rules:_pairs", lambda schema, old: lambda item: None),
)
async def correlated(yard: Subject) -> None:
    rule = ruled(WHOLE, "self >= oldSelf", message="may not go down")
    item = {"type": "object", "required": ["name"], "properties": {"name": SHORT, "v": rule}}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    kind = await kind_of(yard, l={"type": "array", "maxItems": 5, **keyed, "items": item})
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"l": [{"name": "a", "v": 3}]}))).must(201)
    lower = {"spec": {"l": [{"name": "b", "v": 1}, {"name": "a", "v": 2}]}}
    found = causes((await yard.ask("PATCH", kind.path("a"), lower)).refused(422, "Invalid"))
    assert found == [("spec.l[1].v", "Invalid", "Invalid value: 2: may not go down")]


@check(
    "A rule of a part that did not change does not keep an update out.",
    area=AREA,
    breaks=replaced(ASKED, lambda process, schema, new, old: [Problem("spec.o", "Invalid value: large")]),
)
async def ratcheting(yard: Subject) -> None:
    kind = await kind_of(yard, o=pair("self.a < 10", message="small"), n=WHOLE)
    (await yard.ask("POST", kind.path(), kind.obj("a", spec={"o": {"a": 5}}))).must(201)
    spec = {"type": "object", "properties": {"o": pair("self.a > 10", message="large"), "n": WHOLE}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.name}"
    (await yard.ask("PATCH", path, {"spec": {"versions": [version]}})).must(200)

    async def holds() -> bool:
        obj = kind.obj("b", spec={"o": {"a": 1}})
        return (await yard.ask("POST", kind.path(), obj, dryRun="All")).code == 422

    await yard.until(holds)
    (await yard.ask("PATCH", kind.path("a"), {"spec": {"n": 1}})).must(200)
    found = causes((await yard.ask("PATCH", kind.path("a"), {"spec": {"o": {"a": 6}}})).refused(422, "Invalid"))
    assert found == [("spec.o", "Invalid", "Invalid value: large")]


@check(
    "A rule that fails at work refuses the object: `no such key`, `division by zero`.",
    area=AREA,
    breaks=UNASKED,
)
async def errors(yard: Subject) -> None:
    kind = await kind_of(yard, o=pair("self.a > 1", message="m"), i=ruled(WHOLE, "10 / self > 1"))
    (found,) = await said(yard, kind, o={})
    assert found == ("spec.o", "Invalid", 'Invalid value: "object": no such key: a evaluating rule: m')
    (found,) = await said(yard, kind, i=0)
    assert found == ("spec.i", "Invalid", 'Invalid value: "integer": division by zero evaluating rule: 10 / self > 1')


@check("A nullable field that is null is absent for has().", area=AREA, breaks=UNASKED)
async def null_is_absent(yard: Subject) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string", "nullable": True}}}
    kind = await kind_of(yard, o=ruled(schema, "!has(self.n)", message="n"))
    assert await stored(yard, kind, o={"n": None}) == {"o": {"n": None}}
    assert [one[0] for one in await said(yard, kind, o={"n": "x"})] == ["spec.o"]


@check(
    "Odd names are escaped: a-b is a__dash__b, in is __in__, x.y is x__dot__y.",
    area=AREA,
    breaks=mutated("crd.rules:escaped_name", lambda name: name),
)
async def escaped(yard: Subject) -> None:
    schema = {"type": "object", "properties": {"a-b": WHOLE, "in": WHOLE, "x.y": WHOLE}}
    rule = "self.a__dash__b > 0 && self.__in__ > 0 && self.x__dot__y > 0"
    kind = await kind_of(yard, o=ruled(schema, rule, message="positive"))
    assert await stored(yard, kind, o={"a-b": 1, "in": 1, "x.y": 1})
    assert [one[0] for one in await said(yard, kind, o={"a-b": 1, "in": 0, "x.y": 1})] == ["spec.o"]


FUNCTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("quantity(self).isLessThan(quantity('1Gi'))", "512Mi", "2Gi"),
    ("isQuantity(self) && quantity(self).asInteger() == 2", "2", "3"),
    ("isURL(self) && url(self).getHostname() == 'a.b'", "http://a.b:80/c", "nothing"),
    ("isIP(self) && ip(self).family() == 4", "10.0.0.1", "::1"),
    ("cidr('10.0.0.0/8').containsIP(self)", "10.1.2.3", "11.1.2.3"),
    ("self.matches('^a.*z$')", "a-z", "b"),
    ("self.find('[0-9]+') == '42'", "a42b", "a4b"),
    ("self.indexOf('b') == 1", "ab", "ba"),
    ("self.upperAscii() == 'ABC'", "abc", "abd"),
    ("self.isSorted()", ["a", "b"], ["b", "a"]),
    ("self.indexOf('b') == 1", ["a", "b"], ["b", "a"]),
    ("self.max() == 'c'", ["a", "c", "b"], ["a", "b"]),
    ("self.map(x, x.size()).sum() == 3", ["a", "bc"], ["a", "b"]),
    ("sets.contains(['a', 'b'], self)", ["a", "b"], ["a", "c"]),
    ("self.exists_one(x, x == 'a')", ["a", "b"], ["a", "a"]),
    ("timestamp(self) < timestamp('2020-01-01T00:00:00Z')", "2019-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
    ("duration(self) > duration('1m')", "1h", "1s"),
)


@check(
    "The functions of Kubernetes' CEL: quantities, URLs, addresses, patterns, lists, strings, times.",
    area=AREA,
    breaks=UNASKED,
)
async def functions(yard: Subject) -> None:
    text = {"type": "string", "maxLength": 30}
    many = {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}}
    fields = {
        f"f{index}": ruled(text if isinstance(row[1], str) else many, row[0], message="m")
        for index, row in enumerate(FUNCTIONS)
    }
    kind = await kind_of(yard, **fields)
    good = {f"f{index}": row[1] for index, row in enumerate(FUNCTIONS)}
    assert await stored(yard, kind, **good) == good
    found = await said(yard, kind, **{f"f{index}": row[2] for index, row in enumerate(FUNCTIONS)})
    assert {one[0] for one in found} == {f"spec.{name}" for name in fields}


@check("Times and durations by format are times and durations for a rule.", area=AREA, breaks=UNASKED)
async def times(yard: Subject) -> None:
    schema = {
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "duration"}},
    }
    rule = "(!has(self.at) || self.at > timestamp('2020-01-01T00:00:00Z')) && (!has(self.d) || self.d < duration('1h'))"
    kind = await kind_of(yard, o=ruled(schema, rule, message="m"))
    assert await stored(yard, kind, o={"at": "2021-01-01T00:00:00Z", "d": "5m"})
    for bad in ({"at": "2019-01-01T00:00:00Z"}, {"d": "2h"}):
        assert [one[0] for one in await said(yard, kind, o=bad)] == ["spec.o"]


BAD_RULES: tuple[tuple[Json, str, str], ...] = (
    ({"rule": ""}, "rule", "Required"),
    ({"rule": "self.a >"}, "rule", "Invalid"),
    ({"rule": "self.zz > 1"}, "rule", "Invalid"),
    ({"rule": "self.a"}, "rule", "Invalid"),
    ({"rule": "self.a > 'x'"}, "rule", "Invalid"),
    ({"rule": "nothing(self.a)"}, "rule", "Invalid"),
    ({"rule": "self.a > 1", "message": "a\nb"}, "message", "Invalid"),
    ({"rule": "self.a > 1 &&\nself.b > 1"}, "message", "Required"),
    ({"rule": "self.a > 1", "reason": "Odd"}, "reason", "NotSupported"),
    ({"rule": "self.a > 1", "fieldPath": ".zz"}, "fieldPath", "Invalid"),
    ({"rule": "self.a > 1", "messageExpression": "self.zz"}, "messageExpression", "Invalid"),
    ({"rule": "self.a > 1", "messageExpression": "5"}, "messageExpression", "Invalid"),
    ({"rule": "self.a > 1", "optionalOldSelf": True}, "optionalOldSelf", "Invalid"),
)


@check(
    "A rule that cannot be read, names no field, compares wrong types or is no bool is refused with its place.",
    area=AREA,
    breaks=UNREAD,
)
async def bad_rules(yard: Subject) -> None:
    for rule, place, reason in BAD_RULES:
        spec = {**pair("true"), "x-kubernetes-validations": [rule]}
        schema = {"type": "object", "properties": {"spec": spec}}
        assert await offered(yard, schema) == (422, {(f"{_RULES}.{place}", reason)}), rule


@check("oldSelf is refused where items cannot be told apart: in a list that is no map.", area=AREA, breaks=UNREAD)
async def uncorrelated(yard: Subject) -> None:
    listed = {"type": "array", "maxItems": 5, "items": ruled(SHORT, "self == oldSelf")}
    schema = {"type": "object", "properties": {"spec": listed}}
    place = "spec.validation.openAPIV3Schema.properties[spec].items.x-kubernetes-validations[0].rule"
    assert await offered(yard, schema) == (422, {(place, "Invalid")})
