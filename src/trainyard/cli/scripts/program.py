"""What runs in each worker: the command line, the folder it runs in, and the name of its job."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from trainyard.cli.scripts.command_line import Words

PYTHON = "python"
"""As in an image: which interpreter that is, is the image's affair. Here it is the one of --python."""
MOST_LETTERS = 35
"""Of a name that is made here: what the kind with the shortest names takes."""


class Program(msgspec.Struct, frozen=True):
    """A script, a module or a command. `source` is the file whose imports tell the framework, if there is one."""

    command: tuple[str, ...]
    torchrun: tuple[str, ...]
    """The same, as the last arguments of `python -m torch.distributed.run`."""
    folder: Path
    source: Path | None
    name: str
    label: str
    """What a person calls it."""


def program_of(words: Words) -> Program:
    """The folder of a script is where it stands; a module and a command run in the current one."""
    if words.form == "script":
        return _script(Path(words.target), words.arguments)
    here = Path.cwd()
    if words.form == "module":
        command = (PYTHON, "-m", words.target, *words.arguments)
        torchrun = ("--module", words.target, *words.arguments)
        source = _module_file(here, words.target)
        return Program(command, torchrun, here, source, job_name(words.target.split(".")[-1]), f"-m {words.target}")
    command = (words.target, *words.arguments)
    return Program(command, ("--no-python", *command), here, None, job_name(Path(words.target).stem), words.target)


def _script(path: Path, arguments: tuple[str, ...]) -> Program:
    # The folder is the one that was named: a link to a script elsewhere runs where the link stands, as in a shell.
    folder, name = Path(os.path.abspath(path)).parent, path.name
    if path.suffix == ".py":
        command = (PYTHON, name, *arguments)
        return Program(command, (name, *arguments), folder, path, job_name(path.stem), path.name)
    command = (*_interpreter(path), *arguments)
    return Program(command, ("--no-python", *command), folder, None, job_name(path.stem), path.name)


def _interpreter(path: Path) -> tuple[str, ...]:
    """`./train.sh`, or what its first line names when it may not be executed."""
    if os.access(path, os.X_OK):
        return (f"./{path.name}",)
    with path.open("rb") as file:
        first = file.readline(4096).decode(errors="replace")
    return (*shlex.split(first.removeprefix("#!").strip()), path.name)


def _module_file(folder: Path, module: str) -> Path | None:
    place = folder.joinpath(*module.split("."))
    candidates = (place.with_name(f"{place.name}.py"), place / "__main__.py")
    return next((one for one in candidates if os.path.isfile(one)), None)


def job_name(text: str) -> str:
    """A legal name of a job, from any text: `My train_v2` becomes `my-train-v2`."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"job-{plain}".rstrip("-")
    return plain[:MOST_LETTERS].rstrip("-")
