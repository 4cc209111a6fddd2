"""A local cluster, its page server, and a browser with a session that may only read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.page.browsing import Browser
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.history.records import history_folder
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    history = HistoryOptions(history_folder(), "default")
    options = LocalClusterOptions(
        network="shared", cache=tmp_path / "cache", say=lambda text: None, parent=tmp_path, history=history
    )
    async with LocalCluster(options) as cluster:
        yield cluster


@pytest.fixture
async def page_server(cluster: LocalCluster) -> AsyncIterator[PageServer]:
    page_server = PageServer(cluster.api, PageOptions("default", history=history_folder()))
    await page_server.start()
    yield page_server
    await page_server.stop()


@pytest.fixture
async def browser(page_server: PageServer) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as http:
        browser = Browser(page_server.url, http)
        assert await browser.log_in(page_server.link()) == 200
        yield browser
