"""System calls that Python 3.11 does not offer, by name. Linux only, but for `die_with_parent` and `subreaper`, which
do nothing elsewhere. Safe only in a single-threaded process: unshare refuses a user namespace to any other."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

NEWNS, NEWUTS, NEWIPC, NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
NEWPID, NEWNET = 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 24, 36
_CAP_SYS_ADMIN = 21

LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def punch_hole(fd: int, begin: int, size: int) -> None:
    """Give these bytes of a file back to the disk: they read as zeros, the file keeps its size."""
    if not LINUX:
        raise OSError(errno.ENOTSUP, "fallocate: only Linux has it")
    _check(_libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(size)), "fallocate")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {source} on {target}")


def bind(source: str, target: str) -> None:
    """Show `source` at `target`. Always recursive: in a user namespace the kernel refuses to show half of a tree."""
    mount(source, target, flags=MS_BIND | MS_REC)


def read_only(target: str) -> None:
    """Make one bound folder read-only. The flags it already has must be repeated where they are locked."""
    have = os.statvfs(target).f_flag
    keep = 0
    for flag in (MS_NOSUID, MS_NODEV, MS_NOEXEC):
        keep |= have & flag  # ST_* and MS_* have the same values for these three
    mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | keep)


def unmount(target: str) -> None:
    """Take a mount away now; what still uses it keeps it until it lets go."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    _check(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), f"pivot_root {new}")


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, ctypes.c_size_t(len(raw))), "sethostname")


def die_with_parent(signal_number: int) -> None:
    """Ask the kernel for a signal when the parent is gone. Lost over fork, so every child asks anew."""
    if LINUX:
        _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl")


def subreaper() -> None:
    """Orphans below this process become its children, not init's."""
    if LINUX:
        _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def become_root_of_a_namespace(extra: int, uid: int, gid: int) -> None:
    """A user namespace of our own in which the ordinary user is 0, with the namespaces `extra` inside it."""
    unshare(NEWUSER | extra)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"0 {uid} 1")
    write("/proc/self/gid_map", f"0 {gid} 1")


def drop_system_administration() -> None:
    """The next program has no CAP_SYS_ADMIN, as in a container of Kubernetes: it cannot take away what covers a folder.
    A user namespace that it makes has it, but there the kernel locks the mounts that it inherits."""
    _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(_CAP_SYS_ADMIN), 0, 0, 0), "prctl")


def become_oneself_again(uid: int, gid: int) -> None:
    """A second user namespace that maps 0 back: a program sees the uid of the person who started it."""
    unshare(NEWUSER)
    write("/proc/self/uid_map", f"{uid} 0 1")
    write("/proc/self/gid_map", f"{gid} 0 1")
