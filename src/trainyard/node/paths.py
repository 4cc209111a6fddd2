"""Mounts without a mount namespace: where a mount path cannot be made, texts that name it are rewritten. Pure.

Rules: a path is found as a whole (`/data` in `/data/x` and in `--dir=/data`, not in `/database`); the longest mount
wins; what would hide the system itself is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

from trainyard.node.sandbox import Mount

# Hidden by a mount, nothing would work; so the program expects an image that is not there.
_SYSTEM = frozenset({"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"})
# Shared memory is this machine's own already.
_AS_IT_IS = frozenset({"/dev/shm"})  # noqa: S108  (a mount point, not a temporary file)


def refusal(mounts: list[Mount]) -> str:
    """Why these mounts cannot be had on the shared network, "" when they can."""
    for mount in mounts:
        if mount.target in _SYSTEM:
            return f"a volume on {mount.target} needs a mount namespace; start with --network namespace"
    return ""


def rewriter(mounts: list[Mount]) -> Callable[[str], str]:
    """Texts with every mount path replaced by where the volume really is."""
    places = {
        mount.target.rstrip("/"): mount.source
        for mount in mounts
        if mount.target.rstrip("/") != mount.source and mount.target not in _AS_IT_IS
    }
    if not places:
        return str
    known = "|".join(re.escape(target) for target in sorted(places, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./-])({known})(?![\w.-])")
    return lambda text: pattern.sub(lambda found: places[found[1]], text)
