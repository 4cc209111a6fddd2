"""The timeline: hours in which nothing changes are cut out, and what is left stays true."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.page.browser.canned_jobs import add_quiet
from tests.page.browser.canned_server import CannedServer
from tests.page.browser.conftest import Browser, Keys

pytestmark = pytest.mark.slow

ADDRESS = "#/jobs/default/PyTorchJob/quiet/timeline"
START = time.mktime((2026, 11, 23, 9, 0, 0, 0, 0, -1))  # 9:00 here
# A row of the canvas of the timeline as pairs of a colour and the number of pixels that have it.
ROW = """((y) => {
  const {width} = document.querySelector('attempt-timeline canvas');
  const runs = [];
  for (const pixel of pixelsOf('attempt-timeline canvas', 0, y, width, 1)) {
    if (runs.length && runs[runs.length - 1][0] === pixel) runs[runs.length - 1][1]++;
    else runs.push([pixel, 1]);
  }
  return runs;
})"""
RUN, BAD, SUNKEN = "26,127,66", "198,47,53", "238,240,242"  # --run, --bad and --sunken of style.css


@pytest.fixture
def module(browser: Browser, server: CannedServer) -> Any:
    """Evaluates an expression of `TimeAxis` and `quietParts`."""
    browser.driver.get(server.link)
    browser.sees("live", "#header")

    def evaluate(expression: str) -> Any:
        script = """const done = arguments[arguments.length - 1];
        import(document.querySelector('script[src]').src.replace('app.js', 'time_axis.js'))
          .then(({TimeAxis, quietParts}) => done(%s), (error) => done(String(error)));"""
        return browser.driver.execute_async_script(script % expression)

    return evaluate


def test_long_parts_without_a_change_are_quiet(module: Any) -> None:
    assert module("quietParts([0, 10, 20], 0, 500)") == []  # too short to be worth it
    assert module("quietParts([0, 100, 700], 0, 700)") == []  # 600 seconds stay
    assert module("quietParts([0, 100, 800], 0, 800)") == [[130, 770]]
    assert module("quietParts([0, 20], 0, 7220)") == [[50, 7190]]  # until now
    assert module("quietParts([0, 800, 1600, 2400, 3200, 4000, 4800, 5600], 0, 5600)") == []  # each is a small part
    assert module("quietParts([100, 5000, 90000], 4000, 10000)") == [[5050, 9950]]  # in what is shown alone


def test_places_and_times_of_an_axis_with_cuts(module: Any) -> None:
    axis = "new TimeAxis(0, 10000, 50, 500, [[1000, 5000], [6000, 9000]], 100)"
    assert module(f"[{axis}.shown, {axis}.cuts.map((cut) => cut.x)]") == [3000, [150, 350]]
    times = [0, 500, 1000, 3000, 5000, 5500, 6000, 9000, 10000]
    assert module(f"{times}.map((time) => {axis}.x(time))") == [50, 100, 150, 200, 250, 300, 350, 450, 550]
    assert module(f"{times}.map((time) => Math.round({axis}.time({axis}.x(time))))") == times
    assert module(f"[{axis}.time(0), {axis}.time(999), {axis}.x(-5), {axis}.x(1e9)]") == [0, 10000, 50, 550]
    assert module("new TimeAxis(0, 10000, 50, 150, [[1000, 5000]], 100).cuts") == []  # there is no room for it


def open_timeline(browser: Browser, server: CannedServer) -> None:
    add_quiet(server, START)
    browser.driver.get(server.link)
    browser.sees("live", "#header")
    browser.open(ADDRESS)
    browser.until("colourCount('attempt-timeline canvas') > 3")


def test_quiet_hours_are_cut_out(browser: Browser, server: CannedServer) -> None:
    open_timeline(browser, server)
    row = browser.js(f"{ROW}(33)")  # of worker-0
    colours = [colour for colour, length in row if length > 2]
    assert colours.index(RUN) < colours.index(SUNKEN) < len(colours) - 1 - colours[::-1].index(BAD), row
    cut = max(length for colour, length in row if colour == SUNKEN)
    assert 80 < cut < 160, row  # as wide as its text
    text = browser.js(f"{ROW}(58)")
    assert len(text) > 20  # something is written below
    description = browser.js("canvasDescription('attempt-timeline canvas')")
    assert description.endswith("Nothing changes for 2:55:00, from 09:03:30 to 11:58:30."), description


def test_the_times_beside_a_cut_are_right(browser: Browser, server: CannedServer) -> None:
    open_timeline(browser, server)
    browser.js("document.querySelector('attempt-timeline canvas').focus()")
    browser.press(Keys.ARROW_DOWN, Keys.HOME)
    browser.sees("worker-0 · attempt 1 · waits for a node since 09:00:00", ".readout")
    browser.press(Keys.END)
    browser.sees("worker-0 · 12:00:00 · no pod", ".readout")
    browser.press(*[Keys.ARROW_LEFT] * 15)
    browser.sees("runs since 09:03:00 until 11:59:00", ".readout")
    place = "document.querySelector('attempt-timeline canvas').getBoundingClientRect()"
    left, top, width = browser.js(f"[{place}.left, {place}.top, {place}.width]")
    for share, words in ((0.15, "waits for a node since 09:00:00"), (0.3, "starts since 09:01:00 until 09:03:00")):
        browser.js(f"void pointAt('attempt-timeline canvas', {left + share * width}, {top + 33})")
        browser.sees(words, ".readout")
    assert browser.errors() == []


def test_the_last_ten_minutes_have_no_cut(browser: Browser, server: CannedServer) -> None:
    open_timeline(browser, server)
    browser.click(".timeline button", "last 10 min")
    browser.until(f"!{ROW}(33).some(([colour]) => colour === args[0])", SUNKEN)
    assert "Nothing changes" not in browser.js("canvasDescription('attempt-timeline canvas')")
