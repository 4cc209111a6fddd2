"""Merge patch and JSON patch: the examples of their RFCs, and garbage."""

from __future__ import annotations

import contextlib
import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.server.patch.json_patch import MalformedPatch, PatchFailed, apply_json_patch, merge_patch

MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), MERGES)
def test_a_merge_patch_follows_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == result
    assert target == before


def op(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, **more}


APPLIES: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"foo": "bar"}, [op("add", "/baz", value="qux")], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [op("add", "/foo/1", value="qux")], {"foo": ["bar", "qux", "baz"]}),
    ({"foo": ["bar"]}, [op("add", "/foo/-", value=["abc"])], {"foo": ["bar", ["abc"]]}),
    ({"baz": "qux", "foo": "bar"}, [op("remove", "/baz")], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [op("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [op("replace", "/baz", value="boo")], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [op("move", "/qux/thud", **{"from": "/foo/waldo"})],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    ({"a": 1}, [op("copy", "/b", **{"from": "/a"})], {"a": 1, "b": 1}),
    ({"/": 9, "~1": 10}, [op("test", "/~01", value=10), op("replace", "/~1", value=8)], {"/": 8, "~1": 10}),
    ({"a": 1}, [op("replace", "", value={"b": 2})], {"b": 2}),
    ({"a": 1}, [op("replace", "/b", value=1), op("add", "/c")], {"a": 1, "b": 1, "c": None}),
    ({"a": 1}, [op("test", "/b", value=None), op("copy", "/b", **{"from": "/c"})], {"a": 1, "b": None}),
    ({"a": [1, 2, 3]}, [op("move", "/a/0", **{"from": "/a/2"})], {"a": [3, 1, 2]}),
]


@pytest.mark.parametrize(("target", "operations", "result"), APPLIES)
def test_a_json_patch_follows_rfc_6902_and_kube_apiserver(target: Any, operations: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert apply_json_patch(target, operations) == result
    assert target == before


FAILS: list[tuple[Any, Any, type[Exception]]] = [
    ({"a": 1}, [op("test", "/a", value=2)], PatchFailed),
    ({"a": 1}, [op("remove", "/b")], PatchFailed),
    ({"a": 1}, [op("replace", "/b/c", value=1)], PatchFailed),
    ({"a": 1}, [op("add", "/b/c", value=1)], PatchFailed),
    ({"a": [1]}, [op("add", "/a/2", value=1)], PatchFailed),
    ({"a": [1]}, [op("add", "/a/01", value=1)], PatchFailed),
    ({"a": [1]}, [op("remove", "/a/-")], PatchFailed),
    ({"a": 1}, [op("remove", "")], PatchFailed),
    ({"a": {"b": 1}}, [op("move", "/a/b/c", **{"from": "/a"})], PatchFailed),
    ({}, {}, MalformedPatch),
    ({}, [1], MalformedPatch),
    ({}, [op("add", "a", value=1)], PatchFailed),
    ({}, [op("frobnicate", "/a")], PatchFailed),
]


@pytest.mark.parametrize(("target", "operations", "error"), FAILS)
def test_a_json_patch_that_cannot_be_applied_is_refused_with_the_reason(
    target: Any, operations: Any, error: type[Exception]
) -> None:
    before = copy.deepcopy(target)
    with pytest.raises(error):
        apply_json_patch(target, operations)
    assert target == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.sampled_from("ab-0/~") | st.text(), below),
    max_leaves=12,
)
POINTER = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "~0", "~1", ""])).map(
    lambda parts: "".join("/" + p for p in parts)
)
OPERATION = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTER},
    optional={"value": JSON, "from": POINTER},
)


@given(JSON, st.lists(OPERATION) | JSON)
def test_any_json_patch_is_applied_or_refused_by_name(target: Any, operations: Any) -> None:
    before = copy.deepcopy((target, operations))
    with contextlib.suppress(MalformedPatch, PatchFailed):
        apply_json_patch(target, operations)
    assert (target, operations) == before


def test_many_operations_on_a_large_object_do_not_copy_it_each_time() -> None:
    large = {"data": {str(at): "x" for at in range(50_000)}}
    steps = [op("add", f"/data/{at}", value="y") for at in range(5_000)]
    began = time.process_time()
    assert apply_json_patch(large, steps)["data"]["4999"] == "y"
    assert time.process_time() - began < 2, "everybody else waits for it"
    assert large["data"]["4999"] == "x"


def test_a_patch_of_exponential_copies_is_refused() -> None:
    twice = [op("copy", f"/a/{at}", **{"from": "/a"}) for at in range(40)]
    with pytest.raises(PatchFailed, match=r"operation 1.: the copies come to"):
        apply_json_patch({"a": {"b": "c"}}, twice)


@given(JSON, JSON)
def test_merging_twice_is_merging_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def test_a_deep_merge_patch_is_refused() -> None:
    patch: Any = 1
    for _ in range(5000):
        patch = {"a": patch}
    with pytest.raises(MalformedPatch, match="nested deeper than 100"):
        merge_patch({}, patch)
