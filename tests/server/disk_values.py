"""A writer that is killed at a named step of a write, and a server on a disk log: programs for the tests of disk.py.

python disk_values.py kill FOLDER     dies at every step of a write, each time in a process and a folder of its own
python disk_values.py serve FOLDER    an API server without a token; its URL is the first line it says
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from trainyard.objects import NamespacedName
from trainyard.server import DiskLog, Server
from trainyard.server.model.store import Record

STEPS = ("begin", "insert", "commit", "committed", "answer")
TIMES = (1, 2, 5, 9)
KEYS = [NamespacedName("default", name) for name in "abc"]


def put(log: DiskLog, key: NamespacedName, size: int = 100) -> int:
    before = log.get("maps", key)
    revision = log.revision + 1
    body = b"%d " % revision + b"x" * size
    log.append("maps", key, Record(revision, body, {"app": key.name}, {"n": "1"}), before.revision if before else 0)
    return revision


class Killer:
    """Ends this process at the n-th time that a step is reached."""

    def __init__(self, step: str, times: int) -> None:
        self._step, self._left = step, times

    def __call__(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


async def write_until_killed(folder: Path, killer: Killer, acks: int) -> None:
    """Requests of one to three writes, several in one commit; some delete, some compact."""
    log = DiskLog(folder, step=killer)

    async def request(turn: int) -> None:
        first = log.revision + 1
        for key in KEYS[: 1 + turn % 3]:
            put(log, key)
        if turn % 4 == 3:
            record = log.get("maps", KEYS[0])
            assert record is not None
            log.append("maps", KEYS[0], None, record.revision, b"last")
        last = log.revision
        await log.wait_committed(last)
        killer("answer")
        os.write(acks, f"{first} {last}\n".encode())

    for turn in range(0, 40, 2):
        await asyncio.gather(request(turn), request(turn + 1))
        if turn % 10 == 8:
            log.compact(log.revision - 3)


def kill_everywhere(folder: Path) -> None:
    for step in STEPS:
        for times in TIMES:
            place = folder / f"{step}-{times}"
            place.mkdir()
            acks = os.open(place / "acks", os.O_CREAT | os.O_WRONLY)
            if os.fork() == 0:
                asyncio.run(write_until_killed(place / "log", Killer(step, times), acks))
                os._exit(0)
            _, status = os.wait()
            os.close(acks)
            assert os.WIFSIGNALED(status), f"it was not killed at {step}, time {times}"


async def serve(folder: Path) -> None:
    log = DiskLog(folder)
    server = Server(log=log)
    await server.start()
    print(server.url, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        kill_everywhere(Path(sys.argv[2]))
    else:
        asyncio.run(serve(Path(sys.argv[2])))
