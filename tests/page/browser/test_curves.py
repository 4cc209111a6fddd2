"""What a person sees of curves: pixels that fall as the values do, in the colours of the theme."""

from __future__ import annotations

import pytest

from tests.page.browser.canned_jobs import BERT, LOSSES, add_bert, add_losses
from tests.page.browser.canned_server import CannedServer
from tests.page.browser.conftest import Browser, Keys
from tests.page.browser.curve_pixels import DARK, HEIGHTS, LIGHT, assert_falls
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BERT_ADDRESS = "#/jobs/default/PyTorchJob/bert"


@pytest.fixture
def training(server: CannedServer) -> CannedServer:
    """A job that has reported losses of three replicas."""
    add_losses(server, add_bert(server))
    return server


def open_metrics(browser: Browser, server: CannedServer) -> None:
    browser.driver.get(server.link)
    browser.sees("live", "#header")
    browser.open(f"{BERT_ADDRESS}/metrics")
    browser.sees("loss", ".curve h3")


def test_falling_values_are_a_falling_line(browser: Browser, training: CannedServer) -> None:
    open_metrics(browser, training)
    assert_falls(browser)
    browser.sees("last 0.1835 at step 990, lowest 0.1835, highest 2", ".curve")
    browser.sees("guessed from the output", ".curve")
    browser.sees("median, highest of 3 replicas", ".curve")
    assert browser.errors() == []


def test_a_chart_is_as_wide_as_its_panel(browser: Browser, training: CannedServer) -> None:
    open_metrics(browser, training)
    assert_falls(browser)
    for width in (1600, 390, 1280):
        browser.resize(width, 800)
        browser.until(
            "document.querySelector('.uplot').offsetWidth === document.querySelector('.curve-stage').clientWidth"
        )
        assert browser.js("document.querySelector('.curve').clientWidth") > 0.85 * width


def test_curves_come_to_a_page_that_was_open_before_the_job(browser: Browser, server: CannedServer) -> None:
    browser.driver.get(server.link)
    browser.sees("No jobs.")
    browser.open(f"{BERT_ADDRESS}/metrics")
    browser.sees("There is no PyTorchJob default/bert")
    add_bert(server)
    server.jobs[BERT] |= {"ended": None, "state": "Running"}
    server.send_rows(BERT)
    browser.sees("makes a curve", ".metrics")
    assert not browser.js("document.querySelector('.metrics [role=group]').offsetParent"), "there is nothing to choose"
    add_losses(server, BERT)
    browser.sees("last 0.1835", ".curve")
    browser.sees("step", ".metrics [role=group]")


def test_the_chart_follows_the_theme(browser: Browser, training: CannedServer) -> None:
    """W20."""
    open_metrics(browser, training)
    browser.until(f"{HEIGHTS}(args[0]).length > 20", LIGHT)
    browser.theme("dark")
    browser.until(f"{HEIGHTS}(args[0]).length > 20 && !{HEIGHTS}(args[1]).length", DARK, LIGHT)
    browser.theme("light")
    browser.until(f"{HEIGHTS}(args[0]).length > 20", LIGHT)


def test_values_are_read_by_keys(browser: Browser, training: CannedServer) -> None:
    """W18: the chart is reached by Tab; arrows move along the curve."""
    open_metrics(browser, training)
    browser.until("document.querySelector('.curve canvas')")
    browser.js("document.querySelector('.curve-stage').focus()")
    browser.press(Keys.HOME)
    browser.sees("step 0 · loss 2 · replicas 1.9 / 2.1 / 2.3", ".curve")
    browser.press(Keys.ARROW_RIGHT)
    browser.sees("step 10 · loss 1.818", ".curve")
    browser.press(Keys.END)
    browser.sees("step 990 · loss 0.1835", ".curve")


def test_the_axis_may_be_the_time_and_the_line_smoothed(browser: Browser, training: CannedServer) -> None:
    open_metrics(browser, training)
    browser.until("document.querySelector('.curve canvas')")
    browser.click(".metrics button", "time")
    browser.js("document.querySelector('.metrics input').focus()")
    browser.press(Keys.END)
    browser.js("document.querySelector('.curve-stage').focus()")
    browser.press(Keys.END)
    browser.sees("smoothed 0.", ".curve")
    browser.until(r"/^\d\d:\d\d:\d\d · loss/.test(document.querySelector('.curve [aria-live]').innerText)")


def test_new_values_are_asked_for_while_the_panel_is_seen(browser: Browser, training: CannedServer) -> None:
    uid = next(iter(training.series))
    training.jobs[uid] |= {"ended": None, "state": "Running", "live": True}
    browser.driver.get(training.link)
    browser.sees("live", "#header")
    browser.js("watchIntervals()")
    browser.open(f"{BERT_ADDRESS}/metrics")
    browser.sees("last 0.1835", ".curve")
    answer = training.series[uid]
    curve = answer["series"][0]
    training.series[uid] = answer | {"series": [curve | {"value": [*LOSSES[:-1], 0.05]}]}
    browser.sees("last 0.05", ".curve")
    browser.open(f"{BERT_ADDRESS}/yaml")
    browser.until("!document.querySelector('.metrics').offsetParent")
    until(lambda: browser.measure("askedAtIntervals") == [], "nothing is asked for while the panel is not seen")
    browser.open(f"{BERT_ADDRESS}/metrics")
    until(
        lambda: any("/series?" in path for path in browser.measure("askedAtIntervals")),
        "the curves are asked for when the panel is seen again",
    )


def test_a_damaged_event_file_is_named(browser: Browser, training: CannedServer) -> None:
    training.series[BERT] = training.series[BERT] | {"corrupt": ["/w/runs/events.out.tfevents.1"]}
    open_metrics(browser, training)
    browser.sees("/w/runs/events.out.tfevents.1 cannot be read to the end", ".metrics")


def test_a_rank_has_curves_of_its_own(browser: Browser, training: CannedServer) -> None:
    browser.driver.get(training.link)
    browser.sees("live", "#header")
    browser.open(f"{BERT_ADDRESS}/ranks/worker-1")
    browser.scroll_to(".panel.metrics")
    browser.sees("last -0.01651 at step 990, lowest -0.01651, highest 1.8 · worker-1 guessed", ".curve")
    assert_falls(browser)
    browser.open(f"{BERT_ADDRESS}/ranks/worker-2")
    browser.scroll_to(".panel.metrics")
    browser.sees("Its program has reported no values on this machine.", ".metrics")
    assert browser.js("document.querySelectorAll('.curve').length") == 0
    assert browser.errors() == []


def test_a_job_without_values_says_how_to_report_them(browser: Browser, server: CannedServer) -> None:
    add_bert(server)
    browser.driver.get(server.link)
    browser.sees("live", "#header")
    browser.open(f"{BERT_ADDRESS}/metrics")
    browser.sees("makes a curve", ".metrics")
    assert not any("uPlot" in request for request in server.requests)
