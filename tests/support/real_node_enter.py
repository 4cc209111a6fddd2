"""Starts a program within cgroups: `real_node_enter.py NAME PROGRAM ARGS...`. A script, alone.

The cgroup NAME is made in every hierarchy of cgroup v1 that is mounted. nsenter joins namespaces, but no cgroup, and a
container runtime outside the root of its cgroup namespace finds no path for its containers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HIERARCHIES = Path("/sys/fs/cgroup")


def main() -> None:
    name, program = sys.argv[1], sys.argv[2:]
    for hierarchy in hierarchies():
        cgroup = hierarchy / name
        cgroup.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup, which then takes no process
            if (cgroup / file).exists() and not (cgroup / file).read_text().strip():
                (cgroup / file).write_text((hierarchy / file).read_text())
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    os.execvp(program[0], program)  # noqa: S606 - a list, no shell


def hierarchies() -> list[Path]:
    """The folders of the hierarchies, without links from one to another (`cpu` to `cpu,cpuacct`)."""
    return sorted(file.parent for file in HIERARCHIES.glob("*/cgroup.procs") if not file.parent.is_symlink())


if __name__ == "__main__":
    main()
