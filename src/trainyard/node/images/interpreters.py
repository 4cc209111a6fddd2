"""The Pythons of this machine: what each is, what it can import, and how to put it on PATH as `python`.

An interpreter is asked by running it, in the variables that its programs will have: what is checked is what is used.
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

from trainyard.node.images.catalogue import Way, fits, serves

_QUERY = str(Path(__file__).with_name("query.py"))
_SECONDS = 20  # an interpreter that has not answered by then does not work


class BrokenInterpreter(Exception):
    """There is no usable interpreter at that place. The text says why, and names the fix."""


class Python(msgspec.Struct, frozen=True):
    """One interpreter: how to call it and what it is. `identity` changes when it is another one.

    `venv` and `conda` are the folder of the environment it belongs to, "" where it belongs to none.
    """

    path: str
    version: tuple[int, int]
    identity: str
    venv: str = ""
    conda: str = ""

    @property
    def full_version(self) -> str:
        return self.identity.partition(" ")[0]

    @property
    def variables(self) -> dict[str, str]:
        """What an activated shell would have."""
        if self.venv:
            return {"VIRTUAL_ENV": self.venv}
        return {"CONDA_PREFIX": self.conda} if self.conda else {}

    def __str__(self) -> str:
        return f"Python {self.full_version} of {self.venv or self.conda or self.path}"


class Description(msgspec.Struct, frozen=True):
    """What an interpreter said of itself. `modules`: those found, with the versions of what brings them."""

    python: Python
    executable: str
    modules: dict[str, list[str]]
    folders: tuple[str, ...]

    def lacks(self, wanted: Mapping[str, str]) -> list[str]:
        """What is missing of {module: version range}, as words."""
        missing = [f"no module {module}" for module in wanted if module not in self.modules]
        for module, terms in wanted.items():
            versions = self.modules.get(module)
            if versions is not None and terms and not any(fits(version, terms) for version in versions):
                missing.append(f"{module} {versions[0] if versions else 'of no known version'}, not {terms}")
        return missing


class Interpreters:
    """Asks interpreters, and asks again only when the interpreter or a folder of its packages has changed."""

    def __init__(self) -> None:
        self._answers: dict[tuple[object, ...], tuple[tuple[object, ...], Description]] = {}
        self._lock = threading.Lock()  # many pods of one image ask at once: one of them asks the interpreter

    def describe(
        self, path: str, env: Mapping[str, str], modules: Sequence[str] = (), folder: str = "/"
    ) -> Description:
        """Runs it in `folder`. Blocks: call it in a thread. Raises BrokenInterpreter."""
        if path == sys.executable and not modules:
            return Description(current(), path, {}, ())
        key = (path, tuple(sorted(env.items())), tuple(modules), folder)
        with self._lock:
            known = self._answers.get(key)
            if known and known[0] == _state(path, known[1].folders):
                return known[1]
            described = _described(path, _answer(path, env, modules, folder))
            self._answers[key] = _state(path, described.folders), described
            return described


def _state(path: str, folders: tuple[str, ...]) -> tuple[object, ...]:
    """Changes when the interpreter is another one, or packages were installed or removed."""

    def stat(place: str) -> tuple[int, int] | None:
        try:
            found = os.stat(place)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    return tuple(stat(place) for place in (path, *folders))


def _answer(path: str, env: Mapping[str, str], modules: Sequence[str], folder: str) -> dict[str, object]:
    try:
        done = subprocess.run(
            [path, _QUERY, *modules], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
            env=dict(env), cwd=folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BrokenInterpreter(f"{path} has not answered within {_SECONDS} s; name another interpreter") from None
    except OSError as error:
        raise BrokenInterpreter(f"{path} cannot be run ({error.strerror}); name another interpreter") from None
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        try:
            answer = json.loads(last)
            if isinstance(answer, dict) and {"version", "executable"} <= answer.keys():
                return answer
        except ValueError:
            pass
    why = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1][:200]
    raise BrokenInterpreter(f"{path} does not work as Python 3: {why}; repair it, or name another interpreter")


def _described(path: str, answer: dict[str, object]) -> Description:
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


def locate(place: str) -> str:
    """The interpreter at a place: a virtual environment, a conda prefix, or the program. Raises BrokenInterpreter."""
    if not os.path.lexists(place):
        if os.path.basename(place).startswith("python"):
            raise BrokenInterpreter(f"{place} is not there; name an interpreter that is")
        fix = f"make it (python3 -m venv {shlex.quote(place)}) or name one that is there"
        raise BrokenInterpreter(f"{place} is not there; {fix}")
    if not os.path.isdir(place):
        if not os.path.exists(place):
            raise BrokenInterpreter(f"{place} leads to {os.path.realpath(place)}, which is gone; name another one")
        if not os.access(place, os.X_OK):
            raise BrokenInterpreter(f"{place} is no program; name an interpreter, a virtual environment, or a prefix")
        return place
    programs = [os.path.join(place, "bin", name) for name in ("python", "python3")]
    for program in programs:
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    dead = next(filter(os.path.lexists, programs), "")
    if dead:
        fix = f"make it again (python3 -m venv --clear {shlex.quote(place)}) and install its packages again"
        raise BrokenInterpreter(f"{place} is broken: its interpreter {os.path.realpath(dead)} is gone; {fix}")
    fix = f"make one there (python3 -m venv {shlex.quote(place)}) or name another folder"
    raise BrokenInterpreter(f"{place} is no virtual environment and no conda prefix: it has no bin/python; {fix}")


def current() -> Python:
    """The interpreter that runs us."""
    full = ".".join(map(str, sys.version_info[:3]))
    venv = sys.prefix if sys.prefix != sys.base_prefix else ""
    conda = sys.prefix if not venv and os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else ""
    return Python(sys.executable, sys.version_info[:2], f"{full} {os.path.realpath(sys.executable)}", venv, conda)


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
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def on_path(python: str, cache: Path) -> str:
    """A folder to put on PATH so that `python` and `python3` are this interpreter. Raises OSError."""
    folder = Path(python).parent
    names = [folder / name for name in ("python", "python3")]
    if all(name.exists() and os.path.samefile(name, python) for name in names):
        return str(folder)
    # A link would lose a virtual environment (it is found beside the program's own name); a line of shell does not.
    shims = cache / "python" / python.strip("/").replace("/", "-")
    shims.mkdir(parents=True, exist_ok=True)
    text = f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n'
    for name in ("python", "python3"):
        if (shims / name).is_file() and (shims / name).read_text() == text:
            continue
        fresh = shims / f".{name}.{os.getpid()}.{threading.get_ident()}"  # several pods may be here at once
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(shims / name)
    return str(shims)


def of_command(argv: list[str], path: str) -> str:
    """The interpreter that a command runs with: itself, or the `python` that it finds on its PATH. "" for none."""
    named = argv[0] if argv and _NAME.fullmatch(os.path.basename(argv[0])) else ""
    names = (named,) if named else ("python3", "python")
    return _behind(next((found for name in names if (found := shutil.which(name, path=path))), ""))


def _behind(program: str) -> str:
    """The interpreter that a line of shell made by `on_path` starts; anything else is what it is."""
    try:
        with open(program, "rb") as file:
            text = file.read(4096) if program else b""
    except OSError:
        return program
    found = re.fullmatch(rb'#!/bin/sh\nexec (.+) "\$@"\n', text)
    return shlex.split(found[1].decode())[0] if found else program


_NAME = re.compile(r"python\d*(\.\d+)?")


def uv() -> str:
    """uv on PATH or beside our interpreter, "" when there is none."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
