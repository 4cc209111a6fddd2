"""train_mnist.py with real Chainer, in one process. Ranks of mpiexec: stories/test_chainer_training.py."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.programs.processes import Processes
from trainyard.app.catalogues import cache_folder
from trainyard.node.images import Images, PreparedImage

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

HEADS = ["epoch", "main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy", "elapsed_time"]
WORDS = ["-e", "2", "-b", "1000", "-u", "100", "--noplot"]


async def prepared(image: str) -> PreparedImage:
    return await Images([], cache_folder(), print).prepare(image, need_command=False)


def variables(image: PreparedImage) -> dict[str, str]:
    return {**image.env, "PATH": f"{image.path[0]}:{os.environ['PATH']}"}


def table(lines: list[str]) -> list[list[str]]:
    """The table of the README: its head, and one row per epoch."""
    return [line.split() for line in lines if line.startswith("epoch ") or re.match(r"\d+ +\d", line)]


async def test_one_process_prints_the_table_and_learns(tmp_path: Path) -> None:
    image = await prepared("everpeace/chainer:4.1.0")
    program = [f"{image.path[0]}/python3", image.files["/train_mnist.py"], *WORDS]
    async with Processes() as all_:
        await all_.begin("master", program, variables(image), str(tmp_path))
        assert await all_.ended("master") == 0
        rows = table(all_.lines["master"])
        assert rows[0] == HEADS and [row[0] for row in rows[1:]] == ["1", "2"]
        assert float(rows[2][2]) < float(rows[1][2]) and float(rows[2][4]) > 0.8
        assert list((tmp_path / "result").glob("snapshot_iter_120"))


def test_a_rank_writes_whole_lines(tmp_path: Path) -> None:
    """mpiexec mixes what its ranks write: two writes of one line would stand in two places."""
    image = asyncio.run(prepared("everpeace/chainermn:1.3.0"))
    reads, writes = os.pipe2(os.O_DIRECT)  # each read is one write
    program = [f"{image.path[0]}/python3", image.files["/train_mnist.py"], "-e", "1", "-b", "1000", "-u", "10"]
    with subprocess.Popen(program, stdout=writes, env=variables(image), cwd=tmp_path) as rank:
        os.close(writes)
        written = list(iter(lambda: os.read(reads, 65536).decode(), ""))
    os.close(reads)
    assert rank.returncode == 0
    assert "Num process (COMM_WORLD): 1\n" in written and all(line.endswith("\n") for line in written), written
