"""What a pod's programs leave where it goes with the pod, in words: in the root folder of a container, in emptyDir
volumes, in folders that belong to the image. TMPDIR, shared memory and what the node itself writes do not count."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainyard.node.hub.unsaved import Count
from trainyard.objects import Json, name_of
from trainyard.objects.labels import INDEX, ROLE, WORKING_DIRECTORY

FILES_LOST = "FilesLost"  # the reason of the event
_LONGEST_PATH = 80
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def working_directory(pod: Json, default: Path | None) -> str:
    """The folder that the pod's annotation names, else the default; "" for none."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    folder = str(annotations.get(WORKING_DIRECTORY) or default or "")
    return folder if os.path.isabs(folder) else ""


def replica_name(pod: Json) -> str:
    """worker-0; the pod's own name where it is no replica of a job."""
    found = (pod.get("metadata") or {}).get("labels") or {}
    role, index = str(found.get(ROLE) or "").lower(), str(found.get(INDEX) or "")
    return f"{role}-{index}" if role and index else name_of(pod)


class UnsavedFiles:
    """One pod's. Roots are counted by the hub when a container ends, the folders here when the pod does."""

    def __init__(self, working_directory: str, pod_folder: Path | None = None) -> None:
        """`pod_folder`: what a link leads to that is not below it is not the pod's, and is not looked at."""
        self._pod_folder = pod_folder
        self.working_directory = working_directory
        self._roots: dict[str, Mapping[str, Any]] = {}  # by container: the run that left most
        self._folders: dict[str, str] = {}  # folder on this machine -> path in the container
        self._prepared = 0  # when the init containers were through, by the clock of the folders' file system

    def add(self, container: str, count: Mapping[str, Any]) -> None:
        """What went with the root folder of a container that has ended."""
        if count.get("files", 0) >= self._roots.get(container, {}).get("files", 1):
            self._roots[container] = count

    def watch(self, folder: str, path: str) -> None:
        """A folder that goes with the pod, and where a container sees it."""
        self._folders.setdefault(folder, path)

    def begin(self, fresh: Path) -> None:
        """The first container after the init containers starts. What those have put into volumes for it, as it is,
        counts for nothing. `fresh`: a file just made beside the volumes; the clock of files is a coarse one."""
        self._prepared = self._prepared or fresh.stat().st_ctime_ns

    def _is_own(self, folder: str) -> bool:
        real = os.path.realpath(folder)
        return self._pod_folder is None or real.startswith(f"{os.path.realpath(self._pod_folder)}/")

    def message(self, whole_pod: bool) -> str:
        """What is gone, and how to keep it next time; "" for nothing. `whole_pod`: not only the containers' roots."""
        counts = list(self._roots.values())
        if whole_pod:
            count = Count(self._prepared)
            for folder, path in self._folders.items():
                if self._is_own(folder) and not any(folder.startswith(f"{other}/") for other in self._folders):
                    count.add(folder, path)
            counts.append(count.message())
        keep = "mount a volume (hostPath, or a claim with --mount CLAIM=DIR; for a script: --mount DIR) to keep"
        if os.path.isdir(self.working_directory):
            keep = f"write below {self.working_directory} or {keep}"
        return _sentence(counts, "with the pod", keep)


def report_claims(claims: Path, owner: str, say: Callable[[str], object]) -> None:
    """Say what claims without a folder of the user's own hold, when they go with their owner: the cluster, the node."""
    for folder in sorted(claims.glob("*/*")):
        count = Count()
        count.add(str(folder), "")
        found = count.message()
        found["largest"] = [(path.lstrip("/"), size) for path, size in found["largest"]]
        if text := _sentence([found], f"with the {owner}", f"use --mount {folder.name}=DIR to keep"):
            say(f"claim {folder.parent.name}/{folder.name}: {text}")


def _sentence(counts: list[Mapping[str, Any]], when: str, keep: str) -> str:
    """`keep`: what to do, an imperative that ends with "to keep"."""
    files = sum(count["files"] for count in counts)
    if not files:
        return ""
    size = sum(count["bytes"] for count in counts)
    largest = sorted((pair for count in counts for pair in count["largest"]), key=lambda pair: -pair[1])
    paths = list(dict.fromkeys(_readable(path) for path, _ in largest))[:5]
    more = f" and {files - len(paths)} more" if files > len(paths) else ""
    least = "" if all(count["complete"] for count in counts) else "at least "
    noun, verb, them = ("file", "is", "it") if files == 1 else ("files", "are", "them")
    what = f"{least}{files} {noun}, {size_text(size)}, {verb} gone {when}: {', '.join(paths)}{more}"
    return f"{what}; {keep} {them}"


def size_text(size: float) -> str:
    """14 MB, 1.4 GB, 12 bytes, 1 byte."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 9.95 * unit else f"{size / unit:.0f} {name}"
    return "1 byte" if size == 1 else f"{size:.0f} bytes"


def _readable(path: str) -> str:
    """A file's name may hold anything, also what a terminal would obey."""
    text = "".join(letter if letter.isprintable() else "?" for letter in path)
    return text if len(text) <= _LONGEST_PATH else f"...{text[3 - _LONGEST_PATH :]}"
