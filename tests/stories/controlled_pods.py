"""What runs in the containers of a story: a controlled pod connects to the harness and evaluates what it is told.

It knows its place from the labels of its pod: the role and index that the operator has given it, or, in a set, the
ordinal.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from ast import literal_eval
from typing import Any

from trainyard.objects import Json
from trainyard.objects.labels import INDEX, ROLE

PATIENCE = 20.0

# The modules below start in half the time of `json`, `signal` and `socket`, which few expressions use. Answers are
# literals of Python.
ACTOR = """
import _signal, _socket, os, sys
_signal.signal(15, lambda *_: os._exit(143))
line = _socket.socket(_socket.AF_UNIX)
line.connect(os.environ["STAGE"])
file = open(line.fileno(), encoding="utf-8")
def fetch(url, wanted="", seconds=15):
    import time, urllib.request
    end = time.time() + seconds
    while True:
        try:
            said = urllib.request.urlopen(url, timeout=5).read().decode()
            if wanted in said:
                return said
        except OSError as error:
            said = repr(error)
        if time.time() > end:
            return said
        time.sleep(0.05)
def ran(*words, **env):
    import subprocess
    end = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})
    return [end.returncode, end.stdout, end.stderr]
def answer(path):
    import http.client, ssl
    account = "/var/run/secrets/kubernetes.io/serviceaccount/"
    context = ssl.create_default_context(cafile=account + "ca.crt")
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    server = http.client.HTTPSConnection(host, port, timeout=10, context=context)
    server.request("GET", path, headers={"Authorization": "Bearer " + open(account + "token").read()})
    return server.getresponse().status
index = os.environ["ORDINAL"] or os.environ["INDEX"] or "0"
told = {"role": os.environ["ROLE"], "index": index, "config": os.environ.get("TF_CONFIG", "")}
while True:
    line.sendall(repr(told).encode() + b"\\n")
    expression = file.readline() or "os._exit(99)"
    for name in ("json", "signal", "socket"):
        if name in expression:
            globals()[name] = __import__(name)
    told = eval(expression)
"""


_PLACE = {"ROLE": ROLE, "INDEX": INDEX, "ORDINAL": "apps.kubernetes.io/pod-index"}


def controlled_container(**more: Any) -> Json:
    """The container of a replica, of a TfJob's unless a name is given."""
    mounts = [{"name": "harness", "mountPath": "/harness"}]
    env: list[Json] = [{"name": "STAGE", "value": "/harness/door"}]
    for name, label in _PLACE.items():
        env.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}})
    command = [sys.executable, "-I", "-S", "-c", ACTOR]
    return {
        "name": "tensorflow", "image": "example.invalid/actor", "command": command, "env": env, "volumeMounts": mounts,
    } | more  # fmt: skip


class ControlledPod:
    """A process in a pod, from its entrance to its end."""

    patience = PATIENCE

    def __init__(self, hello: Json, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.role, self.index = str(hello["role"]).lower(), int(hello["index"])
        self.place = f"{self.role}-{self.index}"
        self.config: Json = json.loads(hello["config"] or "{}")
        self.pid = pid
        self.gone = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._answers.put_nowait(literal_eval(line.decode()))
        except ConnectionError:
            pass  # it was killed with a line of ours unread
        finally:
            self._writer.close()
            self.gone.set()

    def tell(self, expression: str) -> None:
        self._writer.write(f"{expression}\n".encode())

    async def ask(self, expression: str, patience: float = 0) -> Any:
        self.tell(expression)
        async with asyncio.timeout(patience or self.patience):
            answer, gone = asyncio.ensure_future(self._answers.get()), asyncio.ensure_future(self.gone.wait())
            try:
                await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
                assert answer.done(), f"{self.place} has ended, and its log says why: {expression}"
                return answer.result()
            finally:
                answer.cancel()
                gone.cancel()

    async def exit(self, code: int) -> None:
        self.tell(f"os._exit({code})")
        await asyncio.wait_for(self.gone.wait(), self.patience)

    async def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        await asyncio.wait_for(self.gone.wait(), self.patience)
