"""The report on files that programs of a pod have written and that are removed with it: in the root folder of a
container, in emptyDir volumes, in folders of the image. TMPDIR, shared memory and files of the node itself do not
count."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainyard.node.supervisor.unsaved_count import FileCount
from trainyard.objects import Json, name_of
from trainyard.objects.labels import INDEX, ROLE, WORKING_DIRECTORY
from trainyard.objects.printable import quoted_path

FILES_LOST = "FilesLost"  # the reason of the event
_LONGEST_PATH = 80
_MAX_TICKS = 20  # milliseconds; a file system with a coarser clock may report a file of an init container
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def working_directory(pod: Json, default: Path | None) -> str:
    """The folder that the pod's annotation names, else the default; "" for none."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    folder = str(annotations.get(WORKING_DIRECTORY) or default or "")
    return folder if os.path.isabs(folder) else ""


def replica_name(pod: Json) -> str:
    """`<role>-<index>`, such as worker-0; the pod's name when it is no replica of a job."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    role, index = str(labels.get(ROLE) or "").lower(), str(labels.get(INDEX) or "")
    return f"{role}-{index}" if role and index else name_of(pod)


class UnsavedFiles:
    """The unsaved files of one pod. The supervisor counts those in a container's root when the container ends; those in
    other folders are counted here when the pod ends."""

    def __init__(self, working_directory: str, pod_folder: Path | None = None) -> None:
        """`pod_folder`: a folder that resolves to a path outside of it does not belong to the pod and is not
        counted."""
        self._pod_folder = pod_folder
        self.working_directory = working_directory
        self._roots: dict[str, Mapping[str, Any]] = {}  # container -> count of its run with the most files
        self._folders: dict[str, str] = {}  # folder on this machine -> path in the container
        self._missing_host_paths: dict[str, str] = {}  # path in the container -> the hostPath that is missing
        self._prepared = 0  # ctime (ns) after the init containers, by the file system's clock

    def add(self, container: str, count: Mapping[str, Any]) -> None:
        """Add the count of files in the root folder of an ended container."""
        if count.get("files", 0) >= self._roots.get(container, {}).get("files", 1):
            self._roots[container] = count

    def watch(self, folder: str, path: str, missing_host_path: str = "") -> None:
        """Register a folder that is removed with the pod; `path`: its mount path in a container; `missing_host_path`:
        the hostPath in whose place it is."""
        self._folders.setdefault(folder, path)
        if missing_host_path:
            self._missing_host_paths[path] = missing_host_path

    def init_containers_done(self, reference: Path) -> None:
        """The first container after the init containers starts. Files that the init containers have written to volumes
        do not count unless they change. `reference`: a file just created in the pod's folder; its ctime is the
        reference, because the clock of a file system is coarser than the system's. An init container may have written
        in the same tick of that clock (1 to 4 ms on Linux), so the next tick is waited for."""
        if self._prepared:
            return
        last = reference.stat().st_ctime_ns
        for _ in range(_MAX_TICKS):
            os.utime(reference)
            self._prepared = reference.stat().st_ctime_ns
            if self._prepared > last:
                return
            time.sleep(0.001)

    def _is_own(self, folder: str) -> bool:
        real = os.path.realpath(folder)
        return self._pod_folder is None or real.startswith(f"{os.path.realpath(self._pod_folder)}/")

    def message(self, whole_pod: bool) -> str:
        """Which files are removed, and how to keep such files; "" when there are none. `whole_pod`: count the
        registered folders, too, not only the containers' roots."""
        counts = list(self._roots.values())
        if whole_pod:
            count = FileCount(self._prepared)
            for folder, path in self._folders.items():
                if self._is_own(folder) and not any(folder.startswith(f"{parent}/") for parent in self._folders):
                    count.add(folder, path)
            counts.append(count.message())
        advice = "mount a volume (hostPath, or a claim with --mount CLAIM=DIR; for a script: --mount DIR) to keep"
        for path, host_path in self._missing_host_paths.items():
            if any(name.startswith(f"{path}/") for count in counts for name, _ in count["largest"]):
                advice = f"create {host_path} on this machine, or {advice}"
        if os.path.isdir(self.working_directory):
            advice = f"write below {quoted_path(self.working_directory)} or {advice}"
        return _summary(counts, "with the pod", advice)


def report_claims(claims: Path, owner: str, say: Callable[[str], object]) -> None:
    """Report the files in claims without a folder of the user, which are removed with their `owner`: cluster or
    node."""
    for folder in sorted(claims.glob("*/*")):
        count = FileCount()
        count.add(str(folder), "")
        counted = count.message()
        counted["largest"] = [(path.lstrip("/"), size) for path, size in counted["largest"]]
        if text := _summary([counted], f"with the {owner}", f"use --mount {folder.name}=DIR to keep"):
            say(f"claim {folder.parent.name}/{folder.name}: {text}")


def _summary(counts: list[Mapping[str, Any]], when: str, keep: str) -> str:
    """`keep`: what to do, an imperative that ends with "to keep"."""
    files = sum(count["files"] for count in counts)
    if not files:
        return ""
    size = sum(count["bytes"] for count in counts)
    largest = sorted((pair for count in counts for pair in count["largest"]), key=lambda pair: -pair[1])
    paths = list(dict.fromkeys(_readable(path) for path, _ in largest))[:5]
    and_more = f" and {files - len(paths)} more" if files > len(paths) else ""
    at_least = "" if all(count["complete"] for count in counts) else "at least "
    noun, verb, pronoun = ("file", "is", "it") if files == 1 else ("files", "are", "them")
    summary = f"{at_least}{files} {noun}, {size_text(size)}, {verb} gone {when}: {', '.join(paths)}{and_more}"
    return f"{summary}; {keep} {pronoun}"


def size_text(size: float) -> str:
    """14 MB, 1.4 GB, 12 bytes, 1 byte."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 9.95 * unit else f"{size / unit:.0f} {name}"
    return "1 byte" if size == 1 else f"{size:.0f} bytes"


def _readable(path: str) -> str:
    """The path without unprintable characters, such as a terminal's escape sequences, and shortened."""
    text = "".join(letter if letter.isprintable() else "?" for letter in path)
    return quoted_path(text if len(text) <= _LONGEST_PATH else f"...{text[3 - _LONGEST_PATH :]}")
