"""Programs as plain processes: their lines, their ends, and nothing left when the test is over."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Processes:
    """`async with Processes() as all`: nothing runs before `begin`, nothing is left at the end."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.running: dict[str, asyncio.subprocess.Process] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> Processes:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self.running.values()), *self._readers)

    async def begin(self, name: str, argv: list[str], env: Mapping[str, str], cwd: str | None = None) -> None:
        """A process of that name, with these variables beside our own."""
        process = await asyncio.create_subprocess_exec(
            *argv, env={**os.environ, **env}, cwd=cwd, stdout=-1, stderr=asyncio.subprocess.STDOUT
        )
        self.running[name] = process
        self.lines[name] = []
        self._readers.append(asyncio.create_task(self._read(name, process)))

    async def _read(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines[name].append(line.decode().rstrip())
            self._news.set()

    async def printed_line(self, name: str, part: str, seconds: float = 90, after: int = 0) -> str:
        """The first line of that process, after so many others, that holds `part`, waited for."""
        async with asyncio.timeout(seconds):
            while True:
                for line in self.lines[name][after:]:
                    if part in line:
                        return line
                self._news.clear()
                await self._news.wait()

    async def ended(self, name: str, seconds: float = 90) -> int:
        return await asyncio.wait_for(self.running[name].wait(), seconds)

    async def stopped(self, name: str, seconds: float = 3) -> int:
        """SIGTERM; the exit code, in the seconds that are enough."""
        self.running[name].send_signal(signal.SIGTERM)
        return await self.ended(name, seconds)

    async def killed(self, name: str) -> None:
        self.running[name].kill()
        await self.ended(name, 3)
