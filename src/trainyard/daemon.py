"""The process behind `trainyard up`: a LocalCluster and its page until SIGTERM.

Only app/background/daemon_interpreter.py starts it, and app/background/hand_over.py gives it the folder, the options
and file descriptors: the lock, a pipe to `up`, the log.

Rules:
- It writes its progress into the pipe until the cluster is ready, one JSON object a line. When the reader closes the
  pipe before that, `trainyard up` was interrupted, and the daemon ends.
- The first SIGTERM: every pod ends within its grace period. The second one: at once. SIGHUP is ignored: the daemon
  outlives its terminal. SIGUSR1 dumps all stacks into the log.
- The end of the process releases the lock; no child process inherits the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainyard.app.background.cluster_folders import HISTORY, STALL, BackgroundError, command_line
from trainyard.app.background.clusters import error_text
from trainyard.app.background.hand_over import HandOver, receive
from trainyard.app.config import ConfigError
from trainyard.app.config import read_config as read_config
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.app.logging_setup import configure_logging
from trainyard.app.stack_dump import dump_stacks_on_signal
from trainyard.app.watchdog import Stall
from trainyard.client import ApiError
from trainyard.garbage_collection import collect_seldom, skip_present_objects
from trainyard.node.kubelet.node import NodeError
from trainyard.objects import encode, format_time
from trainyard.objects.manifest import ManifestError
from trainyard.objects.printable import printable
from trainyard.page.listener import local_page_server
from trainyard.page.options import ClaimFolders, PageOptions
from trainyard.page.running_servers import RegisteredServer
from trainyard.server import DiskError, NotWritten

log = logging.getLogger("trainyard.daemon")


class StartupPipe:
    """The pipe to `trainyard up`. After the cluster is ready there is only the log."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.reader_gone = asyncio.Event()  # the reader has closed the pipe before the cluster is ready

    def note(self, text: str) -> None:
        """Write a note into the log and the pipe."""
        with contextlib.suppress(OSError):  # the disk is full: no pod ends for that
            print(printable(text, line=True), flush=True)  # standard output is the log
        self.send(note=text)

    def send(self, **message: Any) -> None:
        """Write one message into the pipe: note, or ready, or failed with code."""
        if self._fd >= 0:
            try:
                os.write(self._fd, encode(message) + b"\n")
            except BrokenPipeError:
                self.reader_gone.set()

    def close(self) -> None:
        """Close the write end: the parent reads the end of the file."""
        os.close(self._fd)
        self._fd = -1


class Signals:
    """`stop` is set by the first SIGTERM or SIGINT, `kill` by the second one."""

    def __init__(self) -> None:
        self.stop, self.kill = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, lambda: (self.kill if self.stop.is_set() else self.stop).set())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        dump_stacks_on_signal()


async def run_daemon(received: HandOver) -> int:
    """Run the cluster until SIGTERM, or until its start fails. Returns the exit code, which no caller uses."""
    folder, pipe = received.folder, StartupPipe(received.pipe)
    signals = Signals()
    cluster: LocalCluster | None = None
    page_server: RegisteredServer | None = None
    try:
        again = (folder / "state").exists()
        options = parse_options(received, pipe)
        cluster = LocalCluster(options)
        if not await _run_unless(signals.stop, pipe.reader_gone, cluster.start()):
            return 1
        cluster.write_kubeconfig(folder / "kubeconfig", f"trainyard-{folder.name}")
        page_server = await _serve_page(cluster, folder, options.mounts)
        _write_facts(folder, cluster, again)
        pipe.send(ready=True)
        if pipe.reader_gone.is_set():
            return 1
        pipe.close()
        await signals.stop.wait()
        log.warning("stopping: every pod ends within its grace period")
        return 0
    except (ManifestError, ConfigError) as error:
        pipe.send(failed="\n".join(map(str, error.problems)), code=2)
        return 2
    except DiskError as error:
        fix = f"To move it away and start with an empty state: {command_line('up --fresh', folder.name)}"
        pipe.send(failed=f"{error}\n{fix}" if error.unusable else str(error), code=3)
        return 3
    except (OSError, ApiError, NodeError, NotWritten) as error:
        pipe.send(failed=f"cannot start: {error_text(error)}", code=3)
        return 3
    finally:
        (folder / "cluster.json").unlink(missing_ok=True)
        if page_server is not None:
            await page_server.stop()
        if cluster is not None and not await _run_unless(signals.kill, signals.kill, cluster.stop()):
            await cluster.stop(kill=True)


