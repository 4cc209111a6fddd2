"""Who listens on a TCP port of this machine, as far as /proc tells this user."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
LONGEST = 60


def listeners(ports: Iterable[int], pods: Mapping[str, str], proc: Path = PROC) -> dict[int, str]:
    """Port -> the program that listens there. `pods` are pods by host name: a process of one of them is named by it."""
    wanted = set(ports)
    sockets = {inode: port for inode, port in _sockets(proc) if port in wanted}
    holders: dict[int, str] = {}
    for folder in proc.glob("[0-9]*") if sockets else ():
        for inode in _open_sockets(folder):
            if inode in sockets and sockets[inode] not in holders:
                holders[sockets[inode]] = _name(folder, pods)
    for port in sockets.values():
        holders.setdefault(port, "a program of another user")
    return holders


def _sockets(proc: Path) -> Iterator[tuple[str, int]]:
    """Inode and port of each socket that listens."""
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


def _name(folder: Path, pods: Mapping[str, str]) -> str:
    """process 4711 (python serve.py), and the pod that it belongs to."""
    command = _read(folder / "cmdline").replace(b"\0", b" ").strip() or _read(folder / "comm").strip()
    words = " ".join(command.decode("utf-8", "replace").split())
    words = words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
    variables = _read(folder / "environ").split(b"\0")
    hosts = [variable[9:] for variable in variables if variable.startswith(b"HOSTNAME=")]
    host = hosts[0].decode("utf-8", "replace") if hosts else ""
    inside = f"pod {pods[host]}, " if host in pods else ""
    return f"{inside}process {folder.name} ({words})"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
