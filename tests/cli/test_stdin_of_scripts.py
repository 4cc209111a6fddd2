"""The stdin of `trainyard run`: programs do not get it, and a line says so where they would read it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.script_values import program_job, script
from trainyard.cli.scripts.stdin import stdin_note


def _pipe(content: bytes) -> Callable[[Path], int]:
    def opened(folder: Path) -> int:
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        return reading

    return opened


def _file(content: bytes) -> Callable[[Path], int]:
    def opened(folder: Path) -> int:
        (folder / "input").write_bytes(content)
        return os.open(folder / "input", os.O_RDONLY)

    return opened


READS = "import sys\nsys.stdin.read()"
READS_NOT = "print(1)"


@pytest.mark.parametrize(
    ("source", "opened", "is_noted"),
    [
        (READS, _file(b"5"), True),
        (READS, _pipe(b"5"), True),
        ("x = input()", _pipe(b"5"), True),
        (READS_NOT, _file(b"5"), False),
        (READS, _file(b""), False),
        (READS, _pipe(b""), False),
        (READS, lambda folder: os.open(os.devnull, os.O_RDONLY), False),
        (READS, lambda folder: os.openpty()[1], False),
    ],
)
def test_input_that_the_program_does_not_get_is_noted(
    source: str, opened: Callable[[Path], int], is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script(tmp_path, source)
    note = "train.py does not get the input of this command: its stdin is empty; name a file as its argument"
    descriptor = opened(tmp_path)
    assert stdin_note(program_job("train.py").program, descriptor) == (note if is_noted else "")
    command = program_job("cat", form="command").program  # what it reads is unknown
    assert bool(stdin_note(command, descriptor)) is (is_noted or source == READS_NOT)
    os.close(descriptor)
