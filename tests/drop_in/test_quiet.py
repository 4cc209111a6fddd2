"""What counts as a write, and what the watches have."""

from __future__ import annotations

import time
from typing import Any

from tests.drop_in.quiet import ROUND_TRIPS, Objects
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.objects.resources import POD


def pod(version: str, **status: Any) -> Json:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": version}, "status": status}


def watched() -> Objects:
    return Objects(ApiClient("http://localhost"), [POD])


async def at_once() -> float:
    return 0.0


async def test_nothing_is_restless_where_nothing_was_written() -> None:
    assert await watched().settled(0.0, 0.0, at_once) == set()


async def test_a_namespace_with_a_late_write_is_restless() -> None:
    objects = watched()
    objects._observe(POD, "ADDED", pod("1"))
    assert await objects.settled(3600.0, 0.0, at_once) == {"n"}


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


async def test_after_a_long_round_trip_a_longer_time_without_a_write_is_waited_for() -> None:
    objects = watched()
    objects._observe(POD, "ADDED", pod("1"))
    begin, trips = time.monotonic(), 0

    async def slow() -> float:
        nonlocal trips
        trips += 1
        return 0.2

    assert await objects.settled(0.0, 3600.0, slow) == set()
    assert trips >= ROUND_TRIPS and time.monotonic() >= begin + ROUND_TRIPS * 0.2


async def test_a_write_during_a_round_trip_is_waited_for() -> None:
    objects = watched()
    written = 0.0

    async def probe() -> float:
        nonlocal written
        if not written:
            objects._observe(POD, "ADDED", pod("1"))
            written = time.monotonic()
        return 0.0

    assert await objects.settled(0.2, 3600.0, probe) == set()
    assert time.monotonic() >= written + 0.2


async def test_writes_of_the_probe_do_not_count() -> None:
    objects = watched()
    objects._observe(POD, "ADDED", pod("1"))
    assert await objects.settled(3600.0, 3600.0, at_once, "n") == set()
