"""Packages of Debian, at the versions of a lock file: downloaded by apt and unpacked, not installed.

    archive = Archive(folder)                                  it may be removed afterwards
    archive.unpack(locked(path), tree)

Rules:
- A lock file has a line `PACKAGE=VERSION SHA-256` for each package. No dependency is added: the file names all.
- No script of a package runs. The packages of the machine are neither read nor changed.
- Debian's `main` of bookworm no longer changes, so that the versions stay there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.control_plane_build import BuildError

SUITE, MIRROR, KEYRING = "bookworm", "http://deb.debian.org/debian", "/usr/share/keyrings/debian-archive-keyring.gpg"
MERGED = ("bin", "sbin", "lib", "lib64")  # links into usr, as Debian has them


def locked(path: Path) -> dict[str, str]:
    """package=version -> its SHA-256."""
    return dict(line.split() for line in path.read_text().splitlines())


class Archive:
    """Debian's archive, as an apt sees it that knows the one suite, and no installed package. It writes into `work`."""

    def __init__(self, work: Path) -> None:
        self._packages = work / "cache" / "archives"
        self._apt = ["apt-get", "-q", *_apt_options(work)]
        command([*self._apt, "update"])

    def unpack(self, packages: Mapping[str, str], target: Path) -> None:
        """Into a tree, which need not exist. Raises BuildError."""
        command([*self._apt, "download", *packages], self._packages)
        for link in MERGED:
            (target / "usr" / link).mkdir(parents=True)
            (target / link).symlink_to(f"usr/{link}")
        for package, expected in packages.items():
            self._unpack(package, expected, target)

    def _unpack(self, package: str, expected: str, target: Path) -> None:
        name, version = package.split("=")
        (file,) = self._packages.glob(f"{name}_{version.replace(':', '%3a')}_*.deb")
        if (digest := hashlib.sha256(file.read_bytes()).hexdigest()) != expected:
            raise BuildError(f"{package}: its SHA-256 is {digest}, not {expected} as in its lock file")
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE) as tar:
            # /bin and the like of a package go through the links
            options = ["-x", "--keep-directory-symlink", "-f", "-"]
            completed = subprocess.run(
                ["tar", "-C", str(target), *options], stdin=tar.stdout, capture_output=True, text=True
            )
        if completed.returncode or tar.returncode:
            raise BuildError(f"{file.name} cannot be unpacked into {target}: {completed.stderr}")


def _apt_options(work: Path) -> list[str]:
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    (work / "sources").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {SUITE} main\n")
    options: Mapping[str, object] = {
        "APT::Architecture": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",  # its own user may not read our folder
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def command(words: Sequence[str], folder: Path | None = None) -> str:
    """What it prints. Raises BuildError with the end of that."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    completed = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if completed.returncode:
        tail = "\n".join((completed.stderr or completed.stdout).splitlines()[-20:])
        raise BuildError(f"`{' '.join(words[:2])}` failed; {MIRROR} must be reachable:\n{tail}")
    return completed.stdout
