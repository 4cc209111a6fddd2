"""What a person sees of the page, with made-up frames: the states that no cluster gets into on demand."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.page.browser.canned_jobs import (
    BERT,
    RESNET,
    add_bert,
    add_hostile,
    add_losses,
    add_many_jobs,
    add_resnet,
    add_small_jobs,
    job_frames,
    rank_columns,
    running_lanes,
)
from tests.page.browser.canned_server import CannedServer, progress_frame
from tests.page.browser.conftest import Browser, Keys
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BERT_ADDRESS = "#/jobs/default/PyTorchJob/bert"
RESNET_ADDRESS = "#/jobs/team/PyTorchJob/resnet-1000"
FIRST_PAINT = 500  # ms
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
VIEWS = (
    "#/",
    RESNET_ADDRESS,
    f"{RESNET_ADDRESS}/ranks",
    BERT_ADDRESS,
    f"{BERT_ADDRESS}/metrics",
    f"{BERT_ADDRESS}/events",
    f"{BERT_ADDRESS}/yaml",
    f"{BERT_ADDRESS}/ranks/worker-1",
)


@pytest.fixture
def full(server: CannedServer) -> CannedServer:
    """A server with every kind of job."""
    add_resnet(server)
    add_losses(server, add_bert(server))
    add_small_jobs(server)
    return server


def open_page(browser: Browser, server: CannedServer, address: str = "") -> None:
    browser.driver.get(server.link)
    browser.sees("live", "#header")
    if address:
        browser.open(address)


def test_the_list_shows_jobs_their_states_and_why(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    for text in (
        "resnet-1000",
        "998/1000",
        "worker-417, worker-418: behind",
        "bert",
        "Failed",
        "No module named 'nltk'",
    ):
        browser.sees(text, "table")
    assert "ablation" not in browser.text()
    browser.click("button", "History")
    browser.sees("ablation-3", "table")
    assert "resnet-1000" not in browser.text()
    assert browser.js("location.hash") == "#/?show=history"


def test_a_changed_row_is_seen_without_a_reload(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.sees("3/4", "table")
    full.jobs["e1"]["running"] = 4
    full.send_rows("e1")
    browser.sees("4/4", "table")


def test_the_list_shows_steps_and_the_shape_of_the_loss(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    for text in ("14,201", "0.412", "881"):
        browser.sees(text, "table")
    heights = browser.until("shapeHeights('td.loss canvas:not([hidden])')")
    assert heights[0] + 8 < heights[-1] and heights == sorted(heights), heights
    assert browser.js("document.querySelectorAll('td.loss canvas:not([hidden])').length") == 1
    before = browser.js("pixelsOf('td.loss canvas:not([hidden])', 0, 0, 56, 18).find((pixel) => pixel)")
    browser.theme("dark")
    full.send(progress_frame([[RESNET, 14_300.0, 0.5, "0z", ""]]), "progress")
    browser.sees("14,300", "table")
    heights = browser.js("shapeHeights('td.loss canvas:not([hidden])')")
    assert heights[0] > heights[-1] + 8
    after = browser.js("pixelsOf('td.loss canvas:not([hidden])', 0, 0, 56, 18).find((pixel) => pixel)")
    assert before != after
    browser.click("th button", "Step")
    browser.until("document.querySelector('tbody tr td.name').innerText === 'team/resnet-1000'")


def test_the_list_subscribes_to_steps_only_while_it_is_shown(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.sees("14,201", "table")
    assert full.topics == [["devices", "jobs", "progress"]]
    browser.open(BERT_ADDRESS)
    until(lambda: "progress" not in full.topics[0], "the page of a job does not get the steps of all")


def test_the_filter_is_in_the_address(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.press("/", *"kind:pytorch state:failed")
    browser.until("document.querySelectorAll('tbody tr').length === 1")
    browser.sees("bert", "table")
    browser.driver.refresh()
    browser.sees("bert", "table")
    browser.until("document.querySelectorAll('tbody tr').length === 1")
    browser.press(Keys.ESCAPE)
    browser.until("document.querySelectorAll('tbody tr').length === 7 - 1")
    browser.click("button", "Suspended")
    browser.sees("horovod-sweep-07", "table")
    browser.until("document.querySelectorAll('tbody tr').length === 1")


def test_a_job_shows_its_findings_ranks_timeline_log_and_events(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, BERT_ADDRESS)
    browser.sees("the module nltk is not in its environment", ".why")
    browser.sees("ModuleNotFoundError: No module named 'nltk'", ".why pre")
    browser.sees("pip install nltk", ".fix code")
    browser.sees("worker-1 Failed", ".unhealthy")
    browser.until("colourCount('rank-grid canvas') > 3")
    browser.scroll_to(".panel.logs")
    browser.sees("ModuleNotFoundError", "log-lines")
    browser.scroll_to(".panel.events")
    browser.sees("OOMKilling", "table")
    browser.until("colourCount('attempt-timeline canvas') > 3")


def test_of_a_long_excerpt_the_end_is_seen(browser: Browser, full: CannedServer) -> None:
    """A traceback ends with what has happened. Also where the job was opened at another panel first."""
    finding = full.job_frames[BERT][1]["findings"][0]
    finding["evidence"] = [f"line {number} {'x' * 200}" for number in range(40)] + ["RuntimeError: the last line"]
    open_page(browser, full, f"{BERT_ADDRESS}/events")
    browser.sees("OOMKilling", "table")
    browser.press("1")
    browser.sees("RuntimeError: the last line", ".why pre")
    browser.js("document.querySelector('.why pre').focus()")
    browser.press(Keys.HOME)
    browser.sees("line 0 ", ".why pre")
    assert browser.js("cutTexts('.why pre')") == [], "long lines are wrapped"


def test_panels_have_addresses_and_keys(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, BERT_ADDRESS)
    browser.sees("worker-1 Failed", ".unhealthy")
    for key, panel, text in (
        ("2", "ranks", "Attempt"),
        ("3", "logs", "step 7999"),
        ("4", "metrics", "loss"),
        ("5", "timeline", "Timeline"),
        ("6", "events", "JobCreated"),
        ("7", "yaml", "kind: PyTorchJob"),
    ):
        browser.press(key)
        browser.sees(text, "main")
        assert browser.js("location.hash").endswith(f"@b0000000/{panel}")
    browser.press(Keys.ESCAPE)
    browser.sees("worker-1 Failed", ".unhealthy")
    browser.press("]")
    browser.sees("restarts", ".rank")
    assert browser.js("location.hash").endswith("/ranks/worker-1")
    browser.sees("trainyard logs bert --role worker --index 1", ".commands")
    browser.sees("the last run: exit 1 at", ".rank-facts")


def test_unhealthy_ranks_are_reached_by_brackets(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    for key, replica in (("]", "worker-39"), ("]", "worker-40"), ("]", "worker-417"), ("[", "worker-40")):
        browser.press(key)
        browser.sees(replica, "h1")


def test_the_grid_is_read_by_keys_and_by_screen_readers(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    summary = browser.js("canvasDescription('rank-grid canvas')")
    assert summary == "1,000 ranks: 1 CrashLoopBackOff, 998 Running, 1 Pending. 2 ranks behind: worker-417, worker-418."
    browser.js("document.querySelector('rank-grid canvas').focus()")
    browser.press(Keys.END)
    browser.sees("worker-998 · Running", ".readout")
    browser.press(Keys.HOME, Keys.ARROW_RIGHT)
    browser.sees("worker-0 · Running · step 14,201 · loss 0.412 · CPU 96 % · 3.1 GiB (peak 3.3 GiB)", ".readout")
    browser.press(Keys.ENTER)
    browser.sees("worker-0", "h1")


def test_each_state_has_a_shape_of_its_own(browser: Browser, server: CannedServer) -> None:
    """W19: with all colours made grey, the cells of two states still differ."""
    uid = server.add_job(uid="s1", name="shapes", replicas=5)
    states = ["Running", "Succeeded", "Failed", "Pending", "Suspended"]
    server.job_frames[uid] = [{"type": "ranks", "uid": uid, "columns": rank_columns(states)}]
    open_page(browser, server, "#/jobs/default/PyTorchJob/shapes")
    browser.sees("Suspended 1", ".legend")
    marks = browser.js("[...document.querySelectorAll('.legend .mark')].map(markShape)")
    assert len(set(marks)) == 5
    browser.until("colourCount('rank-grid canvas') > 3")
    cells = [(0, 20), *((number * 26, 70) for number in range(4))]
    assert len({browser.js("cellShape(args[0], args[1])", x, y) for x, y in cells}) == 5


def test_the_drawings_follow_the_theme(browser: Browser, full: CannedServer) -> None:
    """W20."""
    open_page(browser, full, BERT_ADDRESS)
    pixel = "[...document.querySelector('rank-grid canvas').getContext('2d').getImageData(4, 32, 1, 1).data].join()"
    browser.until(f"{pixel} === '75,106,140,255'")
    browser.theme("dark")
    browser.until(f"{pixel} === '141,176,214,255'")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    assert browser.js(background) == "rgb(20, 23, 27)"


def test_markup_stays_text(browser: Browser, server: CannedServer) -> None:
    add_hostile(server)
    open_page(browser, server)
    browser.sees("<script>window.hacked", "table")
    for address in ("", "/ranks", "/logs", "/events", "/yaml", "/ranks/master-0"):
        browser.open(f"#/jobs/default/PyTorchJob/hostile{address}")
        browser.sees("<script>window.hacked", "main")
    browser.open("#/jobs/%3Cscript%3E/%3Cimg%20src=x%3E/%3Cb%3E")
    browser.sees("<script>", "main")
    assert browser.js("typeof window.hacked") == "undefined"
    assert browser.errors() == []


def test_nothing_is_fetched_from_elsewhere(browser: Browser, full: CannedServer) -> None:
    """W1, W2: bytes of the first load, foreign requests, console errors, reports of the CSP."""
    open_page(browser, full)
    for address in ("#/compare?jobs=e3,e4", *VIEWS):
        browser.open(address)
        browser.until("document.querySelector('h1')")
    browser.sees("trainyard why bert", ".commands")
    origin = f"http://127.0.0.1:{full.port}/ui/"
    foreign = [
        url
        for url in browser.requests()
        if not url.startswith((origin, "about:", "data:", f"ws://127.0.0.1:{full.port}/ui/"))
    ]
    assert foreign == []
    assert browser.errors() == []


def test_the_token_is_gone_from_the_address(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    assert browser.js("location.hash") == "#/"
    assert "token" not in browser.js(
        "JSON.stringify(performance.getEntriesByType('navigation')[0].name) && location.href"
    )
    browser.driver.refresh()
    browser.sees("bert", "table")


def test_a_used_link_says_so(browser: Browser, full: CannedServer) -> None:
    browser.driver.get(f"http://127.0.0.1:{full.port}/ui/#token=old")
    browser.sees("This link was used or is too old.")
    assert browser.js("document.querySelectorAll('table').length") == 0


def test_no_session_is_left_for_another_test_at_the_same_port(browser: Browser, full: CannedServer) -> None:
    """The fixture clears the storage before each test."""
    open_page(browser, full)
    browser.driver.get("about:blank")
    browser.clear_storage()
    browser.driver.get(f"http://127.0.0.1:{full.port}/ui/")
    browser.sees("This link was used or is too old.")


def test_a_lost_connection_is_shown_and_the_clocks_stop(browser: Browser, full: CannedServer) -> None:
    """W16."""
    open_page(browser, full, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    began = time.monotonic()
    full.stop()
    browser.sees("Not connected since", "#banner")
    delay = time.monotonic() - began
    before = browser.js("document.querySelector('.facts .time').textContent")
    browser.js("passTime(5000)")
    browser.open(f"{RESNET_ADDRESS}/ranks")  # which draws the time anew
    browser.sees("Attempt", "table")
    assert browser.js("document.querySelector('.facts .time').textContent") == before
    full.start()
    began = time.monotonic()
    browser.until("document.documentElement.dataset.status === 'live' && document.querySelector('#banner').hidden")
    back = time.monotonic() - began
    check_time("W16", delay, 2, "s until the page is shown as stale")
    check_time("W16", back, 10, "s until it is live again")
    browser.until("document.querySelector('.facts .time').textContent !== args[0]", before)


def test_a_cluster_that_ends_says_why(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    full.send({"type": "bye", "reason": "the cluster stops"})
    full.stop()
    browser.sees("the cluster stops", "#banner")


def test_a_hidden_tab_closes_its_connection(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.sees("3/4", "table")
    browser.js("setHidden(true)")
    until(lambda: full.connections == 0, "the connection is closed")
    full.jobs["e1"]["running"] = 4
    browser.js("setHidden(false)")
    browser.sees("4/4", "table")
    assert browser.js("document.querySelector('#banner').hidden")


def test_what_is_forbidden_is_named(browser: Browser, full: CannedServer) -> None:
    full.hello["forbidden"] = ["list events in namespace team"]
    open_page(browser, full)
    browser.sees("You may not list events in namespace team", ".forbidden")


def test_what_came_too_fast_is_counted(browser: Browser, full: CannedServer) -> None:
    """W21."""
    open_page(browser, full, RESNET_ADDRESS)
    browser.scroll_to(".panel.logs")
    browser.sees("step 14179", "log-lines")
    uid = next(iter(full.log_frames))
    full.send({"type": "log", "uid": uid, "lines": [["worker-1", "the line after"]], "leftOut": 412}, f"logs:{uid}:*")
    browser.sees("412 B not shown: too fast", "log-lines")
    browser.sees("the line after", "log-lines")


def test_the_texts_of_all_ranks_begin_in_one_column(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, f"{RESNET_ADDRESS}/logs")
    browser.sees("step 14179", "log-lines")
    uid = next(iter(full.log_frames))
    lines = [["worker-10", "the tenth"], ["worker-2", "the second"]]
    full.send({"type": "log", "uid": uid, "lines": lines, "leftOut": 0}, f"logs:{uid}:*")
    browser.sees("the second", "log-lines")
    lefts = (
        "[...document.querySelectorAll('log-lines .text')].map((node) => Math.round(node.getBoundingClientRect().left))"
    )
    assert len(set(browser.js(lefts))) == 1


def test_the_log_follows_until_somebody_reads_back(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, f"{RESNET_ADDRESS}/logs")
    browser.sees("step 14179", "log-lines")
    uid = next(iter(full.log_frames))

    def write(text: str) -> None:
        full.send({"type": "log", "uid": uid, "lines": [["worker-1", text]], "leftOut": 0}, f"logs:{uid}:*")

    browser.js("document.querySelector('log-lines').scrollBy(0, -1500)")
    browser.until("document.querySelector('.log button').getAttribute('aria-pressed') === 'false'")
    browser.sees("step 14100", "log-lines")
    write("written meanwhile")
    browser.until("document.querySelector('log-lines').length === 181")
    browser.sees("step 14100", "log-lines")
    browser.press("f")
    browser.sees("written meanwhile", "log-lines")
    browser.press("/", *"step 14050")
    browser.sees("step 14050", "mark")
    browser.sees("1 of 1", ".matches")


def test_a_file_is_read_by_ranges(browser: Browser, full: CannedServer) -> None:
    uid = add_bert(full)
    full.logs[uid]["worker-1/attempt-1-ab12/pytorch/1"] = b"".join(
        b"line %d \xc3\xa9\n" % number for number in range(60_000)
    )
    open_page(browser, full, f"{BERT_ADDRESS}/logs")
    browser.sees("line 59999 é", "log-lines")
    before = browser.js("document.querySelector('log-lines').length")
    browser.click(".earlier", "Earlier lines")
    browser.until("document.querySelector('log-lines').length > args[0] * 1.5", before)
    texts = browser.js(
        "[...document.querySelectorAll('log-lines .text')].map((node) => parseInt(node.textContent.slice(5)))"
    )
    assert texts == list(range(texts[0], texts[0] + len(texts)))


def test_everything_is_reached_by_keys(browser: Browser, full: CannedServer) -> None:
    """W18: from the list to a job, its log, a rank and back, without a pointer; the focus is always visible."""
    open_page(browser, full)
    browser.sees("elastic-train", "table")
    focused = "document.querySelector('tr[aria-selected=true] a')?.innerText"
    browser.press("j", "j", "k", "j", "j")
    browser.until(f"{focused} === 'bert'")
    browser.press(Keys.ENTER)
    browser.sees("default/bert", "h1")
    browser.press(Keys.ESCAPE)
    browser.until(f"{focused} === 'bert'")
    browser.press("l")
    browser.until("location.hash.endsWith('/logs')")
    browser.press("?")
    browser.sees("previous, next unhealthy rank", "dialog")
    browser.press(Keys.ESCAPE)
    browser.until("!document.querySelector('dialog').open")
    browser.open(BERT_ADDRESS)
    browser.sees("worker-1 Failed", ".unhealthy")
    browser.js("document.activeElement.blur()")
    stops: list[str] = []
    for _ in range(40):
        browser.press(Keys.TAB)
        tag, has_size, shows_focus = browser.js("focusStop()")
        if tag == "BODY":
            break
        assert has_size and shows_focus, tag
        stops.append(tag)
    assert len(stops) >= 18
    assert {"CANVAS", "LOG-LINES", "INPUT", "SELECT", "A", "BUTTON", "PRE"} <= set(stops)


def test_letters_can_be_switched_off(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.click("#header button", "?")
    browser.click("dialog input")
    browser.click("dialog button", "Close")
    browser.press("j")
    assert browser.js("document.querySelector('tr[aria-selected=true]')") is None
    browser.press(Keys.ARROW_DOWN)
    browser.until("document.querySelector('tr[aria-selected=true]')")


@pytest.mark.parametrize("width", [320, 640])
def test_a_narrow_page_loses_nothing(browser: Browser, full: CannedServer, width: int) -> None:
    """W19: 320 px, and 1,280 px at 200 %: no view scrolls sideways, and what matters is seen."""
    browser.resize(width, 640, scale=2.0)
    open_page(browser, full)
    browser.scroll_to("td.name a[title='team/resnet-1000']")
    for text in ("resnet-1000", "998/1000", "worker-417, worker-418: behind"):
        browser.sees(text, "table")
    for address in VIEWS:
        browser.open(address)
        browser.until("document.querySelector('h1')")
        browser.until("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_job_of_64_ranks_is_readable(browser: Browser, server: CannedServer, width: int) -> None:
    add_losses(server, add_resnet(server, 64))
    browser.resize(width, 844)
    open_page(browser, server, RESNET_ADDRESS)
    browser.sees("worker-40 CrashLoopBackOff", ".unhealthy")
    assert browser.js("document.querySelector('#header').offsetHeight") < 80, "two lines at most"
    browser.open(f"{RESNET_ADDRESS}/ranks")
    browser.scroll_to("table a[href$='/worker-40']")
    browser.sees("CrashLoopBackOff", "table")
    assert browser.js("cutTexts('.ranks td, .ranks td .state > span, .tabs a, .facts span')") == []
    assert browser.js("document.querySelectorAll('.ranks tbody tr').length") == 64
    browser.open(f"{RESNET_ADDRESS}/timeline")
    browser.until("document.querySelector('attempt-timeline canvas').offsetHeight > 64 * 20")
    browser.js("document.querySelector('attempt-timeline canvas').focus()")
    browser.press(Keys.ARROW_DOWN)
    browser.sees("worker-0 · attempt 1 · runs since", "attempt-timeline .readout")
    for panel in ("", "/ranks", "/logs", "/metrics", "/timeline", "/events", "/yaml"):
        browser.open(f"{RESNET_ADDRESS}{panel}")
        browser.until("document.querySelector('.tabs [aria-current]')")
        browser.until("document.documentElement.scrollWidth <= innerWidth")
        assert browser.js("new Set([...document.querySelectorAll('.tabs a')].map((tab) => tab.offsetTop)).size") == 1


def test_a_row_with_the_focus_is_not_covered_by_the_head(browser: Browser, server: CannedServer) -> None:
    """WCAG 2.2, 2.4.11: also where the browser scrolls to it by itself."""
    add_many_jobs(server, 100)
    open_page(browser, server)
    browser.sees("sweep-0", "table")
    browser.js("[...document.querySelectorAll('td.name a')].at(60).focus()")
    for _ in range(40):  # two stops in a row
        browser.press(Keys.SHIFT + Keys.TAB)
        browser.until("seenAtItsPlace(document.activeElement)")
    assert browser.js("document.activeElement.closest('tr').row.name") == "sweep-40"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_has_nothing_to_say(
    browser: Browser, full: CannedServer, scheme: str, width: int, pictures: Path | None
) -> None:
    """W17: WCAG 2.2 A and AA, all views."""
    browser.theme(scheme)
    browser.resize(width, 800)
    open_page(browser, full)
    problems = {}
    for number, address in enumerate(VIEWS):
        browser.open(address)
        browser.until("document.querySelector('h1') && !document.querySelector('main .empty:not([hidden])')")
        browser.until(f"location.hash === '#/' || {READY}")
        if pictures:
            browser.driver.save_screenshot(str(pictures / f"{scheme}-{width}-{number}.png"))
        browser.driver.execute_script(AXE.read_text(encoding="utf-8"))
        problems[address] = browser.measure("axeViolations")
    assert problems == {address: [] for address in VIEWS}


TIMES_COUNT = bool(os.environ.get("TRAINYARD_BENCH"))
LOG_SECONDS = int(os.environ.get("TRAINYARD_BENCH_LOG_SECONDS", "600" if TIMES_COUNT else "20"))
LOG_FRAMES_PER_SECOND = 20
READY = "document.querySelector('.job:not([hidden]), .rank:not([hidden])')"


def check_time(criterion: str, value: float, budget: float, unit: str) -> None:
    """Print what was measured. Only `make bench-page` fails for it, at three times the budget: beside other tests, a
    time says how busy the machine is."""
    print(f"{criterion}: {value:,.1f} {unit} (budget {budget:,})")
    assert not TIMES_COUNT or value <= 3 * budget, f"{criterion}: {value:,.1f} {unit}"


def check_count(criterion: str, value: int, budget: int, unit: str) -> None:
    """Print what was counted; it must be within its budget."""
    print(f"{criterion}: {value:,} {unit} (budget {budget:,})")
    assert value <= budget, f"{criterion}: {value:,} {unit}"


def test_a_list_of_ten_thousand_jobs_stays_small(browser: Browser, server: CannedServer) -> None:
    add_many_jobs(server)
    uid = add_resnet(server)
    lines = [["worker-1", f"line {number}"] for number in range(20_000)]
    server.log_frames[uid] = [{"type": "log", "uid": uid, "lines": lines, "leftOut": 0}]
    began = time.monotonic()
    open_page(browser, server)
    browser.sees("sweep-1", "table")
    check_time("W4", (time.monotonic() - began) * 1000, 1000, "ms until rows of 10,000 are seen")
    browser.until("document.querySelector('.total').innerText === '10,001 of 10,001'")
    check_count("W5", browser.js("document.querySelectorAll('*').length"), 1500, "elements with 10,000 jobs")
    jumps = sorted(browser.measure("jumpTimes"))
    row = browser.js("document.elementFromPoint(200, 400).innerText")
    assert row.startswith("sweep-")
    check_time("W9", jumps[int(len(jumps) * 0.95)], 100, "ms for a jump in the list, p95")
    browser.open(RESNET_ADDRESS)
    browser.scroll_to(".panel.logs")
    browser.sees("line 19999", "log-lines")
    elements = browser.js("document.querySelectorAll('*').length")
    check_count("W5", elements, 1500, "elements with 1,000 ranks and 20,000 lines")
    browser.press(Keys.ESCAPE)
    browser.until(
        "document.elementFromPoint(200, 400)?.innerText === args[0]", row, condition="the list is where it was left"
    )


@pytest.mark.parametrize(("criterion", "throttling", "budget"), [("W6", 1, 30), ("W7", 4, 20)])
def test_a_thousand_ranks_are_drawn_smoothly(
    browser: Browser, server: CannedServer, criterion: str, throttling: int, budget: int
) -> None:
    """While the states and steps of all change 20 times a second."""
    uid = add_resnet(server)
    open_page(browser, server, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    browser.driver.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": throttling})
    columns = [
        rank_columns(["Running"] * (number * 31) + ["Pending"] * (1000 - number * 31), step=[number] * 1000)
        for number in range(1, 21)
    ]
    topic = f"job:{uid}"
    stop = server.repeat(lambda number: ({"type": "ranks", "uid": uid, "columns": columns[number % 20]}, topic), 20)
    rate, paint = browser.measure("frameRate", budget)
    stop()
    check_time(criterion, 1000 / rate, 1000 / budget, "ms for a frame")
    check_time("W8", paint, 4 * throttling, f"ms to draw 1,000 ranks at 1/{throttling} of the CPU")


def test_ten_thousand_ranks_are_drawn(browser: Browser, server: CannedServer) -> None:
    """And the timeline has one row for each role."""
    uid = server.add_job(uid="big", name="big", running=10_000, replicas=10_000)
    ranks = rank_columns(["Running"] * 10_000)
    lanes = running_lanes(ranks["replica"])
    server.job_frames[uid] = job_frames(uid, ranks, [], lanes, [])
    open_page(browser, server, "#/jobs/default/PyTorchJob/big")
    browser.sees("Running 10,000", ".legend")
    check_time("W8", browser.js("gridPaintTime()"), 16, "ms to draw 10,000 ranks")
    browser.until("colourCount('attempt-timeline canvas') >= 2")


def test_the_heap_stays_small_however_many_lines_came(browser: Browser, server: CannedServer) -> None:
    """W10. The server sends lines four times a second at most; here they come five times as often."""
    uid = add_resnet(server)
    open_page(browser, server, f"{RESNET_ADDRESS}/logs")
    browser.sees("step 14179", "log-lines")

    def frame(number: int) -> tuple[dict[str, Any], str]:
        lines = [[f"worker-{index}", f"line {number * 200 + index}: {'x' * 80}"] for index in range(200)]
        return {"type": "log", "uid": uid, "lines": lines, "leftOut": 0}, f"logs:{uid}:*"

    stop = server.repeat(frame, LOG_FRAMES_PER_SECOND)
    newest = "Number(document.querySelector('log-lines .line:last-child').innerText.match(/line (\\d+)/)?.[1] ?? 0)"
    for second in range(1, LOG_SECONDS + 1):
        browser.until(f"{newest} >= args[0]", second * LOG_FRAMES_PER_SECOND * 200)
        browser.requests()  # chromedriver keeps each frame until it is asked
    stop()
    check_count("W10", browser.js("document.querySelector('log-lines').length"), 20_000, "lines kept")
    check_count("W10", browser.js("document.querySelectorAll('*').length"), 1500, "elements")
    check_count("W10", browser.heap(), 80_000_000, f"bytes of heap after {LOG_SECONDS} s of lines")
    assert browser.errors() == []


def test_nine_tabs_are_live_at_once(browser: Browser, full: CannedServer) -> None:
    """W15. Each has a window: a hidden tab closes its connection. Browsers open six connections to an origin, but for
    WebSockets."""
    open_page(browser, full)
    first = browser.driver.current_window_handle
    try:
        for _ in range(8):
            browser.driver.switch_to.new_window("window")
            browser.driver.get(full.link.partition("#")[0])
            browser.sees("3/4", "table")
        full.jobs["e1"]["running"] = 4
        full.send_rows("e1")
        assert len(browser.driver.window_handles) == full.connections == 9
        for window in browser.driver.window_handles:
            browser.driver.switch_to.window(window)
            browser.sees("4/4", "table")
            browser.open(f"{BERT_ADDRESS}/yaml")
            browser.sees("kind: PyTorchJob", "main")
    finally:
        for window in browser.driver.window_handles:
            if window != first:
                browser.driver.switch_to.window(window)
                browser.driver.close()
        browser.driver.switch_to.window(first)


def test_the_first_load_is_small(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.sees("bert", "table")
    check_count("W1", browser.js("loadedBytes()"), 150_000, "bytes of the first load")
    paint = float("inf")
    for _ in range(5):  # other programs may have the machine at one of the loads
        painted = browser.until("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        paint = min(paint, painted)
        if paint <= FIRST_PAINT:
            break
        browser.driver.refresh()
    check_time("W3", paint, FIRST_PAINT, "ms until the first contentful paint")
