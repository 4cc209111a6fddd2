"""The real TensorBoard, opened from the page of its job, with what TensorFlow has written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.page.browsing import Browser, Loopback, origin
from tests.page.stand_in_tensorboard import board_job
from trainyard import kinds
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.objects import uid_of
from trainyard.page.listener import local_page_server
from trainyard.page.options import PageOptions

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]
IMAGE = "tensorflow/tensorflow:2.21.0"
INSTALLATION = 1200.0  # seconds; the first use of the image installs TensorFlow
TRAIN = """
import time
import tensorflow as tf
with tf.summary.create_file_writer("/logs/train").as_default():
    for step in range(9):
        tf.summary.scalar("loss", 1 / (1 + step), step=step)
time.sleep(600)
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    options = LocalClusterOptions(network="namespace", say=print, parent=tmp_path)
    async with LocalCluster(options) as cluster:
        yield cluster


@pytest.fixture
async def browser(cluster: LocalCluster) -> AsyncIterator[Browser]:
    page_server = local_page_server(cluster, PageOptions("default"))
    await page_server.start()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback())) as http:
        browser = Browser(page_server.url, http)
        assert await browser.log_in(page_server.link()) == 200
        yield browser
    await page_server.stop()


async def test_the_real_tensorboard_shows_the_training(cluster: LocalCluster, browser: Browser, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    job = board_job("curves", logs)
    job["spec"]["tfImage"] = IMAGE
    pod_spec = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    board = job["spec"]["tensorboard"]
    pod_spec["volumes"] = board["volumes"]
    pod_spec["containers"][0] |= {
        "image": IMAGE,
        "command": ["python", "-c", TRAIN],
        "volumeMounts": board["volumeMounts"],
    }
    uid = uid_of(await cluster.api.create(kinds.TFJOB.gvk, "default", job))
    async with browser.live(f"job:{uid}") as live:
        await live.frame(
            "job", lambda frame: frame["tensorboard"] and frame["tensorboard"]["pod"], seconds=INSTALLATION
        )
    url, http = f"{browser.url}v1/forward", browser.http
    async with http.post(url, json={"job": uid}, headers=browser.headers) as got:
        link = (await got.json())["url"]
    address, tags = origin(link), f"{origin(link)}/data/plugin/scalars/tags"
    async with asyncio.timeout(180):
        got = await http.get(link)
        while got.status == 502:  # TensorBoard takes seconds until it listens
            got = await http.get(address)
        assert got.status == 200 and "<title>TensorBoard" in await got.text()
        while "loss" not in (await (await http.get(tags)).json()).get("train", {}):
            pass  # it looks for new files every few seconds
    async with http.get(f"{address}/data/plugin/scalars/scalars?run=train&tag=loss") as got:
        points = await got.json()
    assert [(step, round(value, 3)) for _, step, value in points[:2]] == [(0, 1.0), (1, 0.5)]
    async with http.get(f"{address}/index.js") as got:
        assert got.status == 200 and len(await got.read()) > 1_000_000
