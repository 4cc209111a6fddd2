"""The Python interpreters of this machine: their versions, their modules, and a folder that puts one on PATH.

An interpreter is queried by running it with the variables that its programs will get, so the query and the later run
see the same modules.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trainyard.node.images.catalogue import Provider, python_in_range, version_satisfies

_QUERY_SCRIPT = str(Path(__file__).with_name("query.py"))
_TIMEOUT_SECONDS = 20  # an interpreter that does not answer in this time counts as broken


class BrokenInterpreter(Exception):
    """A path is not a usable interpreter. The text has the cause and the fix."""


class Python(msgspec.Struct, frozen=True):
    """One interpreter: its path, version and environment. `identity` differs between different interpreters.

    `venv` and `conda` are the folder of its virtual or conda environment, "" without one.
    """

    path: str
    version: tuple[int, int]
    identity: str
    venv: str = ""
    conda: str = ""

    @property
    def full_version(self) -> str:
        """`3.11.9` of the interpreter's own description."""
        return self.identity.partition(" ")[0]

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the activation of its environment sets."""
        if self.venv:
            return {"VIRTUAL_ENV": self.venv}
        return {"CONDA_PREFIX": self.conda} if self.conda else {}

    def __str__(self) -> str:
        return f"Python {self.full_version} of {self.venv or self.conda or self.path}"


class Description(msgspec.Struct, frozen=True):
    """The result of a query. `modules`: each module that exists -> the versions of its distributions. `folders`:
    sys.path."""

    python: Python
    executable: str
    modules: dict[str, list[str]]
    folders: tuple[str, ...]

    def missing(self, wanted: Mapping[str, str]) -> list[str]:
        """One text per missing module or unfit version of {module: version range}."""
        missing = [f"no module {module}" for module in wanted if module not in self.modules]
        for module, terms in wanted.items():
            versions = self.modules.get(module)
            if versions is not None and terms and not any(version_satisfies(version, terms) for version in versions):
                missing.append(f"{module} {versions[0] if versions else 'of unknown version'}, not {terms}")
        return missing


class Interpreters:
    """Queries interpreters. Results are cached until the interpreter or a folder of its sys.path changes."""

    def __init__(self) -> None:
        self._cache: dict[tuple[object, ...], tuple[tuple[object, ...], Description]] = {}
        self._lock = threading.Lock()  # many pods of one image may start at once: only the first runs the query

    def describe(
        self, path: str, env: Mapping[str, str], modules: Sequence[str] = (), folder: str = "/"
    ) -> Description:
        """Query the interpreter in the working directory `folder`. Blocks: call it in a thread. Raises
        BrokenInterpreter."""
        if path == sys.executable and not modules:
            return Description(current(), path, {}, ())
        key = (path, tuple(sorted(env.items())), tuple(modules), folder)
        with self._lock:
            cached = self._cache.get(key)
            if cached and cached[0] == _fingerprint(path, cached[1].folders):
                return cached[1]
            description = _parse_answer(path, _run_query(path, env, modules, folder))
            self._cache[key] = _fingerprint(path, description.folders), description
            return description


def _fingerprint(path: str, folders: tuple[str, ...]) -> tuple[object, ...]:
    """Inode and modification time of the interpreter and its folders: changes when the interpreter is replaced, or
    packages are installed or removed."""

    def stat(path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    return tuple(stat(item) for item in (path, *folders))


def _run_query(path: str, env: Mapping[str, str], modules: Sequence[str], folder: str) -> dict[str, object]:
    try:
        process = subprocess.run(
            [path, _QUERY_SCRIPT, *modules], capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_SECONDS, check=False, env=dict(env), cwd=folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BrokenInterpreter(
            f"{path} has not responded within {_TIMEOUT_SECONDS} s; name another interpreter"
        ) from None
    except OSError as error:
        raise BrokenInterpreter(f"{path} cannot be run ({error.strerror}); name another interpreter") from None
    last_line = (process.stdout.strip().splitlines() or [""])[-1]
    if process.returncode == 0:
        try:
            answer = json.loads(last_line)
            if isinstance(answer, dict) and {"version", "executable"} <= answer.keys():
                return answer
        except ValueError:
            pass
    error_lines = process.stderr.strip().splitlines() or [f"it ended with code {process.returncode}"]
    # Python names an error in its last line; other programs, such as the shims of pyenv, in their first one.
    error_text = error_lines[-1 if any(line.startswith("Traceback") for line in error_lines) else 0][:200]
    fix = _shim_fix(path, error_lines) or "repair it, or name another interpreter"
    raise BrokenInterpreter(f"{path} does not work as Python 3: {error_text}; {fix}")


def _shim_fix(path: str, error_lines: Sequence[str]) -> str:
    """The fix for a shim, a program of pyenv or asdf that starts the interpreter which is active; "" for others."""
    shim = Path(path)
    if shim.parent.name != "shims":
        return ""
    versions = [line.strip() for line in error_lines if re.fullmatch(r"\s+\d[\w.-]*", line)]
    if not versions:
        return "it only starts the interpreter that is active: name the full path of an interpreter"
    return f"name the full path: {shim.parent.parent}/versions/{versions[-1]}/bin/{shim.name}"


def _parse_answer(path: str, answer: dict[str, object]) -> Description:
    version, prefix = str(answer["version"]), str(answer.get("prefix") or "")
    major, minor, _ = version.split(".")
    venv = prefix if prefix != answer.get("base_prefix") else ""
    python = Python(
        path,
        (int(major), int(minor)),
        f"{version} {os.path.realpath(path)}",
        venv,
        prefix if answer.get("conda") and not venv else "",
    )
    modules, folders = answer.get("modules"), answer.get("path")
    return Description(
        python,
        str(answer["executable"]),
        modules if isinstance(modules, dict) else {},
        tuple(folders) if isinstance(folders, list) else (),
    )


def locate(path: str) -> str:
    """The interpreter of a path: a virtual environment, a conda prefix, or a program. Raises BrokenInterpreter."""
    if not os.path.lexists(path):
        if os.path.basename(path).startswith("python"):
            raise BrokenInterpreter(f"{path} does not exist; name an existing interpreter")
        fix = f"make it (python3 -m venv {shlex.quote(path)}) or name an existing one"
        raise BrokenInterpreter(f"{path} does not exist; {fix}")
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise BrokenInterpreter(f"{path} leads to {os.path.realpath(path)}, which does not exist; name another one")
        if not os.access(path, os.X_OK):
            raise BrokenInterpreter(f"{path} is not a program; name an interpreter, a virtual environment, or a prefix")
        return path
    programs = [os.path.join(path, "bin", name) for name in ("python", "python3")]
    for program in programs:
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    dangling = next(filter(os.path.lexists, programs), "")
    if dangling:
        fix = f"make it again (python3 -m venv --clear {shlex.quote(path)}) and install its packages again"
        raise BrokenInterpreter(f"{path} is broken: its interpreter {os.path.realpath(dangling)} does not exist; {fix}")
    fix = f"make one there (python3 -m venv {shlex.quote(path)}) or name another folder"
    raise BrokenInterpreter(f"{path} is neither a virtual environment nor a conda prefix: it has no bin/python; {fix}")


def current() -> Python:
    """The interpreter of this process."""
    full_version = ".".join(map(str, sys.version_info[:3]))
    venv = sys.prefix if sys.prefix != sys.base_prefix else ""
    conda = sys.prefix if not venv and os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else ""
    return Python(
        sys.executable, sys.version_info[:2], f"{full_version} {os.path.realpath(sys.executable)}", venv, conda
    )


def interpreter_for(provider: Provider) -> Python | None:
    """An interpreter in the provider's range: the one of this process if it is in the range, else the newest working
    `python3.N` on PATH, else None."""
    running = current()
    if python_in_range(provider.python, running.version):
        return running
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    for minor in range(20, 6, -1):
        for folder in dict.fromkeys(folders) if python_in_range(provider.python, (3, minor)) else ():
            python = query(os.path.join(folder, f"python3.{minor}"))
            # A name on PATH may be a shim of another version, or of no selected one: the next folder is tried.
            if python and python.version == (3, minor):
                return python
    return None


def query(path: str) -> Python | None:
    """The interpreter at a path; None if there is none or it does not work."""
    if not os.access(path, os.X_OK):
        return None
    version = _output([path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"])
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return None
    major, minor, _ = version.split(".")
    return Python(path, (int(major), int(minor)), f"{version} {os.path.realpath(path)}")


def _output(argv: list[str]) -> str:
    try:
        process = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def shim_folder(python: str, cache: Path) -> str:
    """A folder in which `python` and `python3` are this interpreter, for PATH. Raises OSError."""
    folder = Path(python).parent
    names = [folder / name for name in ("python", "python3")]
    if all(name.exists() and os.path.samefile(name, python) for name in names):
        return str(folder)
    # With a symbolic link, Python would not find pyvenv.cfg of a virtual environment; a shell script keeps the path.
    shims = cache / "python" / python.strip("/").replace("/", "-")
    shims.mkdir(parents=True, exist_ok=True)
    text = f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n'
    for name in ("python", "python3"):
        if (shims / name).is_file() and (shims / name).read_text() == text:
            continue
        temporary = shims / f".{name}.{os.getpid()}.{threading.get_ident()}"  # several pods may write at once
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(shims / name)
    return str(shims)


def interpreter_of_command(argv: list[str], path: str) -> str:
    """The interpreter of a command: its program if that is a Python, else the `python3` or `python` on `path`; "" for
    none."""
    program = argv[0] if argv and _PYTHON_PROGRAM.fullmatch(os.path.basename(argv[0])) else ""
    names = (program,) if program else ("python3", "python")
    return _resolve_shim(next((program_path for name in names if (program_path := shutil.which(name, path=path))), ""))


def _resolve_shim(program: str) -> str:
    """The interpreter that a shell script of `shim_folder` starts; any other program is returned as it is."""
    try:
        with open(program, "rb") as file:
            text = file.read(4096) if program else b""
    except OSError:
        return program
    match = re.fullmatch(rb'#!/bin/sh\nexec (.+) "\$@"\n', text)
    return shlex.split(match[1].decode())[0] if match else program


_PYTHON_PROGRAM = re.compile(r"python\d*(\.\d+)?")


def find_uv() -> str:
    """The path of uv on PATH or in the folder of this interpreter, "" if there is none."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
