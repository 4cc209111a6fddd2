"""The CustomResourceDefinitions are valid for an API server: structural, with rules only where they are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.samples import ALL_WITH_TEMPLATES
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds.definitions.immutability import rules_of
from trainyard.objects import Json, decode, encode
from trainyard.schema import Schema

KEEP = "x-kubernetes-preserve-unknown-fields"
VALIDATIONS = "x-kubernetes-validations"
WORDS = {
    "type", "properties", "items", "additionalProperties", "required", "description", "default", "enum", "nullable",
    "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties",
    "format", KEEP, VALIDATIONS,
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string",
}  # fmt: skip


def nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, part in (schema.get("properties") or {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[{key}]")


def root(kind: Kind) -> Json:
    schema: Json = kinds.crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


every_kind = pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)


@every_kind
def test_every_schema_node_has_a_type_and_only_structural_keywords(kind: Kind) -> None:
    for path, node in nodes(root(kind)):
        assert node.keys() <= WORDS, path
        assert "type" in node or node.get("x-kubernetes-int-or-string") or node.get(KEEP), path
        assert not ("properties" in node and "additionalProperties" in node), path
        if node.get("type") == "array":
            assert isinstance(node.get("items"), dict), path


@every_kind
def test_lists_that_are_maps_name_keys_that_are_there(kind: Kind) -> None:
    for path, node in nodes(root(kind)):
        for key in node.get("x-kubernetes-list-map-keys", []):
            item = node["items"]
            assert key in item["properties"], path
            assert key in item.get("required", []) or "default" in item["properties"][key], path


@every_kind
def test_defaults_are_legal_values_of_their_part(kind: Kind) -> None:
    for path, node in nodes(root(kind)):
        if "default" in node:
            part: Json = {"type": "object", "properties": {"value": node}}
            assert Schema(part).validate({"value": node["default"]}) == [], path


@every_kind
def test_a_rule_has_a_type_and_names_an_existing_field(kind: Kind) -> None:
    rules = 0
    for path, node in nodes(root(kind)):
        for rule in node.get(VALIDATIONS, []):
            rules += 1
            assert path == "" or not path.startswith(".metadata"), path
            assert node["type"] in ("object", "array", "string"), path
            assert rule["message"] and "\n" not in rule["message"] and len(rule["message"]) <= 2048
            assert rule.keys() <= {"rule", "message", "fieldPath"}
            if "fieldPath" in rule:
                assert is_field(node, rule["fieldPath"].removeprefix(".").split(".")), (path, rule["fieldPath"])
    assert rules >= len(rules_of(kind))


def is_field(node: Json, names: list[str]) -> bool:
    """Of metadata a rule may look at name and generateName only. Of a map any key may be named."""
    for name in names:
        if name == "metadata":
            return names[-1] in ("metadata", "name", "generateName")
        if isinstance(node.get("additionalProperties"), dict):
            node = node["additionalProperties"]
            continue
        if name not in (node.get("properties") or {}):
            return False
        node = node["properties"][name]
    return True


@every_kind
def test_transition_rules_are_outside_of_lists(kind: Kind) -> None:
    """oldSelf has no meaning inside a list that is no map: the API server refuses such a rule."""
    for path, node in nodes(root(kind)):
        for rule in node.get(VALIDATIONS, []):
            assert "[items]" not in path or "oldSelf" not in rule["rule"], path


@every_kind
def test_every_list_and_map_with_rules_inside_is_bounded(kind: Kind) -> None:
    """The cost of a rule is estimated from maxItems and maxProperties; without them it is refused."""
    for path, node in nodes(root(kind)):
        inside = [below for below, below_node in nodes(node) if VALIDATIONS in below_node and below]
        if node.get("type") == "array" and (inside or VALIDATIONS in node):
            assert node["maxItems"] <= 100, path
        if isinstance(node.get("additionalProperties"), dict) and (inside or VALIDATIONS in node):
            assert node["maxProperties"] <= 100, path


@every_kind
def test_rules_read_few_fields_of_a_pod_spec(kind: Kind) -> None:
    """For each read an API server copies the schemas of all 43 fields: with seven reads for a role, each write of a
    job of two roles took 0.7 ms longer, its status included."""
    for path, node in nodes(root(kind)):
        reads = sum(rule["rule"].count(".template.spec.") for rule in node.get(VALIDATIONS, []))
        assert reads <= (0 if kind.gvk.group == "kubeflow.org" and kind.gvk.version != "v1alpha1" else 3), path


NULL = re.compile(r"((?:self|oldSelf|\b[a-z])(?:\.\w+|\['\w+'\])*) [!=]= null")
CHOICE = re.compile(r"\? ([^?:]*)")


NULLABLE_OBJECTS = (
    *("template", "master", "tensorboard", "tensorBoard", "r", "runPolicy", "schedulingPolicy", "elasticPolicy"),
)


@every_kind
def test_rules_use_only_cel_that_an_api_server_compiles(kind: Kind) -> None:
    """To it every field has its own type: only objects may be compared with null, and no choice between two lists has
    a type. Both were found by asking a real one."""
    for path, node in nodes(root(kind)):
        for rule in node.get(VALIDATIONS, []):
            for chain in NULL.findall(rule["rule"]):
                assert chain.rpartition(".")[2] in NULLABLE_OBJECTS, (
                    path,
                    chain,
                )
            for chosen in CHOICE.findall(rule["rule"].replace("[a-z0-9])?", "")):
                assert chosen.strip().endswith(".size()"), (path, chosen)


@every_kind
def test_the_definition_names_the_resource_and_its_status(kind: Kind) -> None:
    crd = kinds.crd(kind)
    assert crd["metadata"]["name"] == f"{kind.gvk.plural}.{kind.gvk.group}"
    version = crd["spec"]["versions"][0]
    assert version["served"] and version["storage"] and version["subresources"]["status"] == {}
    assert version["subresources"].keys() <= {"status", "scale"}
    assert crd["spec"]["scope"] == "Namespaced"
    assert crd["spec"]["names"]["plural"] == kind.gvk.plural
    for column in version["additionalPrinterColumns"]:
        assert column["jsonPath"].startswith(".") and column["type"] in ("string", "integer", "date", "boolean")


def test_a_kind_is_served_under_each_of_its_groups() -> None:
    names = [kinds.crd(kind)["metadata"]["name"] for kind in kinds.ALL]
    assert "mxjobs.mlkube.io" in names and "mxjobs.mxnet.mlkube.io" in names and len(names) == len(set(names)) == 12
    first, other = (kinds.crd(kind) for kind in kinds.ALL if kind.gvk.kind == "MxJob")
    assert first["spec"]["versions"] == other["spec"]["versions"]


@every_kind
def test_the_crd_is_deterministic_json(kind: Kind) -> None:
    assert decode(encode(kinds.crd(kind))) == kinds.crd(kind)


@pytest.mark.parametrize(("obj", "known"), [
    ({"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob"}, True),
    ({"apiVersion": "tensorflow.org/v1", "kind": "TfJob"}, False),
    ({"apiVersion": "tensorflow.org/v1alpha1", "kind": "tfjob"}, False),
    ({}, False),
])  # fmt: skip
def test_job_objects_are_recognized_by_group_and_kind(obj: Any, known: bool) -> None:
    assert (kinds.kind_of(obj) is not None) is known


CHAIN = re.compile(r"\b(?:self|oldSelf)((?:\.\w+)+)(?![\w(])")


@every_kind
def test_rules_name_only_fields_that_the_schema_names(kind: Kind) -> None:
    """The API server compiles a rule against the schema: a field that is only preserved is an error there."""
    for path, node in nodes(root(kind)):
        for rule in node.get(VALIDATIONS, []):
            for chain in CHAIN.findall(rule["rule"]):
                assert is_field(node, chain.removeprefix(".").split(".")), (path, chain)
