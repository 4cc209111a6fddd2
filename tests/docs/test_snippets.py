"""What the pages show is what happens: their console blocks are typed in, and must print what they print there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.reader import PAGES, ROOT, Block, Terminal, blocks
from tests.support.control_plane_build import find_kubectl
from trainyard.node.images import Images

BLOCKS = [block for page in PAGES for block in blocks(page)]
ALONE = [block for block in BLOCKS if block.session == ""]
SESSIONS = {
    session: [block for block in BLOCKS if block.session == session]
    for session in dict.fromkeys(block.session for block in BLOCKS if block.session)
}


@pytest.mark.parametrize("block", ALONE, ids=lambda block: block.place)
def test_a_console_block_prints_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    skip_without_kubectl([block])
    with terminal(tmp_path) as shell:
        for command in block.commands:
            _, printed = shell.type(command.line)
            assert printed == list(command.shown), f"{block.place}: {command.line}"


@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.parametrize("session", SESSIONS)
def test_the_console_blocks_of_a_session_print_what_the_page_shows(session: str, tmp_path: Path) -> None:
    skip_without_kubectl(SESSIONS[session])
    with terminal(tmp_path) as shell:
        for block in SESSIONS[session]:
            for command in block.commands:
                printed, missing = shell.look(command)
                assert not missing, f"{block.place}: {command.line}\nnot printed: {missing}\nprinted: {printed}"


def skip_without_kubectl(typed: list[Block]) -> None:
    """Its reason is in pytest's summary."""
    if find_kubectl() is None and any(block.needs_kubectl for block in typed):
        pytest.skip("kubectl is not on PATH; install it, or run make control-plane, which builds one")


@contextmanager
def terminal(place: Path) -> Iterator[Terminal]:
    """A reader's terminal with trainyard on its PATH; the cluster that a page leaves up goes with it."""
    shell = Terminal.opened(place)
    home = dict(shell.env)
    shell.type('export PATH="$PWD/bin:$PATH"')
    try:
        yield shell
    finally:
        down = [str(place / "trainyard" / "bin" / "trainyard"), "down", "--delete"]
        subprocess.run(down, env=home, capture_output=True, check=False)


def test_every_console_block_is_run_by_a_test() -> None:
    """By this file, or by one that the comment before the block names."""
    unrun = [block.place for block in BLOCKS if block.session is None and not block.elsewhere]
    assert not unrun
    assert all((ROOT / block.elsewhere).exists() for block in BLOCKS)


def test_every_link_of_the_pages_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", re.sub(r"`[^`\n]*`", "", page.read_text())):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("image", ["my/img", "team/trainer:2", "registry.example.com/team/trainer:1"])
def test_the_catalogues_in_the_page_about_images_are_catalogues(tmp_path: Path, image: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "images.md").read_text(), re.S)
    (tmp_path / "requirements.txt").write_text("a==1\n")
    files = [tmp_path / f"images-{number}.yaml" for number in range(len(blocks))]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    assert len(files) == 2 and Images(files, tmp_path / "cache", print).find(image) is not None
