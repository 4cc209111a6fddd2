"""A local cluster, its window, and a browser with a session that may only read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.window.browsing import Browser
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.history.records import history_folder
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.window import Window, WindowOptions


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    history = HistoryOptions(history_folder(), "default")
    options = LocalClusterOptions(
        network="shared", cache=tmp_path / "cache", say=lambda text: None, parent=tmp_path, history=history
    )
    async with LocalCluster(options) as cluster:
        yield cluster


@pytest.fixture
async def window(cluster: LocalCluster) -> AsyncIterator[Window]:
    window = Window(cluster.api, WindowOptions("default", history=history_folder()))
    await window.start()
    yield window
    await window.stop()


@pytest.fixture
async def browser(window: Window) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as http:
        browser = Browser(window.url, http)
        assert await browser.log_in(window.link()) == 200
        yield browser
