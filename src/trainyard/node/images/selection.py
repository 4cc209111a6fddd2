"""Which interpreter runs an image that has none of its own: an image without an entry, and the way `current`.

The first of these that is there:
1. what --python names;
2. the virtual environment, then the conda environment, that is active in the shell that started us;
3. `.venv`, then `venv`, in the pod's working directory;
4. `python3`, then `python`, on PATH;
5. the Python that runs trainyard.

What a person has chosen (1 and 2) and is broken is an error, not passed over.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import msgspec

from trainyard.node.images import interpreters, problems
from trainyard.node.images.interpreters import BrokenInterpreter, Interpreters, Python
from trainyard.node.images.problems import ImageProblem
from trainyard.objects.values import replace

_ACTIVE = (
    ("VIRTUAL_ENV", "the active virtual environment", "deactivate"),
    ("CONDA_PREFIX", "the active conda environment", "conda deactivate"),
)
_BESIDE = (".venv", "venv")


class Selection(msgspec.Struct, frozen=True):
    """The interpreter, and why it is this one."""

    python: Python
    reason: str


class Selector:
    """`python`: what --python names, "" for nothing. `environ`: the variables of the shell that started us; `base`:
    those of them that programs get."""

    def __init__(self, asking: Interpreters, python: str, environ: Mapping[str, str], base: Mapping[str, str]) -> None:
        self._asking, self._python, self._environ, self._base = asking, python, environ, base

    def select(self, folder: str) -> Selection:
        """`folder`: the pod's working directory, "" when it has none. Blocks. Raises ImageProblem."""
        if self._python:
            return self._chosen(self._python, "--python", "--python", "")
        for variable, reason, undo in _ACTIVE:
            place = self._environ.get(variable, "")
            # A conda environment may be one without a Python.
            if place and not (variable == "CONDA_PREFIX" and os.path.isdir(place) and not _has_python(place)):
                return self._chosen(place, reason, variable, f", or leave it ({undo}), or use --python")
        for name in _BESIDE if os.path.isabs(folder) else ():
            place = os.path.join(folder, name)
            if _has_python(place):
                return self._chosen(place, f"{name} in {folder}", folder, ", or use --python")
        return self._on_path(folder) or Selection(interpreters.current(), "the Python that runs trainyard")

    def _chosen(self, place: str, reason: str, source: str, more: str) -> Selection:
        try:
            return Selection(self._asking.describe(interpreters.locate(place), self._base).python, reason)
        except BrokenInterpreter as error:
            raise ImageProblem(problems.FAILED, f"{source}: {error}{more}") from None

    def _on_path(self, folder: str) -> Selection | None:
        places = list(filter(os.path.isabs, self._environ.get("PATH", os.defpath).split(os.pathsep)))
        for name in ("python3", "python"):
            for program in (os.path.join(place, name) for place in places):
                if os.access(program, os.X_OK) and os.path.isfile(program):
                    try:
                        return Selection(self._described(program, folder), f"{name} on PATH")
                    except BrokenInterpreter:
                        continue  # a shim of a version that is not selected, or Python 2: the next one may do
        return None

    def _described(self, program: str, folder: str) -> Python:
        """A script on PATH (a shim of pyenv) picks an interpreter by its variables and folder: that one is taken."""
        if not _is_script(program):
            return self._asking.describe(program, self._base).python
        picked = self._asking.describe(program, self._environ, folder=folder if os.path.isdir(folder) else "/")
        identity = f"{picked.python.full_version} {os.path.realpath(picked.executable)}"
        return replace(picked.python, path=picked.executable, identity=identity)


def _has_python(place: str) -> bool:
    return any(os.path.lexists(os.path.join(place, "bin", name)) for name in ("python", "python3"))


def _is_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(2) == b"#!"
    except OSError:
        return False
