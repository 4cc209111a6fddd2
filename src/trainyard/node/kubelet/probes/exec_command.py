"""The action `exec` of probes and hooks: a command in the container, with the container's environment and working
directory.

Rules of the kubelet: exit code 0 passes, any other fails with the output; a command that runs longer than the timeout
is killed and fails; one that cannot be started is no result. Neither is one that its container has not outlived, and no
event tells it: the kubelet blames the probe for a container that has ended by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable

from trainyard.node.kubelet.probes.outcome import Outcome, Verdict
from trainyard.node.sandbox.exec_result import ExecResult, read_to_end
from trainyard.node.sandbox.supervisor_client import SandboxError, StartError

log = logging.getLogger(__name__)

_MAX_OUTPUT = 10 << 10  # bytes, as in the kubelet
_SPARE_SECONDS = 2.0  # beyond the timeout, after which the container's init kills the command

Start = Callable[[tuple[int, int, int, int]], Awaitable[None]]
"""Starts the command, which is killed after the timeout of the probe: stdin, stdout, stderr, the pipe for its
result."""


async def run(command: list[str], timeout: float | None, start: Start) -> Outcome:
    """Run the command. `timeout`: of a probe; a hook has none. Its output is stdout and stderr together."""
    output_read, output_write = os.pipe()
    result_read, result_write = os.pipe()
    devnull = os.open(os.devnull, os.O_RDONLY)
    for fd in (output_read, result_read):
        os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()
    output = bytearray()
    loop.add_reader(output_read, _read_some, loop, output_read, output)
    timed_out = Outcome(Verdict.FAILED, f'command timed out: "{" ".join(command)}" timed out after {timeout or 0:g}s')
    begun = loop.time()
    try:
        try:
            await start((devnull, output_write, output_write, result_write))
        finally:
            for fd in (devnull, output_write, result_write):
                os.close(fd)
        async with asyncio.timeout(None if timeout is None else timeout + _SPARE_SECONDS):
            result = ExecResult.read(await read_to_end(result_read))
        _read_some(loop, output_read, output)
    except TimeoutError:  # the container does not run at all: stopped, or its disk hangs
        return timed_out
    except (StartError, SandboxError) as error:  # mostly the container has just ended, which is not known here yet
        log.debug("the command of a probe was not started error=%s", error)
        return Outcome(Verdict.ERRORED)
    finally:
        loop.remove_reader(output_read)
        os.close(output_read)
        os.close(result_read)
    if result.failed or result.outlived:
        return Outcome(Verdict.ERRORED, result.failed)
    if result.code != 0 and timeout is not None and loop.time() - begun >= timeout:
        return timed_out
    text = bytes(output).decode("utf-8", "replace")
    return Outcome(Verdict.PASSED if result.code == 0 else Verdict.FAILED, text)


def _read_some(loop: asyncio.AbstractEventLoop, fd: int, output: bytearray) -> None:
    """Read what is in the pipe, and drop what is beyond the maximum, so that no program waits for its reader."""
    with contextlib.suppress(BlockingIOError):
        piece = os.read(fd, 1 << 16)
        output += piece[: max(0, _MAX_OUTPUT - len(output))]
        if not piece:
            loop.remove_reader(fd)
