"""The interpreters of this machine, told by their names alone: asking each takes seconds of every test run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

_NAMED = re.compile(r"(\d+\.\d+)\.\d+$")


def interpreters() -> dict[str, str]:
    """Every Python by its version, such as 3.6: ours, those that pyenv keeps, those on PATH (not pyenv's shims)."""
    interpreters = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for path in sorted(root.glob("versions/*/bin/python")):
        if named := _NAMED.match(path.parts[-3]):
            interpreters.setdefault(named[1], str(path))
    for version in ("2.7", *(f"3.{minor}" for minor in range(5, 16))):
        on_path = shutil.which(f"python{version}")
        if on_path and "/shims/" not in on_path:
            interpreters.setdefault(version, on_path)
    return dict(sorted(interpreters.items(), key=lambda pair: _number(pair[0])))


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def every_python(since: str = "2.7") -> list[ParameterSet]:
    """Parameters for a test of a file that runs in any image: the oldest is tried by `make test-fast`, too."""
    floor = _number(since)
    paths = {version: path for version, path in interpreters().items() if _number(version) >= floor}
    oldest = next(iter(paths))
    return [
        pytest.param(path, id=version, marks=() if version == oldest else pytest.mark.slow)
        for version, path in paths.items()
    ]
