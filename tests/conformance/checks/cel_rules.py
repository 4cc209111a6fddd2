"""CEL rules of definitions: when they are evaluated, what they report, and which are rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.invalid_definitions import dry_run_create
from tests.conformance.checks.schemas import INTEGER, STRING, create_resource, stored_spec
from tests.conformance.cluster import CustomResource
from tests.conformance.mutations import Mutation, replaced
from trainyard.objects import Json, Problem, decode
from trainyard.server.crd.rule_process import RuleProcess
from trainyard.server.crd.rules import compile_rules, evaluate

AREA = "rules"
EVALUATE = "crd.rule_process:RuleProcess.problems"
NOT_EVALUATED = replaced(EVALUATE, lambda process, schema, new, old: [])
NOT_COMPILED = replaced("crd.validation:rule_problems", lambda schema, path: [])
SHORT_STRING: Json = {"type": "string", "maxLength": 20}
_RULE_FIELD = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"


def _evaluate_in_process(process: RuleProcess, schema: bytes, new: Json, old: Json | None) -> list[Problem]:
    """Evaluate in this process: a mutation does not reach the rule process."""
    tree = compile_rules(decode(schema))
    return list(evaluate(tree, new, old)) if tree else []


def replaced_rules(path: str, replacement: Any) -> Mutation:
    """Replace an attribute of crd.rules, and evaluate the rules in this process."""
    return replace(replaced(path, replacement), replaced=((path, replacement), (EVALUATE, _evaluate_in_process)))


def with_rule(schema: Json, rule: str, **more: Any) -> Json:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more}]}


def object_with_rule(rule: str, **more: Any) -> Json:
    return with_rule({"type": "object", "properties": {"a": INTEGER, "b": INTEGER, "s": SHORT_STRING}}, rule, **more)


async def rejection(cluster: Cluster, resource: CustomResource, **spec: Any) -> list[tuple[str, str, str]]:
    """Field, reason and message of each cause for which the server rejects the spec."""
    response = await cluster.request("POST", resource.path(), resource.obj("a", spec=spec), dryRun="All")
    return causes_of(response.expect_error(422, "Invalid"))


def causes_of(status: Json) -> list[tuple[str, str, str]]:
    details = status["details"]["causes"]
    return sorted((cause["field"], cause["reason"].removeprefix("FieldValue"), cause["message"]) for cause in details)


@check("A rule that is false rejects the object with its message at its field.", area=AREA, mutation=NOT_EVALUATED)
async def message(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster, o=object_with_rule("self.a < self.b", message="a must be below b"), i=with_rule(INTEGER, "self > 1")
    )
    assert await stored_spec(cluster, resource, o={"a": 1, "b": 2}, i=2)
    assert await rejection(cluster, resource, o={"a": 2, "b": 1}) == [
        ("spec.o", "Invalid", "Invalid value: a must be below b")
    ]
    assert await rejection(cluster, resource, i=0) == [("spec.i", "Invalid", "Invalid value: 0: failed rule: self > 1")]


@check(
    "messageExpression gives the message; if it fails or is empty, message is used.",
    area=AREA,
    mutation=replaced_rules("crd.rules:_message", lambda rule, tree, variables: rule.message),
)
async def expression(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster,
        s=with_rule(SHORT_STRING, "self != 'x'", messageExpression="'got ' + self", message="fallback"),
        e=with_rule(INTEGER, "self > 1", messageExpression="1/0 == 0 ? 'a' : 'b'", message="fallback"),
        n=with_rule(INTEGER, "self > 1", messageExpression="' '", message="fallback"),
    )
    assert await rejection(cluster, resource, s="x") == [("spec.s", "Invalid", 'Invalid value: "x": got x')]
    for name in ("e", "n"):
        assert await rejection(cluster, resource, **{name: 0}) == [
            (f"spec.{name}", "Invalid", "Invalid value: 0: fallback")
        ]


@check(
    "reason and fieldPath of a rule become reason and field of the cause.",
    area=AREA,
    mutation=replaced_rules("crd.rules:REASONS", ()) | replaced("crd.rules:_rule", lambda rule: _plain_rule(rule)),
)
async def reasons(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster,
        f=object_with_rule("self.a > 1", fieldPath=".a", reason="FieldValueForbidden", message="m"),
        r=object_with_rule("has(self.a)", fieldPath=".a", reason="FieldValueRequired", message="m"),
        d=with_rule(SHORT_STRING, "self != 'x'", reason="FieldValueDuplicate", message="m"),
    )
    assert await rejection(cluster, resource, f={"a": 0}) == [("spec.f.a", "Forbidden", "Forbidden: m")]
    assert await rejection(cluster, resource, r={}) == [("spec.r.a", "Required", "Required value: m")]
    assert await rejection(cluster, resource, d="x") == [("spec.d", "Duplicate", 'Duplicate value: "x"')]


def _plain_rule(rule: Json) -> Any:
    from trainyard.server.crd.rules import ValidationRule

    return ValidationRule(rule["rule"], rule.get("message", ""), "", "", "", "")


@check("Every rule of a schema is evaluated, also for list items and map values.", area=AREA, mutation=NOT_EVALUATED)
async def nested_rules(cluster: Cluster) -> None:
    positive = with_rule(INTEGER, "self > 0", message="positive")
    rules = [{"rule": "self > 1", "message": "one"}, {"rule": "self > 2", "message": "two"}]
    resource = await create_resource(
        cluster,
        l={"type": "array", "maxItems": 5, "items": positive},
        m={"type": "object", "maxProperties": 5, "additionalProperties": positive},
        w={**INTEGER, "x-kubernetes-validations": rules},
    )
    assert [cause[0] for cause in await rejection(cluster, resource, l=[1, 0, 2, -1])] == ["spec.l[1]", "spec.l[3]"]
    assert [cause[0] for cause in await rejection(cluster, resource, m={"a": 0, "b-c/d": 0})] == [
        "spec.m[a]",
        "spec.m[b-c/d]",
    ]
    assert [cause[2][-3:] for cause in await rejection(cluster, resource, w=0)] == ["one", "two"]


@check("A rule at the root can use metadata.name, but no other metadata.", area=AREA, mutation=NOT_EVALUATED)
async def root_rules(cluster: Cluster) -> None:
    spec = {"type": "object", "properties": {"a": STRING}}
    schema = with_rule({"type": "object", "properties": {"spec": spec}}, "self.metadata.name != 'bad'", message="no")
    resource = await cluster.create_crd(schema=schema)
    (await cluster.request("POST", resource.path(), resource.obj("good"), dryRun="All")).expect(201)
    response = await cluster.request("POST", resource.path(), resource.obj("bad"), dryRun="All")
    assert causes_of(response.expect_error(422, "Invalid")) == [("<nil>", "Invalid", "Invalid value: no")]
    labels = with_rule({"type": "object", "properties": {"spec": spec}}, "has(self.metadata.labels)")
    assert (await dry_run_create(cluster, labels))[0] == 422


@check(
    "Rules are not evaluated when types are wrong, which is reported as a cause.",
    area=AREA,
    mutation=replaced("registry.admission:_ruled", lambda *_: []),
)
async def skipped_evaluation(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster, i=INTEGER, m={"type": "integer", "minimum": 5}, o=object_with_rule("self.a < self.b", message="below")
    )
    causes = await rejection(cluster, resource, i="x", o={"a": 2, "b": 1})
    assert [cause[0] for cause in causes] == ["<nil>", "spec.i"]
    assert "some validation rules were not checked because the object was invalid" in causes[0][2]
    causes = await rejection(cluster, resource, m=1, o={"a": 2, "b": 1})
    assert [cause[0] for cause in causes] == ["spec.m", "spec.o"]


@check(
    "A transition rule (oldSelf) is evaluated on changes of its field, not on create.",
    area=AREA,
    mutation=NOT_EVALUATED,
)
async def transition(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster, s=with_rule(SHORT_STRING, "self == oldSelf", message="is immutable"), n=INTEGER
    )
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"s": "x"}))).expect(201)
    (await cluster.request("PATCH", resource.path("a"), {"spec": {"n": 1}})).expect(200)
    response = await cluster.request("PATCH", resource.path("a"), {"spec": {"s": "y"}})
    errors = causes_of(response.expect_error(422, "Invalid"))
    assert errors == [("spec.s", "Invalid", 'Invalid value: "y": is immutable')]
    (await cluster.request("PATCH", resource.path("a"), {"spec": {"s": None}})).expect(200)
    (await cluster.request("PATCH", resource.path("a"), {"spec": {"s": "z"}})).expect(200)


@check(
    "With optionalOldSelf a rule is evaluated on create, too, and oldSelf is an optional.",
    area=AREA,
    mutation=NOT_EVALUATED,
)
async def optional(cluster: Cluster) -> None:
    rule = with_rule(SHORT_STRING, "oldSelf.hasValue() || self == 'first'", optionalOldSelf=True, message="first")
    resource = await create_resource(cluster, s=rule)
    assert await rejection(cluster, resource, s="x") == [("spec.s", "Invalid", 'Invalid value: "x": first')]
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"s": "first"}))).expect(201)
    (await cluster.request("PATCH", resource.path("a"), {"spec": {"s": "second"}})).expect(200)


@check(
    "In a map list oldSelf is the item with the same key, at any position.",
    area=AREA,
    mutation=replaced_rules("crd.rules:_pairs", lambda schema, old: lambda item: None),
)
async def correlated(cluster: Cluster) -> None:
    rule = with_rule(INTEGER, "self >= oldSelf", message="may not go down")
    item = {"type": "object", "required": ["name"], "properties": {"name": SHORT_STRING, "v": rule}}
    list_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    resource = await create_resource(cluster, l={"type": "array", "maxItems": 5, **list_type, "items": item})
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"l": [{"name": "a", "v": 3}]}))).expect(201)
    patch = {"spec": {"l": [{"name": "b", "v": 1}, {"name": "a", "v": 2}]}}
    errors = causes_of((await cluster.request("PATCH", resource.path("a"), patch)).expect_error(422, "Invalid"))
    assert errors == [("spec.l[1].v", "Invalid", "Invalid value: 2: may not go down")]


@check(
    "An update is not rejected for a rule on an unchanged field.",
    area=AREA,
    mutation=replaced(EVALUATE, lambda process, schema, new, old: [Problem("spec.o", "Invalid value: large")]),
)
async def ratcheting(cluster: Cluster) -> None:
    resource = await create_resource(cluster, o=object_with_rule("self.a < 10", message="small"), n=INTEGER)
    (await cluster.request("POST", resource.path(), resource.obj("a", spec={"o": {"a": 5}}))).expect(201)
    spec = {"type": "object", "properties": {"o": object_with_rule("self.a > 10", message="large"), "n": INTEGER}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.name}"
    (await cluster.request("PATCH", path, {"spec": {"versions": [version]}})).expect(200)

    async def is_enforced() -> bool:
        obj = resource.obj("b", spec={"o": {"a": 1}})
        return (await cluster.request("POST", resource.path(), obj, dryRun="All")).code == 422

    await cluster.wait_until(is_enforced)
    (await cluster.request("PATCH", resource.path("a"), {"spec": {"n": 1}})).expect(200)
    errors = causes_of(
        (await cluster.request("PATCH", resource.path("a"), {"spec": {"o": {"a": 6}}})).expect_error(422, "Invalid")
    )
    assert errors == [("spec.o", "Invalid", "Invalid value: large")]


@check(
    "A rule with an evaluation error (`no such key`, `division by zero`) rejects the object.",
    area=AREA,
    mutation=NOT_EVALUATED,
)
async def errors(cluster: Cluster) -> None:
    resource = await create_resource(
        cluster, o=object_with_rule("self.a > 1", message="m"), i=with_rule(INTEGER, "10 / self > 1")
    )
    (causes,) = await rejection(cluster, resource, o={})
    assert causes == ("spec.o", "Invalid", 'Invalid value: "object": no such key: a evaluating rule: m')
    (causes,) = await rejection(cluster, resource, i=0)
    assert causes == ("spec.i", "Invalid", 'Invalid value: "integer": division by zero evaluating rule: 10 / self > 1')


@check("has() is false for a nullable field that is null.", area=AREA, mutation=NOT_EVALUATED)
async def null_is_absent(cluster: Cluster) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string", "nullable": True}}}
    resource = await create_resource(cluster, o=with_rule(schema, "!has(self.n)", message="n"))
    assert await stored_spec(cluster, resource, o={"n": None}) == {"o": {"n": None}}
    assert [cause[0] for cause in await rejection(cluster, resource, o={"n": "x"})] == ["spec.o"]


@check(
    "Field names are escaped in rules: a-b is a__dash__b, in is __in__, x.y is x__dot__y.",
    area=AREA,
    mutation=replaced_rules("crd.rules:escaped_name", lambda name: name),
)
async def escaped(cluster: Cluster) -> None:
    schema = {"type": "object", "properties": {"a-b": INTEGER, "in": INTEGER, "x.y": INTEGER}}
    rule = "self.a__dash__b > 0 && self.__in__ > 0 && self.x__dot__y > 0"
    resource = await create_resource(cluster, o=with_rule(schema, rule, message="positive"))
    assert await stored_spec(cluster, resource, o={"a-b": 1, "in": 1, "x.y": 1})
    assert [cause[0] for cause in await rejection(cluster, resource, o={"a-b": 1, "in": 0, "x.y": 1})] == ["spec.o"]


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
    "Rules can use the Kubernetes CEL functions: quantities, URLs, addresses, regexes, lists, strings, times.",
    area=AREA,
    mutation=NOT_EVALUATED,
)
async def functions(cluster: Cluster) -> None:
    string = {"type": "string", "maxLength": 30}
    string_list = {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}}
    fields = {
        f"f{index}": with_rule(string if isinstance(row[1], str) else string_list, row[0], message="m")
        for index, row in enumerate(FUNCTIONS)
    }
    resource = await create_resource(cluster, **fields)
    valid = {f"f{index}": row[1] for index, row in enumerate(FUNCTIONS)}
    assert await stored_spec(cluster, resource, **valid) == valid
    causes = await rejection(cluster, resource, **{f"f{index}": row[2] for index, row in enumerate(FUNCTIONS)})
    assert {cause[0] for cause in causes} == {f"spec.{name}" for name in fields}


@check(
    "Strings with format date-time or duration are timestamps and durations in rules.",
    area=AREA,
    mutation=NOT_EVALUATED,
)
async def times(cluster: Cluster) -> None:
    schema = {
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "duration"}},
    }
    rule = "(!has(self.at) || self.at > timestamp('2020-01-01T00:00:00Z')) && (!has(self.d) || self.d < duration('1h'))"
    resource = await create_resource(cluster, o=with_rule(schema, rule, message="m"))
    assert await stored_spec(cluster, resource, o={"at": "2021-01-01T00:00:00Z", "d": "5m"})
    for invalid in ({"at": "2019-01-01T00:00:00Z"}, {"d": "2h"}):
        assert [cause[0] for cause in await rejection(cluster, resource, o=invalid)] == ["spec.o"]


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
    "A rule that does not compile, uses unknown fields or wrong types, or is not a bool is rejected at its field.",
    area=AREA,
    mutation=NOT_COMPILED,
)
async def invalid_rules(cluster: Cluster) -> None:
    for rule, field, reason in BAD_RULES:
        spec = {**object_with_rule("true"), "x-kubernetes-validations": [rule]}
        schema = {"type": "object", "properties": {"spec": spec}}
        assert await dry_run_create(cluster, schema) == (422, {(f"{_RULE_FIELD}.{field}", reason)}), rule


@check("oldSelf is rejected for the items of a list that is not a map list.", area=AREA, mutation=NOT_COMPILED)
async def uncorrelated_old_self(cluster: Cluster) -> None:
    list_schema = {"type": "array", "maxItems": 5, "items": with_rule(SHORT_STRING, "self == oldSelf")}
    schema = {"type": "object", "properties": {"spec": list_schema}}
    field = "spec.validation.openAPIV3Schema.properties[spec].items.x-kubernetes-validations[0].rule"
    assert await dry_run_create(cluster, schema) == (422, {(field, "Invalid")})
