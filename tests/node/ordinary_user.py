"""Test programs run as an ordinary user when the tests run as root, also from a checkout that only root may read.

A clone in root's home (0700) has sources, libraries and often an interpreter that no other user can open. What such a
program needs is then copied once per process into a folder that every user may read, and removed at the end."""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = 12345  # a user id without a name and without rights
_REQUIRED = ("trainyard-jobs", "pytest", "pytest-asyncio", "hypothesis")
_CHECKOUT = ("src", "tests", "testdata", "examples", "pyproject.toml")
# Run as the first program of the interpreter: the very first start may still be done with root's rights.
_USABLE = "import subprocess, sys, tests.node.node_cluster; subprocess.run([sys.executable, '-c', ''], check=True)"
_VERSION = f"python3.{sys.version_info.minor}"


def command(ordinary: bool) -> tuple[list[str], dict[str, str]]:
    """argv and environment that start this Python as ourselves or, when we are root, as an ordinary user."""
    if not ordinary or os.getuid() != 0:
        return [sys.executable], _environment(ROOT, [path for path in sys.path if path.endswith("site-packages")])
    return _of_an_ordinary_user()[:2]


def checkout(ordinary: bool) -> Path:
    """The root of the checkout, or of a copy of it, that the user of `command(ordinary)` may read."""
    return _of_an_ordinary_user()[2] if ordinary and os.getuid() == 0 else ROOT


@cache
def _of_an_ordinary_user() -> tuple[list[str], dict[str, str], Path]:
    become = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]
    refused = ""
    for interpreter, root, libraries in _candidates():
        env = _environment(root, libraries)
        argv = [*become, str(interpreter)]
        tried = subprocess.run([*argv, "-c", _USABLE], env=env, cwd="/", capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return argv, env, root
        refused = tried.stderr
    raise AssertionError(f"uid {ORDINARY} cannot run this Python, not even a copy of it: {refused}")


def _candidates() -> Iterator[tuple[Path, Path, list[str]]]:
    """(interpreter, checkout, library folders), the cheapest first; a copy is made only when it is asked for."""
    system = Path("/usr/bin", _VERSION)
    own = [path for path in sys.path if path.endswith("site-packages")]
    yield Path(sys.executable), ROOT, own
    if system.exists():
        yield system, ROOT, own
    copy = _copied_checkout()
    if system.exists():
        yield system, copy, [str(copy / "libraries")]
    interpreter = _copied_interpreter(copy)
    yield interpreter, copy, [str(copy / "libraries")]


def _environment(root: Path, libraries: list[str]) -> dict[str, str]:
    paths = [str(root / "src"), str(root), *libraries]
    env = {**os.environ, "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
    if (shared := root / "python" / "lib").is_dir():  # a copied interpreter looks for libpython where it was built
        env["LD_LIBRARY_PATH"] = str(shared)
    return env


def _copied_checkout() -> Path:
    copy = Path(tempfile.mkdtemp(prefix="trainyard-tests-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in _CHECKOUT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    for distribution in _closure(_REQUIRED):
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and source.suffix not in (".pyc", ".pth") and source.is_file():
                target = copy / "libraries" / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    _let_all_read(copy)
    return copy


def _closure(names: tuple[str, ...]) -> list[importlib.metadata.Distribution]:
    """The distributions of these names and all that they require and that is installed, extras left out."""
    known: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in known:
            continue
        try:
            known[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another Python version or platform
            continue
        required = [line for line in known[name].requires or () if "extra ==" not in line]
        waiting += [match[0] for line in required if (match := re.match(r"[A-Za-z0-9._-]+", line))]
    return list(known.values())


def _copied_interpreter(copy: Path) -> Path:
    """The base interpreter with its standard library: Python finds it relative to its own program."""
    base, home = Path(sys.base_prefix), copy / "python"
    skipped = shutil.ignore_patterns("__pycache__", "test", "site-packages", "idlelib", "config-*", "ensurepip")
    shutil.copytree(base / "lib" / _VERSION, home / "lib" / _VERSION, ignore=skipped)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy(library, home / "lib" / library.name)
    (home / "bin").mkdir()
    interpreter = shutil.copy(base / "bin" / _VERSION, home / "bin" / _VERSION)
    _let_all_read(home)
    return Path(interpreter)


def _let_all_read(folder: Path) -> None:
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
