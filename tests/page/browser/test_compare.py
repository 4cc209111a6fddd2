"""What a person sees of a comparison: the choice in the list, curves over each other, what differs, how runs ended."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.page.browser.canned_jobs import MARKUP, add_hostile, add_sweep
from tests.page.browser.canned_server import CannedServer
from tests.page.browser.conftest import Browser, Keys
from tests.page.browser.curve_pixels import COVERED, DARK_RUNS, HEIGHTS, LIGHT_RUNS
from tests.support.waiting import until

pytestmark = pytest.mark.slow

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FOCUSED = "document.querySelector('tr[aria-selected=true] a')?.innerText"


def open_list(browser: Browser, server: CannedServer) -> None:
    browser.driver.get(server.link)
    browser.sees("live", "#header")


def address(uids: list[str], query: str = "") -> str:
    return f"#/compare?jobs={','.join(uids)}{query}"


def open_comparison(browser: Browser, server: CannedServer, uids: list[str], query: str = "") -> None:
    open_list(browser, server)
    browser.open(address(uids, query))
    browser.sees("sweep-0", ".runs")
    browser.scroll_to(".curve-stage")
    browser.until("document.querySelector('.curve canvas')")


def test_jobs_are_chosen_by_keys_and_compared(browser: Browser, server: CannedServer) -> None:
    """W18: without a pointer, and nothing is lost while one walks around."""
    uids = add_sweep(server)
    open_list(browser, server)
    browser.sees("sweep-2", "table")
    browser.press("j", " ", "j", "j", " ")
    browser.until(f"{FOCUSED} === 'sweep-0'")
    browser.sees("Compare (2)", "#header")
    browser.sees("2 of at most 8 chosen", "[role=status]")
    assert browser.js("[...document.querySelectorAll('tbody input')].map((box) => box.checked)") == [True, False, True]
    browser.press(Keys.ENTER)
    browser.sees("default/sweep-0", "h1")
    browser.press(Keys.ESCAPE)
    browser.until(f"{FOCUSED} === 'sweep-0'")
    assert browser.js("[...document.querySelectorAll('tbody input')].map((box) => box.checked)") == [True, False, True]
    browser.press("c")
    browser.sees("sweep-2", ".runs")
    browser.open("#/")
    browser.sees("2 of at most 8 chosen", "[role=status]")
    browser.open("#/compare")
    browser.sees("sweep-0", ".runs")
    browser.until("location.hash.startsWith(args[0])", address([uids[2], uids[0]]))
    browser.press(Keys.ESCAPE)
    browser.until(f"{FOCUSED} === 'sweep-0'")
    browser.press(" ")
    browser.sees("Compare (1)", "#header")
    browser.press("?")
    browser.sees("choose a job to compare", "dialog")
    assert browser.errors() == []


def test_jobs_are_chosen_by_a_click_which_opens_none(browser: Browser, server: CannedServer) -> None:
    add_sweep(server)
    open_list(browser, server)
    browser.sees("sweep-2", "table")
    box = browser.js("findElement('tr', 'sweep-1').querySelector('input')")
    assert box.accessible_name == "Compare default/sweep-1"
    box.click()
    browser.sees("Compare (1)", "#header")
    browser.press(" ")
    browser.until("findElement('#header a', 'Compare').innerText === 'Compare'")
    browser.press(" ", "k", " ")
    browser.sees("Compare (2)", "#header")
    assert browser.js("location.hash") == "#/"


def test_a_ninth_job_is_not_chosen_and_the_page_says_so(browser: Browser, server: CannedServer) -> None:
    add_sweep(server, 9)
    open_list(browser, server)
    browser.sees("sweep-8", "table")
    browser.press(*(["j", " "] * 9))
    browser.sees("At most 8 jobs are compared", "[role=status]")
    browser.sees("Compare (8)", "#header")
    browser.until("document.querySelectorAll('tbody input:checked').length === 8")
    browser.press("k", " ", "j", " ")
    browser.sees("8 of at most 8 chosen", "[role=status]")


def test_the_curves_are_over_each_other_and_differ_without_colours(browser: Browser, server: CannedServer) -> None:
    open_comparison(browser, server, add_sweep(server))
    browser.until(f"{HEIGHTS}(args[0]).length > 15", LIGHT_RUNS[0])
    first, second, third = (browser.js(f"{HEIGHTS}(args[0], 1)", colour) for colour in LIGHT_RUNS)
    for heights in (first, second, third):
        assert heights[0] + 30 < heights[-1]
        assert all(before <= after + 1 for before, after in pairwise(heights))
    assert first[-1] > second[-1] + 20 > third[-1] + 40  # those that end at 1.18 and 2.18 are above it
    shares = [browser.js(f"{COVERED}(args[0])", colour) for colour in LIGHT_RUNS]
    assert shares[0] > 0.99 and 0.5 < shares[1] < 0.95 and shares[2] < shares[1]
    samples = browser.js(
        "[...document.querySelectorAll('.runs line')].map((line) => getComputedStyle(line).strokeDasharray)"
    )
    assert len(set(samples)) == 3


def test_the_chart_follows_the_theme(browser: Browser, server: CannedServer) -> None:
    """W20."""
    open_comparison(browser, server, add_sweep(server))
    browser.until(f"{HEIGHTS}(args[0]).length > 15", LIGHT_RUNS[0])
    browser.theme("dark")
    for dark, light in zip(DARK_RUNS, LIGHT_RUNS, strict=True):
        # Where two lines meet, pixels of any mixture are possible.
        browser.until(f"{HEIGHTS}(args[0], 1).length > 100 && {HEIGHTS}(args[1], 1).length < 10", dark, light)
    stroke = "getComputedStyle(document.querySelectorAll('.runs line')[1]).stroke"
    assert browser.js(stroke) == "rgb(255, 154, 92)"


def test_values_are_read_by_keys_at_a_step_or_a_time(browser: Browser, server: CannedServer) -> None:
    uids = add_sweep(server)
    open_comparison(browser, server, uids)
    browser.js("document.querySelector('.curve-stage').focus()")
    browser.press(Keys.HOME)
    browser.sees("step 0 · sweep-0 2 · sweep-1 3 · sweep-2 4", ".curve")
    browser.press(Keys.END)
    browser.sees("step 990 · sweep-0 0.1835 · sweep-1 1.183 · sweep-2 2.183", ".curve")
    browser.click(".metrics button", "relative time")
    browser.js("document.querySelector('.curve-stage').focus()")
    browser.press(Keys.END)
    browser.sees("1:39 · sweep-0 0.1835 · sweep-1 1.183", ".curve")
    browser.click(".metrics button", "wall time")
    browser.js("document.querySelector('.curve-stage').focus()")
    browser.press(Keys.HOME)
    browser.sees("· sweep-0 2 · sweep-1 - · sweep-2 -", ".curve")
    assert browser.js("location.hash") == address(uids, "&x=time&metric=loss")
    browser.driver.refresh()
    browser.until("findElement('.metrics button', 'wall time').getAttribute('aria-pressed') === 'true'")
    browser.js("document.querySelector('.metrics input').focus()")
    browser.press(Keys.END)
    browser.until("document.querySelector('.curve canvas')")
    browser.js("document.querySelector('.curve-stage').focus()")
    browser.press(Keys.END)
    browser.sees("smoothed", ".curve")


def test_another_metric_is_chosen_and_lacking_ones_are_named(browser: Browser, server: CannedServer) -> None:
    uids = add_sweep(server)
    answer = server.series[uids[1]]
    accuracy = answer["series"][0] | {"name": "accuracy, top 5", "value": [0.5 + step / 2000 for step in range(100)]}
    server.series[uids[1]] = answer | {"series": [*answer["series"], accuracy]}
    open_comparison(browser, server, uids)
    browser.until("document.querySelectorAll('.metrics option').length === 2")
    browser.js("document.querySelector('.metrics select').focus()")
    browser.press("a")  # as in any select: the entry that begins so
    browser.sees("No accuracy, top 5 was reported by sweep-0, sweep-2.", ".curve")
    browser.until(f"{HEIGHTS}(args[0], 1).length > 100 && !{HEIGHTS}(args[1]).length", LIGHT_RUNS[1], LIGHT_RUNS[0])
    assert "metric=accuracy" in browser.js("location.hash")


def test_what_differs_and_how_the_runs_ended_are_tables(browser: Browser, server: CannedServer) -> None:
    open_comparison(browser, server, add_sweep(server))
    browser.scroll_to(".differs")
    for text in ("env LR", "0.1", "0.3", "worker image", "tf:2.20", "tf:2.21"):
        browser.sees(text, ".differs table")
    browser.scroll_to(".final")
    for text in ("state", "Succeeded", "duration", "10:00", "last loss", "1.183", "peak memory", "3.3 GiB", "restarts"):
        browser.sees(text, ".final table")
    texts = (
        "[...document.querySelectorAll('.final tr')].map((line) => [...line.children].map((cell) => cell.innerText))"
    )
    assert browser.js(texts)[0] == ["", "sweep-0", "sweep-1", "sweep-2"]
    assert browser.js(texts)[-1] == ["restarts", "0", "1", "2"]


def test_runs_without_a_difference_and_without_values_say_so(browser: Browser, server: CannedServer) -> None:
    uids = add_sweep(server)
    server.differences, server.series = [], {}
    open_list(browser, server)
    browser.open(address(uids))
    browser.sees("Nothing differs", ".differs")
    browser.sees("makes a curve", ".metrics")
    assert not any("uPlot" in request for request in server.requests)


def test_new_values_of_a_live_run_are_asked_for_and_no_others(browser: Browser, server: CannedServer) -> None:
    uids = add_sweep(server)
    server.jobs[uids[1]] |= {"ended": None, "state": "Running"}
    open_list(browser, server)
    browser.js("watchIntervals()")
    browser.open(address(uids))
    browser.until(f"{HEIGHTS}(args[0]).length > 15", LIGHT_RUNS[0])
    until(
        lambda: any("compare?" in path for path in browser.measure("askedAtIntervals")),
        "the runs are asked for while one of them lives",
    )
    curve = server.series[uids[1]]["series"][0]
    server.series[uids[1]] = server.series[uids[1]] | {"series": [curve | {"value": [*curve["value"][:-1], 7.5]}]}
    browser.scroll_to(".final")
    browser.sees("7.5", ".final table")
    browser.until("document.querySelector('.curve-stage').getAttribute('aria-label').includes('last 7.5')")
    assert server.requests.count(f"GET /ui/v1/jobs/{uids[0]}/series") == 1
    server.jobs[uids[1]] |= {"ended": time.time() - 60, "state": "Failed"}
    browser.sees("Failed", ".final table")
    until(lambda: browser.measure("askedAtIntervals") == [], "nothing is asked for of runs that have ended")


def test_a_run_is_opened_and_taken_out(browser: Browser, server: CannedServer) -> None:
    uids = add_sweep(server)
    open_comparison(browser, server, uids)
    browser.click(".runs li:nth-child(2) button")
    browser.until("document.querySelectorAll('.runs li').length === 2")
    browser.sees("Compare (2)", "#header")
    browser.until("document.activeElement.tagName === 'H1'")
    browser.click(".runs a", "sweep-2")
    browser.sees("default/sweep-2", "h1")
    browser.driver.back()
    browser.sees("sweep-0", ".runs")
    browser.click(".runs li:nth-child(2) button")
    browser.sees("names one job; choose 2 to 8", "main")


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("", ["names no jobs; choose 2 to 8 in the list", "All jobs"]),
        ("?jobs=d0000000-0000-4000-8000-000000000000", ["names one job; choose 2 to 8 in the list", "All jobs"]),
        ("?jobs=a,b,c,d,e,f,g,h,i", ["names 9 jobs; choose 2 to 8", "Compare the first 8"]),
        (
            "?jobs=d0000000-0000-4000-8000-000000000000,d0000001-0000-4000-8000-000000000000,gone",
            ["There is no job gone", "Go on without", "sweep-0"],
        ),
        ("?jobs=gone,away", ["There is no job gone, away", "All jobs"]),
    ],
)
def test_a_bad_address_says_what_to_do(browser: Browser, server: CannedServer, query: str, texts: list[str]) -> None:
    add_sweep(server)
    open_list(browser, server)
    browser.open(f"#/compare{query}")
    for text in texts:
        browser.sees(text, "main")


def test_markup_stays_text(browser: Browser, server: CannedServer) -> None:
    hostile = add_hostile(server)
    server.jobs[hostile]["name"] = MARKUP
    uids = [*add_sweep(server, 2), hostile]
    server.series[hostile] = server.series[uids[0]] | {
        "series": [server.series[uids[0]]["series"][0] | {"name": MARKUP}]
    }
    server.differences = [{"field": MARKUP, "roles": [MARKUP], "values": [MARKUP] * 3}]
    open_comparison(browser, server, uids)
    browser.sees("<script>window.hacked", ".runs")
    browser.scroll_to(".differs")
    browser.sees("<script>window.hacked", ".differs td")
    assert browser.js("typeof window.hacked") == "undefined"
    assert browser.errors() == []


@pytest.mark.parametrize("width", [320, 640])
def test_a_narrow_page_loses_nothing(browser: Browser, server: CannedServer, width: int) -> None:
    """W19: 320 px, and 1,280 px at 200 %: the page does not scroll sideways, its tables do, by keys, too."""
    browser.resize(width, 640, scale=2.0)
    open_comparison(browser, server, add_sweep(server, 8))
    browser.until("document.documentElement.scrollWidth <= innerWidth")
    browser.scroll_to(".final")
    browser.js("document.querySelector('.final .scroll').focus({preventScroll: true})")
    browser.sees("Succeeded", ".final td")
    browser.js("document.querySelector('.final .scroll').scrollBy(10000, 0)")
    browser.until("document.querySelector('.final .scroll').scrollLeft > 100")
    browser.sees("restarts", ".final th")
    browser.sees("sweep-7", ".final th")
    browser.until("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_nothing_to_say(browser: Browser, server: CannedServer, scheme: str, pictures: Path | None) -> None:
    """W17, of the comparison, of a bad address and of the list with a choice; the focus is always visible."""
    browser.theme(scheme)
    uids = add_sweep(server, 8)
    open_comparison(browser, server, uids)
    problems: dict[str, list[str]] = {}
    for name, text in ((address(uids), "Take out"), ("#/compare?jobs=a", "choose 2"), ("#/", "chosen")):
        browser.open(name)
        browser.until("findElement('main', args[0])", text)
        if pictures:
            browser.driver.save_screenshot(str(pictures / f"{scheme}-compare-{len(problems)}.png"))
        browser.driver.execute_script(AXE.read_text(encoding="utf-8"))
        problems[name] = browser.measure("axeViolations")
    assert problems == {name: [] for name in problems}
    browser.open(address(uids))
    browser.sees("Take out", ".runs")
    browser.js("document.activeElement.blur()")
    stops = []
    for _ in range(40):
        browser.press(Keys.TAB)
        tag, has_size, shows_focus = browser.js("focusStop()")
        if tag == "BODY":
            break
        assert has_size and shows_focus, tag
        stops.append(tag)
    assert {"A", "BUTTON", "SELECT", "INPUT", "DIV"} <= set(stops) and stops.count("DIV") == 3
