"""How much one client may ask of the server, as numbers.

Where the real API server has such a limit, the number is near to its own: one MiB for the head of a request in all,
3 MiB for a body. Times are for a client on this machine, so they are shorter.
"""

from __future__ import annotations

import contextlib
import resource

import msgspec

SPARE = 256
"""Descriptors that connections leave to everything else in this process: files, pods, the log on disk."""
_FEWEST = 64  # connections, however few descriptors there are
_ENOUGH = 10_240  # where the hard limit says "any number", the kernel may still take no more than that


class Limits(msgspec.Struct, frozen=True):
    """Seconds, bytes and numbers. `connections` 0: as many as descriptors are left for."""

    handshake: float = 10.0
    """TLS, from the first byte to the last."""
    head: float = 100.0
    """From the beginning of a connection, or the end of an answer, until the next head is whole. Longer than the 90 s
    for which clients written in Go keep a connection that is not used, so that it is they who close it."""
    body: float = 30.0
    """From the end of the head to the end of the body."""
    answer: float = 60.0
    """Until the client has taken away an answer, or one part of one that is sent in parts."""
    line: int = 1 << 16
    """Bytes of the first line. The command of an exec is part of it: MPI names all hosts of a job there."""
    field: int = 1 << 15
    """Bytes of one header with its name."""
    fields: int = 128
    """Headers of a request."""
    connections: int = 0

    def most_connections(self) -> int:
        if self.connections:
            return self.connections
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return 1 << 20 if soft == resource.RLIM_INFINITY else max(_FEWEST, soft - SPARE)


def raise_descriptors() -> None:
    """Let this process open as many files as it may: each watch is one. What it may not have it goes without."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _ENOUGH):
        if wanted != soft and (soft != resource.RLIM_INFINITY):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return
