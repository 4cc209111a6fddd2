"""A cluster of TensorFlow tasks as plain processes on 127.0.0.1, each with the port that TF_CONFIG gives it."""

from __future__ import annotations

import json
from pathlib import Path

import trainyard.kinds
from tests.programs.processes import Processes, free_ports
from trainyard.node.images.catalogue import PROGRAMS

PS_PROGRAM = str(Path(trainyard.kinds.__file__).parent / "files" / "grpc_tensorflow_server.py")


class Tasks(Processes):
    """`async with Tasks(python, folder, worker=2, ...) as tasks`: nothing runs before `start`."""

    def __init__(self, python: str, folder: Path, **replicas: int) -> None:
        super().__init__()
        self.python = python
        self.folder = folder
        ports = iter(free_ports(sum(replicas.values())))
        self.cluster = {
            role: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for role, count in sorted(replicas.items())
        }

    async def __aenter__(self) -> Tasks:
        return self

    async def start(self, name: str, program: str, *arguments: str) -> None:
        """`name` is role-index. A default parameter server gets its flags, every other program TF_CONFIG."""
        role, _, index = name.rpartition("-")
        task = {"type": role, "index": int(index)}
        config = {"cluster": self.cluster, "task": task, "environment": "cloud"}
        argv = [self.python, str(PROGRAMS / program), *arguments]
        if program == PS_PROGRAM:
            spec = ",".join(f"{role}|{';'.join(hosts)}" for role, hosts in self.cluster.items())
            argv = [self.python, program, "--cluster_spec", spec, "--job_name", role, "--task_id", index]
        env = {
            "TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.folder),
        }  # fmt: skip
        await self.begin(name, argv, env)
