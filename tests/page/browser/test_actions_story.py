"""A person changes a job of a real local cluster on the page, in one tab; another tab only reads."""

from __future__ import annotations

import pytest

from tests.page.browser.conftest import Browser
from tests.page.browser.test_story import RunningCluster, cluster
from trainyard.app.local import LocalCluster
from trainyard.page.listener import PageServer
from trainyard.page.sessions import Right

pytestmark = pytest.mark.slow

__all__ = ["cluster"]


def open_page(browser: Browser, cluster: RunningCluster, right: Right) -> None:
    async def link(_: LocalCluster, page_server: PageServer) -> str:
        return page_server.link(right)

    browser.driver.get(cluster.call(link))
    browser.sees("live", "#header")


def confirm(browser: Browser, verb: str) -> None:
    browser.click(".actions button", f"{verb} ...")
    browser.sees(f"{verb} TfJob mnist?", "dialog")
    browser.click("dialog button", verb)


def test_a_job_is_suspended_resumed_and_deleted(browser: Browser, cluster: RunningCluster) -> None:
    cluster.create("mnist")
    open_page(browser, cluster, "write")
    browser.sees("3/3", "table")
    browser.press("j", "\n")
    confirm(browser, "Suspend")
    browser.sees("tfjob/mnist suspended", ".actions [role=status]")
    browser.sees("Suspended", ".facts")
    browser.click(".actions button", "Resume")
    browser.sees("Running", ".facts")
    browser.sees("3 of 3 running", ".facts")
    browser.sees("Suspend ...", ".actions")  # the buttons are for the resumed job: before, its deletion is refused
    confirm(browser, "Delete")
    browser.sees("of the history", ".facts")
    browser.sees("tfjob/mnist deleted", ".actions [role=status]")
    assert browser.errors() == []


def test_each_tab_keeps_the_right_of_its_own_link(browser: Browser, cluster: RunningCluster) -> None:
    open_page(browser, cluster, "write")
    browser.sees("may change jobs", "#header")
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        open_page(browser, cluster, "read")
        browser.sees("read-only", "#header")
        browser.driver.switch_to.window(first)
        browser.driver.refresh()
        browser.sees("may change jobs", "#header")
    finally:
        for handle in set(browser.driver.window_handles) - {first}:
            browser.driver.switch_to.window(handle)
            browser.driver.close()
        browser.driver.switch_to.window(first)
