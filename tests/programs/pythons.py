"""The interpreters of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

VERSIONS = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def interpreters() -> list[str]:
    """Every Python that answers, by version: on PATH, and those that pyenv keeps."""
    found: dict[str, str] = {}
    kept = sorted(Path(os.environ.get("PYENV_ROOT", "/nowhere")).glob("versions/*/bin/python"))
    for path in [*filter(None, (shutil.which(f"python{version}") for version in VERSIONS)), *map(str, kept)]:
        try:
            code = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
            said = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=20, check=False)
        except OSError:
            continue
        if said.returncode == 0:
            found.setdefault(said.stdout, path)
    return [found[version] for version in VERSIONS if version in found]
