"""Removal of folders that pods have written to.

Rule: read-only folders are removed, too. Root can remove them as they are; any other user, who is their owner, sets the
write permission first."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def remove(folder: Path) -> None:
    """Remove the folder with its content; symbolic links are removed, not followed. Raises OSError when a part is
    left."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(folder))
    folder.chmod(0o700)
    for path, names, _ in os.walk(folder):  # top-down: a folder is listed after its mode was changed here
        for name in names:
            if not os.path.islink(entry := os.path.join(path, name)):
                os.chmod(entry, 0o700)
    shutil.rmtree(folder)
