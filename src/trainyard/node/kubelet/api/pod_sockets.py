"""Unix sockets in the node's private folder, each of which forwards to one port of one pod.

The embedded API server uses them for `pods/NAME/proxy` and `services/NAME/proxy`: it runs on this machine, but not in
the network namespaces of the pods.

Rules:
- A Unix socket in a folder of mode 0700: other users of this machine cannot connect, as they could to a loopback port.
- A socket is created at the first request for it and removed with its pod.
- A connection that the pod does not accept is aborted at once, and the client gets that error."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainyard.node.network.proxy import Streams, forward

SocketOpener = Callable[[str, str, int], Awaitable[Path]]  # namespace, pod, port
MAX_SOCKET_PATH = 107  # characters of a Unix socket's path (sun_path)


class PodSockets:
    """Unix sockets that forward to ports of pods, one for each port that was requested."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sockets: dict[tuple[str, int], tuple[Path, asyncio.Server]] = {}
        self._numbers = itertools.count(1)

    async def open(self, uid: str, port: int, dial: Callable[[], Awaitable[Streams]]) -> Path:
        """The path of the socket that forwards to that port of the pod. Raises OSError."""
        if entry := self._sockets.get((uid, port)):
            return entry[0]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, dial)

        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / str(next(self._numbers))
        if len(str(path)) > MAX_SOCKET_PATH:
            raise OSError(
                f"{path} is longer than the {MAX_SOCKET_PATH} characters a socket may have; use a shorter state folder"
            )
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(serve, path)
        if entry := self._sockets.get((uid, port)):  # a concurrent request has created it
            _close_socket(path, server)
            return entry[0]
        self._sockets[uid, port] = path, server
        return path

    def close(self, uid: str = "") -> None:
        """Close the sockets of a pod, or all."""
        for key in [key for key in self._sockets if uid in ("", key[0])]:
            _close_socket(*self._sockets.pop(key))


def _close_socket(path: Path, server: asyncio.Server) -> None:
    server.close()
    path.unlink(missing_ok=True)
