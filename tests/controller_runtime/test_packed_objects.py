"""Packed objects: what a store of thousands of jobs keeps of each."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.controller_runtime import object_adapter
from trainyard.controller_runtime.object_adapter import PackedObject, packed_adapter
from trainyard.objects import Json, NamespacedName, encode

JOB: Json = {
    "metadata": {"name": "mnist", "namespace": "ml", "uid": "u1", "resourceVersion": "7", "managedFields": [{}]},
    "spec": {"replicas": 3},
    "status": {
        "conditions": [
            {"type": "Created", "status": "True", "reason": "JobCreated"},
            {"type": "Running", "status": "False", "reason": "JobRunning"},
            {"type": "Blocked", "status": "True"},
        ]
    },
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_a_packed_job_has_what_the_store_reads() -> None:
    adapter = packed_adapter("kubeflow.org/v1", "PyTorchJob")
    packed = adapter.decode(encode(JOB))
    assert adapter.key(packed) == NamespacedName("ml", "mnist")
    assert (adapter.uid(packed), adapter.revision(packed), adapter.index(packed)) == ("u1", "7", "ml")
    assert not adapter.is_deleting(packed)
    assert packed.conditions == (("Created", "JobCreated"), ("Blocked", ""))


def test_a_packed_job_unpacks_to_itself_without_managed_fields() -> None:
    obj = packed_adapter("kubeflow.org/v1", "PyTorchJob").decode(encode(JOB)).unpack()
    metadata = {name: value for name, value in JOB["metadata"].items() if name != "managedFields"}
    assert obj == {**JOB, "metadata": metadata, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_any_object_unpacks_to_itself(spec: Json) -> None:
    obj = {"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}
    packed = PackedObject.of(obj)
    assert packed.unpack() == obj
    assert packed.deleting


@pytest.mark.parametrize("conditions", [None, {}, [None], ["x"], [{"type": "A"}], [{"status": True, "type": "A"}]])
def test_malformed_conditions_are_not_true(conditions: object) -> None:
    assert PackedObject.of({"metadata": {}, "status": {"conditions": conditions}}).conditions == ()


@pytest.fixture
def packed_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that are packed, in order; two objects are kept unpacked."""
    names: list[str] = []
    pack = PackedObject.pack

    def recorded(packed: PackedObject) -> None:
        names.append(packed.name)
        pack(packed)

    monkeypatch.setattr(PackedObject, "pack", recorded)
    monkeypatch.setattr(object_adapter, "_unpacked", OrderedDict())
    monkeypatch.setattr(object_adapter, "MAX_UNPACKED", 2)
    return names


def named(name: str) -> PackedObject:
    return PackedObject.of({"metadata": {"name": name}, "spec": {"is": name}})


def test_the_object_that_was_used_least_recently_is_packed(packed_names: list[str]) -> None:
    first, second = named("first"), named("second")
    first.unpack()
    third = named("third")
    assert packed_names == ["second"]
    assert [obj.unpack()["spec"]["is"] for obj in (second, first, third)] == ["second", "first", "third"]


def test_an_object_that_is_freed_before_is_never_packed(packed_names: list[str]) -> None:
    """As the earlier versions of a job that changes: packing each took 2 % of the operator's CPU."""
    kept = named("kept")
    for _ in range(10):
        named("version").unpack()
    assert packed_names == [] and len(object_adapter._unpacked) == 1
    assert kept.unpack()["spec"] == {"is": "kept"}
