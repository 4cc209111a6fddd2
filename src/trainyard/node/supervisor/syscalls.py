"""System calls that Python 3.11 lacks. Linux only, except `die_with_parent` and `subreaper`, which have no effect on
other systems. For single-threaded processes only: unshare(CLONE_NEWUSER) fails with EINVAL in any other.

All functions raise OSError."""

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
_CAP_SETUID_AND_SETGID = 1 << 7 | 1 << 6  # bits of a set of capabilities
_MANY_USERS = 1 << 16  # a user namespace with fewer is that of an ordinary user, mostly with itself alone

LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def punch_hole(fd: int, begin: int, size: int) -> None:
    """Deallocate `size` bytes of a file at the offset `begin`: they read as zeros, the file keeps its size."""
    if not LINUX:
        raise OSError(errno.ENOTSUP, "fallocate: only Linux has it")
    _check(_libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(size)), "fallocate")


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """setns(2); `kind`: the CLONE_NEW flag of the namespace. Raises OSError."""
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2); `kind` is the file system type. Raises OSError."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {source} on {target}")


def bind(source: str, target: str) -> None:
    """Bind mount `source` at `target`, recursively: in a user namespace the kernel refuses a bind mount of a part of a
    mount tree."""
    mount(source, target, flags=MS_BIND | MS_REC)


def remount_read_only(target: str) -> None:
    """Make one bind mount read-only. Its present flags are repeated: in a user namespace they are locked."""
    current_flags = os.statvfs(target).f_flag
    kept_flags = 0
    for flag in (MS_NOSUID, MS_NODEV, MS_NOEXEC):
        kept_flags |= current_flags & flag  # ST_* and MS_* have the same values for these three
    mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | kept_flags)


def unmount(target: str) -> None:
    """Detach a mount now (MNT_DETACH); processes that use it keep it until they close its files."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2). Raises OSError."""
    _check(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), f"pivot_root {new}")


def set_hostname(name: str) -> None:
    """sethostname(2). Raises OSError."""
    raw = name.encode()
    _check(_libc.sethostname(raw, ctypes.c_size_t(len(raw))), "sethostname")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its parent ends. Not inherited over fork: every child calls
    it."""
    if LINUX:
        _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl")


def subreaper() -> None:
    """Orphaned descendants become children of this process instead of PID 1."""
    if LINUX:
        _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def write(path: str, text: str) -> None:
    """Write the text into a file of /proc or a cgroup, in one write. Raises OSError."""
    with open(path, "w") as file:
        file.write(text)


def enter_user_namespace(extra: int, uid: int, gid: int) -> None:
    """Enter a new user namespace in which the user `uid` is 0, with the new namespaces `extra` (flags) in it."""
    unshare(NEWUSER | extra)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"0 {uid} 1")
    write("/proc/self/gid_map", f"0 {gid} 1")


def drop_cap_sys_admin() -> None:
    """The next program has no CAP_SYS_ADMIN, as in a container of Kubernetes: it cannot unmount the tmpfs over a hidden
    folder. In a user namespace that it creates it has the capability, but there the kernel locks inherited mounts."""
    _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(_CAP_SYS_ADMIN), 0, 0, 0), "prctl")


def may_change_users() -> bool:
    """Whether this process may give a child any user and group: root that is not alone in its user namespace."""
    try:
        with open("/proc/self/uid_map") as file:
            count = int(file.readline().split()[2])
        with open("/proc/self/status") as file:
            effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    except (OSError, StopIteration, IndexError):  # not Linux
        return False
    return os.getuid() == 0 and count > _MANY_USERS and effective & _CAP_SETUID_AND_SETGID == _CAP_SETUID_AND_SETGID


def restore_user(uid: int, gid: int) -> None:
    """Enter a second user namespace that maps 0 back to `uid`: a program sees the uid of the user of the node
    process."""
    unshare(NEWUSER)
    write("/proc/self/uid_map", f"{uid} 0 1")
    write("/proc/self/gid_map", f"{gid} 0 1")
