"""The button TensorBoard: it opens the pod's page in a tab, at an origin from which nothing of ours is reached."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.page.browser.canned_jobs import add_bert, add_small_jobs
from tests.page.browser.canned_server import CannedServer
from tests.page.browser.conftest import Browser, Keys
from tests.page.browser.test_page import AXE
from tests.page.browser.test_story import RunningCluster, open_page
from tests.page.stand_in_tensorboard import board_job, write_images
from tests.support.waiting import until
from trainyard import kinds

pytestmark = pytest.mark.slow

BUTTON = ".tensorboard button"
TRY = """
const done = arguments[arguments.length - 1];
fetch(arguments[0], arguments[1]).then(
  (got) => got.text().then((text) => done(`${got.status} ${text}`)),
  (error) => done(error.name),
);
"""
TALK = """
const done = arguments[arguments.length - 1], talk = new WebSocket(arguments[0]);
talk.onopen = () => done('open');
talk.onerror = () => done('refused');
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path, network="namespace", images=(write_images(tmp_path),))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def other_page() -> Iterator[str]:
    """A page of another port of this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(str(self.headers["Cookie"]).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Not into the output of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def to_tab(browser: Browser, handle: str) -> None:
    browser.driver.switch_to.window(handle)


def test_the_button_opens_the_pods_page_which_reaches_nothing_else(
    browser: Browser, cluster: RunningCluster, other_page: str, tmp_path: Path
) -> None:
    open_page(browser, cluster)
    cluster.call(lambda local, page_server: local.api.create(kinds.TFJOB.gvk, "default", board_job("curves", tmp_path)))
    browser.open("#/jobs/default/TfJob/curves")
    browser.sees("TensorBoard ↗", BUTTON)
    ours = browser.driver.current_window_handle
    page_url = str(browser.js("location.href.split('#')[0]"))
    browser.click(BUTTON)
    until(lambda: len(browser.driver.window_handles) == 2, "there is another tab")
    theirs = next(handle for handle in browser.driver.window_handles if handle != ours)
    try:
        to_tab(browser, theirs)
        reload_until_it_listens(browser)
        browser.until("document.getElementById('data').textContent === 'the loss falls'")
        browser.until("document.getElementById('talk').textContent === 'heard: said by the page'")
        address = str(browser.js("location.origin"))
        assert browser.js("[location.pathname, document.referrer, window.opener]") == ["/", "", None]
        assert browser.js("[document.cookie, localStorage.length]") == ["", 0]
        assert not [error for error in browser.errors() if error.startswith(page_url)]
        assert_reaches_nothing(browser, page_url)
        answer = tried(browser, f"{address}/seen")
        assert "trainyard-forward" not in answer and "authorization" not in answer.lower()

        browser.driver.get(other_page)
        assert "None" in browser.text()  # no cookie comes to another port
        tried(browser, f"{address}/data?by=another", {"mode": "no-cors", "credentials": "include"})
        assert browser.driver.execute_async_script(TALK, address.replace("http", "ws") + "/live") == "refused"
        browser.driver.get(f"{address}/seen")
        assert "by=another" not in browser.text()
    finally:
        to_tab(browser, theirs)
        browser.driver.close()
        to_tab(browser, ours)


def reload_until_it_listens(browser: Browser) -> None:
    def shows_it() -> bool:
        if "TensorBoard stands here" in browser.text():
            return True
        browser.driver.refresh()
        return False

    until(shows_it, "the pod's page is shown")


def tried(browser: Browser, url: str, options: Any = None) -> str:
    """The answer to a request of the page, or the name of the error."""
    return str(browser.driver.execute_async_script(TRY, url, options or {}))


def assert_reaches_nothing(browser: Browser, page_url: str) -> None:
    """From the page that is open, by any request."""
    for options in ({}, {"credentials": "include"}, {"method": "POST"}, {"mode": "no-cors"}):
        answer = tried(browser, f"{page_url}v1/jobs/x", options)
        assert answer in ("TypeError", "0 "), answer
    live = page_url.replace("http", "ws") + "v1/live"
    assert browser.driver.execute_async_script(TALK, live) == "refused"


def test_a_tensorboard_that_does_not_run_says_why(browser: Browser, server: CannedServer) -> None:
    uid = add_bert(server)
    add_small_jobs(server)
    (frame,) = [frame for frame in server.job_frames[uid] if frame["type"] == "job"]
    server.jobs[uid]["live"] = True
    frame["tensorboard"] = {"pod": "", "message": "its pod is Pending"}
    open_page_of(browser, server)
    browser.sees("TensorBoard does not run: its pod is Pending", ".tensorboard")
    assert browser.js("document.querySelector(args[0]).hidden", BUTTON)
    server.send({**frame, "tensorboard": {"pod": "board", "message": ""}}, f"job:{uid}")
    browser.sees("TensorBoard ↗", BUTTON)
    browser.js("document.querySelector(args[0]).focus()", BUTTON)
    browser.press(Keys.ENTER)
    browser.sees("8 are open already", ".tensorboard")
    browser.driver.execute_script(AXE.read_text(encoding="utf-8"))
    for scheme in ("light", "dark"):
        browser.theme(scheme)
        assert browser.measure("axeViolations") == []
    server.send({**frame, "tensorboard": None}, f"job:{uid}")
    browser.until("document.querySelector('.tensorboard').hidden")


def open_page_of(browser: Browser, server: CannedServer) -> None:
    browser.driver.get(server.link)
    browser.sees("live", "#header")
    browser.open("#/jobs/default/PyTorchJob/bert")
