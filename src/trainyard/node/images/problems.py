"""What can be wrong with an image, in the kubelet's words for the reason and a person's words for the message."""

from __future__ import annotations

import os
from collections.abc import Iterable

# The kubelet's reasons for a container that waits.
UNKNOWN = "ErrImageNeverPull"  # nobody has said what this image is
FAILED = "ErrImagePull"  # its environment cannot be had now; the node tries again
NO_COMMAND = "CreateContainerError"  # nothing to start


# What `make frameworks` installs (SYSTEM in the Makefile), and what these packages bring along.
FRAMEWORKS = frozenset(
    ["python3-torch", "python3-numpy", "python3-etcd", "etcd-server", "openmpi-bin", "libgomp1", "libquadmath0"]
)


def installation(packages: Iterable[str]) -> str:
    """The command that brings packages of the operating system: ours where it has them all, and Debian's."""
    names = list(dict.fromkeys(packages))
    root = "" if os.geteuid() == 0 else "sudo "
    debian = f"on Debian: {root}apt-get install -y {' '.join(names)}"
    return f"run 'make frameworks' in a checkout of trainyard, or, {debian}" if set(names) <= FRAMEWORKS else debian


class ImageProblem(Exception):
    """An image cannot be used. `reason` is the kubelet's, `message` is one sentence or two and names the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
