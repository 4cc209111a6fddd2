"""Options of the tests, and the environment that they have: a person's, whatever it is where they run."""

from __future__ import annotations

import os

import pytest

os.environ.pop("PYTHONUNBUFFERED", None)  # it hides what a program forgets to flush


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the expected files of golden cases anew")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many small worlds the run has visited."""
    reports = terminalreporter.stats.get("passed", [])
    counts = [int(str(value)) for one in reports for name, value in one.user_properties if name == "worlds"]
    if counts:
        terminalreporter.write_line(f"{sum(counts):,} small worlds visited, in {len(counts)} scenes")
