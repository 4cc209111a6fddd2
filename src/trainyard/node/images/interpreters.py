"""The Pythons of this machine: which one serves a way, what it can import, and how to put it on PATH as `python`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trainyard.node.images.catalogue import System, Way, fits, serves


@dataclass(frozen=True, slots=True)
class Python:
    """One interpreter: how to call it and what it is. `identity` changes when it is another one."""

    path: str
    version: tuple[int, int]
    identity: str


def current() -> Python:
    """The interpreter that runs us."""
    full = ".".join(map(str, sys.version_info[:3]))
    return Python(sys.executable, sys.version_info[:2], f"{full} {os.path.realpath(sys.executable)}")


def serving(way: Way) -> Python | None:
    """An interpreter in the way's range: ours when it fits, else the newest `python3.N` on PATH that answers."""
    ours = current()
    if serves(way.python, ours.version):
        return ours
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    for minor in range(20, 6, -1):
        for folder in dict.fromkeys(folders) if serves(way.python, (3, minor)) else ():
            found = asked(os.path.join(folder, f"python3.{minor}"))
            # A name on PATH may be a shim of another version, or of none that is selected: the next folder may do.
            if found and found.version == (3, minor):
                return found
    return None


def asked(path: str) -> Python | None:
    """What an interpreter says of itself; None when there is none, or it does not answer."""
    if not os.access(path, os.X_OK):
        return None
    said = _output([path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"])
    if not re.fullmatch(r"\d+\.\d+\.\d+", said):
        return None
    major, minor, _ = said.split(".")
    return Python(path, (int(major), int(minor)), f"{said} {os.path.realpath(path)}")


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def lacks(modules: dict[str, str]) -> str:
    """What the current interpreter lacks of {module: version range}, "" when nothing. Imports nothing."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        return f"no module {missing[0]}"
    if not any(modules.values()):
        return ""
    owners = importlib.metadata.packages_distributions()
    for module, terms in modules.items():
        versions = [importlib.metadata.version(owner) for owner in owners.get(module, ())]
        if terms and not any(fits(version, terms) for version in versions):
            return f"{module} {versions[0] if versions else 'of no known version'}, not {terms}"
    return ""


def without(system: System) -> list[str]:
    """The modules that this interpreter does not find. All of them, when it does not answer."""
    code = "import importlib.util as u, sys; print(*[one for one in sys.argv[1:] if u.find_spec(one) is None], '.')"
    said = _output([system.python, "-I", "-c", code, *system.modules]).split()
    return said[:-1] if said else list(system.modules)


def on_path(python: str, cache: Path) -> str:
    """A folder to put on PATH so that `python` and `python3` are this interpreter. Raises OSError."""
    folder = Path(python).parent
    if (folder / "python").exists() and os.path.samefile(folder / "python", python):
        return str(folder)
    # A link would lose a virtual environment (it is found beside the program's own name); a line of shell does not.
    shims = cache / "python" / python.strip("/").replace("/", "-")
    shims.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        fresh = shims / f".{name}.{os.getpid()}"
        fresh.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        fresh.chmod(0o755)
        fresh.replace(shims / name)
    return str(shims)


def uv() -> str:
    """uv on PATH or beside our interpreter, "" when there is none."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
