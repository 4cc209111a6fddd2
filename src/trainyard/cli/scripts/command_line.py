"""Where the options of trainyard end and the arguments of the program begin.

trainyard run [OPTIONS] FILE... [OPTIONS]            manifests
trainyard run [OPTIONS] SCRIPT [arguments of the script]
trainyard run [OPTIONS] -m MODULE [arguments of the module]
trainyard run [OPTIONS] -- COMMAND [arguments of the command]
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
PROGRAM_META_KEY = "trainyard.program"
"""Key of the program's `ProgramArguments` in `click.Context.meta`."""
_HEAD_BYTES = 4096  # number of bytes read from a file whose name does not tell its type


class ProgramArguments(msgspec.Struct, frozen=True):
    """The program on the command line: a script, a module or a command, and its arguments."""

    form: Literal["script", "module", "command"]
    target: str
    arguments: tuple[str, ...]


class ScriptCommand(click.Command):
    """A click command whose arguments may end with a program's command line.

    `ctx.meta[PROGRAM_META_KEY]` holds it as `ProgramArguments`; None for manifests."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the program; the program and its arguments are kept unparsed."""
        own_args, program = split_arguments(args, self.params)
        ctx.meta[PROGRAM_META_KEY] = program
        return super().parse_args(ctx, own_args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The arguments in the usage line."""
        return ["[OPTIONS]", "FILE... | SCRIPT [ARGS]... | -m MODULE [ARGS]... | -- COMMAND..."]


def split_arguments(
    args: Sequence[str], parameters: Sequence[click.Parameter]
) -> tuple[list[str], ProgramArguments | None]:
    """The arguments of trainyard, and those of the program (None when there is no program).

    Raises click.UsageError for -m and -- without a following argument."""
    with_value = _options_with_value(parameters)
    index = 0
    while index < len(args):
        word, rest = args[index], args[index + 1 :]
        if word in ("--", "-m"):
            if not rest:
                expected = "a command and its arguments" if word == "--" else "a module: -m MODULE"
                raise click.UsageError(f"'{word}' has nothing after it; write {expected}")
            return list(args[:index]), ProgramArguments(
                "command" if word == "--" else "module", rest[0], tuple(rest[1:])
            )
        if word == "-" or not word.startswith("-"):
            script_named = is_script(word)
            return (
                (list(args[:index]), ProgramArguments("script", word, tuple(rest)))
                if script_named
                else (list(args), None)
            )
        index += 2 if word in with_value else 1
    return list(args), None


def _options_with_value(parameters: Sequence[click.Parameter]) -> set[str]:
    """Options that take a value. `--opt VALUE` and `-o VALUE` are two arguments, `--opt=VALUE` and `-oVALUE` one."""
    options = [
        parameter
        for parameter in parameters
        if isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count
    ]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def is_script(argument: str) -> bool:
    """True for a script, False for every other argument. `check_manifests` rejects those that are no manifests."""
    path = Path(argument)
    if argument == "-" or path.suffix in MANIFEST_SUFFIXES or os.path.isdir(argument):
        return False
    return os.path.isfile(argument) and (path.suffix == ".py" or _is_executable_script(path))


def _is_executable_script(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR) or _read_head(path).startswith(b"#!")


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


def _closed_folder(path: Path) -> Path | None:
    """The outermost folder of the path that this user may not search; None when there is none."""
    folders = [*reversed(path.absolute().parents)]
    return next((folder for folder in folders if folder.is_dir() and not os.access(folder, os.X_OK)), None)


def check_manifests(files: Sequence[str]) -> None:
    """Raises ManifestError for arguments that name no manifest, before any file is parsed as YAML."""
    problems = [Problem(word, text) for word in files if (text := _file_problem(word))]
    if problems:
        raise ManifestError(problems)


def _file_problem(word: str) -> str:
    path = Path(word)
    accepted_files = "name a manifest (.yaml, .yml, .json) or a script (.py, or an executable file)"
    if word == "-" or path.suffix in MANIFEST_SUFFIXES or os.path.isdir(word):
        return ""  # an error of reading a manifest names its cause
    if not os.path.exists(word):
        if folder := _closed_folder(path):
            return f"may not be read: permission denied for the folder {folder}; ask its owner, or copy the file"
        return f"is not there; {accepted_files}"
    if is_script(word):
        return "is a script after a manifest; a script is run alone: trainyard run [OPTIONS] SCRIPT [ARGS]..."
    if not os.path.isfile(word) or b"apiVersion" in _read_head(path):  # a pipe, or a manifest without a suffix
        return ""
    return f"is neither a manifest nor a script; {accepted_files}; or run it with `-- COMMAND {word}`"


def program_arguments(ctx: click.Context) -> Any:
    """The program's `ProgramArguments` of this command line, or None."""
    return ctx.meta.get(PROGRAM_META_KEY)
