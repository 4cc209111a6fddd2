"""Where our options end and the program's begin.

trainyard run [our options] FILE... [our options]        manifests
trainyard run [our options] SCRIPT [the script's words]
trainyard run [our options] -m MODULE [the module's words]
trainyard run [our options] -- COMMAND [its words]
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

MANIFESTS = (".yaml", ".yml", ".json")
META = "trainyard.program"
"""The key under which the click context holds the program's words."""
_HEAD = 4096  # bytes of a file without a telling name that are looked at


class Words(msgspec.Struct, frozen=True):
    """What the command line names as the program: a script, a module or a command, and its own arguments."""

    form: Literal["script", "module", "command"]
    target: str
    arguments: tuple[str, ...]


class ScriptCommand(click.Command):
    """A command whose line ends with a program's own words. They are in `ctx.meta[META]`; None for manifests."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, words = split(args, self.params)
        ctx.meta[META] = words
        return super().parse_args(ctx, ours)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "FILE... | SCRIPT [ARGS]... | -m MODULE [ARGS]... | -- COMMAND..."]


def split(args: Sequence[str], parameters: Sequence[click.Parameter]) -> tuple[list[str], Words | None]:
    """Our words, and the program's where there is one. Raises click.UsageError for -m and -- with nothing after."""
    with_value = _options_with_value(parameters)
    at = 0
    while at < len(args):
        word, rest = args[at], args[at + 1 :]
        if word == "--" or word == "-m":
            if not rest:
                what = "a command and its arguments" if word == "--" else "a module: -m MODULE"
                raise click.UsageError(f"'{word}' has nothing after it; write {what}")
            return list(args[:at]), Words("command" if word == "--" else "module", rest[0], tuple(rest[1:]))
        if word == "-" or not word.startswith("-"):
            found = is_script(word)
            return (list(args[:at]), Words("script", word, tuple(rest))) if found else (list(args), None)
        at += 2 if word in with_value else 1
    return list(args), None


def _options_with_value(parameters: Sequence[click.Parameter]) -> set[str]:
    """`--opt VALUE` and `-o VALUE` are two words; `--opt=VALUE` and `-oVALUE` are one."""
    options = [one for one in parameters if isinstance(one, click.Option) and not one.is_flag and not one.count]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def is_script(word: str) -> bool:
    """True for a script, False for a manifest. What is neither, `check_manifests` refuses."""
    path = Path(word)
    if word == "-" or path.suffix in MANIFESTS or os.path.isdir(word):
        return False
    return os.path.isfile(word) and (path.suffix == ".py" or _is_program(path))


def _is_program(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR) or _head(path).startswith(b"#!")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def check_manifests(files: Sequence[str]) -> None:
    """Raises ManifestError for words that are neither a manifest nor a script, before anything is read as YAML."""
    problems = [Problem(word, text) for word in files if (text := _neither(word))]
    if problems:
        raise ManifestError(problems)


def _neither(word: str) -> str:
    path = Path(word)
    both = "name a manifest (.yaml, .yml, .json) or a script (.py, or an executable file)"
    if word == "-" or path.suffix in MANIFESTS or os.path.isdir(word):
        return ""
    if not os.path.exists(word):
        return f"is not there; {both}"
    if is_script(word):
        return "is a script after a manifest; a script is run alone: trainyard run [OPTIONS] SCRIPT [ARGS]..."
    if not os.path.isfile(word) or b"apiVersion" in _head(path):  # a pipe, or a manifest without an ending
        return ""
    return f"is neither a manifest nor a script; {both}; or run it with `-- COMMAND {word}`"


def words_of(ctx: click.Context) -> Any:
    """The program's words of this command line, or None."""
    return ctx.meta.get(META)
