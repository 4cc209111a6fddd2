"""Every transition of the reflector's state machine."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.controller_runtime import backoff_delay
from trainyard.controller_runtime.reflector import (
    MAX_ERROR_ANSWERS,
    Bookmark,
    Disconnected,
    ErrorAnswer,
    Expired,
    Listing,
    ListPage,
    ListReplaced,
    NotListed,
    NotServed,
    ObjectChanged,
    ObjectEvent,
    RevisionAdvanced,
    Watching,
    is_newer,
    step,
)

ONE, TWO = "one", "two"
HALF = Listing((("one",),), "7", "next")

STEPS: list[tuple[str, Any, Any, Any, Any]] = [
    ("a list in one page", NotListed(), ListPage((ONE,), "7"), ListReplaced((ONE,), "7"), Watching("7")),
    ("an empty list", NotListed(), ListPage((), "7"), ListReplaced((), "7"), Watching("7")),
    ("a first page tells nobody", NotListed(), ListPage((ONE,), "7", "next"), None, HALF),
    (
        "a page in the middle neither",
        HALF,
        ListPage((TWO,), "7", "more"),
        None,
        Listing(((ONE,), (TWO,)), "7", "more"),
    ),
    ("the last page tells all", HALF, ListPage((TWO,), "7"), ListReplaced((ONE, TWO), "7"), Watching("7")),
    (
        "three pages are three pages",
        Listing(((ONE,), (TWO,)), "7", "more"),
        ListPage(("three",), "7"),
        ListReplaced((ONE, TWO, "three"), "7"),
        Watching("7"),
    ),
    ("the first page's revision counts", HALF, ListPage((TWO,), "9"), ListReplaced((ONE, TWO), "7"), Watching("7")),
    ("410 on page two starts over", HALF, Expired(), None, NotListed()),
    ("a page that is lost is asked for again", HALF, Disconnected(), None, HALF),
    ("a new object", Watching("7"), ObjectEvent("ADDED", ONE, "8"), ObjectChanged("ADDED", ONE, "8"), Watching("8")),
    ("a change", Watching("7"), ObjectEvent("MODIFIED", ONE, "9"), ObjectChanged("MODIFIED", ONE, "9"), Watching("9")),
    ("an end", Watching("9"), ObjectEvent("DELETED", ONE, "10"), ObjectChanged("DELETED", ONE, "10"), Watching("10")),
    ("a line we have had", Watching("9"), ObjectEvent("ADDED", ONE, "9"), None, Watching("9")),
    ("a line from before", Watching("10"), ObjectEvent("ADDED", ONE, "9"), None, Watching("10")),
    ("a bookmark", Watching("7"), Bookmark("9"), RevisionAdvanced("9"), Watching("9")),
    ("a bookmark of the past", Watching("10"), Bookmark("9"), None, Watching("10")),
    ("an unknown verb", Watching("7"), ObjectEvent("SHOUTED", ONE, "8"), None, Watching("7")),
    ("410 while watching", Watching("7"), Expired(), None, NotListed()),
    ("a lost connection resumes where it was", Watching("7"), Disconnected(), None, Watching("7")),
    ("a refusal is borne", Watching("7"), ErrorAnswer(), None, Watching("7", 1)),
    ("but not for ever", Watching("7", MAX_ERROR_ANSWERS - 1), ErrorAnswer(), None, NotListed()),
    ("a sign of life forgives", Watching("7", 2), Bookmark("8"), RevisionAdvanced("8"), Watching("8")),
    ("a page may be refused too", HALF, ErrorAnswer(), None, Listing(HALF.pages, "7", "next", 1)),
    ("a list that is refused is asked for again", NotListed(), ErrorAnswer(), None, NotListed()),
    ("no such resource means no objects", NotListed(), NotServed(), ListReplaced((), ""), NotListed()),
    ("a resource that goes is listed again", Watching("7"), NotServed(), None, NotListed()),
]


@pytest.mark.parametrize(
    ("state", "watch_input", "store_event", "next_state"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS]
)
def test_one_step(state: Any, watch_input: Any, store_event: Any, next_state: Any) -> None:
    assert step(state, watch_input) == (store_event, next_state)


@pytest.mark.parametrize(
    ("revision", "known", "expected"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", False),
        ("b", "a", True),
        ("a", "b", True),
        ("a", "a", False),
        ("1", "", True),
    ],
)
def test_a_revision_is_newer_unless_it_is_known_to_be_older(revision: str, known: str, expected: bool) -> None:
    assert is_newer(revision, known) is expected


def test_delays_double_with_jitter_up_to_their_limit() -> None:
    for failures in range(1, 200):
        pauses = {backoff_delay(failures, 0.25, 30.0) for _ in range(20)}
        longest = min(30.0, 0.25 * 2 ** (failures - 1))
        assert all(longest / 2 <= pause <= longest for pause in pauses) and len(pauses) > 1
