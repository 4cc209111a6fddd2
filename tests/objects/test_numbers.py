"""Numbers with a noun, as text."""

from __future__ import annotations

import pytest

from trainyard.objects.numbers import count_text, times_text


@pytest.mark.parametrize(("number", "text"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas")])
def test_one_has_no_plural(number: int, text: str) -> None:
    assert count_text(number, "replica") == text


def test_what_happened_once_has_no_times() -> None:
    assert [times_text(count) for count in (0, 1, 2)] == ["0 times", "once", "2 times"]
