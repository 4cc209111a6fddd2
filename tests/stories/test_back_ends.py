"""Which story runs on which cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories import embedded_only
from tests.stories.back_ends import OWN
from tests.stories.harness import Harness


@pytest.fixture(scope="module")
def collected() -> list[str]:
    """Every test in this folder, as pytest names it."""
    folder = Path(__file__).parent
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=folder.parents[1])
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_the_stories_of_the_embedded_cluster_alone_exist(collected: list[str]) -> None:
    named = {name for line in collected for name in embedded_only.names(line)}
    assert set(embedded_only.REASONS) - named == set()


def test_every_other_story_runs_on_both_clusters(collected: list[str]) -> None:
    cases = {end: {embedded_only.case(line) for line in collected if f"[{end}" in line} for end in ("embedded", "real")}
    alone = {name for name in cases["embedded"] if embedded_only.reason(name)}
    own = {name for name in cases["real"] if name.startswith(OWN)}
    assert alone and own and len(cases["real"]) > len(alone)
    assert cases["embedded"] - alone == cases["real"] - own


async def test_a_harness_names_its_cluster(harness: Harness, back_end: str) -> None:
    """A story of the real back end runs there."""
    version = await harness.api.request("GET", "/version")
    assert (b"trainyard" in version) == (back_end == "embedded"), version
