"""The file of the assignments of devices to pods, as the kubelet's device manager has one: a node that is killed and
started again gives a pod that continues the same devices, and no device twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

FILE = "devices.json"


class Checkpoint(msgspec.Struct):
    """`assignments`: uid of a pod -> uuids of its devices."""

    assignments: dict[str, tuple[str, ...]]


def load(folder: Path, say: Callable[[str], object]) -> dict[str, tuple[str, ...]]:
    """The assignments that were saved last, {} without a file. A file that cannot be read is reported and counts as
    none: the processes of all pods ended with the node that wrote it."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Checkpoint).assignments
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        say(f"node: {folder / FILE} cannot be read, so pods may get other devices than before: {error}")
        return {}


def save(folder: Path | None, assignments: Mapping[str, tuple[str, ...]]) -> None:
    """Replace the file in one step; no effect without a folder. Raises OSError."""
    if folder is None:
        return
    new = folder / f"{FILE}.new"
    new.write_bytes(msgspec.json.encode(Checkpoint(dict(assignments))))
    os.replace(new, folder / FILE)
