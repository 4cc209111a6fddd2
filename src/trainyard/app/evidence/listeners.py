"""What /proc has of this machine: the processes that listen on TCP ports, as far as this user can read them, and the
id of its start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
MAX_COMMAND_LENGTH = 60


def listeners(ports: Iterable[int], pods: Mapping[str, str], proc: Path = PROC) -> dict[int, str]:
    """Port -> text about the process that listens on it. `pods` maps host names to pod names: the text for a process
    with such a HOSTNAME variable names the pod."""
    wanted = set(ports)
    sockets = {inode: port for inode, port in _listening_sockets(proc) if port in wanted}
    holders: dict[int, str] = {}
    for folder in proc.glob("[0-9]*") if sockets else ():
        for inode in _open_sockets(folder):
            if inode in sockets and sockets[inode] not in holders:
                holders[sockets[inode]] = _process_text(folder, pods)
    for port in sockets.values():
        holders.setdefault(port, "a program of another user")
    return holders


def boot_id(proc: Path = PROC) -> str:
    """The id of this start of the machine's kernel, which nodes report; "" when it cannot be read."""
    return _read_or_empty(proc / "sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def _listening_sockets(proc: Path) -> Iterator[tuple[str, int]]:
    """The inode and the port of each TCP socket in the state LISTEN."""
    for table in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (proc / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    yield fields[9], int(fields[1].rpartition(":")[2], 16)


def _open_sockets(folder: Path) -> Iterator[str]:
    try:
        descriptors = os.listdir(folder / "fd")
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(folder / "fd" / descriptor)
            if target.startswith("socket:["):
                yield target[8:-1]


def _process_text(folder: Path, pods: Mapping[str, str]) -> str:
    """The text "process 4711 (python serve.py)", with the pod of the process before it."""
    command = _read_or_empty(folder / "cmdline").replace(b"\0", b" ").strip() or _read_or_empty(folder / "comm").strip()
    command_text = " ".join(command.decode("utf-8", "replace").split())
    command_text = (
        command_text if len(command_text) <= MAX_COMMAND_LENGTH else f"{command_text[: MAX_COMMAND_LENGTH - 1]}…"
    )
    variables = _read_or_empty(folder / "environ").split(b"\0")
    hosts = [variable[9:] for variable in variables if variable.startswith(b"HOSTNAME=")]
    host = hosts[0].decode("utf-8", "replace") if hosts else ""
    pod_text = f"pod {pods[host]}, " if host in pods else ""
    return f"{pod_text}process {folder.name} ({command_text})"


def _read_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
