"""A field's place is its own line: of the key or item, or of the field that should hold it when it is missing."""

from __future__ import annotations

import json

import pytest

from trainyard.objects.manifest import Document, read

TEXT = """\
# a comment
apiVersion: v1
kind: Pod
metadata:
  name: a
  labels:
    example.com/team.name: x
spec:
  containers:
  - name: one
    env:
    - {name: A, value: "1"}
    -
      name: B
  - name: two
    image: >-
      long
      text
    args: [
      a,
      b]
"""
PLACES = {
    "": 2,
    "kind": 3,
    "metadata.name": 5,
    "metadata.labels.example.com/team.name": 7,
    "metadata.labels.missing": 6,
    "spec.containers": 9,
    "spec.containers[0]": 10,
    "spec.containers[0].name": 10,
    "spec.containers[0].env[0].value": 12,
    "spec.containers[0].env[1].name": 14,
    "spec.containers[0].image": 10,
    "spec.containers[1]": 15,
    "spec.containers[1].image": 16,
    "spec.containers[1].args[1]": 21,
    "spec.containers[2].name": 9,
    "spec.restartPolicy": 8,
    "status.phase": 2,
}


def only(text: str) -> Document:
    (document,) = read(text, "f.yaml")
    return document


@pytest.mark.parametrize(("path", "line"), PLACES.items(), ids=lambda value: str(value))
def test_a_path_is_found_at_the_line_of_its_field(path: str, line: int) -> None:
    assert only(TEXT).location(path) == f"f.yaml:{line}"


def test_json_has_lines_as_well() -> None:
    text = json.dumps(only(TEXT).obj, indent=2)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if '"image"' in content)
    assert only(text).location("spec.containers[1].image") == f"f.yaml:{line}"


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_item_of_a_list_counts_from_itself(form: str) -> None:
    text = """\
apiVersion: v1
kind: PodList
items:
- spec:
    a: 1
- spec:
    b:
      c: 2
"""
    if form == "json":
        items = '{"spec":\n\n{"a": 1}},\n{"spec": {\n"b": {\n"c": 2}}}'
        text = f'{{"apiVersion": "v1", "kind": "PodList", "items": [\n{items}]}}'
    first, second = read(text, "f")
    assert first.location("spec.a") == {"yaml": "f:5", "json": "f:4"}[form]
    assert second.location("spec.b.c") == {"yaml": "f:8", "json": "f:7"}[form]


def test_the_second_document_of_a_file_has_lines_of_its_own() -> None:
    _, second = read("kind: A\napiVersion: v1\n---\nkind: B\napiVersion: v1\nspec:\n  x: 1\n", "f")
    assert second.location("spec.x") == "f:7"


def test_values_of_an_alias_or_merge_key_have_the_line_where_they_were_written() -> None:
    text = """\
kind: A
apiVersion: v1
base: &base
  name: x
  env: [1]
copy: *base
merged:
  <<: *base
  other: y
"""
    document = only(text)
    paths = ("copy", "copy.name", "copy.env[0]", "merged.env", "merged.other")
    assert [document.location(path) for path in paths] == ["f.yaml:6", "f.yaml:4", "f.yaml:5", "f.yaml:5", "f.yaml:9"]
