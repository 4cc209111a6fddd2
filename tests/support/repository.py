"""The files of this repository, without those that a test or a program has left in a folder of the checkout."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return tuple(path for name in names if (path := ROOT / name).is_file())
