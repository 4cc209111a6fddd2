"""The first process of a node's namespaces: `real_node_sandbox.py FOLDER BUILD HOSTNAME ADDRESS VISIBLE...`.

`unshare` has started it in new mnt, pid, net, uts, ipc and cgroup namespaces. It builds the node's root, pivots into
it, writes FOLDER/sandbox (its process id as its starter sees it), and becomes the program `pause`, which reaps
processes.

Rules:
- Nothing is written outside FOLDER. Every mount is in the mount namespace, and ends with the last process in it.
- FOLDER and the folders VISIBLE (read-only) have the same paths within, so that flags name the same files.
- The kubelet sets six kernel settings that are the whole machine's. It finds files of ours in their place, which have
  its values.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from trainyard.node.supervisor import netlink, syscalls

LINKS = ("bin", "sbin", "lib", "lib64")
STATE = ("lib/containerd", "lib/kubelet", "lib/cni", "log/pods", "log/containers", "tmp")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg")
SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
PRIVATE = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
MS_SHARED = 1 << 20


def main() -> None:
    folder, build, hostname, address, *visible = sys.argv[1:]
    pid = os.readlink("/proc/self")  # /proc is still that of the starter's pid namespace
    root = f"{folder}/root"
    os.mkdir(root)
    syscalls.mount("tmpfs", root, "tmpfs", options="mode=755")
    os.mkdir(f"{root}/usr")
    _bind(f"{build}/root/usr", f"{root}/usr")
    syscalls.remount_read_only(f"{root}/usr")
    for name in LINKS:
        os.symlink(f"usr/{name}", f"{root}/{name}")
    _etc(f"{root}/etc", hostname)
    _devices(f"{root}/dev")
    _system(root)
    _bind(folder, f"{root}{folder}")
    for path in visible:
        _bind(path, f"{root}{path}")
        syscalls.remount_read_only(f"{root}{path}")
    for name in STATE:
        os.makedirs(f"{folder}/var/{name}", exist_ok=True)
    _bind(f"{folder}/var", f"{root}/var")
    os.mkdir(f"{root}/old")
    syscalls.pivot_root(root, f"{root}/old")
    os.chdir("/")
    syscalls.unmount("/old")
    syscalls.mount("none", "/", flags=syscalls.MS_REC | MS_SHARED)  # mounts of the kubelet reach its containers
    syscalls.set_hostname(hostname)
    link = netlink.Netlink()
    link.up("lo")
    link.address(socket.if_nametoindex("lo"), address, 32)
    link.close()
    syscalls.write("/proc/sys/net/ipv4/ip_forward", "1")
    _ready(Path(folder), pid)
    os.execv(f"{build}/bin/pause", ["pause"])  # noqa: S606 - a list, no shell


def _bind(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    syscalls.mount(source, target, flags=syscalls.MS_BIND)


def _etc(etc: str, hostname: str) -> None:
    files = {
        "passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "group": "root:x:0:\n",
        "hosts": f"127.0.0.1 localhost {hostname}\n",
        "resolv.conf": "",
        "machine-id": f"{os.urandom(16).hex()}\n",
    }
    os.mkdir(etc)
    for name, text in files.items():
        Path(etc, name).write_text(text)


def _devices(dev: str) -> None:
    os.mkdir(dev)
    syscalls.mount("tmpfs", dev, "tmpfs", options="mode=755")
    for name in DEVICES:
        status = os.stat(f"/dev/{name}")
        os.mknod(f"{dev}/{name}", status.st_mode, status.st_rdev)
        os.chmod(f"{dev}/{name}", status.st_mode & 0o777)
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620,gid=5"),
        ("shm", "tmpfs", ""),
        ("mqueue", "mqueue", ""),
    ):
        os.mkdir(f"{dev}/{name}")
        syscalls.mount(kind, f"{dev}/{name}", kind, options=options)
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1")):
        os.symlink(target, f"{dev}/{name}")
    os.symlink("fd/2", f"{dev}/stderr")


def _system(root: str) -> None:
    """/proc, /sys with the cgroups of the cgroup namespace, /run and /tmp."""
    for name, kind in (("proc", "proc"), ("sys", "sysfs"), ("run", "tmpfs"), ("tmp", "tmpfs")):
        os.makedirs(f"{root}/{name}", exist_ok=True)
        if not os.path.ismount(f"{root}/{name}"):
            syscalls.mount(kind, f"{root}/{name}", kind, PRIVATE if kind != "tmpfs" else 0)
    cgroups = f"{root}/sys/fs/cgroup"
    syscalls.mount("tmpfs", cgroups, "tmpfs", PRIVATE, "mode=755")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, _ = line.split(":", 2)
        name, kind, options = controllers.removeprefix("name="), "cgroup", controllers
        if number == "0":
            name, kind, options = "unified", "cgroup2", ""
        elif controllers.startswith("name="):
            options = f"none,{controllers}"
        os.mkdir(f"{cgroups}/{name}")
        syscalls.mount("cgroup", f"{cgroups}/{name}", kind, PRIVATE, options)
    os.mkdir(f"{root}/run/settings")
    for name, value in SETTINGS.items():
        file = f"{root}/run/settings/{name.replace('/', '.')}"
        syscalls.write(file, f"{value}\n")
        syscalls.mount(file, f"{root}/proc/sys/{name}", flags=syscalls.MS_BIND)


def _ready(folder: Path, pid: str) -> None:
    """The file appears with its content."""
    (folder / "sandbox.new").write_text(pid)
    (folder / "sandbox.new").rename(folder / "sandbox")


if __name__ == "__main__":
    main()
