"""The page of a real local cluster: a job appears, its ranks run, one fails, and the page says why."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.page.browser.conftest import Browser
from tests.page.browser.curve_pixels import HEIGHTS, LIGHT_RUNS, assert_falls
from tests.support.waiting import until
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.history.records import history_folder
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.objects import GVK, Json
from trainyard.page.listener import PageServer, local_page_server
from trainyard.page.options import PageOptions

pytestmark = pytest.mark.slow

Result = TypeVar("Result")
TFJOB = GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")
# It runs until its file is there; a rank whose file says so fails.
PROGRAM = """
import pathlib, sys, time
print("hello from", sys.argv[1], flush=True)
print("step=10 loss=0.41", flush=True)
order = pathlib.Path(sys.argv[1])
while not order.exists():
    time.sleep(0.02)
if order.read_text() == "fail":
    sys.exit("no data: /data/train is empty")
print("the end", flush=True)
"""
TRAINING = """
import pathlib, sys, time
for step in range(50):
    print(f"step {step} loss {2 / (1 + step)}", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""


class RunningCluster:
    """A local cluster and its page server, in a thread of their own."""

    def __init__(self, folder: Path, network: str = "shared", images: tuple[Path, ...] = ()) -> None:
        self.folder, self.loop = folder, asyncio.new_event_loop()
        self._network, self._images = network, images
        self._ready, self._end = threading.Event(), asyncio.Event()
        self.cluster: LocalCluster | None = None
        self.page_server: PageServer | None = None
        self._thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._run()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        try:
            options = LocalClusterOptions(
                network=self._network,
                images=self._images,
                cache=self.folder / "cache",
                say=lambda text: None,
                parent=self.folder,
                history=HistoryOptions(history_folder(), "default"),
            )
            async with LocalCluster(options) as self.cluster:
                page_options = PageOptions("default", history=history_folder())
                self.page_server = local_page_server(self.cluster, page_options)
                await self.page_server.start()
                self._ready.set()
                await self._end.wait()
                await self.page_server.stop()
        finally:
            self._ready.set()

    def call(self, function: Callable[[LocalCluster, PageServer], Awaitable[Result]]) -> Result:
        """Await what the function returns, in the cluster's thread."""
        assert self.cluster is not None and self.page_server is not None
        cluster, page_server = self.cluster, self.page_server

        async def called() -> Result:
            return await function(cluster, page_server)

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(60)

    def create(self, name: str, program: str = PROGRAM) -> Json:
        """A job of a master and two workers, which run until `order` is called for them."""

        def role(role_type: str, replicas: int) -> Json:
            command = [sys.executable, "-c", program, str(self.folder / f"{name}-{role_type.lower()}")]
            container = {"name": "tensorflow", "image": "example.invalid/x", "command": command}
            template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
            return {"replicas": replicas, "tfReplicaType": role_type, "template": template}

        spec = {"replicaSpecs": [role("MASTER", 1), role("WORKER", 2)], "backoffLimit": 0}
        job = {"apiVersion": TFJOB.api_version, "kind": "TfJob", "metadata": {"name": name}, "spec": spec}
        return self.call(lambda cluster, page_server: cluster.api.create(TFJOB, "default", job))

    def order(self, name: str, role: str, text: str) -> None:
        """Let the replicas of a role end: `fail`, or anything else for success."""
        temporary = self.folder / f"{name}-order"
        temporary.write_text(text)
        os.replace(temporary, self.folder / f"{name}-{role}")

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)
        self.loop.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path)
    try:
        yield running
    finally:
        running.close()


def open_page(browser: Browser, cluster: RunningCluster) -> None:
    async def link(_: LocalCluster, page_server: PageServer) -> str:
        return page_server.link()

    browser.driver.get(cluster.call(link))
    browser.sees("live", "#header")


CELL = """(role) => {
  const canvas = document.querySelector('rank-grid canvas');
  const y = role === 'worker' ? 72 : 22;
  return [...canvas.getContext('2d').getImageData(2, y, 1, 1).data].join();
}"""
RUNNING, FAILED = "26,127,66,255", "198,47,53,255"  # --run and --bad of style.css


def test_a_job_appears_runs_and_fails(browser: Browser, cluster: RunningCluster) -> None:
    open_page(browser, cluster)
    browser.sees("No jobs.", ".empty")
    cluster.create("mnist")
    browser.sees("mnist", "table")
    browser.sees("3/3", "table")
    browser.sees("10", "td.step")
    browser.sees("0.41", "td.loss")
    browser.press("j", "\n")
    browser.sees("default/mnist", "h1")
    browser.until(f"({CELL})('master') === args[0] && ({CELL})('worker') === args[0]", RUNNING)
    browser.scroll_to(".panel.logs")
    browser.sees("hello from", "log-lines")
    browser.sees("worker-1", "log-lines")
    browser.scroll_to(".panel.ranks")
    browser.sees("at step 10", ".legend")
    browser.click(".panel.ranks button", "memory")
    browser.sees("full cell:", ".legend")
    browser.click(".panel.ranks button", "state")
    cluster.order("mnist", "worker", "fail")
    browser.until(f"({CELL})('worker') === args[0]", FAILED)
    browser.scroll_to("h1")
    browser.sees("Failed", ".facts")
    browser.sees("no data: /data/train is empty", ".why")
    browser.scroll_to(".panel.logs")
    browser.sees("no data: /data/train is empty", "log-lines")
    browser.press("]")
    browser.sees("worker-0", "h1")
    browser.sees("no data: /data/train is empty", "log-lines")
    browser.sees("trainyard logs mnist --role worker --index 0", ".commands")
    browser.press("y")
    browser.sees("kind: TfJob", ".yaml")
    assert browser.errors() == []