async def _serve_page(cluster: LocalCluster, folder: Path, mounts: Mapping[str, Path]) -> RegisteredServer | None:
    """The page of the cluster; None if it cannot be opened, which stops nothing else. Its sessions are signed with the
    cluster's token: a page that is open is connected again when the cluster is up again."""
    page_server = local_page_server(
        cluster,
        PageOptions(
            folder.name,
            history=folder.parent / HISTORY,
            claims=ClaimFolders(cluster.folder / "claims", mounts),
        ),
        sha256(cluster.token.encode()).digest(),
    )
    registered = RegisteredServer(folder.name, page_server, is_lasting=True)
    try:
        await registered.start()
    except (OSError, BackgroundError) as error:
        log.warning("there is no page, `trainyard ui` will not find this cluster error=%s", error)
        return None
    return registered


def parse_options(received: HandOver, pipe: StartupPipe) -> LocalClusterOptions:
    """The options of the command line of `trainyard up`, from the hand-over."""
    folder, arguments = received.folder, received.options
    current = arguments.get("working_directory")
    return LocalClusterOptions(
        network=arguments["network"],
        images=tuple(map(Path, arguments["images"])),
        cache=Path(arguments["cache"]) if arguments["cache"] else None,
        python=arguments.get("python", ""),
        mounts={claim: Path(source) for claim, source in arguments["mounts"].items()},
        config=read_config(Path(arguments["config"]) if arguments["config"] else None, pipe.note),
        say=pipe.note,
        operator=arguments.get("operator", True),
        working_directory=Path(current) if current else None,
        state_folder=folder / "state",
        certificates=None if received.certificates is None else os.fdopen(received.certificates, "rb"),
        # These folders have the kubeconfigs of all background clusters, and the user's own.
        on_stall=partial(_write_stall, folder),
        hidden=(folder.parent, Path(os.path.expanduser("~/.kube"))),
        history=HistoryOptions(
            folder.parent / HISTORY,
            folder.name,
            Path(arguments["logs_dir"]) if arguments.get("logs_dir") else None,
            RetentionLimits.from_environment(os.environ),
        ),
    )


def _write_facts(folder: Path, cluster: LocalCluster, again: bool) -> None:
    facts = {
        "pid": os.getpid(),
        "since": format_time(time.time()),
        "network": cluster.network,
        "server": cluster.server.tls_url,
        "folder": str(cluster.folder),
        "again": again,
    }
    new_file = folder / "cluster.json.new"
    new_file.write_text(json.dumps(facts))
    new_file.replace(folder / "cluster.json")


def _write_stall(folder: Path, stall: Stall) -> None:
    """Called in a thread, while the event loop writes and answers nothing."""
    new_file = folder / f"{STALL}.new"
    with contextlib.suppress(OSError):
        new_file.write_text(json.dumps({"time": time.time(), "seconds": stall.seconds, "where": stall.where}))
        new_file.replace(folder / STALL)


async def _run_unless(first: asyncio.Event, second: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """True when the coroutine has finished; its exception is raised. When one of the events is set first, the coroutine
    is cancelled: False."""
    task = asyncio.ensure_future(work)
    wait_tasks = [asyncio.ensure_future(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait({task, *wait_tasks}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        for pending in (task, *wait_tasks):
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await pending


def main() -> None:
    """Wait for the hand-over, write the process id into the lock file, and run the cluster."""
    collect_seldom()
    os.chdir("/")
    if (received := receive()) is None:
        return
    for fd in (1, 2):
        os.dup2(received.log, fd)
    os.close(received.log)
    os.ftruncate(received.lock, 0)
    os.pwrite(received.lock, f"{os.getpid()}\n".encode(), 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    level = os.environ.get("TRAINYARD_LOG", "WARNING").upper()
    configure_logging("text", level)
    skip_present_objects()
    sys.exit(asyncio.run(run_daemon(received)))


if __name__ == "__main__":
    main()
