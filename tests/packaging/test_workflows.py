"""The workflows of GitHub and the hooks of a checkout: what they run exists, and is pinned. Nothing here runs one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKE = re.compile(r"\bmake (?:PYTHON=\S+ \S+ \S+ )?([a-z.][a-z./ -]*)")
# A tag can be moved to another commit. The comment says which release the commit is; dependabot keeps both.
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit(workflow: Path) -> None:
    steps = [line.strip().removeprefix("- ") for line in workflow.read_text().splitlines() if "uses:" in line]
    assert steps
    assert [step for step in steps if not PINNED.fullmatch(step)] == []


def test_there_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "nightly", "release"]


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, ROOT / ".ci" / "run", ROOT / ".devcontainer" / "devcontainer.json"], ids=lambda path: path.name
)
def test_every_target_that_is_made_exists(path: Path) -> None:
    code = [line for line in path.read_text().splitlines() if not line.lstrip().startswith(("#", "//"))]
    named = {target for line in code for match in MAKE.finditer(line) for target in match[1].split()}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)) | {".venv/dev"}
    assert named
    assert named - targets == set()


def test_hooks_run_the_tools_of_the_checkout() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system", "pygrep"}  # no environment is installed
