"""Limits on requests and connections.

Where kube-apiserver has such a limit, the value is close to its own: 1 MiB for the head of a request in all, 3 MiB for
a body. Timeouts are shorter than its own, because all clients are on this machine.
"""

from __future__ import annotations

import contextlib
import resource

import msgspec

RESERVED_DESCRIPTORS = 512
"""File descriptors reserved for the rest of this process: files, pods, the log on disk, and the connections of the
page, of its forwards and of the node, which have limits of their own."""
_FEWEST = 64  # the minimum of the connection limit, however low the descriptor limit
_ENOUGH = 10_240  # the soft limit to try when the kernel does not accept the hard limit


class Limits(msgspec.Struct, frozen=True):
    """Timeouts in seconds, sizes in bytes. `max_connections` 0: derived from the descriptor limit."""

    handshake_seconds: float = 10.0
    """The whole TLS handshake."""
    head_seconds: float = 100.0
    """From the start of a connection, or the end of a response, until the next request head is complete. Longer than
    the 90 s idle timeout of Go clients, so that the client closes an idle connection."""
    body_seconds: float = 30.0
    """From the end of the head to the end of the body."""
    response_seconds: float = 60.0
    """Until the client has read a response, or one part of a response that is sent in parts."""
    max_line: int = 1 << 16
    """Bytes of the request line. It contains the command of an exec; MPI passes all hosts of a job there."""
    max_field: int = 1 << 15
    """Bytes of one header, name included."""
    max_fields: int = 128
    """Maximum number of headers of a request."""
    max_connections: int = 0

    def connection_limit(self) -> int:
        """The number of open connections: `max_connections`, or what RLIMIT_NOFILE leaves."""
        if self.max_connections:
            return self.max_connections
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return 1 << 20 if soft == resource.RLIM_INFINITY else max(_FEWEST, soft - RESERVED_DESCRIPTORS)


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open files to the hard limit: each watch takes a descriptor. Failures are ignored."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (hard, resource.RLIM_INFINITY):
        return
    for limit in (hard, max(_ENOUGH, soft)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return
