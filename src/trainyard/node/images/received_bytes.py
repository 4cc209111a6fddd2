"""The number of bytes that a program has received over the network, from the kernel's counters of TCP connections.

Linux has these counters without privileges (sock_diag, tcp_info). On other systems the number is unknown.
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
_INODE_OFFSET, _ATTRIBUTES_OFFSET = 68, 72  # in struct inet_diag_msg
_BYTES_RECEIVED_OFFSET = 128  # in struct tcp_info


class ReceivedBytes:
    """The bytes that a process and its children have received. `is_countable` is False if they cannot be counted."""

    def __init__(self) -> None:
        self._by_socket: dict[int, int] = {}
        self.is_countable = True

    def measure(self, pid: int) -> int:
        """Bytes so far. A closed connection counts with its number at the last measurement before."""
        try:
            counts = _bytes_by_inode()
        except (OSError, struct.error, AttributeError):
            self.is_countable = False
            return self.total
        for inode in _socket_inodes(pid):
            if inode in counts:
                self._by_socket[inode] = max(counts[inode], self._by_socket.get(inode, 0))
        return self.total

    @property
    def total(self) -> int:
        """Bytes received so far by all sockets of the observed processes."""
        return sum(self._by_socket.values())


def _socket_inodes(pid: int) -> set[int]:
    """The inodes of the sockets of a process and of all its descendants."""
    inodes = set()
    process = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        for link in os.scandir(process / "fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(link.path)
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
        for children in process.glob("task/*/children"):
            for child in children.read_text().split():
                inodes |= _socket_inodes(int(child))
    return inodes


def _bytes_by_inode() -> dict[int, int]:
    """Inode -> bytes received, of every TCP connection of this network namespace. Raises OSError."""
    counts: dict[int, int] = {}
    socket_type = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, socket_type, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(1)
        for family in (socket.AF_INET, socket.AF_INET6):
            every_state = 0xFFFFFFFF
            request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, every_state)
            netlink.send(struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0) + request)
            while _parse_reply(netlink.recv(1 << 17), counts):
                pass
    return counts


def _parse_reply(data: bytes, counts: dict[int, int]) -> bool:
    """Parse the messages of one datagram into `counts`; False if the dump has ended."""
    while data:
        size, message_type = struct.unpack_from("=IH", data)
        if message_type in (_ERROR, _DONE) or size < 16:
            return False
        message, data = data[16:size], data[(size + 3) & ~3 :]
        (inode,) = struct.unpack_from("=I", message, _INODE_OFFSET)
        offset = _ATTRIBUTES_OFFSET
        while offset + 4 <= len(message):
            length, attribute = struct.unpack_from("=HH", message, offset)
            if attribute == _INET_DIAG_INFO and length >= 4 + _BYTES_RECEIVED_OFFSET + 8:
                (counts[inode],) = struct.unpack_from("=Q", message, offset + 4 + _BYTES_RECEIVED_OFFSET)
            offset += max(4, (length + 3) & ~3)
    return True
