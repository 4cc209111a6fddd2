"""What counts as a write, and what the watches have."""

from __future__ import annotations

from typing import Any

from tests.drop_in.quiet import Objects
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.objects.resources import POD


def pod(version: str, **status: Any) -> Json:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": version}, "status": status}


def watched() -> Objects:
    return Objects(ApiClient("http://localhost"), [POD])


async def test_nothing_is_restless_where_nothing_was_written() -> None:
    assert await watched().settled(0.0, 0.0) == set()


async def test_a_namespace_with_a_late_write_is_restless() -> None:
    objects = watched()
    objects._observe(POD, "ADDED", pod("1"))
    assert await objects.settled(3600.0, 0.0) == {"n"}


async def test_a_write_of_the_reconcile_time_alone_does_not_count() -> None:
    objects = watched()
    objects._observe(POD, "ADDED", pod("1", phase="Running", lastReconcileTime="a"))
    first = objects._last["n"]
    objects._observe(POD, "MODIFIED", pod("2", phase="Running", lastReconcileTime="b"))
    assert objects._last["n"] == first
    assert objects.items(POD, "n") == [pod("2", phase="Running", lastReconcileTime="b")]
    objects._observe(POD, "MODIFIED", pod("3", phase="Failed", lastReconcileTime="b"))
    assert objects._last["n"] > first


async def test_a_deleted_object_is_gone() -> None:
    objects = watched()
    objects._observe(POD, "ADDED", pod("1"))
    objects._observe(POD, "DELETED", pod("2"))
    assert objects.items(POD, "n") == []
