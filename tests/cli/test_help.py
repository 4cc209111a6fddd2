"""The help of every command: it fits a terminal of 80 columns, and names each value and each option."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.cli.terminals import run_on
from trainyard.cli.commands import COMMANDS, main

# What click shows for a value without a name.
UNNAMED = {"TEXT", "PATH", "INTEGER", "FLOAT", "INTEGER RANGE", "FLOAT RANGE", "KINDS"}


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]


def command_of(path: tuple[str, ...]) -> click.Command:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        found_command = command.get_command(click.Context(command), name)
        assert found_command is not None
        command = found_command
    return command


EVERY_COMMAND = pytest.mark.parametrize("path", list(commands()), ids=" ".join)


@EVERY_COMMAND
def test_help_fits_80_columns_and_cuts_no_text(path: tuple[str, ...]) -> None:
    page = CliRunner().invoke(main, [*path, "--help"], terminal_width=80).output
    assert "Usage:" in page
    assert [line for line in page.splitlines() if len(line) > 80] == []
    assert [line for line in page.partition("\n\n")[2].splitlines() if line.endswith("...")] == []


@EVERY_COMMAND
def test_every_option_has_a_text_and_every_value_a_name(path: tuple[str, ...]) -> None:
    command = command_of(path)
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert [option.opts[-1] for option in options if not (option.help or "").partition("  [")[0].endswith(".")] == []
    with_values = [option for option in options if not option.is_flag and not isinstance(option.type, click.Choice)]
    context = click.Context(command)
    assert [option.opts[-1] for option in with_values if option.make_metavar(context) in UNNAMED] == []


def test_each_command_has_one_line_in_the_list() -> None:
    page = CliRunner().invoke(main, ["--help"], terminal_width=80).output.partition("Commands:")[2]
    lines = [line.split()[0] for line in page.partition("\n\n")[0].splitlines() if line.strip()]
    assert lines == list(COMMANDS)


@EVERY_COMMAND
def test_help_in_a_pipe_is_not_wrapped(path: tuple[str, ...]) -> None:
    """What reads it, such as grep, gets the whole text of an option in the line of its name."""
    page = CliRunner().invoke(main, [*path, "--help"]).output
    options = [param for param in command_of(path).params if isinstance(param, click.Option) and not param.hidden]
    texts = [" ".join((option.help or "").partition("\b")[0].split()) for option in options]
    lines = page.splitlines()
    assert [text for text in texts if not any(text in " ".join(line.split()) for line in lines)] == []


def test_help_on_a_terminal_is_wrapped(tmp_path: Path) -> None:
    shown = run_on(tmp_path, ["run", "--help"], out="terminal").out
    assert max(map(len, shown.splitlines())) <= 80
