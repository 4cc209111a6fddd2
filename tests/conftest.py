"""Options of the tests, and the environment that they have: a person's, whatever it is where they run."""

from __future__ import annotations

import datetime
import gc
import os
import signal
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.support import matrix
from tests.support.loop_stalls import FOLDER, LoopStalls

settings.register_profile("tests", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("tests")
os.environ["COLUMNS"] = "10000"  # tests look at sentences, also with `pytest -s` on a terminal
os.environ.pop("PYTHONUNBUFFERED", None)  # it hides what a program forgets to flush
_STATE = tempfile.TemporaryDirectory(prefix="trainyard-tests-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name  # what tests run does not go into the user's own history
_STALLS = tempfile.TemporaryDirectory(prefix="trainyard-tests-stalls-")
os.environ[FOLDER] = _STALLS.name
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored, and hands that down

STEPS = ("frameworks", "cluster")  # each has steps of its own in the Makefile, which collect only its files
MARKED_FILES = pytest.StashKey[dict[str, set[str]]]()
"""Marker -> the files that have a test with it, of all that pytest has collected."""
DECLARED = pytest.StashKey[set[matrix.Declaration]]()
"""What the collected tests say that they train."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the expected files of golden cases anew")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LoopStalls(), "loop_stalls")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail the test in whose time the event loop of a cluster stalled."""
    yield
    loop_stalls = item.config.pluginmanager.get_plugin("loop_stalls")
    assert isinstance(loop_stalls, LoopStalls)
    if sentences := loop_stalls.forbidden_stalls(datetime.date.today()):
        pytest.fail("; ".join(sentences), pytrace=False)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.get_terminal_writer().fullwidth = 100  # not COLUMNS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stories with frameworks take longest: with `--dist loadfile --no-loadscope-reorder` their files start first."""
    config.stash[MARKED_FILES] = {
        marker: {item.location[0] for item in items if item.get_closest_marker(marker)} for marker in STEPS
    }
    config.stash[DECLARED] = {declaration for item in items for declaration in matrix.declarations(item)}
    items.sort(key=lambda item: item.get_closest_marker("frameworks") is None or "/stories/" not in item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has trained has its framework, version, kind and network in the JUnit file."""
    report = yield
    if report.when == "call" and report.passed and isinstance(item, pytest.Function):
        item.user_properties += matrix.record(item)
    return report


def pytest_collection_finish() -> None:
    """Thousands of tests live as long as the process does. To look at them again at each collection costs a fifth.

    What a test leaves, mostly a cluster, is looked through ten times less often than usual: another sixth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(7000, 10, 10)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist that takes more than five seconds to end gets SIGINT from execnet, in its own process.

    On a busy machine the last collections of garbage take that long, and a KeyboardInterrupt within one of their
    callbacks was printed as a warning among the failures. The tests are over: nothing is left to interrupt.
    """
    if hasattr(session.config, "workerinput"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
