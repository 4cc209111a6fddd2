"""The init of one container: waits for the container's program, and starts further programs beside it (exec).

Rules:
- Everything that runs in a container was forked by its init or by something below it, so all of it ends with the init.
- Signals only wake it, through a pipe; what is to be done is done here, never inside a signal handler.
- What the program prints comes through a pipe and is written into the log here, piece by piece. Given the file itself,
  `> /dev/stderr` and `tee /dev/stdout` would empty it. What is in the pipe at the end the hub writes.
- What the runner asks for comes through the *door*: one byte per program, and five file descriptors beside it: what to
  run (a file of JSON), the three streams, and a pipe for what became of it. Into that pipe go lines of JSON:
  {"pid"}, maybe {"error"} of the words of a status, and {"code"}. A pipe that ends without a code was cut by the
  container's own end.
- What the init writes into the door are lines of JSON: {"reason"} when the container ends because of its memory, which
  then ends as a whole, with 137 (memory.py), and at the very end which files go with the container."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import reaper  # relative: see the package's docstring
from .log_file import LogFile
from .memory import LOOK_EVERY, Limit

DESCRIPTORS = 5  # beside each byte of the door
_AT_ONCE = 4096
_PIECE = 1 << 16  # what a pipe holds
_MOST_AFTER_THE_END = 1 << 20  # what it may hold when the program has made it larger

Start = Callable[[dict[str, Any], list[int]], int]
"""Forks a program: what to run, and its three streams and its pipe. Returns the pid."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a program prints, to be read from here, and the log into which that goes."""

    printed: int
    log: LogFile

    def pass_on(self) -> bool:
        """What is there now, at most a pipe's content. False when nobody can print any more."""
        try:
            piece = os.read(self.printed, _PIECE)
        except BlockingIOError:
            return True
        self.log.append(piece)
        return bool(piece)

    def pass_on_the_rest(self) -> None:
        """What is left when the program has ended. Somebody elsewhere may have the pipe and go on printing."""
        left = _MOST_AFTER_THE_END
        with contextlib.suppress(BlockingIOError):
            while left > 0 and (piece := os.read(self.printed, _PIECE)):
                self.log.append(piece)
                left -= len(piece)

    def close(self) -> None:
        os.close(self.printed)
        self.log.close()


class Init:
    def __init__(
        self,
        program: int,
        door: int,
        output: Output,
        start: Start,
        unsaved: Callable[[], dict[str, Any]] | None,
        limit: Limit | None,
    ) -> None:
        """`unsaved`: counts the files in the container's own root, None where it has none: then this is not PID 1."""
        self._program = program
        self._unsaved = unsaved
        self._limit = limit
        self._look_at = 0.0  # when the limit is looked at again
        self._start = start
        self._output = output
        self._door = socket.socket(fileno=door)
        self._further: dict[int, int] = {}  # pid of a further program -> the pipe for its end
        self._selector = selectors.DefaultSelector()
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for name in reaper.AWAITED:
            signal.signal(name, lambda *_: None)
        for fd in (self._woken, door, output.printed):
            self._selector.register(fd, selectors.EVENT_READ)
        reaper.unblock_for_init()

    def run(self) -> int:
        """Until the program has ended; its exit code."""
        while True:
            ended = reaper.reap()
            for pid, code in ended.items():
                if pid in self._further:
                    tell(self._further[pid], {"code": code})
                    os.close(self._further.pop(pid))
            over = self._exceeds(ended)
            if over or self._program in ended:
                self._end_all()
                return 128 + signal.SIGKILL if over else ended[self._program]
            for key, _ in self._selector.select(LOOK_EVERY if self._limit else None):
                if key.fd == self._woken:
                    if self._signalled():
                        return 128 + signal.SIGKILL
                elif key.fd == self._output.printed:
                    if not self._output.pass_on():
                        self._selector.unregister(key.fd)
                else:
                    self._knock()

    def _exceeds(self, ended: dict[int, int]) -> bool:
        """Is the container to end because of its memory? Looked at from time to time, and when something has ended."""
        limit, now = self._limit, time.monotonic()
        if limit is None or (now < self._look_at and not ended):
            return False
        self._look_at = now + LOOK_EVERY
        if not limit.exceeded():
            return False
        tell(self._door.fileno(), {"reason": "OOMKilled"})
        return True

    def _signalled(self) -> bool:
        """Pass on what came; True when everything should end and has."""
        got: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            got = set(os.read(self._woken, _AT_ONCE))
        if reaper.END_ALL in got:
            self._end_all()
            return True
        for number in got - {signal.SIGCHLD}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._program, number)
        return False

    def _end_all(self) -> None:
        """End what the program has left, and say which files go with the container."""
        if self._unsaved is None:
            reaper.end_all_below(os.getpid())
            return
        reaper.end_all_others()
        with contextlib.suppress(OSError):
            tell(self._door.fileno(), self._unsaved())

    def _knock(self) -> None:
        byte, fds, _, _ = socket.recv_fds(self._door, 1, DESCRIPTORS)
        if not byte:
            self._selector.unregister(self._door.fileno())  # the hub is going, and will take us along
            return
        for fd in fds:
            os.set_inheritable(fd, False)
        if len(fds) != DESCRIPTORS:  # no room for them: whoever asked sees its pipe end
            for fd in fds:
                os.close(fd)
            return
        asked, result = fds[0], fds[-1]
        try:
            spec = json.loads(os.pread(asked, os.fstat(asked).st_size, 0))
            pid = self._start(spec, fds[1:])
        except Exception as error:
            tell(result, {"error": {"code": 128, "reason": "StartError", "message": str(error)}})
            os.close(result)
        else:
            self._further[pid] = result
            tell(result, {"pid": pid})
        for fd in fds[:-1]:
            os.close(fd)


def tell(fd: int, said: dict[str, Any]) -> None:
    """One line into a pipe that may have no reader left."""
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(said).encode() + b"\n")
