"""Our node shows of the pods of the table what a real kubelet shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pod_table import kept
from tests.pod_table.follower import our_side, run_rows
from tests.pod_table.rows import ROWS, Row
from tests.pod_table.trace import Trace
from tests.support.repository import ROOT

EVENT_SECONDS = 5.0  # until the last event of a row is written


@pytest.mark.slow
async def test_pods_show_what_a_kubelet_shows_of_them(tmp_path: Path) -> None:
    answers = kept.read()

    def is_known(row: Row, trace: Trace) -> bool:
        return not kept.differences(answers, row, trace)

    async with our_side(tmp_path) as side:
        rows = [row for row in ROWS if side.changes_users or not row.as_root]
        traces = await run_rows(side, rows, is_known, EVENT_SECONDS)
    lines = [line for row in rows for line in kept.differences(answers, row, traces[row.name])]
    assert not lines, "\n" + "\n".join(lines)


def test_each_named_difference_is_a_row_of_the_documentation() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    topics = {topic for row in ROWS for topic in row.differs.values()}
    assert [topic for topic in sorted(topics) if f"\n| {topic} |" not in page] == []


def test_names_of_rows_are_names_of_pods_and_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and len(name) <= 63 for name in names)
