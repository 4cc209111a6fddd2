"""The buttons that change a job: who sees them, what they ask, and what the page says of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.page.browser.canned_jobs import add_bert, add_small_jobs
from tests.page.browser.canned_server import CannedServer
from tests.page.browser.conftest import Browser
from tests.page.browser.test_page import AXE, BERT_ADDRESS, open_page
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SCALE = {"role": "Worker", "replicas": 2, "least": 1, "most": 4}
FOCUS = "document.activeElement.innerText"


def offer(uid: str, *verbs: str, generation: int = 7) -> dict[str, Any]:
    """The frame that says what can be done with a job."""
    scale = SCALE if "scale" in verbs else None
    return {"type": "actions", "uid": uid, "actions": {"generation": generation, "verbs": verbs, "scale": scale}}


@pytest.fixture
def uid(server: CannedServer) -> str:
    """A job that a person may change."""
    server.hello["readOnly"] = False
    add_small_jobs(server)
    uid = add_bert(server)
    server.job_frames[uid].append(offer(uid, "suspend", "scale", "delete"))
    return uid


def focus_button(browser: Browser, text: str) -> None:
    # In one step: a page that has just been opened puts the focus on its heading, and may do so after a focus of ours.
    browser.until(f"(findElement('.actions button', args[0]).focus(), {FOCUS} === args[0])", text)


def test_a_page_that_only_reads_has_no_buttons(browser: Browser, server: CannedServer, uid: str) -> None:
    server.hello["readOnly"] = True
    open_page(browser, server, BERT_ADDRESS)
    browser.sees("read-only", "#header")
    browser.sees("worker-1 Failed", ".unhealthy")
    assert browser.js("document.querySelectorAll('.actions').length") == 0
    assert not [request for request in server.requests if "actions" in request]


def test_a_job_is_suspended_by_keys(browser: Browser, server: CannedServer, uid: str) -> None:
    open_page(browser, server, BERT_ADDRESS)
    browser.sees("may change jobs", "#header")
    focus_button(browser, "Suspend ...")
    browser.press(Keys.ENTER)
    browser.sees("Suspend PyTorchJob bert?", "dialog")
    browser.sees("In namespace default. Its pods are deleted: what they have not saved is lost.", "dialog")
    assert browser.js(FOCUS) == "Cancel"
    address = browser.js("location.hash")
    browser.press("y", Keys.ESCAPE)  # no key of the page acts while it asks
    browser.until("!document.querySelector('dialog')")
    assert (browser.js(FOCUS), browser.js("location.hash"), server.actions) == ("Suspend ...", address, [])
    server.action_answer = 200, "pytorchjob/bert suspended"
    browser.press(Keys.ENTER, Keys.TAB, Keys.ENTER)
    browser.sees("pytorchjob/bert suspended", ".actions [role=status]")
    assert server.actions == [{"verb": "suspend", "uid": uid, "generation": 7}]
    server.send(offer(uid, "resume", "scale", "delete", generation=8), f"job:{uid}")
    browser.until(f"{FOCUS} === 'Resume'")  # the same button
    browser.press(Keys.ENTER)
    until(lambda: len(server.actions) == 2, "it is resumed without a question")
    assert server.actions[1] == {"verb": "resume", "uid": uid, "generation": 8}


def test_a_job_is_deleted_after_a_confirmation(browser: Browser, server: CannedServer, uid: str) -> None:
    open_page(browser, server, BERT_ADDRESS)
    server.action_answer = 200, "pytorchjob/bert deleted"
    focus_button(browser, "Delete ...")
    browser.press(Keys.ENTER)
    browser.sees("Delete PyTorchJob bert?", "dialog")
    browser.sees("The record stays in the history.", "dialog")
    browser.click("dialog button", "Delete")
    browser.sees("pytorchjob/bert deleted", ".actions [role=status]")
    assert server.actions == [{"verb": "delete", "uid": uid, "generation": 7}]
    server.jobs[uid]["live"] = False
    server.send_rows(uid)
    browser.sees("of the history", ".facts")
    browser.until("document.querySelectorAll('.actions button').length === 0")
    browser.sees("pytorchjob/bert deleted", ".actions [role=status]")
    browser.until("document.activeElement.tagName === 'H1'", condition="the focus is not lost with its button")


def test_a_deletion_on_a_real_cluster_says_that_nothing_stays(browser: Browser, server: CannedServer, uid: str) -> None:
    server.hello["mode"] = "cluster"
    open_page(browser, server, BERT_ADDRESS)
    browser.click(".actions button", "Delete")
    browser.sees("Nothing of it stays in the cluster.", "dialog")


def test_what_was_changed_while_the_page_asked_is_refused(browser: Browser, server: CannedServer, uid: str) -> None:
    """The request names the generation of the job that the person saw when the dialog was opened."""
    open_page(browser, server, BERT_ADDRESS)
    browser.click(".actions button", "Delete")
    browser.sees("Delete PyTorchJob bert?", "dialog")
    server.send(offer(uid, "delete", generation=8), f"job:{uid}")
    browser.until("document.querySelectorAll('.actions button').length === 1")
    server.action_answer = 409, "PyTorchJob default/bert was changed meanwhile: look at it again; nothing was changed"
    browser.click("dialog button", "Delete")
    browser.sees("Not done: PyTorchJob default/bert was changed meanwhile", ".actions [role=status]")
    assert server.actions == [{"verb": "delete", "uid": uid, "generation": 7}]


def test_a_number_of_replicas_is_within_the_bounds_of_the_job(browser: Browser, server: CannedServer, uid: str) -> None:
    open_page(browser, server, BERT_ADDRESS)
    browser.click(".actions button", "Scale")
    browser.sees("now 2, at least 1, at most 4", "dialog")
    assert browser.js("document.activeElement.matches('dialog input[type=number]')")
    browser.press("9", Keys.ENTER)
    browser.until("document.querySelector('dialog[open] input:invalid')")
    browser.type("dialog input", "3")
    browser.press(Keys.ENTER)
    browser.sees("done", ".actions [role=status]")
    assert server.actions == [{"verb": "scale", "uid": uid, "generation": 7, "replicas": 3}]


def test_a_server_that_is_away_is_said(browser: Browser, server: CannedServer, uid: str) -> None:
    open_page(browser, server, BERT_ADDRESS)
    browser.click(".actions button", "Delete")
    server.stop()
    browser.click("dialog button", "Delete")
    text = "It is not known whether it was done: the server of this page does not answer"
    browser.sees(text, ".actions [role=status]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_the_questions_are_accessible_and_fit(
    browser: Browser, server: CannedServer, uid: str, scheme: str, width: int
) -> None:
    """W17, W19."""
    browser.theme(scheme)
    browser.resize(width, 640)
    open_page(browser, server, BERT_ADDRESS)
    problems: dict[str, list[str]] = {}
    for verb in ("", "Suspend", "Scale", "Delete"):
        if verb:
            browser.click(".actions button", verb)
            browser.sees(f"{verb} PyTorchJob bert?", "dialog")
            browser.sees(verb, "dialog form")
        browser.until("document.querySelector('.actions button')")
        browser.until("document.documentElement.scrollWidth <= innerWidth")
        browser.driver.execute_script(AXE.read_text(encoding="utf-8"))
        problems[verb] = browser.measure("axeViolations")
        browser.press(Keys.ESCAPE) if verb else None
        browser.until("!document.querySelector('dialog[open]')")
    assert problems == {verb: [] for verb in problems}
    assert browser.errors() == []
