"""Our node shows of the pods of the table what a real kubelet shows."""

from __future__ import annotations

import pytest

from tests.pod_table import kept
from tests.pod_table.follower import in_namespace, our_side, run_rows
from tests.pod_table.rows import ROWS, Row
from tests.pod_table.trace import Trace
from tests.support.repository import ROOT

EVENT_SECONDS = 8.0  # at most until the last event of a row is written
# Rows run once more one after the other if no kubelet has shown what they did beside fifteen others: on a busy machine
# the times in which their programs show themselves are too short then. A fault of more rows than these is one at once.
MOST_AGAIN = 12


@pytest.mark.slow
async def test_pods_show_what_a_kubelet_shows_of_them() -> None:
    answers = kept.read()

    def is_known(row: Row, trace: Trace) -> bool:
        return not kept.differences(answers, row, trace)

    async with our_side() as side:
        rows = [row for row in ROWS if side.changes_users or not row.as_root]
        traces = await run_rows(side, rows, is_known, EVENT_SECONDS)
        again = [row for row in rows if not is_known(row, traces[row.name])]
        if len(again) <= MOST_AGAIN:
            alone = await in_namespace(side, "pods-of-rows-alone")
            traces |= await run_rows(alone, again, is_known, EVENT_SECONDS, at_once=1)
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
