"""The modules of the page alone, by node's own test runner: the tests are in tests/page/javascript."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "javascript"
LEAST_VERSION = 18


def version_of(node: str) -> int:
    """The major version of a program `node`."""
    output = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    return int(output.removeprefix("v").split(".")[0])


@pytest.fixture(scope="session")
def node() -> str:
    """The path of node. Without one that is new enough the tests fail in CI and are skipped elsewhere."""
    path = shutil.which("node")
    if path is None or version_of(path) < LEAST_VERSION:
        text = f"no node of version {LEAST_VERSION} or later here: make browser installs one where there is none"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return path


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.test.mjs")), ids=lambda path: path.name.removesuffix(".test.mjs")
)
def test_module(node: str, path: Path) -> None:
    """What node prints is shown when one of its tests fails."""
    tests = subprocess.run([node, path], capture_output=True, text=True, check=False, timeout=120)
    if tests.returncode != 0:
        pytest.fail(tests.stdout + tests.stderr, pytrace=False)
