"""The environments of the SDKs, each with one SDK and nothing of ours. Their programs run there, a process each."""

from __future__ import annotations

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def sdk_python(name: str) -> Path:
    """The interpreter of the environment `.venv/NAME`, which make installs if it is not there."""
    folder = Path(".venv", name)
    subprocess.run(["make", "-s", str(folder / "ready")], cwd=REPOSITORY, check=True)
    return REPOSITORY / folder / "bin" / "python"


def run_story(python: Path, program: str, *arguments: str | Path) -> None:
    """Run a program of this folder in the environment of that interpreter. Raises AssertionError with its output."""
    command = [str(python), str(Path(__file__).with_name(program)), *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert completed.returncode == 0, completed.stdout + completed.stderr
