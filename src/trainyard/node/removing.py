"""Folders that pods have written into, taken away.

Rule: what a program has made read-only goes, too. Root can remove it as it is; anybody else takes the right back first,
which he has as the owner."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def remove(folder: Path) -> None:
    """The folder and all that is in it; links are removed, not followed. Raises OSError when something stays."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(folder))
    folder.chmod(0o700)
    for path, names, _ in os.walk(folder):  # looks into a folder after this has made it readable
        for name in names:
            if not os.path.islink(inner := os.path.join(path, name)):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)
