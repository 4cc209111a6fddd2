"""Commands that watch report an API server that stays unreachable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

import pytest

from trainyard.client import ApiClient, ApiRequest, Unavailable
from trainyard.controller_runtime.watches import Watches, watch_target
from trainyard.kinds import TFJOB
from trainyard.server import Server

PATIENCE = 0.5


async def _heard(feeds: Watches) -> None:
    while True:
        await feeds.wait_for_change()


async def test_a_cluster_that_stays_unreachable_ends_the_watch() -> None:
    server = Server({}, "token", time.time)
    await server.start()
    async with ApiClient(server.url, "token") as api:
        feeds = Watches(api, PATIENCE)
        feeds.watch(watch_target(TFJOB.gvk, "default"))
        await feeds.wait_for_change()
        await server.stop()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(_heard(feeds), 20)
        await feeds.stop()


async def test_a_cluster_that_is_lost_twice_and_was_well_in_between_is_followed_on() -> None:
    class Cut(ApiClient):
        watches = 0
        last = asyncio.Event()

        async def send(self, request: ApiRequest) -> bytes:
            return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

        async def stream(
            self, request: ApiRequest, seconds: float | None, opened: Callable[[], None] = lambda: None
        ) -> AsyncGenerator[bytes, None]:
            self.watches += 1
            if self.watches > 1:
                opened()
                await asyncio.sleep(2 * PATIENCE)  # quiet, and well
            if self.watches > 2:
                self.last.set()
                await asyncio.Event().wait()
            raise Unavailable(0, "ConnectionLost", "cut")
            yield b""

    api = Cut("http://cut")
    async with api:
        feeds = Watches(api, PATIENCE)
        feeds.watch(watch_target(TFJOB.gvk, "default"))
        hearing = asyncio.create_task(_heard(feeds))
        await asyncio.wait_for(api.last.wait(), 20)
        assert not hearing.done(), hearing.exception()
        hearing.cancel()
        await feeds.stop()
