"""The mounts of the files of an image."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainyard.node.images import PreparedImage, create_files
from trainyard.node.kubelet.volumes.unsaved_files import UnsavedFiles
from trainyard.node.sandbox.supervisor_client import Mount


def mounts(prepared: PreparedImage, folder: Path, unsaved: UnsavedFiles) -> list[Mount]:
    """Mounts of the files and folders of the image, which are created in `folder`. The pod's volume mounts follow them
    and take precedence."""
    files = [(source, target, os.path.isdir(source)) for source, target in create_files(prepared, folder)]
    for source, target, is_folder in files:
        if is_folder and not any(f"{scratch}/".startswith(f"{target}/") for scratch in prepared.scratch_folders):
            unsaved.watch(source, target)
    return [Mount(source, target, readonly=not is_folder, pod_owned=is_folder) for source, target, is_folder in files]


def visible_below(prepared: PreparedImage, volumes: list[Mount]) -> list[Mount]:
    """Mounts that keep the files of the image on this machine visible below a volume that hides them. Only below
    volumes in the pod's own folder: below folders of the user, mount points would have to be mirrored, and new files
    would be in memory (see supervisor/root_filesystem.py)."""
    real = {os.path.realpath(path) for path in (*prepared.path, *prepared.files.values())}
    needed = {*prepared.path, *real, *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    visible_paths = set()
    for target in {f"{volume.target.rstrip('/')}/" for volume in volumes if volume.pod_owned}:
        visible_paths |= {
            target + path.removeprefix(target).split("/")[0] for path in needed if path.startswith(target)
        }
    return [Mount(path, path) for path in sorted(visible_paths)]
