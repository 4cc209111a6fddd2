"""A picture of each view of the page, of made-up jobs: 64 ranks of which some are behind, and a job that has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.page.browser.canned_jobs import BERT, LOSSES, RESNET, add_bert, add_losses, add_resnet, finding
from tests.page.browser.canned_server import CannedServer
from tests.page.browser.conftest import Browser, started_driver
from tools.pictures.page import take

RANKS, BEHIND = 64, (17, 18)
JOB, FAILED = "#/jobs/default/PyTorchJob/resnet", "#/jobs/default/PyTorchJob/bert"
# The name of the picture, the address, and a text that is seen when all is there.
VIEWS = {
    "ranks": (f"{JOB}/ranks", "worker-2"),
    "logs": (f"{JOB}/logs", "step 14179"),
    "metrics": (f"{JOB}/metrics", "last 0.1835"),
    "timeline": (f"{JOB}/timeline", "worker-0 · attempt 1"),
    "events": (f"{FAILED}/events", "JobFailed"),
    "yaml": (f"{FAILED}/yaml", "kind: PyTorchJob"),
    "rank": (f"{FAILED}/ranks/worker-1", "No module named 'nltk'"),
    "compare": (f"#/compare?jobs={BERT},{RESNET}", "Take out"),
}
PHONE = {"phone-job": (JOB, "at step 14,201"), "phone-ranks": (f"{JOB}/ranks", "worker-17 behind")}


def add_jobs(server: CannedServer) -> None:
    """The two jobs, with curves."""
    uid = add_resnet(server, RANKS)
    server.jobs[uid] |= {"name": "resnet", "namespace": "default"}
    columns = server.job_frames[uid][0]["columns"]
    for index in BEHIND:
        place = columns["replica"].index(f"worker-{index}")
        columns["step"][place], columns["lag"][place], columns["cpu"][place] = 0, 14_201, 0.02
    names = ", ".join(f"worker-{index}" for index in BEHIND)
    server.job_frames[uid][1]["findings"] = [
        finding(
            "waits",
            f"{names}: behind; the slowest is at step 0, the median of the role is 14,201",
            f"metrics.k8s.io, pod resnet-worker-{BEHIND[0]}: step, from file",
            [],
            f"see what they do: `trainyard logs resnet --role worker --index {BEHIND[0]}`",
        )
    ]
    add_losses(server, uid)
    add_losses(server, add_bert(server), [0.8 * loss + 0.3 for loss in LOSSES])
    server.differences = [{"field": "env LR", "roles": [], "values": ["0.1", "0.03"]}]


def pictures(folder: Path) -> Iterator[Path]:
    """page-NAME-light.png of each view, 1,280 pixels wide, and of two on a telephone."""
    server = CannedServer()
    add_jobs(server)
    try:
        with TemporaryDirectory() as downloads, started_driver(Path(downloads)) as driver:
            browser = Browser(driver)
            for size, views in (((1280, 800), VIEWS), ((390, 844), PHONE)):
                browser.resize(*size)
                driver.get(server.link)
                browser.sees("live", "#header")
                for name, (address, text) in views.items():
                    browser.open(address)
                    if name == "timeline":
                        browser.until("document.querySelector('attempt-timeline canvas').offsetHeight > 1000")
                        browser.js("document.querySelector('attempt-timeline canvas').focus()")
                        browser.press("\ue015")  # the arrow down: what is at a place stays in sight
                    browser.sees(text, "main")
                    if name in ("metrics", "compare"):
                        browser.until("document.querySelector('.curve canvas')")
                    yield from take(browser, folder, f"page-{name}", ("light",))
    finally:
        server.close()
