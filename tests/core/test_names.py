"""Names that can be computed again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import UID, tfjob
from trainyard.core import names, parse_job, runtime_id_of
from trainyard.core.model import Config
from trainyard.kinds import TFJOB
from trainyard.objects.yaml_scalars import is_always_text


@given(st.text(max_size=40), st.sets(st.from_regex(r"[a-z0-9]{4}", fullmatch=True), max_size=5))
def test_a_runtime_id_has_four_unused_characters_and_is_deterministic(uid: str, in_use: set[str]) -> None:
    runtime_id = names.runtime_id(uid, in_use)
    assert re.fullmatch(r"[a-z0-9]{4}", runtime_id) and runtime_id not in in_use
    assert runtime_id == names.runtime_id(uid, set(in_use))


def test_the_candidates_are_tried_in_order() -> None:
    first = names.runtime_id(UID, ())
    second = names.runtime_id(UID, {first})
    assert first != second == names.runtime_id(UID, {first, "zzzz"})
    assert names.runtime_id(UID, {second}) == first


def test_runtime_ids_use_the_whole_alphabet() -> None:
    ids = {names.runtime_id(str(number), ()) for number in range(2000)}
    assert len(ids) > 1990
    assert {letter for id_ in ids for letter in id_} == set(names.ALPHABET)


@pytest.mark.parametrize(
    ("name", "legal"),
    [("a", True), ("a-b", True), ("0", True), ("a" * 63, True), ("a" * 64, False), ("", False), ("-a", False),
     ("a-", False), ("A", False), ("a.b", False), ("a_b", False), ("ä", False), ("a\n", False), ("a\0", False)],
)  # fmt: skip
def test_dns_labels_are_recognized(name: str, legal: bool) -> None:
    assert names.is_dns_label(name) is legal


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.none()))
def test_a_digest_does_not_see_the_order_of_keys(value: dict[str, int | None]) -> None:
    assert names.digest(value) == names.digest(dict(reversed(value.items())))


def test_digests_differ_for_every_difference_in_json() -> None:
    values = [{"a": 1}, {"a": "1"}, {"a": True}, {"a": None}, {}, {"a": [1]}, {"b": 1}]
    assert len({names.digest(value) for value in values}) == len(values)


@given(st.integers())
def test_a_digest_is_a_string_in_yaml(value: int) -> None:
    digest = names.digest(value)
    assert re.fullmatch("h[0-9a-f]{10}", digest) and is_always_text(digest)


@pytest.mark.parametrize(
    ("stored", "today", "same"),
    [("18549e9054", "h18549e9054", True), ("h18549e9054", "h18549e9054", True), ("", "", True),
     ("18549e9055", "h18549e9054", False), ("", "h18549e9054", False), ("", "h", False), ("dead", "hdead", False)],
)  # fmt: skip
def test_a_digest_stored_without_the_letter_is_equal(stored: str, today: str, same: bool) -> None:
    assert names.same_digest(stored, today) is same


def test_the_runtime_id_in_the_status_takes_precedence_over_the_spec() -> None:
    """S29: kubectl apply of the user's file takes RuntimeId away again; it is write-once."""
    job = tfjob(status={"runtimeId": "76no", "roles": {"MASTER": {"replicas": 1}}})
    for spec in ({**job["spec"], "RuntimeId": "zzzz"}, {"replicaSpecs": job["spec"]["replicaSpecs"]}):
        assert parse_job(TFJOB, {**job, "spec": spec}, Config()).runtime_id == "76no"


@pytest.mark.parametrize("spec", [None, {}, {"RuntimeId": 5}, {"RuntimeId": ""}, []])
def test_a_job_without_a_runtime_id_has_none(spec: object) -> None:
    assert runtime_id_of({"spec": spec}) == ""
