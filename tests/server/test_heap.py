"""The memory of the API server: freed memory is returned to the operating system, equal values are stored once."""

from __future__ import annotations

import asyncio
import gc
import platform
import subprocess
import sys
import tracemalloc

import pytest

from trainyard.client import ApiClient
from trainyard.objects import NamespacedName
from trainyard.objects.resources import CONFIG_MAP
from trainyard.server import Server, server
from trainyard.server.storage.log import RevisionLog

FREED = """
import os
from trainyard.controller_runtime.heap import trim_heap

def resident() -> int:
    return int(open("/proc/self/statm").read().split()[1])

kept = [bytes(number % 400) + bytes(3000 if number % 2 else 100) for number in range(40_000)]
kept = kept[::2]  # every second one is freed: free pages between used ones
before = resident()
trim_heap()
assert resident() < 0.8 * before, (before, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is of glibc")
def test_free_pages_between_used_ones_are_returned() -> None:
    subprocess.run([sys.executable, "-c", FREED], check=True)


async def test_the_server_trims_its_heap_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trims = asyncio.Queue[None]()
    monkeypatch.setattr(server, "BOOKMARK_SECONDS", 0.0)
    monkeypatch.setattr(server, "trim_heap", lambda: trims.put_nowait(None))
    running = Server(token="admin")
    await running.open()
    try:
        for _ in range(2):
            await trims.get()
    finally:
        await running.stop()


async def test_versions_of_an_object_share_their_labels() -> None:
    """The history has thousands of versions. Labels of their own were ten megabytes."""
    running = Server(token="admin")
    await running.start()
    config_map = {"metadata": {"name": "a", "labels": {"team": "ml"}}, "data": {"x": "0"}}
    key = NamespacedName("default", "a")
    async with ApiClient(running.url, "admin") as api:
        await api.create(CONFIG_MAP, "default", config_map)
        first = running.log.get("configmaps", key)
        await api.patch(CONFIG_MAP, "default", "a", {"data": {"x": "1"}})
        second = running.log.get("configmaps", key)
        await api.patch(CONFIG_MAP, "default", "a", {"metadata": {"labels": {"team": "other"}}})
        third = running.log.get("configmaps", key)
    await running.stop()
    assert first and second and third and first.body != second.body
    assert second.labels is first.labels and second.fields is first.fields
    assert third.labels == {"team": "other"}


async def test_stored_objects_take_the_memory_of_their_json() -> None:
    """Those of a deletion, too. What the encoder returns has up to half as much again behind it."""
    running = Server(token="admin", log=RevisionLog(keep=10_000, keep_bytes=1 << 40))
    await running.open()
    async with ApiClient("http://localhost", "admin", transport=running.in_process()) as api:
        tracemalloc.start()
        for number in range(200):
            await api.create(CONFIG_MAP, "default", {"metadata": {"name": "a"}, "data": {"x": "y" * (number + 1) * 10}})
            await api.delete(CONFIG_MAP, "default", "a")
        gc.collect()
        largest = tracemalloc.take_snapshot().statistics("lineno")
        tracemalloc.stop()
    entries = running.log.after(running.log.revision - 400)
    await running.stop()
    bodies = [entry.record.body if entry.record else entry.last_state for entry in entries]
    assert len(bodies) == 400
    used = max(place.size for place in largest if place.count >= len(bodies))
    assert sum(map(len, bodies)) <= used <= sum(map(sys.getsizeof, bodies)) * 1.01, (used, largest[:3])
