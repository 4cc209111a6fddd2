"""Definitions and objects that would stop the server: each is answered, and in time that grows with its length."""

from __future__ import annotations

import pytest

from tests.server.server_clients import CRDS, PODS, THINGS, Cluster, crd, custom_object, pod
from trainyard.schema.structural import VALIDATIONS
from trainyard.server.crd import cel, rules

MERGE = "application/merge-patch+json"


def patterned(pattern: str) -> dict[str, object]:
    definition = crd()
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["word"] = {
        "type": "string",
        "pattern": pattern,
    }
    return definition


def test_a_pattern_that_doubles_with_each_letter_is_compared_on_create_and_on_patch(cluster: Cluster) -> None:
    cluster.make(CRDS, patterned("^(a+)+$"))
    assert "match" in cluster.refused("POST", THINGS, custom_object("a", word="a" * 5000 + "!")).message
    cluster.make(THINGS, custom_object("a", word="aaa"))
    patch = {"spec": {"word": "a" * 5000 + "!"}}
    assert "match" in cluster.refused("PATCH", f"{THINGS}/a", patch, MERGE).message


@pytest.mark.parametrize("text", ['\\"' * 200_000, "\\'" * 200_000, "has(" * 100_000, '"' + "\\" * 200_001])
def test_an_expression_with_an_unterminated_string_is_parsed_once(text: str) -> None:
    assert cel.RENAMED.sub("", text) is not None
    assert list(rules._PATHS.finditer(text)) is not None


NAMES = ["../../../keys", "/etc", "..", ".", "a/b", "a\0b", "a" * 254]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "field"), [("persistentVolumeClaim", "claimName"), ("configMap", "name"), ("secret", "secretName")]
)
def test_an_invalid_object_name_is_no_path(cluster: Cluster, kind: str, field: str, name: str) -> None:
    refused = cluster.refused("POST", PODS, pod("a", volumes=[{"name": "v", kind: {field: name}}]))
    assert f"spec.volumes[0].{kind}.{field}" in refused.message


@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
@pytest.mark.parametrize("path", ["../keys", "/etc", "a/../../b"])
def test_a_sub_path_stays_beneath_its_volume(cluster: Cluster, field: str, path: str) -> None:
    mount = {"name": "v", "mountPath": "/m", field: path}
    container = {"name": "c", "image": "i", "volumeMounts": [mount]}
    new_pod = pod("a", volumes=[{"name": "v", "emptyDir": {}}], containers=[container])
    assert field in cluster.refused("POST", PODS, new_pod).message


def test_rules_of_one_write_end_when_their_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    validations = [{"rule": f"self.replicas != {number}"} for number in range(3)]
    schema = {"type": "object", "properties": {"replicas": {"type": "integer"}}, VALIDATIONS: validations}
    tree = rules.compile_rules(schema)
    assert tree is not None
    assert list(rules.evaluate(tree, {"replicas": 7})) == []
    monkeypatch.setattr(rules, "BUDGET", -1.0)
    (problem,) = rules.evaluate(tree, {"replicas": 7})
    assert "running out of cost budget" in problem.text


def ruled(cluster: Cluster, rule: str) -> None:
    """Things whose spec has a text and words, and this rule."""
    definition = crd()
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["text"] = {"type": "string"}
    spec["properties"]["words"] = {"type": "array", "items": {"type": "string"}}
    spec[VALIDATIONS] = [{"rule": f"!has(self.text) || {rule}"}]
    cluster.make(CRDS, definition)


@pytest.mark.parametrize(
    "rule",
    [
        'self.text.replace("a", self.text).size() > 0',
        "[self.text]" + ".map(t, t + t)" * 12 + "[0].size() > 0",
        "cel.bind(a0, self.text, "
        + "".join(f"cel.bind(a{number + 1}, a{number} + a{number}, " for number in range(12))
        + "a12.size() > 0"
        + ")" * 13,
    ],
    ids=["replace", "map", "bind"],
)
def test_rules_that_take_too_much_memory_refuse_their_write_alone(cluster: Cluster, rule: str) -> None:
    ruled(cluster, rule)
    message = cluster.refused("POST", THINGS, custom_object("a", text="a" * 300_000)).message
    assert "running out of cost budget" in message and "MiB" in message
    cluster.make(THINGS, custom_object("b"))


def test_one_rule_that_takes_too_long_refuses_its_write_alone(cluster: Cluster) -> None:
    ruled(cluster, "self.words.all(w, !self.text.contains(w))")
    values = ["a" * 200 + "b"] * 9000
    message = cluster.refused("POST", THINGS, custom_object("a", text="a" * 900_000, words=values)).message
    assert "running out of cost budget" in message and "2 s of the processor" in message
    cluster.make(THINGS, custom_object("b"))


def test_a_rule_without_end_is_stopped(cluster: Cluster) -> None:
    with pytest.raises(cel.EvaluationError, match="Iteration budget exceeded"):
        cel.compile_expression("self.all(a, self.all(b, self.all(c, a + b + c >= 0)))").evaluate(
            {"self": list(range(300))}
        )
