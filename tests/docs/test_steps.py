"""The Makefile's steps collect the files that have their marker, and no others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import MARKED_FILES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("marker", "variable"), [("frameworks", "FRAMEWORK_FILES"), ("cluster", "CLUSTER_FILES")], ids=lambda value: value
)
def test_a_step_collects_every_file_with_its_marker(marker: str, variable: str, pytestconfig: pytest.Config) -> None:
    """Of the files that this run has collected: in `make test-local`, all."""
    lists = ["make", "-s", f"--eval=print-files: ; @echo $({variable})", "print-files"]
    files = subprocess.run(lists, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(files) > 10
    assert pytestconfig.stash[MARKED_FILES][marker] <= set(files)
