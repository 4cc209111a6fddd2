"""The log files of one pod, `<container>/<run>.log`: in the pod's own folder, or in one that outlives it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_KEPT_RUNS = 10  # of a container whose logs outlive the pod: so many first and so many last runs


class PodLogs:
    """`own`: the place within the pod's folder. `kept`: the one that outlives it, if there is one. What an earlier life
    of the node has begun in `own` goes on there."""

    def __init__(self, own: Path, kept: Path | None) -> None:
        self._own = own
        self._folder = kept or own
        self._kept_runs = _KEPT_RUNS if kept else 0

    @property
    def exist(self) -> bool:
        return self._folder.is_dir()

    @property
    def removed(self) -> bool:
        """They were kept, and are no longer."""
        return self._kept_runs > 0 and not self.exist

    def path(self, container: str, run: int) -> Path:
        return self._folder / container / f"{run}.log"

    def open(self, container: str, run: int, once: Callable[[str], None]) -> int:
        """A new file for this run. Where it cannot be kept it is with the pod, and `once` says so. Raises OSError."""
        try:
            return self._open(container, run)
        except OSError as error:
            if self._folder == self._own:
                raise
            once(f"node: {error.filename}: {error.strerror}; logs are kept with the pods from now on")
            self._folder, self._kept_runs = self._own, 0
            return self._open(container, run)

    def _open(self, container: str, run: int) -> int:
        log = self.path(container, run)
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if old := dropped_run(run, self._kept_runs):
            self.path(container, old).unlink(missing_ok=True)
        return os.open(log, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC, 0o600)

    def newest_runs(self) -> dict[str, int]:
        """The newest run of each container that has a log: it is made just before its run begins."""
        newest: dict[str, int] = {}
        for log in self._folder.glob("*/*.log"):
            newest[log.parent.name] = max(newest.get(log.parent.name, 0), int(log.stem))
        return newest


def dropped_run(run: int, kept: int) -> int:
    """The run whose log is removed when `run` begins, 0 for none: `kept` first and last ones stay, at least two."""
    old = run - max(2, kept)
    return old if old > kept else 0
