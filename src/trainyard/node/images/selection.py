"""Selects the interpreter of images without one of their own: images without an entry, and the provider `current`.

The first of these that exists:
1. the value of --python;
2. the active virtual environment, then the active conda environment, of the shell that started this process;
3. `.venv`, then `venv`, in the pod's working directory;
4. `python3`, then `python`, on PATH;
5. the Python that runs trainyard.

A broken interpreter that the user has chosen (1 and 2) is an error; it is not skipped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import msgspec

from trainyard.node.images import interpreters, problems
from trainyard.node.images.interpreters import BrokenInterpreter, Interpreters, Python
from trainyard.node.images.problems import ImageProblem
from trainyard.objects.structs import replace

_ACTIVE_ENVIRONMENTS = (
    ("VIRTUAL_ENV", "the active virtual environment", "deactivate"),
    ("CONDA_PREFIX", "the active conda environment", "conda deactivate"),
)
_PROJECT_ENVIRONMENTS = (".venv", "venv")


class SelectedPython(msgspec.Struct, frozen=True):
    """The interpreter, and the reason of its selection."""

    python: Python
    reason: str


class Selector:
    """`python`: the value of --python, "" without it. `environ`: the variables of the shell that started this process;
    `base`: the variables of these that programs get."""

    def __init__(
        self, interpreters_cache: Interpreters, python: str, environ: Mapping[str, str], base: Mapping[str, str]
    ) -> None:
        self._interpreters, self._python, self._environ, self._base = interpreters_cache, python, environ, base

    def select(self, folder: str) -> SelectedPython:
        """`folder`: the pod's working directory, "" if it has none. Blocks. Raises ImageProblem."""
        if self._python:
            return self._select_place(self._python, "--python", "--python", "")
        for variable, reason, leave_command in _ACTIVE_ENVIRONMENTS:
            place = self._environ.get(variable, "")
            # A conda environment may have no Python.
            if place and not (variable == "CONDA_PREFIX" and os.path.isdir(place) and not _has_python(place)):
                return self._select_place(place, reason, variable, f", or leave it ({leave_command}), or use --python")
        for name in _PROJECT_ENVIRONMENTS if os.path.isabs(folder) else ():
            place = os.path.join(folder, name)
            if _has_python(place):
                return self._select_place(place, f"{name} in {folder}", folder, ", or use --python")
        return self._on_path(folder) or SelectedPython(interpreters.current(), "the Python that runs trainyard")

    def _select_place(self, place: str, reason: str, source: str, alternatives: str) -> SelectedPython:
        try:
            return SelectedPython(self._interpreters.describe(interpreters.locate(place), self._base).python, reason)
        except BrokenInterpreter as error:
            raise ImageProblem(problems.FAILED, f"{source}: {error}{alternatives}") from None

    def _on_path(self, folder: str) -> SelectedPython | None:
        folders = list(filter(os.path.isabs, self._environ.get("PATH", os.defpath).split(os.pathsep)))
        for name in ("python3", "python"):
            for program in (os.path.join(folder_on_path, name) for folder_on_path in folders):
                if os.access(program, os.X_OK) and os.path.isfile(program):
                    try:
                        return SelectedPython(self._describe_program(program, folder), f"{name} on PATH")
                    except BrokenInterpreter:
                        continue  # a shim of a version that is not selected, or Python 2
        return None

    def _describe_program(self, program: str, folder: str) -> Python:
        """The interpreter of a program. A script (such as a shim of pyenv) selects an interpreter by the variables and
        the working directory; the result is that interpreter."""
        if not _is_script(program):
            return self._interpreters.describe(program, self._base).python
        description = self._interpreters.describe(
            program, self._environ, folder=folder if os.path.isdir(folder) else "/"
        )
        identity = f"{description.python.full_version} {os.path.realpath(description.executable)}"
        return replace(description.python, path=description.executable, identity=identity)


def _has_python(place: str) -> bool:
    return any(os.path.lexists(os.path.join(place, "bin", name)) for name in ("python", "python3"))


def _is_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(2) == b"#!"
    except OSError:
        return False
