"""A browser for the tests of the page: Debian's chromium and chromedriver, which always have the same version."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common import JavascriptException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.window.browser.canned_server import CannedServer

PATIENCE = float(os.environ.get("P", 20.0))  # seconds until a condition that has not come true fails the test


class Browser:
    """A browser with one page open. What it asks the page is JavaScript: an expression, with its arguments as `args`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def js(self, expression: str, *args: Any) -> Any:
        """The value of an expression."""
        return self.driver.execute_script(f"const args = [...arguments]; return ({expression});", *args)

    def eventually(self, expression: str, *args: Any, condition: str = "") -> Any:
        """The value of the expression as soon as it is true. Every test waits by this, never for a time. `condition`:
        the expression in words, for the message of the failure."""
        deadline = time.monotonic() + PATIENCE
        error: Exception | None = None
        while time.monotonic() < deadline:
            try:
                error = None
                if value := self.js(expression, *args):
                    return value
            except JavascriptException as failure:  # an element is not there yet
                error = failure
            time.sleep(0.02)
        raise AssertionError(
            f"never true: {condition or expression} {args or ''} {error or ''}\nthe page shows:\n{self.text()[:1500]}"
        )

    def text(self) -> str:
        """The text of the page."""
        return str(self.js("document.body.innerText"))

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until that text is on the screen: at the place where it is, nothing covers it, and it has a size."""
        self.eventually(f"({SEEN})(args[0], args[1])", text, selector, condition="this text is seen in that element:")

    def scroll_to(self, selector: str) -> None:
        """Scroll such that the first element of that kind is on the screen."""
        self.eventually("document.querySelector(args[0]).scrollIntoView({block: 'center'}) ?? true", selector)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the first element of that kind with that text."""
        find = "[...document.querySelectorAll(args[0])].find((node) => node.innerText.includes(args[1]))"
        self.eventually(find, selector, text).click()

    def open(self, address: str) -> None:
        """Open an address of the page, which starts with #/."""
        self.js("void (location.hash = args[0])", address)

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        """Give the page that size in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def theme(self, scheme: str, **features: str) -> None:
        """`light` or `dark`."""
        values = {"prefers-color-scheme": scheme} | {name.replace("_", "-"): value for name, value in features.items()}
        media = [{"name": name, "value": value} for name, value in values.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})

    def colours_of(self, selector: str) -> int:
        """The number of different colours of a canvas: one, if nothing is drawn."""
        return int(self.js(CANVAS_COLOURS, selector))

    def errors(self) -> list[str]:
        """Messages of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


SEEN = """(text, selector) => {
  for (const root of document.querySelectorAll(selector)) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const start = node.data.indexOf(text);
      if (start < 0) continue;
      const range = document.createRange();
      range.setStart(node, start);
      range.setEnd(node, start + text.length);
      for (const box of range.getClientRects()) {
        const [x, y] = [box.left + Math.min(box.width / 2, 20), box.top + box.height / 2];
        if (box.width > 2 && box.height > 2 && node.parentElement.contains(document.elementFromPoint(x, y))) return true;
      }
    }
  }
  return false;
}"""
CANVAS_COLOURS = """(() => {
  const canvas = document.querySelector(args[0]);
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
  return seen.size;
})()"""


def _program(name: str) -> str:
    """The path of a program; without it the tests fail in CI and are skipped elsewhere."""
    path = shutil.which(name)
    if path is None:
        text = f"no {name} here: make browser brings it"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return path


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for all tests of a worker."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium")
    arguments = [
        "--headless=new",
        "--disable-dev-shm-usage",
        "--window-size=1280,800",
        "--hide-scrollbars",
        "--disable-background-networking",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    for argument in arguments:
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path_factory.mktemp("downloads"))})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(_program("chromedriver"))
    started = webdriver.Chrome(options=options, service=service)
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture
def browser(driver: webdriver.Chrome) -> Iterator[Browser]:
    """The browser at an empty page, with nothing kept from another test."""
    opened = Browser(driver)
    opened.resize(1280, 800)
    opened.theme("light")
    driver.get("about:blank")
    opened.errors()
    driver.get_log("performance")
    yield opened
    driver.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": 1})
    driver.get("about:blank")


@pytest.fixture
def server() -> Iterator[CannedServer]:
    canned = CannedServer()
    try:
        yield canned
    finally:
        canned.close()


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path | None:
    """The folder that TRAINYARD_TEST_PICTURES names, for pictures of the page; None without it."""
    folder = os.environ.get("TRAINYARD_TEST_PICTURES")
    return Path(folder) if folder else None


def requests_of(driver: webdriver.Chrome) -> list[str]:
    """The addresses that the browser has asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [
        message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"
    ]


__all__ = ["By", "Keys"]
