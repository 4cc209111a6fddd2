"""Strategic merge patch against what must hold of every patch, and the cases of its directives."""

from __future__ import annotations

import copy
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.api_types.schemas import ANY, built_in
from trainyard.objects import encode
from trainyard.server.patch.json_patch import MalformedPatch
from trainyard.server.patch.strategic_merge import MergeFailed, merge

Json = dict[str, Any]
POD = built_in("api.core.v1.PodSpec")
NAMES = st.sampled_from("abcd")
VALUES = st.sampled_from(["1", "2", "3"])
ENV = st.fixed_dictionaries({"name": NAMES, "value": VALUES})
CONTAINER: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "image": VALUES,
        "args": st.lists(VALUES, max_size=2),
        "env": st.lists(ENV, max_size=3, unique_by=lambda item: item["name"]),
    },
)
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, max_size=4, unique_by=lambda item: item["name"])},
    optional={"nodeSelector": st.dictionaries(NAMES, VALUES), "hostname": VALUES},
)
MANY = settings(max_examples=60, deadline=None)


@MANY
@given(SPEC, SPEC)
def test_a_merged_spec_has_the_values_of_the_patch(original: Json, patch: Json) -> None:
    before, sent = copy.deepcopy(original), copy.deepcopy(patch)
    merged = merge(original, patch, POD)
    assert (original, patch) == (before, sent)
    old = {container["name"]: container for container in original["containers"]}
    now = {container["name"]: container for container in merged["containers"]}
    assert set(now) == set(old) | {container["name"] for container in patch["containers"]} and len(now) == len(
        merged["containers"]
    )
    for container in patch["containers"]:
        container_now = now[container["name"]]
        assert all(container_now[field] == container[field] for field in ("image", "args") if field in container)
        assert {var["name"]: var for var in container.get("env", ())}.items() <= {
            var["name"]: var for var in container_now.get("env", ())
        }.items()
    for name, container in old.items():
        if name not in {container["name"] for container in patch["containers"]}:
            assert now[name] == container


@pytest.mark.parametrize("field", ["containers", "$setElementOrder/containers"])
def test_many_items_are_merged_without_a_look_for_each_among_all_others(field: str) -> None:
    many = [{"name": f"c{at}"} for at in range(6_000)]
    turned = [{"name": container["name"], "image": "i"} for container in reversed(many)]
    began = time.process_time()
    merged = merge({"containers": many}, {"containers": turned, field: turned}, POD)
    assert time.process_time() - began < 2, "everybody else waits for it"
    assert merged == {"containers": turned}


@MANY
@given(SPEC, SPEC)
def test_a_patch_twice_is_the_same_patch_once(original: Json, patch: Json) -> None:
    once = merge(original, patch, POD)
    assert merge(once, patch, POD) == once


@MANY
@given(SPEC)
def test_an_empty_patch_and_the_object_itself_change_nothing(spec: Json) -> None:
    assert merge(spec, {}, POD) == spec
    assert merge(spec, spec, POD) == spec


@MANY
@given(SPEC, st.permutations("abcd"))
def test_set_element_order_determines_the_order(spec: Json, order: list[str]) -> None:
    patch = {"$setElementOrder/containers": [{"name": name} for name in order]}
    names = [container["name"] for container in merge(spec, patch, POD)["containers"]]
    assert names == [name for name in order if name in names]
    assert sorted(names) == sorted(container["name"] for container in spec["containers"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | NAMES,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            NAMES | st.sampled_from(["$patch", "$retainKeys", "$setElementOrder/containers", "containers", "name"]),
            below,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@MANY
@given(SPEC, JSON)
def test_any_patch_is_merged_or_refused(spec: Json, patch: Any) -> None:
    with suppress(MalformedPatch, MergeFailed):
        encode(merge(spec, patch, POD))


@MANY
@given(st.dictionaries(NAMES, JSON), st.dictionaries(NAMES, VALUES))
def test_without_a_known_schema_it_is_a_merge_patch(original: Json, patch: Json) -> None:
    assert merge(original, patch, ANY) == {**original, **patch}


SMALL: list[tuple[Json, Json, Json]] = [
    ({"containers": [{"name": "a"}]}, {"containers": [{"name": "b"}]}, {"containers": [{"name": "b"}, {"name": "a"}]}),
    ({"containers": [{"name": "a"}, {"name": "b"}]}, {"containers": [{"name": "a", "$patch": "delete"}]},
     {"containers": [{"name": "b"}]}),
    ({"containers": [{"name": "a"}]}, {"containers": [{"$patch": "replace"}, {"name": "c"}]},
     {"containers": [{"name": "c"}]}),
    ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"$patch": "replace", "b": "2"}}, {"nodeSelector": {"b": "2"}}),
    ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"$patch": "delete"}}, {"nodeSelector": {}}),
    ({}, {"nodeSelector": {"a": None, "b": "2"}}, {"nodeSelector": {"b": "2"}}),
    ({"volumes": [{"name": "v", "emptyDir": {}}]},
     {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]},
     {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
]  # fmt: skip


@pytest.mark.parametrize(("original", "patch", "merged"), SMALL)
def test_the_directives_of_a_strategic_merge_patch(original: Json, patch: Json, merged: Json) -> None:
    assert merge(original, patch, POD) == merged


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ([], MalformedPatch),
        ({"nodeSelector": {"$patch": "frobnicate"}}, MergeFailed),
        ({"containers": [{"image": "no name"}]}, MergeFailed),
        ({"containers": [{"name": "a", "$patch": "merge"}]}, MergeFailed),
        ({"$retainKeys": ["x"], "hostname": "y"}, MalformedPatch),
        ({"$setElementOrder/containers": "x"}, MalformedPatch),
    ],
)
def test_a_patch_that_cannot_be_merged_is_refused(patch: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        merge({"containers": [{"name": "a"}], "nodeSelector": {"a": "b"}}, patch, POD)
