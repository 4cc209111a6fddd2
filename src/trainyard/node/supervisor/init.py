"""The init of one container: waits for the container's program, and starts further programs beside it (exec).

Rules:
- All processes in a container are descendants of its init, so all of them end with the init.
- Signals only wake the init, through a pipe; they are handled in its loop, never in a signal handler.
- The program's output comes through a pipe, and the init appends it to the log. With the log file itself as stdout,
  `> /dev/stderr` and `tee /dev/stdout` would truncate it. The supervisor writes the output that is left in the pipe at
  the end.
- Exec requests of the node process come through the exec socket: one byte per program with five file
  descriptors: the spec (a file with JSON), the three streams, and a pipe for the result. Lines of JSON are written to
  that pipe: {"pid"}, maybe {"error"} with code, reason and message, and {"code"}. A pipe that ends without a code was
  closed by the end of the container. A program whose spec has a `timeout` in seconds (a probe) is killed after it,
  with its process group.
- The init writes lines of JSON to the exec socket: {"output_loss"}, the report on output that could not be written to
  the log (log_file.py), at the first lost byte; {"reason"} when the container exceeds its memory limit, which ends the
  whole container with 137 (memory.py); at the end {"max_rss"}: the largest resident size of one of its processes in
  bytes, the count of files that are removed with the container, and {"lost_output"}: the report on all lost output.
  The first line, {"pid"}, is written before its program runs (container.py)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from . import reaper  # relative: see the package's docstring
from .log_file import LimitedLogFile
from .memory import POLL_SECONDS, Limit

EXEC_DESCRIPTORS = 5  # sent with each byte through the exec socket
_WAKEUP_BYTES = 4096
_PIPE_SIZE = 1 << 16  # default capacity of a pipe, in bytes
_MAX_BYTES_AFTER_EXIT = 1 << 20  # maximum capacity of a pipe that the program has made larger, in bytes

Start = Callable[[dict[str, Any], list[int]], int]
"""Forks a program: its spec, and the descriptors of its three streams and its result pipe. Returns the pid."""


class Output(NamedTuple):
    """The read end of a program's output pipe, and the log to which the output is appended."""

    read_fd: int
    log: LimitedLogFile

    def copy(self) -> bool:
        """Copy the output available now to the log. Returns False when all write ends of the pipe are closed."""
        try:
            piece = os.read(self.read_fd, _PIPE_SIZE)
        except BlockingIOError:
            return True
        self.log.append(piece)
        return bool(piece)

    def copy_rest(self) -> None:
        """Copy the output that is left when the program has ended, at most 1 MiB: a process outside of the container
        may still have the pipe and write to it."""
        remaining = _MAX_BYTES_AFTER_EXIT
        with contextlib.suppress(BlockingIOError):
            while remaining > 0 and (piece := os.read(self.read_fd, _PIPE_SIZE)):
                self.log.append(piece)
                remaining -= len(piece)

    def close(self) -> None:
        """Close the pipe and the log file."""
        os.close(self.read_fd)
        self.log.close()


