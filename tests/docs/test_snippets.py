"""What README.md shows is what happens: its marked console blocks are run, and must print what they print there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.node import Images

ROOT = Path(__file__).parents[2]
MARKED = re.compile(r"<!-- runs as a test.*?-->\n```console\n(.*?)```", re.S)
BLOCKS = [
    block for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")) for block in MARKED.findall(page.read_text())
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_marked_block_prints_what_the_page_shows(block: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program = tmp_path / "bin" / "trainyard"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainyard "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert ran.stdout + ran.stderr == shown, command


def test_there_are_marked_blocks() -> None:
    assert len(BLOCKS) >= 2


def test_every_link_of_the_pages_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", re.sub(r"`[^`\n]*`", "", page.read_text())):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_catalogue_in_the_page_about_images_is_a_catalogue(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "images.md").read_text(), re.S)
    assert block
    (tmp_path / "images.yaml").write_text(block[1])
    image = Images([tmp_path / "images.yaml"], tmp_path / "cache", print).find("registry.example.com/team/trainer:1")
    assert image is not None
