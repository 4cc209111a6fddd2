"""Mounts without a mount namespace: texts that contain a mount path are rewritten to the path of the volume. Pure.

Rules: a path matches as a whole (`/data` in `/data/x` and in `--dir=/data`, not in `/database`); the longest mount path
wins; mounts over system folders are refused."""

from __future__ import annotations

import re
from collections.abc import Callable

from trainyard.node.sandbox.supervisor_client import Mount

# A mount over one of these would hide the system: a program that wants it expects a container image.
_SYSTEM = frozenset({"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"})
# Shared memory is that of this machine already.
_AS_IT_IS = frozenset({"/dev/shm"})  # noqa: S108  (a mount point, not a temporary file)


def refusal(mounts: list[Mount]) -> str:
    """Why these mounts are not possible on the shared network, "" when they are."""
    for mount in mounts:
        if mount.target in _SYSTEM:
            return f"a volume on {mount.target} needs a mount namespace; start with --network namespace"
    return ""


def rewriter(mounts: list[Mount]) -> Callable[[str], str]:
    """A function that replaces every mount path in a text by the path of its volume."""
    sources = {
        mount.target.rstrip("/"): mount.source
        for mount in mounts
        if mount.target.rstrip("/") != mount.source and mount.target not in _AS_IT_IS
    }
    if not sources:
        return str
    targets = "|".join(re.escape(target) for target in sorted(sources, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./-])({targets})(?![\w.-])")
    return lambda text: pattern.sub(lambda match: sources[match[1]], text)


def notes(mounts: list[Mount]) -> list[str]:
    """A note for each folder of the user (hostPath, claim) that programs do not find at its mount path."""
    return [
        f"network shared mounts nothing: {mount.target} is {mount.source} here. Paths in the command, in arguments and"
        f" variables are rewritten; for a path inside a program use --network namespace"
        for mount in mounts
        if not mount.pod_owned and mount.target.rstrip("/") != mount.source and mount.target not in _AS_IT_IS
    ]
