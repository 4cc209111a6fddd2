"""Messages over a Unix stream socket: four bytes of length, JSON, and file descriptors (SCM_RIGHTS) with the first
byte."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

Message = dict[str, Any]
UNREADABLE = "unreadable"  # the event that replaces a message that cannot be read


class Channel:
    """Messages over a stream socket. `receive` does not block if the socket is non-blocking; `send` blocks until the
    peer reads, which the node process always does."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._bytes = bytearray()
        self._fds: list[int] = []

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send one message, and the file descriptors with its first byte. Blocks."""
        raw = self.pack(message, len(fds))
        sent = socket.send_fds(self.sock, [raw], fds) if fds else self.sock.send(raw)
        self.sock.sendall(raw[sent:])

    @staticmethod
    def pack(message: Message, fds: int) -> bytes:
        """A message as bytes: length, then JSON with the number of descriptors."""
        body = json.dumps({**message, "fds": fds}).encode()
        return struct.pack("!I", len(body)) + body

    def receive(self) -> list[tuple[Message, list[int]]] | None:
        """The messages that have arrived, with their descriptors; None when the peer has closed. A message that is no
        JSON object is replaced by an UNREADABLE event with its text; the messages before and after it are not
        affected."""
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
        messages: list[tuple[Message, list[int]]] = []
        while len(self._bytes) >= 4:
            (size,) = struct.unpack_from("!I", self._bytes)
            if len(self._bytes) < 4 + size:
                break
            message = _read(bytes(self._bytes[4 : 4 + size]))
            del self._bytes[: 4 + size]
            count = message["fds"]
            messages.append((message, self._fds[:count]))
            del self._fds[:count]
        return messages


def _read(raw: bytes) -> Message:
    try:
        message = json.loads(raw)
        return {**message, "fds": int(message.get("fds", 0))}
    except (ValueError, TypeError, AttributeError):
        return {"event": UNREADABLE, "text": raw[:200].decode(errors="replace"), "fds": 0}
