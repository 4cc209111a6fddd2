"""The process behind `trainyard up`: a LocalCluster until SIGTERM. Started by app/background.py, never by a person.

    python -m trainyard.app.daemon FOLDER LOCK MOUTH    (two file descriptors; the options come as JSON on stdin)

Rules:
- It says what happens into `mouth` until it is ready, one JSON object a line; whoever listens there going away before
  that means that nobody wants the cluster any more.
- SIGTERM once: every pod ends within its grace. Twice: at once. SIGHUP is nothing: it outlives its terminal.
- The lock is let go by ending, and is never inherited by what it starts.
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
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from trainyard.app.background import HISTORY, in_words, word
from trainyard.app.config import ConfigError
from trainyard.app.config import read as read_config
from trainyard.app.local import LocalCluster, Options
from trainyard.app.logs import begin
from trainyard.app.recorder import HistoryOptions
from trainyard.app.retention import Limits
from trainyard.client import ApiError
from trainyard.node import NodeError
from trainyard.objects import encode, format_time
from trainyard.objects.manifest import ManifestError
from trainyard.objects.printable import printable
from trainyard.server import DiskError, NotWritten

log = logging.getLogger("trainyard.daemon")


class Mouth:
    """What `trainyard up` hears. After it is ready there is only the log."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.deserted = asyncio.Event()  # nobody listens, and it is not ready yet

    def say(self, text: str) -> None:
        print(printable(text, line=True), flush=True)  # standard output is the log
        self.tell(note=text)

    def tell(self, **word: Any) -> None:
        if self._fd >= 0:
            try:
                os.write(self._fd, encode(word) + b"\n")
            except BrokenPipeError:
                self.deserted.set()

    def close(self) -> None:
        os.close(self._fd)
        self._fd = -1


class Signals:
    """SIGTERM once, and twice."""

    def __init__(self) -> None:
        self.stop, self.kill = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: (self.kill if self.stop.is_set() else self.stop).set())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


async def serve(folder: Path, words: dict[str, Any], mouth: Mouth) -> int:
    """The life of a background cluster. The exit code means something to nobody."""
    signals = Signals()
    cluster: LocalCluster | None = None
    try:
        again = (folder / "state").exists()
        cluster = LocalCluster(options(folder, words, mouth))
        if not await _unless(signals.stop, mouth.deserted, cluster.start()):
            return 1
        cluster.write_kubeconfig(folder / "kubeconfig", f"trainyard-{folder.name}")
        _write_facts(folder, cluster, again)
        mouth.tell(ready=True)
        if mouth.deserted.is_set():
            return 1
        mouth.close()
        await signals.stop.wait()
        log.warning("going down: every pod ends within its grace period")
        return 0
    except (ManifestError, ConfigError) as error:
        mouth.tell(failed="\n".join(map(str, error.problems)), code=2)
        return 2
    except DiskError as error:
        fix = f"\nTo put it aside and start anew: {word('up --fresh', folder.name)}" if error.spoilt else ""
        mouth.tell(failed=f"{error}{fix}", code=3)
        return 3
    except (OSError, ApiError, NodeError, NotWritten) as error:
        mouth.tell(failed=f"cannot run here: {in_words(error)}", code=3)
        return 3
    finally:
        (folder / "cluster.json").unlink(missing_ok=True)
        if cluster is not None and not await _unless(signals.kill, signals.kill, cluster.stop()):
            await cluster.stop(kill=True)


def options(folder: Path, words: dict[str, Any], mouth: Mouth) -> Options:
    """What the command line said, as it came through stdin."""
    current = words.get("working_directory")
    return Options(
        network=words["network"],
        images=tuple(map(Path, words["images"])),
        cache=Path(words["cache"]) if words["cache"] else None,
        python=words.get("python", ""),
        mounts={claim: Path(place) for claim, place in words["mounts"].items()},
        config=read_config(Path(words["config"]) if words["config"] else None, mouth.say),
        say=mouth.say,
        operator=words.get("operator", True),
        working_directory=Path(current) if current else None,
        home=folder / "state",
        hidden=(
            folder.parent,
            Path(os.path.expanduser("~/.kube")),
        ),  # kubeconfigs, also those that this one was written into
        history=HistoryOptions(
            folder.parent / HISTORY,
            folder.name,
            Path(words["logs_dir"]) if words.get("logs_dir") else None,
            Limits.from_environment(os.environ),
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
    fresh = folder / "cluster.json.new"
    fresh.write_text(json.dumps(facts))
    fresh.replace(folder / "cluster.json")


async def _unless(one: asyncio.Event, other: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Do the work to its end: True. Give it up when one of the events comes: False."""
    task = asyncio.ensure_future(work)
    waits = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait({task, *waits}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        for each in (task, *waits):
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await each


def main() -> None:
    folder, lock, said = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for fd in (lock, said):
        os.set_inheritable(fd, False)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    words = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    level = os.environ.get("TRAINYARD_LOG", "WARNING").upper()
    begin("text", level)
    sys.exit(asyncio.run(_main(folder, words, said)))


async def _main(folder: Path, words: dict[str, Any], said: int) -> int:
    return await serve(folder, words, Mouth(said))


if __name__ == "__main__":
    main()
