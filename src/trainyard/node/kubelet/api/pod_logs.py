"""The log files of one pod, `<container>/<run>.log`: in the pod's own folder, or in one that outlives it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from trainyard.node.supervisor import safe_paths

_LOG_NAME = re.compile(r"([1-9][0-9]{0,8})\.log")  # a container can put other files beside its logs
_KEPT_RUNS = 10  # per container, where logs outlive the pod: so many first and so many last runs are kept


class PodLogs:
    """`pod_folder`: the log folder in the pod's folder. `kept_folder`: a log folder that outlives the pod, None for
    none. Logs that an earlier process of the node has started in `pod_folder` stay there."""

    def __init__(self, pod_folder: Path, kept_folder: Path | None) -> None:
        self._own = pod_folder
        self._folder = kept_folder or pod_folder
        self._kept_runs = _KEPT_RUNS if kept_folder else 0

    @property
    def kept_folder(self) -> Path | None:
        """The folder of the logs if it outlives the pod."""
        return self._folder if self._kept_runs else None

    @property
    def exists(self) -> bool:
        """Whether the pod's log folder is there."""
        return self._folder.is_dir()

    @property
    def removed(self) -> bool:
        """Whether the logs were in a folder that outlives the pod, and that folder has been removed."""
        return self._kept_runs > 0 and not self.exists

    def path(self, container: str, run: int) -> Path:
        """The log file of run number `run` of a container."""
        return self._folder / container / f"{run}.log"

    def open(self, container: str, run: int, print_once: Callable[[str], None]) -> int:
        """A descriptor of a new log file for this run. When the folder that outlives the pod cannot be written, the
        file is in the pod's folder, and `print_once` reports that. Raises OSError."""
        try:
            return self._open(container, run)
        except OSError as error:
            if self._folder == self._own:
                raise
            print_once(f"node: {error.filename}: {error.strerror}; from now on logs are stored with the pods")
            self._folder, self._kept_runs = self._own, 0
            return self._open(container, run)

    def _open(self, container: str, run: int) -> int:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = safe_paths.create_file(str(self._folder), f"{container}/{run}.log")
        if old := run_to_remove(run, self._kept_runs):
            self.path(container, old).unlink(missing_ok=True)
        return log

    def newest_runs(self) -> dict[str, int]:
        """Container name -> number of its newest run with a log file, which is created just before the run starts."""
        newest: dict[str, int] = {}
        for log in self._folder.glob("*/*.log"):
            if match := _LOG_NAME.fullmatch(log.name):
                newest[log.parent.name] = max(newest.get(log.parent.name, 0), int(match[1]))
        return newest


def open_log(path: Path) -> int:
    """A descriptor to read `<folder>/<container>/<run>.log`. A container can change the content of the folder: symbolic
    links are not followed, and only a regular file is opened. Raises OSError."""
    return safe_paths.open_file(str(path.parents[1]), f"{path.parent.name}/{path.name}")


def run_to_remove(run: int, kept: int) -> int:
    """The number of the run whose log is removed when `run` starts, 0 for none. The first `kept` and the last `kept`
    runs stay, at least two."""
    old = run - max(2, kept)
    return old if old > kept else 0
