"""Runs the steps of `.ci/run` and measures them; writes the tables of docs/testing-ci.md.

    python -m tools.ci_steps          run all steps; ends with 1 after the stage in which one has failed
    python -m tools.ci_steps --page   write the tables of the last run that has passed into the page

A step is a target of the Makefile. The steps of one stage run at the same time, and the output of each is
printed when it ends. build/ci-times.json has what the last run took.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PREPARATION = (
    *("frameworks", "torch-environment", "browser"),
    *(".venv/kubeflow-training/ready", ".venv/kubeflow/ready", ".venv/docs/ready", "control-plane", "real-node-build"),
)
"""Downloads and builds, each once on a machine. They are measured apart: the steps after them use what is there."""
STAGES = (
    *((target,) for target in PREPARATION if target not in ("control-plane", "real-node-build")),
    ("lint", "worlds", "docs"),  # each has one process
    ("test-local",),
    ("test-frameworks",),
    ("control-plane",),  # it needs Go, which the steps before it do not
    ("test-control-plane",),
    ("test-pods",),
    ("real-node-build",),  # most of it is compiled with the control plane
    ("test-node-short",),
)
TIMES = ROOT / "build" / "ci-times.json"
REPORTS = ROOT / "build" / "junit"
PAGE = ROOT / "docs" / "testing-ci.md"
SLOWEST = 25


class Step(NamedTuple):
    """What a step took, in seconds: of the clock, and of all CPUs together."""

    name: str
    seconds: float
    cpu_seconds: float
    code: int


def run_step(name: str, quiet: bool) -> Step:
    """Run the target. With `quiet`, its output is printed when it has ended."""
    start = time.monotonic()
    pipe = subprocess.PIPE if quiet else None
    process = subprocess.Popen(["make", "--no-print-directory", name], cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT)
    output = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    step = Step(name, time.monotonic() - start, usage.ru_utime + usage.ru_stime, process.returncode)
    result = f"failed ({step.code})" if step.code else "passed"
    sys.stdout.buffer.write(output + f"ci: {name} {result} in {clock(step.seconds)}\n".encode())
    sys.stdout.flush()
    return step


def run_stage(names: Sequence[str]) -> list[Step]:
    """Run these targets at the same time."""
    print(f"ci: {' and '.join(names)}", flush=True)
    with ThreadPoolExecutor(len(names)) as threads:
        return list(threads.map(lambda name: run_step(name, quiet=len(names) > 1), names))


def slowest_tests(reports: Iterable[Path]) -> list[tuple[float, str]]:
    """(seconds, test) of the slowest tests in these JUnit files, the slowest first."""
    tests = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
        for report in reports
        for case in ElementTree.parse(report).iter("testcase")  # noqa: S314  (pytest has written it)
    ]
    return sorted(tests, reverse=True)[:SLOWEST]


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def step_table(steps: Iterable[Step]) -> list[str]:
    lines = ["| step | minutes | CPU minutes |", "|---|---:|---:|"]
    return lines + [f"| `make {step.name}` | {clock(step.seconds)} | {clock(step.cpu_seconds)} |" for step in steps]


def tables(times: Any) -> str:
    """The tables of the page, for the content of build/ci-times.json."""
    steps = [Step(*step) for step in times["steps"]]
    prepared = [step for step in steps if step.name in PREPARATION]
    tested = [step for step in steps if step.name not in PREPARATION]
    slowest = [
        "| seconds | test |",
        "|---:|---|",
        *(f"| {seconds:.1f} | `{test}` |" for seconds, test in times["tests"]),
    ]
    lines = [
        f"Measured with {times['cpus']} CPUs and Python {times['python']}. The steps took {clock(times['seconds'])}.",
        *("", *step_table(tested)),
        *("", "What a machine without caches does before them (a step that finds its files takes a second):"),
        *("", *step_table(prepared)),
        *("", "The slowest tests:", "", *slowest),
    ]
    return "\n".join(lines)


def write_page() -> None:
    times = json.loads(TIMES.read_text())
    if failed := [name for name, _, _, code in times["steps"] if code]:
        sys.exit(f"make: the last run of .ci/run has failed in {', '.join(failed)}")
    pattern = re.compile("(?<=<!-- times -->\n).*(?=<!-- end of times -->)", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{tables(times)}\n", PAGE.read_text()))


def main() -> int:
    """Run every stage until one has failed, and print what the steps took."""
    for report in REPORTS.glob("*.xml"):
        report.unlink()
    steps: list[Step] = []
    seconds = 0.0
    for names in STAGES:
        start = time.monotonic()
        steps += run_stage(names)
        seconds += 0 if names[0] in PREPARATION else time.monotonic() - start
        if any(step.code for step in steps):
            break
    tests = slowest_tests(sorted(REPORTS.glob("*.xml")))
    times = {"cpus": os.cpu_count(), "python": platform.python_version(), "seconds": seconds}
    TIMES.parent.mkdir(exist_ok=True)
    TIMES.write_text(json.dumps({**times, "steps": steps, "tests": tests}, indent=1))
    for step in steps:
        print(f"ci: {step.name:30} {clock(step.seconds):>6} {'failed' if step.code else ''}")
    failed = [step.name for step in steps if step.code]
    print(f"ci: {'failed: ' + ', '.join(failed) if failed else 'passed'}, {clock(seconds)} without the preparation")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(write_page() if "--page" in sys.argv else main())
