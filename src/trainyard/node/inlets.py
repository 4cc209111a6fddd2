"""Sockets in the node's private folder, each of which leads to one port of one pod.

Our own API server uses them for `pods/NAME/proxy` and `services/NAME/proxy`: it runs on this machine, but the networks
of the pods are not its own.

Rules:
- A Unix socket in a folder of mode 0700: nobody else on this machine comes in, as anybody would by a loopback port.
- A socket is made when it is first asked for and goes with its pod.
- A connection that the pod does not take is torn at once; whoever dialled sees that."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainyard.node.streams import Streams, forward

Open = Callable[[str, str, int], Awaitable[Path]]  # namespace, pod, port
LONGEST = 107  # characters of a Unix socket's path


class Inlets:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[tuple[str, int], tuple[Path, asyncio.Server]] = {}
        self._numbers = itertools.count(1)

    async def to(self, uid: str, port: int, dial: Callable[[], Awaitable[Streams]]) -> Path:
        """The socket that leads to that port of the pod. Raises OSError."""
        if found := self._open.get((uid, port)):
            return found[0]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, dial)

        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / str(next(self._numbers))
        if len(str(path)) > LONGEST:
            raise OSError(
                f"{path} is longer than the {LONGEST} characters a socket may have; use a shorter state folder"
            )
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(serve, path)
        if found := self._open.get((uid, port)):  # another asked at the same time
            _shut(path, server)
            return found[0]
        self._open[uid, port] = path, server
        return path

    def close(self, uid: str = "") -> None:
        """Close those of a pod, or all."""
        for key in [key for key in self._open if uid in ("", key[0])]:
            _shut(*self._open.pop(key))


def _shut(path: Path, server: asyncio.Server) -> None:
    server.close()
    path.unlink(missing_ok=True)
