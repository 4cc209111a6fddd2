"""Server-side apply against what must hold of any sequence of applies; and what it costs those who never apply."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.server.server_clients import CRDS, MAPS, PODS, Cluster, config_map, crd, pod
from tests.support.schemas import LIST_BY_NAME
from trainyard.api_types.schemas import TypeSchema, built_in, from_openapi
from trainyard.server.model.errors import StatusError
from trainyard.server.patch import apply
from trainyard.server.patch.dispatch import APPLY, JSON_PATCH, MERGE, STRATEGIC
from trainyard.server.patch.field_sets import decode_fields_v1, encode_fields_v1, fields_of, remove_paths

Json = dict[str, Any]
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": LIST_BY_NAME,
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "plain": {"type": "array", "items": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SHAPE: TypeSchema = from_openapi(SCHEMA)
WORD = st.sampled_from("abc")
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 2),
        "labels": st.dictionaries(WORD, WORD, max_size=2),
        "items": st.lists(
            st.fixed_dictionaries({"name": WORD}, optional={"v": st.integers(0, 2)}),
            max_size=3,
            unique_by=lambda item: item["name"],
        ),
        "set": st.lists(WORD, max_size=3, unique=True),
        "plain": st.lists(WORD, max_size=2),
        "free": st.dictionaries(WORD, st.dictionaries(WORD, st.integers(0, 2), max_size=2), max_size=2),
    },
)
MOVE = st.tuples(st.sampled_from(["one", "two"]), SPEC, st.booleans())
MANY = settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
PATH = "/apis/example.org/v1/namespaces/default/things/a"


def cluster_with_crd() -> Cluster:
    cluster = Cluster()
    whole = {"type": "object", "properties": {"spec": SCHEMA}}
    definition = crd()
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": whole}
    cluster.make(CRDS, definition)
    return cluster


def applied(cluster: Cluster, manager: str, spec: Json, **query: str) -> Json:
    obj = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}
    return cluster.ask("PATCH", PATH, obj, APPLY, fieldManager=manager, **query)


@MANY
@given(st.lists(MOVE, min_size=1, max_size=5))
def test_an_apply_twice_is_an_apply_once(moves: list[tuple[str, Json, bool]]) -> None:
    cluster = cluster_with_crd()
    for manager, spec, force in moves:
        query = {"force": "true"} if force else {}
        try:
            response = applied(cluster, manager, spec, **query)
        except StatusError as refused:
            if refused.reason != "Conflict":
                raise
            continue
        cluster.now += 60
        revision = cluster.log.revision
        assert applied(cluster, manager, spec, **query) == response
        assert cluster.log.revision == revision


@MANY
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SPEC), min_size=1, max_size=5))
def test_a_forced_apply_sets_its_fields_and_others_keep_theirs(moves: list[tuple[str, Json]]) -> None:
    cluster = cluster_with_crd()
    for manager, spec in moves:
        response = applied(cluster, manager, spec, force="true")
        sent = fields_of({"spec": spec}, TypeSchema("object", own_fields={"spec": SHAPE}))
        stored = fields_of({"spec": response.get("spec") or {}}, TypeSchema("object", own_fields={"spec": SHAPE}))
        for path, value in sent.items():
            if value not in (None, {}, []):
                assert stored.get(path, value) == value, path
        owned = {path for entry in apply.owners_of(response) for path in entry.paths}
        assert {path for path in stored if stored[path] not in ({}, [])} <= owned | {("f:spec",)}


@MANY
@given(SPEC, SPEC)
def test_an_apply_of_a_single_manager_gives_the_applied_object(first: Json, second: Json) -> None:
    cluster = cluster_with_crd()
    applied(cluster, "one", first)
    alone = cluster_with_crd()
    assert same_spec(applied(cluster, "one", second), applied(alone, "one", second))


def same_spec(first: Json, other: Json) -> bool:
    return bool(bare(first.get("spec")) == bare(other.get("spec")))


def bare(value: Any) -> Any:
    """Without empty maps: no manager owns an empty map that is left."""
    if isinstance(value, dict):
        return {name: left for name, part in value.items() if (left := bare(part)) not in (None, {}, [])}
    if isinstance(value, list):
        return sorted((bare(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


@MANY
@given(SPEC)
def test_fields_are_written_and_read_back(spec: Json) -> None:
    paths = set(fields_of(spec, SHAPE))
    assert decode_fields_v1(encode_fields_v1(paths)) == paths


@MANY
@given(SPEC)
def test_removing_all_applied_fields_leaves_none(spec: Json) -> None:
    left = remove_paths(spec, SHAPE, fields_of(spec, SHAPE), lambda path: False)
    assert bare(left or {}) == {}


def test_objects_that_were_never_applied_have_no_managed_fields() -> None:
    cluster = Cluster()
    cluster.make(PODS, pod("a"))
    response = cluster.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}})
    assert "managedFields" not in response["metadata"]
    assert "managedFields" not in cluster.merge(f"{PODS}/a", {"metadata": {"labels": {"a": "b"}}})["metadata"]


def test_fields_from_before_the_first_apply_have_an_owner() -> None:
    cluster = Cluster()
    cluster.make(MAPS, config_map("a", data={"x": "1"}))
    no = cluster.refused("PATCH", f"{MAPS}/a", config_map("a", data={"x": "2"}), APPLY, fieldManager="me")
    assert no.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.x'
    answer = cluster.ask("PATCH", f"{MAPS}/a", config_map("a", data={"y": "2"}), APPLY, fieldManager="me")
    assert [entry["manager"] for entry in answer["metadata"]["managedFields"]] == ["me", "before-first-apply"]


def test_a_status_patch_of_an_applied_pod_is_recorded_with_its_subresource() -> None:
    cluster = Cluster()
    cluster.ask("PATCH", f"{PODS}/a", pod("a"), APPLY, fieldManager="me")
    response = cluster.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}}, fieldManager="node")
    (entry,) = (managed for managed in response["metadata"]["managedFields"] if managed["manager"] == "node")
    assert (entry["operation"], entry["subresource"]) == ("Update", "status")
    assert entry["fieldsV1"] == {"f:status": {"f:phase": {}}}


def test_types_of_built_in_objects_are_all_readable() -> None:
    from trainyard.api_types import schemas

    for name in schemas.type_lines():
        for field, shape in built_in(name).fields.items():
            assert shape.kind, (name, field)
            if shape.type_name and shape.kind == "object":
                assert shape.type_name in schemas.type_lines(), (name, field, shape.type_name)


BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]" for at in range(1, 20))]).encode()


@pytest.mark.parametrize("body", [b"[" * 50_000, b"- " * 50_000, BOMB, b"a: 1\n---\nb: 1\n", b"", b"{", b"a: [\x00"])
def test_a_body_that_is_no_object_or_too_large_is_refused(body: bytes) -> None:
    with pytest.raises(StatusError, match="error decoding") as caught:
        apply.read_config(body)
    assert caught.value.code == 400


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC, JSON_PATCH])
def test_a_patch_that_is_nested_too_deep_is_refused_by_name(cluster: Cluster, kind: str) -> None:
    cluster.make(MAPS, config_map("a"))
    deep = "[" * 800 + "]" * 800
    sent = f'{{"data": {deep}}}' if kind != JSON_PATCH else f'[{{"op": "add", "path": "/data", "value": {deep}}}]'
    with pytest.raises(StatusError) as caught:
        cluster.raw("PATCH", f"{MAPS}/a", sent.encode(), kind)
    assert caught.value.code in (400, 422) and "nested deeper than 100 levels" in caught.value.message


def test_an_apply_of_many_items_does_not_search_a_list_for_each(cluster: Cluster) -> None:
    containers = [{"name": "a", "image": "i", "env": [{"name": f"E{at}", "value": "x"} for at in range(800)]}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    sent = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    path = "/apis/apps/v1/namespaces/default/deployments/a"
    first = cluster.ask("PATCH", path, sent, APPLY, fieldManager="me")
    began = time.process_time()
    assert cluster.ask("PATCH", path, sent, APPLY, fieldManager="me") == first
    assert time.process_time() - began < 2, "everybody else waits for it"
