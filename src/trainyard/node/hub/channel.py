"""Messages over a Unix stream socket: four bytes of length, JSON, and file descriptors beside the first byte."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

Message = dict[str, Any]
UNREADABLE = "unreadable"  # the event in place of a message that cannot be read


class Channel:
    """Messages over a stream socket. Reading never blocks, writing does: the runner always reads."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._bytes = bytearray()
        self._fds: list[int] = []

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        raw = self.pack(message, len(fds))
        sent = socket.send_fds(self.sock, [raw], fds) if fds else self.sock.send(raw)
        self.sock.sendall(raw[sent:])

    @staticmethod
    def pack(message: Message, fds: int) -> bytes:
        body = json.dumps({**message, "fds": fds}).encode()
        return struct.pack("!I", len(body)) + body

    def receive(self) -> list[tuple[Message, list[int]]] | None:
        """The messages that have arrived; None when the other side is gone. One that is no JSON object arrives as
        UNREADABLE with its text: those beside it are whole."""
        try:
            piece, fds, _, _ = socket.recv_fds(self.sock, 1 << 18, 64)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not piece:
            return None
        self._bytes += piece
        for fd in fds:
            os.set_inheritable(fd, False)
        self._fds += fds
        found: list[tuple[Message, list[int]]] = []
        while len(self._bytes) >= 4:
            (size,) = struct.unpack_from("!I", self._bytes)
            if len(self._bytes) < 4 + size:
                break
            message = _read(bytes(self._bytes[4 : 4 + size]))
            del self._bytes[: 4 + size]
            count = message["fds"]
            found.append((message, self._fds[:count]))
            del self._fds[:count]
        return found


def _read(raw: bytes) -> Message:
    try:
        message = json.loads(raw)
        return {**message, "fds": int(message.get("fds", 0))}
    except (ValueError, TypeError, AttributeError):
        return {"event": UNREADABLE, "text": raw[:200].decode(errors="replace"), "fds": 0}
