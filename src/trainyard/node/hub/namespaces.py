"""Namespaces of the pods and the bridge between them. Namespace mode only; in the hub process only.

Rule: a namespace lives by the file descriptors held here and the processes in it, by nothing on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from . import calls, netlink  # relative: see the package's docstring

BRIDGE, GATEWAY = "yard0", "10.244.0.1"
POD_BITS = 16
_POD_KINDS = (calls.NEWNET, calls.NEWUTS, calls.NEWIPC)
_NAMES = {calls.NEWNET: "net", calls.NEWUTS: "uts", calls.NEWIPC: "ipc"}


class Pods:
    """Namespaces of the pods, held open by file descriptors: the last one closed, and the kernel takes them away."""

    def __init__(self) -> None:
        self._home = {kind: os.open(f"/proc/self/ns/{_NAMES[kind]}", os.O_RDONLY) for kind in _POD_KINDS}
        self._pid = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._of: dict[str, dict[int, int]] = {}
        self._memory: dict[str, list[str]] = {}
        self._links: dict[str, str] = {}
        self._count = 0
        self._net = netlink.Netlink()
        self._net.up("lo")
        self._net.bridge(BRIDGE, GATEWAY)
        self._net.address(socket.if_nametoindex(BRIDGE), GATEWAY, POD_BITS)
        self._net.up(BRIDGE)

    def own(self, network: str, bits: int) -> None:
        """Every address of that network is the hub's, as those of Services are. Twice is once."""
        try:
            self._net.local_route(network, bits, socket.if_nametoindex("lo"))
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise

    def add(self, pod: str, hostname: str, address: str, memory: list[str]) -> None:
        try:
            self._make(pod, hostname, address, memory)
        except BaseException:
            self.remove(pod)
            raise

    def _make(self, pod: str, hostname: str, address: str, memory: list[str]) -> None:
        """Each thing is written down as soon as it is there, for `remove`."""
        fds: dict[int, int] = {}
        mounted: list[str] = []
        self._of[pod], self._memory[pod] = fds, mounted
        self._count += 1
        try:
            calls.unshare(calls.NEWNET | calls.NEWUTS | calls.NEWIPC)
            for kind in _POD_KINDS:
                fds[kind] = os.open(f"/proc/self/ns/{_NAMES[kind]}", os.O_RDONLY)
            calls.set_hostname(hostname)
            inside = netlink.Netlink()
            inside.up("lo")
            with contextlib.suppress(OSError):  # as container runtimes do: any user may listen on port 80 of a pod
                calls.write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
        finally:
            for kind, fd in self._home.items():
                calls.setns(fd, kind)
        link = f"pod{self._count}"
        self._net.veth(link, BRIDGE, address, fds[calls.NEWNET])
        self._links[pod] = link
        # The pair is made one after the other in a fresh namespace: its eth0 is always the same number, but ask anyway.
        calls.setns(fds[calls.NEWNET], calls.NEWNET)
        try:
            index = socket.if_nametoindex("eth0")
        finally:
            calls.setns(self._home[calls.NEWNET], calls.NEWNET)
        inside.address(index, address, POD_BITS)
        inside.up("eth0")
        inside.default_route(GATEWAY)
        inside.close()
        for folder in memory:
            calls.mount("tmpfs", folder, "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, "mode=1777")
            mounted.append(folder)

    def remove(self, pod: str) -> None:
        for folder in self._memory.pop(pod, []):
            with contextlib.suppress(OSError):
                calls.unmount(folder)
        if link := self._links.pop(pod, ""):
            with contextlib.suppress(OSError):
                self._net.delete(link)  # at once; the namespace itself goes when its last process has gone
        for fd in self._of.pop(pod, {}).values():
            os.close(fd)

    def fork(self) -> int:
        """Fork a child that is PID 1 of a pid namespace of its own."""
        calls.unshare(calls.NEWPID)
        child = -1
        try:
            child = os.fork()
        finally:
            if child != 0:
                calls.setns(self._pid, calls.NEWPID)
        return child

    def enter(self, pod: str) -> None:
        for kind, fd in self._of[pod].items():
            calls.setns(fd, kind)
