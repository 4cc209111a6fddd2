"""The folders of background clusters (`trainyard up`): where they are, their names, and the errors about them.

The folder of the cluster NAME is $XDG_STATE_HOME/trainyard/NAME (or ~/.local/state/...), mode 0700:

    state/        all state of the cluster (state.py); kept when the cluster is stopped or killed
    aside/TIME/   a state that `up --fresh` moved away, unchanged
    options.json  the options that `up` was given on its command line; the next `up` without them uses them again
    merged        the paths of the user's kubeconfigs into which the cluster was written (kubeconfig_merge.py), one a
                  line
    turn          lock file of the process that starts or stops the cluster: concurrent `up` and `down` run in turn
    lock          lock file that the daemon holds as long as it lives: the only proof that it lives; has its process id
    cluster.json  facts about the running cluster; written when it is ready, removed when it stops
    stall.json    the longest stall of the daemon's event loop, while it was the longest of a minute
    kubeconfig    for kubectl and for the commands of Trainyard; kept too, and valid again when the cluster is up again
    daemon.log    output of the daemon; daemon.log.1 is the output of the daemon before it
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

from trainyard.objects.patterns import lazy_pattern

CLUSTER_NAME = lazy_pattern(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
STALL = "stall.json"
HISTORY = "history"  # beside the clusters' folders: the records of all jobs (history/records.py)


class BackgroundError(Exception):
    """The cluster cannot be started or stopped. The message names the fix; `code` is the exit code of the command."""

    def __init__(self, text: str, code: int = 3) -> None:
        super().__init__(text)
        self.code = code


def state_folder() -> Path:
    """The folder that holds the folders of all background clusters of this user. Raises BackgroundError when there is
    no home folder."""
    named = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "trainyard"
    try:
        return Path.home() / ".local" / "state" / "trainyard"
    except RuntimeError:
        raise BackgroundError("there is no home folder; set XDG_STATE_HOME to a folder that you own") from None


def cluster_names() -> list[str]:
    """The names of the clusters that have a folder, running or not, sorted."""
    with contextlib.suppress(OSError, BackgroundError):
        folders = [path for path in state_folder().iterdir() if path.name != HISTORY and path.is_dir()]
        return sorted(path.name for path in folders if CLUSTER_NAME.fullmatch(path.name))
    return []


def clause_of_clusters(but: str = "") -> str:
    """A clause for the end of an error message that lists the existing clusters except `but`; "" when there are
    none."""
    existing = [name for name in cluster_names() if name != but]
    return f"; there {'are' if len(existing) > 1 else 'is'}: {', '.join(existing)}" if existing else ""


def command_line(verb: str, name: str) -> str:
    """The command line of this verb for the cluster of that name."""
    return f"trainyard {verb}" if name == "default" else f"trainyard {verb} --name {name}"


def folder_error(folder: Path, error: OSError) -> BackgroundError:
    """The error of a command that cannot start or stop a cluster in this folder."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in EXHAUSTED:
        return BackgroundError(f"{reason}; end other programs, or raise the limits of your user (`ulimit -a`)")
    if error.filename == sys.executable:
        fix = "Trainyard runs the cluster with it; install Trainyard again, with a Python that you may execute"
        return BackgroundError(f"{error.filename}: {reason}; {fix}")
    for name in (error.filename, error.filename2):
        if isinstance(name, str | os.PathLike) and (kind := _wrong_kind(folder, Path(name), error.errno)):
            return BackgroundError(f"{name}: {kind} is in the place of a file of the cluster; move it away")
    return BackgroundError(f"{error.filename or folder}: {reason}; set XDG_STATE_HOME to a folder that you can write")


def _wrong_kind(folder: Path, path: Path, code: int | None) -> str:
    """What is at a path below the folder of a cluster, if that is the cause of the error; else ""."""
    if code not in (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP) or folder not in path.parents:
        return ""
    return "a symbolic link" if path.is_symlink() else "a folder" if path.is_dir() else ""
