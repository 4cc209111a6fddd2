"""Namespaces of the pods and the bridge between them. Namespace mode only; in the supervisor process only.

Rule: a namespace is kept by the file descriptors held here and by the processes in it, by nothing on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from . import netlink, syscalls  # relative: see the package's docstring

BRIDGE, GATEWAY = "br-trainyard", "10.244.0.1"
POD_BITS = 16
_POD_KINDS = (syscalls.NEWNET, syscalls.NEWUTS, syscalls.NEWIPC)
_NAMES = {syscalls.NEWNET: "net", syscalls.NEWUTS: "uts", syscalls.NEWIPC: "ipc"}


class PodNamespaces:
    """Namespaces of the pods, kept by file descriptors: the kernel removes a namespace after its last one is closed."""

    def __init__(self) -> None:
        self._own_namespaces = {kind: os.open(f"/proc/self/ns/{_NAMES[kind]}", os.O_RDONLY) for kind in _POD_KINDS}
        self._pid = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._namespaces: dict[str, dict[int, int]] = {}
        self._memory: dict[str, list[str]] = {}
        self._links: dict[str, str] = {}
        self._count = 0
        self._host_netlink = netlink.Netlink()
        self._host_netlink.up("lo")
        _disable_ipv6()
        self._host_netlink.bridge(BRIDGE, GATEWAY)
        self._host_netlink.address(socket.if_nametoindex(BRIDGE), GATEWAY, POD_BITS)
        self._host_netlink.up(BRIDGE)

    def add_local_route(self, network: str, bits: int) -> None:
        """Make all addresses of `network`/`bits` local in the supervisor's network namespace, as for Services.
        Idempotent. Raises OSError."""
        try:
            self._host_netlink.local_route(network, bits, socket.if_nametoindex("lo"))
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise

    def add(self, pod: str, hostname: str, address: str, memory: dict[str, int]) -> None:
        """Create the namespaces of a pod: network with `address`, hostname, and a tmpfs at each folder of `memory`, for
        its group (-1: for none). If it fails, nothing stays. Raises OSError."""
        try:
            self._create(pod, hostname, address, memory)
        except BaseException:
            self.remove(pod)
            raise

    def _create(self, pod: str, hostname: str, address: str, memory: dict[str, int]) -> None:
        """Create the namespaces, the veth pair and the tmpfs mounts; each is recorded at once, for `remove`."""
        fds: dict[int, int] = {}
        mounted: list[str] = []
        self._namespaces[pod], self._memory[pod] = fds, mounted
        self._count += 1
        try:
            syscalls.unshare(syscalls.NEWNET | syscalls.NEWUTS | syscalls.NEWIPC)
            for kind in _POD_KINDS:
                fds[kind] = os.open(f"/proc/self/ns/{_NAMES[kind]}", os.O_RDONLY)
            syscalls.set_hostname(hostname)
            inside = netlink.Netlink()
            inside.up("lo")
            _disable_ipv6()
            with contextlib.suppress(OSError):  # as in container runtimes: any user may listen on port 80 of a pod
                syscalls.write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
        finally:
            for kind, fd in self._own_namespaces.items():
                syscalls.setns(fd, kind)
        link = f"pod{self._count}"
        self._host_netlink.veth(link, BRIDGE, address, fds[syscalls.NEWNET])
        self._links[pod] = link
        # In a new namespace eth0 usually has the same index, but that is not guaranteed.
        syscalls.setns(fds[syscalls.NEWNET], syscalls.NEWNET)
        try:
            index = socket.if_nametoindex("eth0")
        finally:
            syscalls.setns(self._own_namespaces[syscalls.NEWNET], syscalls.NEWNET)
        inside.address(index, address, POD_BITS)
        inside.up("eth0")
        inside.default_route(GATEWAY)
        inside.close()
        for folder, group in memory.items():
            options = "mode=1777" if group < 0 else f"mode=3777,gid={group}"
            syscalls.mount("tmpfs", folder, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
            mounted.append(folder)

    def remove(self, pod: str) -> None:
        """Unmount the tmpfs folders, delete the network link and close the namespaces; no error if they are gone."""
        for folder in self._memory.pop(pod, []):
            with contextlib.suppress(OSError):
                syscalls.unmount(folder)
        if link := self._links.pop(pod, ""):
            with contextlib.suppress(OSError):
                self._host_netlink.delete(link)  # at once; the namespace itself is removed after its last process
        for fd in self._namespaces.pop(pod, {}).values():
            os.close(fd)

    def fork(self) -> int:
        """Fork a child that is PID 1 of a new pid namespace; returns as os.fork. Raises OSError."""
        syscalls.unshare(syscalls.NEWPID)
        child = -1
        try:
            child = os.fork()
        finally:
            if child != 0:
                syscalls.setns(self._pid, syscalls.NEWPID)
        return child

    def enter(self, pod: str) -> None:
        """Move this process into the namespaces of the pod. Raises OSError."""
        for kind, fd in self._namespaces[pod].items():
            syscalls.setns(fd, kind)


def _disable_ipv6() -> None:
    """No IPv6 on interfaces that this network namespace gets from now on: it has lo already, where ::1 stays. Pods have
    IPv4 addresses only, but each link would send its neighbour discovery to all others: N x N packets."""
    with contextlib.suppress(OSError):
        syscalls.write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")


def enter_namespaces() -> None:
    """Move this process, which becomes the watcher, into new namespaces. Raises OSError."""
    # UTS and IPC, too: setns back from a pod's namespace works only to one that belongs to the same user namespace.
    flags = syscalls.NEWNET | syscalls.NEWNS | syscalls.NEWPID | syscalls.NEWUTS | syscalls.NEWIPC
    if not syscalls.LINUX:
        raise OSError("it needs Linux")
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        with contextlib.suppress(PermissionError):
            syscalls.unshare(flags)
            return
    syscalls.enter_user_namespace(flags, uid, gid)
