from __future__ import annotations

from typing import Any

import pytest

from trainyard.objects import Json
from trainyard.objects.resources import POD
from trainyard.objects.writes import Delete, Patch
from trainyard.workloads.gc import Dependent, OwnerState, decide, owner_state


def with_owners(name: str, owners: list[Any] | None = None, **meta: Any) -> Json:
    refs = [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": uid, **more} for uid, more in owners or []]
    return {"metadata": {"name": name, "namespace": "n", "uid": f"u-{name}", "ownerReferences": refs, **meta}}


def test_an_object_without_a_living_owner_is_deleted_by_its_uid() -> None:
    decision = decide(
        POD, with_owners("a", [("x", {}), ("y", {})]), {"x": OwnerState.ABSENT, "y": OwnerState.ABSENT}, []
    )
    assert decision.writes == (Delete(POD, "n", "a", "u-a", "Background"),)


@pytest.mark.parametrize("left", [OwnerState.EXISTS, OwnerState.NOT_SERVED])
def test_an_object_with_an_owner_left_only_loses_the_references_to_those_gone(left: OwnerState) -> None:
    (write,) = decide(POD, with_owners("a", [("x", {}), ("y", {})]), {"x": OwnerState.ABSENT, "y": left}, []).writes
    assert isinstance(write, Patch)
    assert [ref["uid"] for ref in write.body["metadata"]["ownerReferences"]] == ["y"]


def test_an_object_without_owners_or_with_living_ones_is_kept() -> None:
    assert decide(POD, with_owners("a"), {}, []).writes == ()
    assert decide(POD, with_owners("a", [("x", {})]), {"x": OwnerState.EXISTS}, []).writes == ()


def test_an_owner_of_the_same_name_with_another_uid_is_not_the_owner() -> None:
    assert owner_state(with_owners("o"), "u-of-the-old-one") is OwnerState.ABSENT
    assert owner_state(with_owners("o"), "u-o") is OwnerState.EXISTS
    assert owner_state(None, "u-o") is OwnerState.ABSENT


def test_foreground_deletion_is_passed_on_to_dependents_that_own_objects() -> None:
    owner = with_owners("o", deletionTimestamp="2024-01-01T00:00:00Z", finalizers=["foregroundDeletion"])
    assert owner_state(owner, "u-o") is OwnerState.WAITING_FOR_DEPENDENTS
    leaf = decide(POD, with_owners("a", [("u-o", {})]), {"u-o": OwnerState.WAITING_FOR_DEPENDENTS}, [])
    assert leaf.writes == (Delete(POD, "n", "a", "u-a", "Background"),)
    tree = decide(
        POD,
        with_owners("a", [("u-o", {})]),
        {"u-o": OwnerState.WAITING_FOR_DEPENDENTS},
        [Dependent(POD, with_owners("b", [("u-a", {})]))],
    )
    assert tree.writes == (Delete(POD, "n", "a", "u-a", "Foreground"),)


def test_a_foreground_deletion_ends_when_no_blocking_dependent_is_left() -> None:
    owner = with_owners("o", deletionTimestamp="2024-01-01T00:00:00Z", finalizers=["foregroundDeletion", "mine"])
    blocking = Dependent(POD, with_owners("a", [("u-o", {"blockOwnerDeletion": True})]))
    harmless = Dependent(POD, with_owners("b", [("u-o", {})]))
    assert decide(POD, owner, {}, [blocking, harmless]).writes == ()
    (write,) = decide(POD, owner, {}, [harmless]).writes
    assert isinstance(write, Patch) and write.body["metadata"]["finalizers"] == ["mine"]


def test_orphans_lose_their_reference_before_the_owner_loses_the_finalizer() -> None:
    owner = with_owners("o", deletionTimestamp="2024-01-01T00:00:00Z", finalizers=["orphan"])
    dependent = Dependent(POD, with_owners("a", [("u-o", {}), ("z", {})]))
    first, last = decide(POD, owner, {}, [dependent]).writes
    assert isinstance(first, Patch) and [ref["uid"] for ref in first.body["metadata"]["ownerReferences"]] == ["z"]
    assert isinstance(last, Patch) and last.name == "o" and last.body["metadata"]["finalizers"] == []


def test_an_object_that_is_being_deleted_already_is_not_deleted_again() -> None:
    going = with_owners(
        "a", [("x", {})], deletionTimestamp="2024-01-01T00:00:00Z", finalizers=["somebody.example/waits"]
    )
    assert decide(POD, going, {"x": OwnerState.ABSENT}, []).writes == ()
