"""A browser for the tests of the page: Debian's chromium and chromedriver, which always have the same version."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common import JavascriptException
from selenium.webdriver.common.keys import Keys

from tests.page.browser.canned_server import CannedServer
from tests.support.waiting import until

PROBES = (Path(__file__).parent / "probes.js").read_text(encoding="utf-8")
PATIENCE = 20.0  # seconds until a condition that has not come true fails the test


class Browser:
    """A browser with one page open. It asks the page by expressions of JavaScript, with their arguments as `args`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def js(self, expression: str, *args: Any) -> Any:
        """The value of an expression."""
        return self.driver.execute_script(f"{PROBES}\nconst args = [...arguments]; return ({expression});", *args)

    def measure(self, probe: str, *args: Any) -> Any:
        """The result of a function of probes.js that takes a callback after its arguments."""
        self.driver.set_script_timeout(PATIENCE)
        return self.driver.execute_async_script(f"{PROBES}\n{probe}(...arguments);", *args)

    def until(self, expression: str, *args: Any, condition: str = "") -> Any:
        """The value of the expression as soon as it is true. Every test waits by this, never for a time. `condition`:
        the expression in words, for the message of the failure."""
        return until(
            lambda: self.js(expression, *args),
            f"{condition or expression} {args or ''}",
            retry_on=JavascriptException,  # an element is not there yet
            context=lambda: f"the page shows:\n{self.text()[:1500]}",
        )

    def text(self) -> str:
        """The text of the page."""
        return str(self.js("document.body.innerText"))

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until that text is on the screen: at the place where it is, nothing covers it, and it has a size."""
        self.until("isSeen(args[0], args[1])", text, selector, condition="this text is seen in that element:")

    def scroll_to(self, selector: str) -> None:
        """Scroll such that the first element of that kind is on the screen."""
        self.until("document.querySelector(args[0]).scrollIntoView({block: 'center'}) ?? true", selector)

    def type(self, selector: str, text: str) -> None:
        """Replace the text of an input."""
        field = self.until("document.querySelector(args[0])", selector)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the first element of that kind with that text."""
        self.until("findElement(args[0], args[1])", selector, text).click()

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

    def heap(self) -> int:
        """The bytes of the page's JavaScript heap after a collection of garbage."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        usage: dict[str, float] = self.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})
        return int(usage["usedSize"])

    def clear_storage(self) -> None:
        """Forget what pages have stored. A browser keeps it by origin, and a later server may get the same port."""
        self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})

    def _log(self, name: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]
        return entries

    def requests(self) -> list[str]:
        """The addresses that the browser has asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [parameters["request"]["url"] for parameters in sent]

    def errors(self) -> list[str]:
        """Messages of the console since the last call, but for the advice that a test's own look at a canvas causes."""
        messages = [str(entry["message"]) for entry in self._log("browser")]
        return [message for message in messages if "willReadFrequently" not in message]


def _program(*names: str) -> str:
    """The path of the first of these programs; without any the tests fail in CI and are skipped elsewhere."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        text = f"no {names[0]} here: make browser brings it"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return path


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the browser puts what it downloads."""
    return tmp_path_factory.mktemp("downloads")


@contextmanager
def started_driver(downloads: Path) -> Iterator[webdriver.Chrome]:
    """A browser without a window, which ends with the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "google-chrome")
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
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(_program("chromedriver"))
    started = webdriver.Chrome(options=options, service=service)
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture(scope="session")
def driver(downloads: Path) -> Iterator[webdriver.Chrome]:
    """One browser for all tests of a worker."""
    with started_driver(downloads) as started:
        yield started


@pytest.fixture
def browser(driver: webdriver.Chrome) -> Iterator[Browser]:
    """The browser at an empty page, with nothing kept from another test."""
    opened = Browser(driver)
    opened.resize(1280, 800)
    opened.theme("light")
    driver.get("about:blank")
    opened.clear_storage()
    opened.errors()
    opened.requests()
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


__all__ = ["Keys"]