class Init:
    """PID 1 of a container: copies its output to the log, reaps processes and starts exec programs."""

    def __init__(
        self,
        program: int,
        exec_socket: int,
        output: Output,
        start: Start,
        unsaved: Callable[[], dict[str, Any]] | None,
        limit: Limit | None,
    ) -> None:
        """`unsaved`: counts the files in the container's own root; None in shared mode, where there is no such root and
        the init is not PID 1."""
        self._program = program
        self._unsaved = unsaved
        self._limit = limit
        self._next_check = 0.0  # monotonic time of the next check of the memory limit
        self._start = start
        self._output = output
        self._loss_reported = False  # the first loss of output
        self._exec_socket = socket.socket(fileno=exec_socket)
        self._exec_results: dict[int, int] = {}  # pid of a further program -> its result pipe
        self._exec_deadlines: dict[int, float] = {}  # pid of a further program -> monotonic time of its SIGKILL
        self._selector = selectors.DefaultSelector()
        self._wakeup, wake = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for name in reaper.INIT_SIGNALS:
            signal.signal(name, lambda *_: None)
        for fd in (self._wakeup, exec_socket, output.read_fd):
            self._selector.register(fd, selectors.EVENT_READ)
        reaper.unblock_for_init()

    def run(self) -> int:
        """Serve until the program has ended; returns its exit code, or 137."""
        while True:
            exit_codes = reaper.reap()
            for pid, code in exit_codes.items():
                if pid in self._exec_results:
                    write_line(self._exec_results[pid], {"code": code})
                    os.close(self._exec_results.pop(pid))
                    self._exec_deadlines.pop(pid, None)
            out_of_memory = self._exceeds_limit(exit_codes)
            if out_of_memory or self._program in exit_codes:
                self._end_all()
                return 128 + signal.SIGKILL if out_of_memory else exit_codes[self._program]
            for key, _ in self._selector.select(self._timeout()):
                if key.fd == self._wakeup:
                    if self._handle_signals():
                        return 128 + signal.SIGKILL
                elif key.fd == self._output.read_fd:
                    if not self._output.copy():
                        self._selector.unregister(key.fd)
                    self._report_first_loss()
                else:
                    self._accept_exec()

    def _timeout(self) -> float | None:
        """The seconds until something is due: the check of the memory limit, the end of a program's time. Kills the
        programs whose time is over."""
        now = time.monotonic()
        for pid in [pid for pid, deadline in self._exec_deadlines.items() if deadline <= now]:
            del self._exec_deadlines[pid]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        times = [deadline - now for deadline in self._exec_deadlines.values()]
        return min([*times, POLL_SECONDS] if self._limit else times, default=None)

    def _report_first_loss(self) -> None:
        lost = self._output.log.lost
        if lost.bytes and not self._loss_reported:
            self._loss_reported = True
            write_line(self._exec_socket.fileno(), {"output_loss": lost.message()})

    def _exceeds_limit(self, exit_codes: dict[int, int]) -> bool:
        """Whether the container exceeds its memory limit. Checked every POLL_SECONDS seconds and when a process has
        ended."""
        limit, now = self._limit, time.monotonic()
        if limit is None or (now < self._next_check and not exit_codes):
            return False
        self._next_check = now + POLL_SECONDS
        if not limit.exceeded():
            return False
        write_line(self._exec_socket.fileno(), {"reason": "OOMKilled"})
        return True

    def _handle_signals(self) -> bool:
        """Forward received signals to the program. Returns True after END_ALL, when all other processes have ended."""
        received: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            received = set(os.read(self._wakeup, _WAKEUP_BYTES))
        if reaper.END_ALL in received:
            self._end_all()
            return True
        for number in received - {signal.SIGCHLD}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._program, number)
        return False

    def _end_all(self) -> None:
        """End all other processes of the container, and send the peak of their memory and what is lost with it: the
        count of files, and output."""
        if self._unsaved is None:
            reaper.end_all_below(os.getpid())
            reaper.reap()
        else:
            reaper.end_all_others()
        write_line(self._exec_socket.fileno(), {"max_rss": reaper.max_rss()})
        if self._unsaved is not None:
            with contextlib.suppress(OSError):
                write_line(self._exec_socket.fileno(), self._unsaved())
        if self._output.log.lost.bytes:
            write_line(self._exec_socket.fileno(), {"lost_output": [self._output.log.lost.message()]})

    def _accept_exec(self) -> None:
        byte, fds, _, _ = socket.recv_fds(self._exec_socket, 1, EXEC_DESCRIPTORS)
        if not byte:
            self._selector.unregister(self._exec_socket.fileno())  # the supervisor ends, and this init with it
            return
        for fd in fds:
            os.set_inheritable(fd, False)
        if len(fds) != EXEC_DESCRIPTORS:  # cut off (EMFILE): the node process sees the end of the result pipe
            for fd in fds:
                os.close(fd)
            return
        spec_fd, result_fd = fds[0], fds[-1]
        try:
            spec = json.loads(os.pread(spec_fd, os.fstat(spec_fd).st_size, 0))
            pid = self._start(spec, fds[1:])
        except Exception as error:
            write_line(result_fd, {"error": {"code": 128, "reason": "StartError", "message": str(error)}})
            os.close(result_fd)
        else:
            self._exec_results[pid] = result_fd
            if timeout := spec.get("timeout"):
                self._exec_deadlines[pid] = time.monotonic() + timeout
            write_line(result_fd, {"pid": pid})
        for fd in fds[:-1]:
            os.close(fd)


def write_line(fd: int, message: dict[str, Any]) -> None:
    """Write one line of JSON to a pipe or socket; errors are ignored, because the reader may have ended."""
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(message).encode() + b"\n")
