"""What `why` answers to each failure, whole: real jobs on a real cluster, real processes.

`--update` writes the answers anew; `pytest tests/cli/test_why_failures_page.py --update` writes docs/failures.md.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.cli.commands import commands_of_cluster
from tests.cli.failure_cases import CASES, CLOSED, Failure
from tests.cli.failure_page import answer_file
from trainyard.cli.output.layout import wrapped

pytestmark = pytest.mark.slow
RUNS = [(case, network) for case in CASES for network in case.networks]


@pytest.mark.parametrize(("case", "network"), RUNS, ids=[f"{case.slug}-{network}" for case, network in RUNS])
async def test_the_recorded_answer_of_why(
    case: Failure, network: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(name, CLOSED)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    catalogue = tmp_path / "images.yaml"
    if case.catalogue:
        catalogue.write_text(case.catalogue)
    folder = tmp_path / "project"
    folder.mkdir()
    async with commands_of_cluster(tmp_path, network, [catalogue] if case.catalogue else []) as trainyard:
        objects = case.objects(folder)
        submitted = await trainyard.submit(*objects)
        assert submitted.code == 0, submitted.err
        name = objects[0]["metadata"]["name"]
        output = (await trainyard.until(case.until, "why", name, without="it is ending within")).out
    answer = known(output, folder, tmp_path)
    if request.config.getoption("--update"):
        answer_file(case).write_text(answer)
    assert answer == answer_file(case).read_text()


def known(text: str, folder: Path, state: Path) -> str:
    """The answer with what differs from run to run replaced, in lines of 80 columns as a terminal has them."""
    for pattern, placeholder in (
        (re.escape(str(folder)), "/home/ann/mnist"),
        (re.escape(str(state)), "/home/ann/state"),
        (re.escape(os.path.dirname(sys.executable)) + r"/python[0-9.]*", "/usr/bin/python3"),
        (r"/\S+/lib/python3\.\d+/", "/usr/lib/python3/"),
        (r"\b(master|worker|ps)-[a-z0-9]{4}-(\d)(-[a-z0-9]{5})?", r"\1-abcd-\2\3"),
        (r"(abcd-\d)-[a-z0-9]{5}\b", r"\1-x7k2p"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(in \d+s\)", "2026-11-23T07:14:45Z (in 9s)"),
        (r"(failed|succeeded) \d+s ago", r"\1 1s ago"),
        (r"after 0:\d\d", "after 0:01"),
        (r"(once|\d+ times) so far", "3 times so far"),
        (r"process \d+", "process 4711"),
        (r"--pid \d+", "--pid 4711"),
        (r"no step for \d+s \(0\.\d+ s a step before\)", "no step for 20s (0.2 s a step before)"),
        (r"(step \d+), \d+s ago, CPU \d+m", r"\1, 20s ago, CPU 0m"),
        (r"(?<=127\.0\.0\.1\", )\d+", "2222"),
        (r"(?<=listens on )\d+|(?<=listens on port )\d+", "2222"),
        (r"python3 -uc import socket.*?\)", "python3 -uc import socket ...)"),
        (r", line \d+, in (getaddrinfo|create_connection)", r", line 800, in \1"),
        (r"\n +[~^]+(?=\n)", ""),  # since Python 3.11
        (r"Its last output: .*", "Its last output: ..."),
        (r"\n +memory: peak \d+ MiB, no limit", ""),  # of small programs it is known if one was measured in time
        (r"(?<=peak )\d+ MiB", "64 MiB"),
    ):
        text = re.sub(pattern, placeholder, text)
    lines: list[str] = []
    for line in text.splitlines():
        label = re.match(r"    (?:where|seen|do): +| +", line)
        begin = label[0] if label else ""
        rest = "    " if "problem:" in line or "waits:" in line else " " * len(begin) + "  " * (begin.isspace())
        lines += wrapped(line[len(begin) :], 80, begin, rest)
    return "\n".join(lines) + "\n"
