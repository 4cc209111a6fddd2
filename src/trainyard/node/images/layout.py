"""The files of an image, laid into a folder of the container's own, and where that folder belongs.

Rules:
- What the machine has at a path stays as it is; only what is missing is made. So a file in a folder of the machine is
  one place by itself, and a missing folder is one place with all that the image has below it.
- The files are links to the real ones: a program finds its neighbours beside its real self, in every network.
- Such a folder can be written by the container and goes with the pod.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trainyard.node.images.room import Prepared


def laid(prepared: Prepared, folder: Path) -> list[tuple[str, str]]:
    """(what is there, path in the container) of every place. Makes them below `folder`. Raises OSError."""
    places: dict[str, str] = {}
    for target, source in prepared.files.items():
        above = _missing(os.path.dirname(target))
        if above:
            here = _folder(os.path.dirname(target), folder) / os.path.basename(target)
            with contextlib.suppress(FileExistsError):
                here.symlink_to(source)
            places[above] = str(folder) + above
        elif os.path.realpath(source) != os.path.realpath(target):
            places[target] = source
    own = (*prepared.folders, *prepared.scratch)
    for target in (*own, *filter(None, [prepared.workdir])):
        above = _missing(target) or (target if target in own else "")
        if above:
            _folder(target, folder)
            places[above] = str(folder) + above
    return [(places[target], target) for target in sorted(places)]


def _missing(path: str) -> str:
    """The highest folder on the way to `path` that this machine does not have, "" when it has them all."""
    missing = ""
    while path != "/" and not os.path.isdir(path):
        missing, path = path, os.path.dirname(path)
    return missing


def _folder(path: str, folder: Path) -> Path:
    made = folder / path.lstrip("/")
    made.mkdir(parents=True, exist_ok=True)
    return made
