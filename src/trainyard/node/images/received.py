"""How many bytes have come in over the network for a program: what the kernel counts for its TCP connections.

Linux says that to anybody for their own programs (sock_diag, tcp_info). Where it does not, nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_INET_DIAG_INFO = 2
_INODE_AT, _ATTRIBUTES_AT = 68, 72  # in struct inet_diag_msg
_BYTES_RECEIVED_AT = 128  # in struct tcp_info


class Received:
    """The bytes that a program and its children have received, counted at each `measure`."""

    def __init__(self) -> None:
        self._by_socket: dict[int, int] = {}
        self.known = True

    def measure(self, pid: int) -> int:
        """Bytes so far. A connection that was closed counts with what it had when it was last seen."""
        try:
            counts = _connections()
        except (OSError, struct.error, AttributeError):
            self.known = False
            return self.total
        for inode in _sockets(pid):
            if inode in counts:
                self._by_socket[inode] = max(counts[inode], self._by_socket.get(inode, 0))
        return self.total

    @property
    def total(self) -> int:
        return sum(self._by_socket.values())


def _sockets(pid: int) -> set[int]:
    """The inodes of the sockets of a process and of all below it."""
    found = set()
    process = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        for link in os.scandir(process / "fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(link.path)
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
        for children in process.glob("task/*/children"):
            for child in children.read_text().split():
                found |= _sockets(int(child))
    return found


def _connections() -> dict[int, int]:
    """Inode -> bytes received, of every TCP connection of this network namespace. Raises OSError."""
    counts: dict[int, int] = {}
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        for family in (socket.AF_INET, socket.AF_INET6):
            every_state = 0xFFFFFFFF
            asked = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, every_state)
            kernel.send(struct.pack("=IHHII", 16 + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0) + asked)
            while _take(kernel.recv(1 << 17), counts):
                pass
    return counts


def _take(data: bytes, counts: dict[int, int]) -> bool:
    """Reads one answer; False when it is the last."""
    while data:
        size, kind = struct.unpack_from("=IH", data)
        if kind in (_ERROR, _DONE) or size < 16:
            return False
        message, data = data[16:size], data[(size + 3) & ~3 :]
        (inode,) = struct.unpack_from("=I", message, _INODE_AT)
        at = _ATTRIBUTES_AT
        while at + 4 <= len(message):
            length, attribute = struct.unpack_from("=HH", message, at)
            if attribute == _INET_DIAG_INFO and length >= 4 + _BYTES_RECEIVED_AT + 8:
                (counts[inode],) = struct.unpack_from("=Q", message, at + 4 + _BYTES_RECEIVED_AT)
            at += max(4, (length + 3) & ~3)
    return True
