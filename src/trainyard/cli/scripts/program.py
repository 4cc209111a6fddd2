"""The program that each worker runs: its command line, its directory, and the name of its job."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from trainyard.cli.scripts.command_line import ProgramArguments
from trainyard.cli.scripts.launchers import Launcher, launcher_of, launcher_of_script

PYTHON = "python"
"""The interpreter, resolved by PATH: that of the image on a cluster, that of --python on this machine."""
_MAX_SCRIPT_BYTES = 1 << 16  # of a shell script that are searched for a launcher
MAX_NAME_LENGTH = 35
"""Maximum length of a generated job name: the limit of the kind with the shortest names."""


class WorkerProgram(msgspec.Struct, frozen=True):
    """A script, a module or a command. `source`: the file whose imports tell the framework; None without one."""

    command: tuple[str, ...]
    torchrun_args: tuple[str, ...]
    """The program as the last arguments of `python -m torch.distributed.run`."""
    directory: Path
    source: Path | None
    name: str
    label: str
    """The program in messages: the file name of a script, `-m MODULE` or the command."""
    launcher: Launcher | None = None
    """The launcher with which a command begins, or that a shell script starts."""


def program_of(arguments: ProgramArguments) -> WorkerProgram:
    """The program of a command line. A script runs in its own directory, a module and a command in the current one."""
    if arguments.form == "script":
        return _script_program(Path(arguments.target), arguments.arguments)
    working_directory = Path.cwd()
    if arguments.form == "module":
        command = (PYTHON, "-m", arguments.target, *arguments.arguments)
        torchrun = ("--module", arguments.target, *arguments.arguments)
        source = _module_file(working_directory, arguments.target)
        return WorkerProgram(
            command,
            torchrun,
            working_directory,
            source,
            job_name(arguments.target.split(".")[-1]),
            f"-m {arguments.target}",
        )
    command = (arguments.target, *arguments.arguments)
    launcher = launcher_of(command)
    if command[0] == "torchrun":
        command = (PYTHON, "-m", "torch.distributed.run", *command[1:])  # of the same Python as the program
    return WorkerProgram(
        command,
        ("--no-python", *command),
        working_directory,
        None,
        job_name(_stem(launcher.program if launcher and launcher.program else command)),
        arguments.target,
        launcher,
    )


def _stem(words: tuple[str, ...]) -> str:
    """`train` of `train.py 3`, `-m package.train 3` and `./train 3`."""
    return words[1].split(".")[-1] if words[0] == "-m" and len(words) > 1 else Path(words[0]).stem


def _script_program(path: Path, arguments: tuple[str, ...]) -> WorkerProgram:
    # A symbolic link is not resolved: the script runs in the directory of the link.
    folder, name = Path(os.path.abspath(path)).parent, path.name
    if path.suffix == ".py":
        command = (PYTHON, name, *arguments)
        return WorkerProgram(command, (name, *arguments), folder, path, job_name(path.stem), path.name)
    command = (*_interpreter(path), *arguments)
    launcher = launcher_of_script(_text_of(path))
    return WorkerProgram(command, ("--no-python", *command), folder, None, job_name(path.stem), path.name, launcher)


def _text_of(path: Path) -> str:
    """The text of a shell script, "" of another or of a large file."""
    with path.open("rb") as file:
        content = file.read(_MAX_SCRIPT_BYTES)
    is_shell = re.match(rb"#!.*\b(?:ba|da|k|z)?sh\b", content) is not None
    return content.decode(errors="replace") if is_shell else ""


def _interpreter(path: Path) -> tuple[str, ...]:
    """`./train.sh`; for a file that is not executable, the interpreter of its #! line and the file name."""
    if os.access(path, os.X_OK):
        return (f"./{path.name}",)
    with path.open("rb") as file:
        first_line = file.readline(4096).decode(errors="replace")
    return (*shlex.split(first_line.removeprefix("#!").strip()), path.name)


def _module_file(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__main__.py")
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


def job_name(text: str) -> str:
    """Make a legal job name of any text: `My train_v2` becomes `my-train-v2`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}".rstrip("-")
    return name[:MAX_NAME_LENGTH].rstrip("-")
