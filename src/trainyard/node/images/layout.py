"""Creates the files of an image in a folder of the container, and lists where its parts are to be mounted.

Rules:
- Existing paths of the machine stay as they are; only missing ones are created. So a file in an existing folder is one
  mount, and a missing folder is one mount with everything that the image has below it. For a file, an empty folder
  counts as missing: it may be the mount point that another pod, also of another node, has there until it ends.
- The files are symbolic links to the real ones: a program finds the files in its real folder, in every network.
- The container can write to such a folder, which is deleted with the pod.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trainyard.node.images.images import PreparedImage


def create_files(prepared: PreparedImage, folder: Path) -> list[tuple[str, str]]:
    """(source, path in the container) of every mount. Creates the sources below `folder`. Raises OSError."""
    places: dict[str, str] = {}
    for target, source in prepared.files.items():
        missing = _highest_missing_folder(os.path.dirname(target), or_empty=True)
        if missing:
            link = _make_folder(os.path.dirname(target), folder) / os.path.basename(target)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(source)
            places[missing] = str(folder) + missing
        elif os.path.realpath(source) != os.path.realpath(target):
            places[target] = source
    container_folders = (*prepared.folders, *prepared.scratch_folders)
    for target in (*container_folders, *filter(None, [prepared.workdir])):
        missing = _highest_missing_folder(target) or (target if target in container_folders else "")
        if missing:
            _make_folder(target, folder)
            places[missing] = str(folder) + missing
    return [(places[target], target) for target in sorted(places)]


def _highest_missing_folder(path: str, or_empty: bool = False) -> str:
    """The highest folder on the path that does not exist on this machine, or is empty; "" if there is none."""
    missing = ""
    while path != "/" and (not os.path.isdir(path) or (or_empty and _is_empty(path))):
        missing, path = path, os.path.dirname(path)
    return missing


def _is_empty(path: str) -> bool:
    try:
        return not os.listdir(path)
    except OSError:
        return False


def _make_folder(path: str, folder: Path) -> Path:
    created = folder / path.lstrip("/")
    created.mkdir(parents=True, exist_ok=True)
    return created
