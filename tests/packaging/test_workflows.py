"""The workflows of GitHub: what they run is fixed by commits. Nothing here runs a workflow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.yml"))
# A tag can be moved to another commit. The comment says which release the commit is; dependabot keeps both.
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit(workflow: Path) -> None:
    steps = [line.strip().removeprefix("- ") for line in workflow.read_text().splitlines() if "uses:" in line]
    assert steps
    assert [step for step in steps if not PINNED.fullmatch(step)] == []


def test_there_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "release"]
