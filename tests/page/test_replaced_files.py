"""A program of the network *shared* puts a FIFO in the place of its log. Whoever looks at the page, the cluster goes
on: its API answers, and a new job ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.page.browsing import Browser, row_of
from tests.page.test_page_server import TFJOB, job
from trainyard.app.history.records import history_folder
from trainyard.app.local import LocalCluster
from trainyard.objects import uid_of
from trainyard.objects.resources import POD

pytestmark = pytest.mark.slow

REPLACES_LOGS = """
import glob, os
while not (logs := glob.glob({folder!r} + '/*-replaces-*/logs/master-0/*/*/1.log')):
    pass
for log in logs:
    if os.path.isfile(log):
        os.rename(log, log + '.old')
        os.mkfifo(log)
raise SystemExit(1)
"""
READERS = 12  # more than the default executor of asyncio has threads on two cores


async def goes_on(cluster: LocalCluster, browser: Browser) -> None:
    async with asyncio.timeout(30):
        await cluster.api.list(POD, "default")
        await cluster.api.create(TFJOB, "default", job("next", "pass"))
        async with browser.live("jobs") as live:
            await live.frame("jobs", lambda frame: (row_of(frame, "next") or {}).get("state") == "Succeeded")


async def test_looking_at_a_log_that_is_a_fifo_stops_nothing(cluster: LocalCluster, browser: Browser) -> None:
    replacing = job("replaces", REPLACES_LOGS.format(folder=str(history_folder())))
    replacing["spec"]["cleanPodPolicy"] = "All"
    uid = uid_of(await cluster.api.create(TFJOB, "default", replacing))
    async with browser.live("jobs") as live:
        await live.frame("jobs", lambda frame: (row_of(frame, "replaces") or {}).get("state") == "Failed")
    [fifo] = [path for path in history_folder().glob("*/logs/master-0/*/*/1.log") if uid[:8] in str(path)]
    assert fifo.is_fifo()
    file = "/".join(Path(fifo).with_suffix("").parts[-4:])
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*(browser.get(f"v1/jobs/{uid}/logs/{file}") for _ in range(READERS)))
        assert {status for status, _, _ in answers} == {404}
        url = f"{browser.url}v1/tickets"
        path = {"path": f"jobs/{uid}/logs/{file}"}
        async with browser.http.post(url, json=path, headers=browser.headers) as answer:
            ticket = (await answer.json())["ticket"]
        assert (await browser.get(f"v1/download/{ticket}"))[0] == 404
        assert (await browser.get(f"v1/jobs/{uid}"))[0] == 200  # without pods the page reads their logs in the history
    await goes_on(cluster, browser)
