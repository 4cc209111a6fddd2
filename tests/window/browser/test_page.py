"""What a person sees of the page, with made-up frames: the states that no cluster gets into on demand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.window.browser.canned_jobs import (
    add_bert, add_hostile, add_many_jobs, add_resnet, add_small_jobs, rank_columns, running_lanes,
)  # fmt: skip
from tests.window.browser.canned_server import CannedServer
from tests.window.browser.conftest import Browser, Keys, requests_of

BERT_ADDRESS = "#/jobs/default/PyTorchJob/bert"
RESNET_ADDRESS = "#/jobs/team/PyTorchJob/resnet-1000"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
VIEWS = (
    "#/",
    RESNET_ADDRESS,
    f"{RESNET_ADDRESS}/ranks",
    BERT_ADDRESS,
    f"{BERT_ADDRESS}/events",
    f"{BERT_ADDRESS}/yaml",
    f"{BERT_ADDRESS}/ranks/worker-1",
)


@pytest.fixture
def full(server: CannedServer) -> CannedServer:
    """A server with every kind of job."""
    add_resnet(server)
    add_bert(server)
    add_small_jobs(server)
    return server


def open_page(browser: Browser, server: CannedServer, address: str = "") -> None:
    browser.driver.get(server.link)
    browser.sees("live", "#header")
    if address:
        browser.open(address)


def test_the_list_shows_jobs_their_states_and_why(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    for text in ("resnet-1000", "998/1000", "2 ranks make no progress", "bert", "Failed", "No module named 'nltk'"):
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


def test_the_filter_is_in_the_address(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.press("/", *"kind:pytorch state:failed")
    browser.eventually("document.querySelectorAll('tbody tr').length === 1")
    browser.sees("bert", "table")
    browser.driver.refresh()
    browser.sees("bert", "table")
    browser.eventually("document.querySelectorAll('tbody tr').length === 1")
    browser.press(Keys.ESCAPE)
    browser.eventually("document.querySelectorAll('tbody tr').length === 7 - 1")
    browser.click("button", "Suspended")
    browser.sees("horovod-sweep-07", "table")
    browser.eventually("document.querySelectorAll('tbody tr').length === 1")


def test_a_job_shows_its_findings_ranks_timeline_log_and_events(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, BERT_ADDRESS)
    browser.sees("the module nltk is not in its environment", ".why")
    browser.sees("ModuleNotFoundError: No module named 'nltk'", ".why pre")
    browser.sees("pip install nltk", ".fix code")
    browser.sees("worker-1 Failed", ".unhealthy")
    browser.eventually(f"{colours('rank-grid canvas')} > 3")
    browser.scroll_to(".panel.logs")
    browser.sees("ModuleNotFoundError", "log-lines")
    browser.scroll_to(".panel.events")
    browser.sees("OOMKilling", "table")
    browser.eventually(f"{colours('attempt-timeline canvas')} > 3")


def colours(selector: str) -> str:
    """An expression for the number of colours on a canvas."""
    return f"""(() => {{
      const canvas = document.querySelector('{selector}');
      const {{data}} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set();
      for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
      return seen.size;
    }})()"""


def test_panels_have_addresses_and_keys(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, BERT_ADDRESS)
    browser.sees("worker-1 Failed", ".unhealthy")
    for key, panel, text in (
        ("2", "ranks", "Attempt"),
        ("3", "logs", "step 7999"),
        ("4", "timeline", "Timeline"),
        ("5", "events", "JobCreated"),
        ("6", "yaml", "kind: PyTorchJob"),
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
    browser.sees("the last run ended with 1 (Error)", ".rank-facts")


def test_unhealthy_ranks_are_reached_by_brackets(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    for key, replica in (("]", "worker-39"), ("]", "worker-40"), ("]", "worker-417"), ("[", "worker-40")):
        browser.press(key)
        browser.sees(replica, "h1")


def test_the_grid_is_read_by_keys_and_by_screen_readers(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    summary = browser.js(
        "document.getElementById(document.querySelector('rank-grid canvas').getAttribute('aria-describedby')).textContent"
    )
    assert summary == "1,000 ranks: 1 CrashLoopBackOff, 998 Running, 1 Pending. 2 ranks behind: worker-417, worker-418."
    browser.js("document.querySelector('rank-grid canvas').focus()")
    browser.press(Keys.END)
    browser.sees("worker-998 · Running", ".readout")
    browser.press(Keys.HOME, Keys.ARROW_RIGHT)
    browser.sees("worker-0 · Running · step 14,201 · CPU 96 % · 3.1 GiB (peak 3.3 GiB)", ".readout")
    browser.press(Keys.ENTER)
    browser.sees("worker-0", "h1")


def test_each_state_has_a_shape_of_its_own(browser: Browser, server: CannedServer) -> None:
    """W19: with all colours made grey, the cells of two states still differ."""
    uid = server.add_job(uid="s1", name="shapes", replicas=5)
    states = ["Running", "Succeeded", "Failed", "Pending", "Suspended"]
    server.job_frames[uid] = [{"type": "ranks", "uid": uid, "columns": rank_columns(states)}]
    open_page(browser, server, "#/jobs/default/PyTorchJob/shapes")
    browser.sees("Suspended 1", ".legend")
    marks = browser.js(
        "[...document.querySelectorAll('.legend .mark')].map((mark) => { const s = getComputedStyle(mark); return [s.borderRadius, s.backgroundImage.replace(/rgb[^)]*\\)/g, ''), s.borderStyle, s.backgroundColor === 'rgba(0, 0, 0, 0)'].join(); })"
    )
    assert len(set(marks)) == 5
    outline = """(number) => {
      const canvas = document.querySelector('rank-grid canvas'), context = canvas.getContext('2d');
      const [x, y] = number ? [(number - 1) * 26, 26 + 4 + 40] : [0, 20];
      const {data} = context.getImageData(x, y, 23, 23), pixels = [], counts = {};
      for (let at = 0; at < data.length; at += 4) pixels.push(data[at + 3] < 128 ? '' : [data[at], data[at + 1], data[at + 2]].join());
      for (const pixel of pixels) if (pixel) counts[pixel] = (counts[pixel] ?? 0) + 1;
      const [most] = Object.keys(counts).sort((a, b) => counts[b] - counts[a]);
      return pixels.map((pixel) => pixel === most ? 1 : 0).join('');
    }"""
    shapes = {browser.js(f"({outline})(args[0])", number) for number in range(5)}
    assert len(shapes) == 5


def test_the_drawings_follow_the_theme(browser: Browser, full: CannedServer) -> None:
    """W20."""
    open_page(browser, full, BERT_ADDRESS)
    pixel = "[...document.querySelector('rank-grid canvas').getContext('2d').getImageData(4, 32, 1, 1).data].join()"
    browser.eventually(f"{pixel} === '75,106,140,255'")
    browser.theme("dark")
    browser.eventually(f"{pixel} === '141,176,214,255'")
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
    for address in VIEWS:
        browser.open(address)
        browser.eventually("document.querySelector('h1')")
    browser.sees("trainyard why bert", ".commands")
    origin = f"http://127.0.0.1:{full.port}/ui/"
    foreign = [
        url
        for url in requests_of(browser.driver)
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


def test_a_lost_connection_is_said_and_the_clocks_stop(browser: Browser, full: CannedServer) -> None:
    """W16."""
    open_page(browser, full, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    began = time.monotonic()
    full.stop()
    browser.sees("Not connected since", "#banner")
    said = time.monotonic() - began
    before = browser.js("document.querySelector('.facts .time').textContent")
    browser.eventually("performance.now() > args[0]", browser.js("performance.now() + 2200"))
    assert browser.js("document.querySelector('.facts .time').textContent") == before
    full.start()
    began = time.monotonic()
    browser.eventually("document.documentElement.dataset.status === 'live' && document.querySelector('#banner').hidden")
    back = time.monotonic() - began
    print(f"W16: said after {said:.1f} s (budget 2), live again after {back:.1f} s (budget 10)")
    assert said < 2
    assert back < 10
    browser.eventually("document.querySelector('.facts .time').textContent !== args[0]", before)


def test_a_cluster_that_ends_says_why(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    full.send({"type": "bye", "reason": "the cluster stops"})
    browser.eventually(
        "!document.querySelector('#banner').hidden || document.documentElement.dataset.status === 'live'"
    )
    full.stop()
    browser.sees("the cluster stops", "#banner")


def test_what_is_forbidden_is_named(browser: Browser, full: CannedServer) -> None:
    full.hello["forbidden"] = ["list events in namespace team"]
    open_page(browser, full)
    browser.sees("You may not list events in namespace team", ".forbidden")


def test_dropped_lines_are_counted(browser: Browser, full: CannedServer) -> None:
    """W21."""
    open_page(browser, full, RESNET_ADDRESS)
    browser.scroll_to(".panel.logs")
    browser.sees("step 14179", "log-lines")
    uid = next(iter(full.log_frames))
    full.send({"type": "log", "uid": uid, "lines": [["worker-1", "the line after"]], "dropped": 412}, f"logs:{uid}:*")
    browser.sees("412 lines not shown: too fast", "log-lines")
    browser.sees("the line after", "log-lines")


def test_the_log_follows_until_somebody_reads_back(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full, f"{RESNET_ADDRESS}/logs")
    browser.sees("step 14179", "log-lines")
    uid = next(iter(full.log_frames))

    def write(text: str) -> None:
        full.send({"type": "log", "uid": uid, "lines": [["worker-1", text]], "dropped": 0}, f"logs:{uid}:*")

    browser.js("document.querySelector('log-lines').scrollBy(0, -1500)")
    browser.eventually("document.querySelector('.log button').getAttribute('aria-pressed') === 'false'")
    browser.sees("step 14100", "log-lines")
    write("written meanwhile")
    browser.eventually("document.querySelector('log-lines').length === 181")
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
    browser.eventually("document.querySelector('log-lines').length > args[0] * 1.5", before)
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
    browser.eventually(f"{focused} === 'bert'")
    browser.press(Keys.ENTER)
    browser.sees("default/bert", "h1")
    browser.press(Keys.ESCAPE)
    browser.sees("resnet-1000", "table")
    browser.press("j", "l")
    browser.eventually("location.hash.endsWith('/logs')")
    browser.press("?")
    browser.sees("previous, next unhealthy rank", "dialog")
    browser.press(Keys.ESCAPE)
    browser.eventually("!document.querySelector('dialog').open")
    browser.open(BERT_ADDRESS)
    browser.sees("worker-1 Failed", ".unhealthy")
    browser.js("document.activeElement.blur()")
    stops: list[Any] = []
    for _ in range(40):
        browser.press(Keys.TAB)
        stop = browser.js(
            "(({left, top, width, height}) => [Math.round(top + scrollY), Math.round(left), width > 0 && height > 0, getComputedStyle(document.activeElement).outlineStyle, document.activeElement.tagName])(document.activeElement.getBoundingClientRect())"
        )
        if stop[4] == "BODY":
            break
        stops.append(stop)
    assert len(stops) >= 18
    assert all(visible and outline != "none" for _, _, visible, outline, _ in stops), stops
    assert {"CANVAS", "LOG-LINES", "INPUT", "SELECT", "A", "BUTTON", "PRE"} <= {stop[4] for stop in stops}


def test_letters_can_be_switched_off(browser: Browser, full: CannedServer) -> None:
    open_page(browser, full)
    browser.click("#header button", "?")
    browser.click("dialog input")
    browser.click("dialog button", "Close")
    browser.press("j")
    assert browser.js("document.querySelector('tr[aria-selected=true]')") is None
    browser.press(Keys.ARROW_DOWN)
    browser.eventually("document.querySelector('tr[aria-selected=true]')")


@pytest.mark.parametrize("width", [320, 640])
def test_a_narrow_page_loses_nothing(browser: Browser, full: CannedServer, width: int) -> None:
    """W19: 320 px, and 1,280 px at 200 %: no view scrolls sideways, and what matters is seen."""
    browser.resize(width, 640, scale=2.0)
    open_page(browser, full)
    browser.scroll_to("td.name a[title='team/resnet-1000']")
    for text in ("resnet-1000", "998/1000", "2 ranks make no progress"):
        browser.sees(text, "table")
    for address in VIEWS:
        browser.open(address)
        browser.eventually("document.querySelector('h1')")
        browser.eventually("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_nothing_to_say(browser: Browser, full: CannedServer, scheme: str, pictures: Path | None) -> None:
    """W17: WCAG 2.1 A and AA, all views."""
    browser.theme(scheme)
    open_page(browser, full)
    problems = {}
    for number, address in enumerate(VIEWS):
        browser.open(address)
        browser.eventually("document.querySelector('h1') && !document.querySelector('main .empty:not([hidden])')")
        browser.eventually(f"location.hash === '#/' || {READY}")
        if pictures:
            browser.driver.save_screenshot(str(pictures / f"{scheme}-{number}.png"))
        problems[address] = axe_violations(browser)
    assert problems == dict.fromkeys(VIEWS, [])


READY = "document.querySelector('.job:not([hidden]), .rank:not([hidden])')"


def axe_violations(browser: Browser) -> list[str]:
    browser.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    browser.driver.execute_script(AXE.read_text())
    run = """const done = arguments[arguments.length - 1];
    axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'], resultTypes: ['violations']}).then(({violations}) =>
      done(violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`))), (error) => done([String(error)]));"""
    return list(browser.driver.execute_async_script(run))


def test_a_list_of_ten_thousand_jobs_stays_small(browser: Browser, server: CannedServer) -> None:
    """W4, W5, W9: time until rows are seen, elements, and the time of a jump in the list."""
    add_many_jobs(server)
    uid = add_resnet(server)
    server.log_frames[uid] = [
        {"type": "log", "uid": uid, "lines": [["worker-1", f"line {number}"] for number in range(20_000)], "dropped": 0}
    ]
    began = time.monotonic()
    open_page(browser, server)
    browser.sees("sweep-1", "table")
    shown = time.monotonic() - began
    browser.eventually("document.querySelector('.total').innerText === '10,001 of 10,001'")
    elements = browser.js("document.querySelectorAll('*').length")
    jumps = sorted(browser.driver.execute_async_script(JUMPS))
    middle = browser.js("document.elementFromPoint(300, 400).innerText")
    assert middle.startswith("sweep-"), middle
    browser.open(RESNET_ADDRESS)
    browser.scroll_to(".panel.logs")
    browser.sees("line 19999", "log-lines")
    job_elements = browser.js("document.querySelectorAll('*').length")
    p95 = jumps[int(len(jumps) * 0.95)]
    print(
        f"W4: rows after {shown * 1000:.0f} ms (budget 1,000, Selenium's own time included); W5: {elements} and {job_elements} elements (budget 1,500); W9: p95 {p95:.0f} ms (budget 100)"
    )
    assert elements <= 1500
    assert job_elements <= 1500
    assert shown < 3
    assert p95 < 300


JUMPS = """const done = arguments[0], times = [];
const table = document.querySelector('virtual-table');
const jump = (number) => {
  if (number === 30) return done(times);
  const began = performance.now();
  scrollTo(0, (number * 7919 % 30) / 30 * (document.documentElement.scrollHeight - innerHeight));
  const check = () => {
    const seen = document.elementFromPoint(300, innerHeight / 2);
    if (seen?.closest('tr')?.row) { times.push(performance.now() - began); jump(number + 1); } else requestAnimationFrame(check);
  };
  requestAnimationFrame(check);
};
jump(0);"""


@pytest.mark.parametrize("throttling", [1, 4])
def test_a_thousand_ranks_are_drawn_smoothly(browser: Browser, server: CannedServer, throttling: int) -> None:
    """W6, W7, W8: frames a second at 20 updates of 1,000 ranks a second, and how long one drawing takes."""
    uid = add_resnet(server)
    open_page(browser, server, RESNET_ADDRESS)
    browser.sees("worker-417 behind", ".unhealthy")
    browser.driver.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": throttling})
    states = [
        rank_columns(["Running"] * (number * 31) + ["Pending"] * (1000 - number * 31), step=[number] * 1000)
        for number in range(1, 21)
    ]
    stop = server.repeat(
        lambda number: ({"type": "ranks", "uid": uid, "columns": states[number % 20]}, f"job:{uid}"), 20
    )
    browser.driver.set_script_timeout(20)
    rate, paint = browser.driver.execute_async_script(FRAMES)
    stop()
    budget = 30 if throttling == 1 else 20
    print(
        f"W{6 if throttling == 1 else 7}: {rate:.0f} frames a second at 1/{throttling} of the CPU (budget {budget}); W8: 1,000 ranks drawn in {paint:.1f} ms (budget 4)"
    )
    assert rate > budget / 3
    assert paint < 12 * throttling


FRAMES = """const done = arguments[0], paints = [];
let frames = 0, began = 0;
const count = (now) => {
  began ||= now;
  frames++;
  paints.push(document.querySelector('rank-grid').paintTime);
  if (now - began < 2000) requestAnimationFrame(count);
  else done([frames / (now - began) * 1000, paints.sort((a, b) => a - b)[paints.length >> 1]]);
};
requestAnimationFrame(count);"""


def test_ten_thousand_ranks_are_drawn(browser: Browser, server: CannedServer) -> None:
    """W8; and the timeline of 10,000 replicas is one row for each role."""
    uid = server.add_job(uid="big", name="big", running=10_000, replicas=10_000)
    ranks = rank_columns(["Running"] * 10_000)
    server.job_frames[uid] = [
        {"type": "ranks", "uid": uid, "columns": ranks},
        {"type": "job", "uid": uid, "job": {}, "findings": [], "timeline": running_lanes(ranks["replica"])},
    ]
    open_page(browser, server, "#/jobs/default/PyTorchJob/big")
    browser.sees("Running 10,000", ".legend")
    paint = browser.js(
        "[1, 2, 3, 4, 5].map(() => { const grid = document.querySelector('rank-grid'); grid.paintNow(); return grid.paintTime; }).sort((a, b) => a - b)[2]"
    )
    print(f"W8: 10,000 ranks drawn in {paint:.1f} ms (budget 16)")
    assert paint < 48
    browser.eventually(f"{colours('attempt-timeline canvas')} >= 2")


def test_the_first_load_is_small(browser: Browser, full: CannedServer) -> None:
    """W1, W3."""
    open_page(browser, full)
    browser.sees("bert", "table")
    sizes = browser.js(
        "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/static/')).reduce((sum, entry) => sum + entry.decodedBodySize, 0) + performance.getEntriesByType('navigation')[0].decodedBodySize"
    )
    paint = browser.eventually("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    print(
        f"W1: {sizes:,} bytes of the first load (budget 150,000); W3: first contentful paint after {paint:.0f} ms (budget 500)"
    )
    assert sizes <= 150_000
    assert paint < 1500
