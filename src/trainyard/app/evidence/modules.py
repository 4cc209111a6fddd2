"""Looks for Python modules that programs on this machine did not find: in the folders that the programs run in, and in
the Python of the operating system."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainyard.core.diagnosis import MissingModules
from trainyard.objects import Json, uid_of
from trainyard.objects.container_statuses import container_statuses

SYSTEM_PYTHON = "/usr/bin/python3"
QUERY_TIMEOUT = 5.0
MAX_MODULES = 4  # modules that are looked up
_MISSING = re.compile(r"No module named '?([\w.]+)")
_FIND_MODULE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


def look_up_modules(pods: Iterable[Json], logs: Mapping[tuple[str, str], tuple[str, ...]]) -> MissingModules:
    """What this machine has of the modules that the last lines of these pods name as missing. Blocks: it may start an
    interpreter.

    pods: those that ran on this machine. logs: (uid of the pod, container) -> last lines."""
    packages: dict[str, str] = {}
    interpreters: dict[str, str] = {}
    for pod in pods:
        for container in container_statuses(pod.get("status")):
            text = "\n".join(logs.get((uid_of(pod), container.name), ()))
            for name in list(dict.fromkeys(_MISSING.findall(text)))[-MAX_MODULES:]:
                package = name.partition(".")[0]
                if package != name:
                    folder = _working_folder(pod, container.name) / package
                    packages |= {package: str(folder.parent)} if folder.is_dir() else {}
                elif package not in interpreters and container.status.get("imageID") != SYSTEM_PYTHON:
                    interpreters |= {package: SYSTEM_PYTHON} if _system_python_has(package) else {}
    return MissingModules(packages, interpreters)


def _working_folder(pod: Json, container_name: str) -> Path:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return next(
        (
            Path(str(spec["workingDir"]))
            for spec in containers
            if spec.get("name") == container_name and spec.get("workingDir")
        ),
        Path("/"),
    )


def _system_python_has(module: str) -> bool:
    command = [SYSTEM_PYTHON, "-I", "-c", _FIND_MODULE, module]
    try:
        return subprocess.run(command, capture_output=True, timeout=QUERY_TIMEOUT, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
