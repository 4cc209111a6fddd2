"""Pictures of the page in the browser, of the jobs of a cluster."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.page.browser.conftest import Browser, started_driver
from tools.pictures import jobs
from tools.pictures.png import with_few_colours

WIDTH, HEIGHT = 1280, 800  # CSS pixels, and those of the pictures
THEMES = ("light", "dark")


def take(browser: Browser, folder: Path, name: str, themes: Sequence[str] = THEMES) -> Iterator[Path]:
    """Write NAME-light.png and NAME-dark.png, or that of another choice of themes."""
    for theme in themes:
        browser.theme(theme, prefers_reduced_motion="reduce")
        browser.until("matchMedia(`(prefers-color-scheme: ${args[0]})`).matches", theme)
        browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        png = base64.b64decode(browser.driver.get_screenshot_as_base64())
        path = folder / f"{name}-{theme}.png"
        path.write_bytes(with_few_colours(png))
        yield path


@contextmanager
def page(cluster: jobs.Cluster, downloads: Path) -> Iterator[Browser]:
    """A browser that shows the page of the cluster."""
    with started_driver(downloads) as driver:
        browser = Browser(driver)
        browser.resize(WIDTH, HEIGHT)
        driver.get(cluster.run("ui").strip())
        browser.sees("live", "#header")
        yield browser


def pictures(cluster: jobs.Cluster, folder: Path) -> Iterator[Path]:
    """The views jobs, job (running, a rank behind; failed) into the folder."""
    cluster.run("up")
    cluster.submit(*jobs.ENDED)
    for job in jobs.ENDED:
        cluster.wait(job["metadata"]["name"], "Succeeded")
    cluster.submit(jobs.FAILED, jobs.PENDING, jobs.SUSPENDED, jobs.RUNNING)
    cluster.run("suspend", jobs.SUSPENDED["metadata"]["name"])
    cluster.wait("bert-finetune", "Failed")
    with page(cluster, cluster.folder / "downloads") as browser:
        cluster.wait_for_step("digits", jobs.STEP_OF_PICTURES)
        for text in ("12/12", "Failed", "Suspended"):
            browser.sees(text, "table")
        yield from take(browser, folder, "page-jobs")
        browser.open("#/jobs/default/PyTorchJob/digits")
        browser.sees("worker-5", ".why")
        browser.sees("at step", ".legend")
        browser.sees("loss", "log-lines")
        yield from take(browser, folder, "page-job-running")
        browser.open("#/jobs/default/PyTorchJob/bert-finetune")
        browser.sees("transformers", ".why")
        browser.sees("No module named", "log-lines")
        yield from take(browser, folder, "page-job-failed")
