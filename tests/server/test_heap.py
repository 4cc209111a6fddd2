"""Memory that the API server has freed goes back to the operating system."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys

import pytest

from trainyard.server import Server, server

FREED = """
import os
from trainyard.server.storage.heap import trim_heap

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
