"""What `trainyard up` hands over to the process that becomes the daemon of a background cluster."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

MAX_MESSAGE = 1 << 20  # bytes


class HandOver(NamedTuple):
    """What the daemon gets. All but `folder` and `options` are open file descriptors."""

    folder: Path
    options: dict[str, Any]
    lock: int
    pipe: int
    log: int
    certificates: int | None = None
    """The output of a CertificateProcess, for a cluster that has no certificate yet."""


def send(connection: socket.socket, what: HandOver) -> None:
    """Let the process at the other end go on as the daemon. Raises OSError."""
    message = json.dumps([str(what.folder), what.options]).encode()
    fds = [what.lock, what.pipe, what.log, *([] if what.certificates is None else [what.certificates])]
    sent = socket.send_fds(connection, [message], fds)
    connection.sendall(message[sent:])
    connection.shutdown(socket.SHUT_WR)


def receive() -> HandOver | None:
    """In that process: wait for the hand-over on standard input. None when `trainyard up` has ended without one."""
    with socket.socket(fileno=os.dup(0)) as connection:
        message, fds, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 4)
        if not message:
            return None
        for fd in fds:
            os.set_inheritable(fd, False)
        while part := connection.recv(MAX_MESSAGE):
            message += part
    folder, options = json.loads(message)
    return HandOver(Path(folder), options, *fds)
