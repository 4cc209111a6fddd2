"""The messages of an init to the supervisor: lines of JSON, see init.py."""

from __future__ import annotations

import contextlib
import json
import socket

from .channel import Message  # relative: see the package's docstring


class InitSocket:
    """The supervisor's end of an init's exec socket, and the messages of the init that have been read from it."""

    def __init__(self, container: str, sock: socket.socket) -> None:
        self.container, self.sock = container, sock
        self.message: Message = {}  # all messages, merged
        self._rest = b""

    def read(self) -> bool:
        """Read the messages available now. Returns False when the init has closed its end."""
        is_open = False
        try:
            while piece := self.sock.recv(1 << 16):
                self._rest += piece
        except OSError as error:
            is_open = isinstance(error, BlockingIOError)
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                self.message |= json.loads(line)
        return is_open
