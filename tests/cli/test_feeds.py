"""Those who watch are told in the end that nobody answers any more."""

from __future__ import annotations

import asyncio
import time

import pytest

from trainyard.cli.feeds import Feeds, source
from trainyard.client import Api, Unavailable
from trainyard.kinds import TFJOB
from trainyard.server import Server


async def _heard(feeds: Feeds) -> None:
    while True:
        await feeds.next()


async def test_a_cluster_that_goes_away_and_stays_away_ends_the_watching() -> None:
    server = Server({}, "token", time.time)
    await server.start()
    async with Api(server.url, "token") as api:
        feeds = Feeds(api, patience=0.5)
        feeds.watch(source(TFJOB.gvk, "default"))
        await feeds.next()
        await server.stop()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(_heard(feeds), 20)
        await feeds.stop()
