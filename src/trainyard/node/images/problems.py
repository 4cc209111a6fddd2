"""Image problems: the kubelet's reasons, and a message for the user."""

from __future__ import annotations

import os
from collections.abc import Iterable

# The kubelet's reasons of a waiting container.
UNKNOWN = "ErrImageNeverPull"  # no entry matches this image, and the container has no command
FAILED = "ErrImagePull"  # its environment is not available now; the node retries
NO_COMMAND = "CreateContainerError"  # neither the entry nor the container has a program to start


# The packages that `make frameworks` installs (SYSTEM in the Makefile), and some of their dependencies.
FRAMEWORKS = frozenset(
    [
        "python3-torch",
        "python3-numpy",
        "python3-etcd",
        "etcd-server",
        "openmpi-bin",
        "openssh-client",
        "openssh-server",
        "libgomp1",
        "libquadmath0",
    ]
)


def install_command(packages: Iterable[str]) -> str:
    """The command that installs packages of the operating system: `make frameworks` if it installs all of them, and
    apt-get."""
    names = list(dict.fromkeys(packages))
    root = "" if os.geteuid() == 0 else "sudo "
    debian = f"on Debian: {root}apt-get install -y {' '.join(names)}"
    if "openssh-server" in names:  # `make frameworks` does this itself
        debian += f" && {root}systemctl disable --now ssh, so that nobody gets into this machine"
    return f"run 'make frameworks' in a checkout of trainyard, or, {debian}" if set(names) <= FRAMEWORKS else debian


class ImageProblem(Exception):
    """An image cannot be used. `reason` is the kubelet's; `message` is one sentence or two and names the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
