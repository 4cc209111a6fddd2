"""The TensorBoard of a job of a real local cluster, opened from the page: by HTTP and WebSocket, as a browser would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.page.browsing import Browser, Loopback, origin, until_closed
from tests.page.stand_in_tensorboard import board_job, write_images
from trainyard import kinds
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.objects import Json, uid_of
from trainyard.page.listener import local_page_server
from trainyard.page.options import PageOptions
from trainyard.page.pod_requests import COOKIE

TFJOB = kinds.TFJOB.gvk


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    options = LocalClusterOptions(
        network="namespace",
        images=(write_images(tmp_path),),
        cache=tmp_path / "cache",
        say=lambda text: None,
        parent=tmp_path,
    )
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


async def press(browser: Browser, job_uid: str) -> tuple[int, Json]:
    url = f"{browser.url}v1/forward"
    async with browser.http.post(url, json={"job": job_uid}, headers=browser.headers) as got:
        return got.status, await got.json()


async def test_tensorboard_opens_from_the_page_as_long_as_its_job_is_there(
    cluster: LocalCluster, browser: Browser, tmp_path: Path
) -> None:
    job = await cluster.api.create(TFJOB, "default", board_job("curves", tmp_path))
    uid = uid_of(job)
    async with browser.live(f"job:{uid}") as live:
        frame = await live.frame("job", lambda frame: frame["tensorboard"]["pod"])
        assert frame["tensorboard"]["pod"].startswith(f"tensorboard-{frame['job']['runtimeId']}")
    code, answer = await press(browser, uid)
    assert code == 200, answer
    address = origin(answer["url"])
    async with browser.http.get(answer["url"]) as got:
        while got.status == 502:  # the program does not listen yet
            got = await browser.http.get(address)
        assert got.status == 200 and "TensorBoard stands here" in await got.text()
    upload = b"x" * (1 << 21)
    async with browser.http.post(f"{address}/upload?a=1", data=upload, headers={"Origin": address}) as got:
        assert (got.status, await got.read()) == (200, upload)
    async with browser.http.ws_connect(f"{address}/live", headers={"Origin": address}) as talk:
        await talk.send_str("hello")
        assert await talk.receive_str() == "heard: hello"
    async with browser.http.get(f"{address}/seen") as got:
        page = await got.text()
    for secret in (COOKIE, cluster.token, browser.session, "Bearer", "ticket"):
        assert secret not in page
    assert "/upload?a=1" in [request["path"] for request in json.loads(page)]

    await cluster.api.patch(TFJOB, "default", "curves", {"spec": {"suspend": True}})
    async with browser.live(f"job:{uid}") as live:
        await live.frame("job", lambda frame: frame["tensorboard"]["message"] == "the job is suspended")
        async with asyncio.timeout(20):
            while "suspended" not in str(await press(browser, uid)):  # its pod has to go first
                pass
        assert await press(browser, uid) == (409, {"error": "TensorBoard does not run: the job is suspended"})
        async with browser.http.get(address) as got:
            assert (got.status, await got.text()) == (502, "TensorBoard does not run: the job is suspended\n")
        await cluster.api.delete(TFJOB, "default", "curves")
        await until_closed(address)
    assert (await press(browser, uid))[0] == 404
