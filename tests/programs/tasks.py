"""A cluster of TensorFlow tasks as plain processes on 127.0.0.1, each with the port that TF_CONFIG gives it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import trainyard.kinds
from trainyard.node.images.catalogue import PROGRAMS

PS_PROGRAM = str(Path(trainyard.kinds.__file__).parent / "files" / "grpc_tensorflow_server.py")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Tasks:
    """`async with Tasks(python, worker=2, ...) as tasks`: nothing runs before `start`, nothing is left at the end."""

    def __init__(self, python: str, folder: Path, **replicas: int) -> None:
        self.python = python
        self.folder = folder
        ports = iter(free_ports(sum(replicas.values())))
        self.cluster = {
            role: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for role, count in sorted(replicas.items())
        }
        self.lines: dict[str, list[str]] = {}
        self.running: dict[str, asyncio.subprocess.Process] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> Tasks:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self.running.values()), *self._readers)

    async def start(self, name: str, program: str, *words: str) -> None:
        """`name` is role-index. A default parameter server gets its flags, every other program TF_CONFIG."""
        role, _, index = name.rpartition("-")
        task = {"type": role, "index": int(index)}
        config = {"cluster": self.cluster, "task": task, "environment": "cloud"}
        argv = [self.python, str(PROGRAMS / program), *words]
        if program == PS_PROGRAM:
            spec = ",".join(f"{one}|{';'.join(hosts)}" for one, hosts in self.cluster.items())
            argv = [self.python, program, "--cluster_spec", spec, "--job_name", role, "--task_id", index]
        env = {
            **os.environ, "TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.folder),
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=-1, stderr=asyncio.subprocess.STDOUT)
        self.running[name] = process
        self.lines[name] = []
        self._readers.append(asyncio.create_task(self._read(name, process)))

    async def _read(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines[name].append(line.decode().rstrip())
            self._news.set()

    async def said(self, name: str, part: str, seconds: float = 90) -> str:
        """The first line of that task that holds `part`, waited for."""
        async with asyncio.timeout(seconds):
            while True:
                for line in self.lines[name]:
                    if part in line:
                        return line
                self._news.clear()
                await self._news.wait()

    async def ended(self, name: str, seconds: float = 90) -> int:
        return await asyncio.wait_for(self.running[name].wait(), seconds)

    async def stopped(self, name: str) -> int:
        """SIGTERM; the exit code, in the second that is enough."""
        self.running[name].send_signal(signal.SIGTERM)
        return await self.ended(name, 3)

    async def killed(self, name: str) -> None:
        self.running[name].kill()
        await self.ended(name, 3)
