"""Virtual environments with the torch of PyPI, for tests that train on CPUs. `make torch-environment` is this file.

    $XDG_CACHE_HOME/trainyard/torch/NAME-PYTHON-KEY/     the virtual environment

Rules:
- NAME is that of a lock file, requirements/NAME.lock, which leaves out torch's CUDA libraries. Stand-ins take their
  place (cuda_stand_ins.py, docs/decisions/0023-torch-without-cuda.md).
- The key is the content: the lock, the interpreter, and the program that writes the stand-ins. Nothing is built twice.
- One builds, others wait for it. It builds into a folder `.part` and renames that, so a folder with a key is whole.
- A new environment replaces those of its name and its Python version that were not used for two weeks.
- What cannot be had is an error with the fix. No test is skipped.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support import cuda_stand_ins
from tests.support.control_plane_build import BuildError, Say, build_lock, cache_folder, exit_code
from tests.support.control_plane_process import LAUNCH
from tests.support.interpreters import interpreters
from trainyard.node.images.interpreters import find_uv

ROOT = Path(__file__).parents[2]
GIGABYTES = 3  # while it is built: 1.3 on disk, and as much in uv's cache
UNUSED_SECONDS = 14 * 86400
COMPILERS = ("gcc", "nm", "readelf")


def torch_environment(name: str = "torch", version: str = "", say: Say = print) -> Path:
    """The folder of the virtual environment, which is built if it is not there. Raises BuildError.

    `name`: the lock file, `torch` or `torch-libraries`. `version`: of Python, such as 3.13; without it, ours.
    """
    version = version or f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = interpreters().get(version)
    if python is None:
        raise BuildError(f"no Python {version} is on PATH or among pyenv's versions: install it")
    folder = cache_folder("torch") / f"{name}-{version}-{_key(name, python)}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with build_lock(folder.parent, f"an environment with {name}", say):
            if not folder.is_dir():
                _build(name, python, folder, say)
                _remove_unused(folder.parent, f"{name}-{version}-")
    os.utime(folder)
    return folder


def _key(name: str, python: str) -> str:
    digest = hashlib.sha256(f"{os.path.realpath(python)}\0{platform.platform()}\0".encode())
    for path in (_lock_file(name), Path(__file__), Path(cuda_stand_ins.__file__)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _lock_file(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.lock"


def _build(name: str, python: str, folder: Path, say: Say) -> None:
    if absent := [program for program in COMPILERS if not shutil.which(program)]:
        raise BuildError(f"no {', '.join(absent)} on PATH: install a C compiler (on Debian: gcc libc6-dev)")
    if (free := shutil.disk_usage(folder.parent).free / 1e9) < GIGABYTES:
        raise BuildError(f"{folder.parent}: {name} needs {GIGABYTES} GB of disk, and {free:.1f} are free: make room")
    say(f"installing {name} into {folder}: about 550 MB to download, 1.4 GB on disk, once")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
    try:
        _run("venv", "--python", python, "--no-project", "--relocatable", str(part))
        pip = ("pip", "install", "--python", str(part / "bin" / "python"))
        _run(*pip, "--no-deps", "--require-hashes", "-r", str(_lock_file(name)))
        (packages,) = part.glob("lib/python*/site-packages")
        cuda_stand_ins.write_stand_ins(packages / "torch/lib", "libtorch_python.so", packages.glob("nvidia/*/lib"))
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run(*arguments: str) -> None:
    """uv, which ends when we do, and whose words are shown when it fails."""
    command = [*LAUNCH, str(os.getpid()), find_uv(), *arguments, "--quiet"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode:
        raise BuildError(f"`uv {' '.join(arguments)}` failed; PyPI must be reachable:\n{ended.stderr.strip()}")


def _remove_unused(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        if folder.stat().st_mtime < time.time() - UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(exit_code(lambda say: torch_environment(say=say)))
