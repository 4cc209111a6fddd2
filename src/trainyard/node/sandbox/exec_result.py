"""The result of a program that was started in a running container, by an exec, a probe or a hook.

It is apart from `api/exec.py` because that imports aiohttp, which costs every `trainyard run` a quarter of a second."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import msgspec

from trainyard.node.sandbox.supervisor_client import KILLED
from trainyard.objects import Json

_READ_SIZE = 1 << 15


def resolve(future: asyncio.Future[None]) -> None:
    """Set the result of a future that may have it already."""
    if not future.done():
        future.set_result(None)


async def read_to_end(fd: int) -> bytes:
    """Read a non-blocking pipe until its other end is closed."""
    loop = asyncio.get_running_loop()
    data = b""
    while True:
        try:
            piece = os.read(fd, _READ_SIZE)
        except BlockingIOError:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(fd, resolve, readable)
            try:
                await readable
            finally:
                loop.remove_reader(fd)
            continue
        if not piece:
            return data
        data += piece


class ExecResult(msgspec.Struct, frozen=True):
    """The result of a program. `failed`: why it could not be run. `started`: the container's init has forked it.
    `outlived`: the container ended before it."""

    code: int
    failed: str = ""
    started: bool = True
    outlived: bool = False

    @classmethod
    def read(cls, data: bytes) -> ExecResult:
        """From the lines of the result pipe (supervisor/init.py). Without a code the container ended before the
        program."""
        lines: dict[str, Any] = {}
        for line in data.splitlines():
            lines |= json.loads(line)
        error = lines.get("error")
        if error:
            return cls(int(error["code"]), str(error["message"]))
        return cls(int(lines.get("code", KILLED)), started="pid" in lines, outlived="code" not in lines)

    def status(self, command: list[str]) -> Json:
        """The Status object that kubectl gets on the error channel."""
        if not self.started:
            return internal_error("the container ended before the program was started")
        if self.code == 0:
            return {"metadata": {}, "status": "Success"}
        reason = self.failed or f"error executing command [{' '.join(command)}], exit code {self.code}"
        return {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: {reason}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(self.code)}]},
        }


def internal_error(reason: str) -> Json:
    """The Status for a program that was not started, so that there is no exit code."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: error executing command in container: {reason}",
        "reason": "InternalError",
        "details": {"causes": [{"message": f"error executing command in container: {reason}"}]},
        "code": 500,
    }