def test_falling_losses_are_a_falling_curve(browser: Browser, cluster: RunningCluster) -> None:
    cluster.create("falls", TRAINING)
    open_page(browser, cluster)
    browser.sees("3/3", "table")
    browser.press("j", "\n")
    browser.scroll_to(".panel.metrics")
    browser.sees("last 0.04 at step 49, lowest 0.04, highest 2", ".curve")
    browser.sees("3 replicas", ".curve")
    assert_falls(browser)
    for role in ("master", "worker"):
        cluster.order("falls", role, "")
    browser.scroll_to("h1")
    browser.sees("Succeeded", ".facts")
    browser.driver.refresh()
    browser.scroll_to(".panel.metrics")
    browser.sees("last 0.04 at step 49", ".curve")
    assert_falls(browser)
    assert browser.errors() == []


def test_two_runs_are_compared_while_one_runs_and_after_its_deletion(browser: Browser, cluster: RunningCluster) -> None:
    cluster.create("slow", TRAINING)
    cluster.create("fast", TRAINING.replace("2 / (1 + step)", "1 / (1 + step)"))
    for role in ("master", "worker"):
        cluster.order("slow", role, "")
    open_page(browser, cluster)
    browser.sees("Succeeded", "td")
    browser.sees("3/3", "table")
    browser.press("j", " ", "j", " ", "c")
    browser.sees("fast", ".runs")
    browser.sees("Running", ".runs")
    browser.until(f"{HEIGHTS}(args[0]).length > 15 && {HEIGHTS}(args[1], 1).length > 100", *LIGHT_RUNS[:2])
    browser.scroll_to(".differs")
    browser.sees("command", ".differs th")
    browser.sees("1 / (1 + step)", ".differs td")
    browser.sees("2 / (1 + step)", ".differs td")
    browser.scroll_to(".final")
    for text in ("last loss", "0.04", "0.02"):
        browser.sees(text, ".final table")
    browser.until(r"/MiB/.test(findElement('.final tr', 'peak memory').innerText)")
    for role in ("master", "worker"):
        cluster.order("fast", role, "")
    browser.until("!findElement('.final tr', 'Running')")

    async def delete(running: LocalCluster, _: PageServer) -> Any:
        return await running.api.delete(TFJOB, "default", "slow")

    cluster.call(delete)
    browser.driver.refresh()
    browser.until(f"{HEIGHTS}(args[0]).length > 15 && {HEIGHTS}(args[1], 1).length > 100", *LIGHT_RUNS[:2])
    browser.scroll_to(".final")
    browser.sees("0.04", ".final table")
    assert browser.errors() == []


def test_a_download_equals_the_log(browser: Browser, cluster: RunningCluster, downloads: Path) -> None:
    """W21."""
    cluster.create("whole")
    cluster.order("whole", "master", "")
    open_page(browser, cluster)
    browser.sees("Succeeded", "td")
    browser.press("j", "l")
    browser.type("input[aria-label=Rank]", "master-0")
    browser.sees("the end", "log-lines")
    browser.click(".log button", "Download")
    until(lambda: list(downloads.glob("master-0*.log")), "a file was downloaded")
    files = list(downloads.glob("master-0*.log"))
    assert [file.read_text() for file in files] == [
        f"hello from {cluster.folder}/whole-master\nstep=10 loss=0.41\nthe end\n"
    ]


def test_a_deleted_job_stays_in_the_history(browser: Browser, cluster: RunningCluster) -> None:
    cluster.create("gone")
    cluster.order("gone", "master", "")
    cluster.order("gone", "worker", "")
    open_page(browser, cluster)
    browser.sees("Succeeded", "td")

    async def delete(running: LocalCluster, _: PageServer) -> Any:
        return await running.api.delete(TFJOB, "default", "gone")

    cluster.call(delete)
    browser.sees("No jobs.", ".empty")
    browser.click("button", "History")
    browser.sees("gone", "table")
    browser.press("j", "\n")
    browser.sees("of the history", ".facts")
    browser.scroll_to(".panel.logs")
    browser.type("input[aria-label=Rank]", "master-0")
    browser.sees("the end", "log-lines")


def test_the_end_of_a_cluster_is_said(browser: Browser, cluster: RunningCluster) -> None:
    open_page(browser, cluster)

    async def stop(_: LocalCluster, page_server: PageServer) -> None:
        await page_server.stop("the cluster stops")

    cluster.call(stop)
    browser.sees("the cluster stops", "#banner")
