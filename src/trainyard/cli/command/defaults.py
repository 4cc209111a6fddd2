"""Defaults of options: the user's config file, and environment variables.

    # ~/.config/trainyard/config.yaml
    run:
      network: shared
      images: [~/images.yaml]
    logs: {tail: 100}

Precedence: command-line option, then the variable TRAINYARD_<COMMAND>_<OPTION>, then the file, then the built-in
default. The file is $TRAINYARD_CONFIG, else trainyard/config.yaml in $XDG_CONFIG_HOME or ~/.config. An unknown command
or option, or a value that is invalid for the option, is an error with file, line and fix: a default that is silently
ignored would be worse than none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from trainyard.cli.command.codes import INVALID

if TYPE_CHECKING:
    from trainyard.objects.lines import Lines

VARIABLE = "TRAINYARD_CONFIG"
PREFIX = "TRAINYARD"  # of the variables that click reads: TRAINYARD_RUN_NETWORK
# Read by app/history/retention.py.
_OTHER_VARIABLES = frozenset({"TRAINYARD_HISTORY_JOBS", "TRAINYARD_HISTORY_SIZE", "TRAINYARD_HISTORY_DAYS"})
_PATHS = frozenset({"images", "cache", "kubeconfig", "config", "python", "logs_dir"})


class DefaultsError(click.ClickException):
    """The config file cannot be used; the message names file, field and fix."""

    exit_code = INVALID

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message without click's `Error: `, so that it begins with file and line."""
        click.echo(self.format_message(), file=file, err=file is None)


def config_file() -> Path:
    """The path of the config file, which may not exist. Raises DefaultsError when there is no home folder."""
    if override := os.environ.get(VARIABLE):
        return Path(override)
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:
        raise DefaultsError(f"there is no home folder; set {VARIABLE} to the config file, or to /dev/null") from None
    return folder / "trainyard" / "config.yaml"


def default_map(group: click.Group, context: click.Context, invoked: str) -> dict[str, dict[str, Any]]:
    """click's default_map for the command `invoked`: {command: {parameter: value}}. Raises DefaultsError.

    Only the section of the invoked command is checked option by option: importing all other commands would be slow.
    """
    path = config_file()
    sections, lines = _read_config_file(path, required=VARIABLE in os.environ)

    def place(field: str) -> str:
        return f"{path}:{lines.line_of(field) if lines else 1}: {field}"

    commands = group.list_commands(context)
    for name in sections:
        if name not in commands:
            raise DefaultsError(
                f"{place(name)}: is not a command{did_you_mean(name, commands)}; write one of: {', '.join(commands)}"
            )
    section = sections.get(invoked)
    command = group.get_command(context, invoked)
    if section is None or command is None:
        return {}
    if not isinstance(section, dict):
        raise DefaultsError(
            f"{place(invoked)}: is not a mapping; write its options below it, for example 'namespace: team'"
        )
    options = {_longest_spelling(param): param for param in command.params if isinstance(param, click.Option)}
    values: dict[str, Any] = {}
    for name, value in section.items():
        option = options.get(str(name))
        if option is None:
            suggestion = did_you_mean(str(name), list(options))
            text = f"`trainyard {invoked}` has no option --{name}{suggestion}"
            raise DefaultsError(f"{place(f'{invoked}.{name}')}: {text}")
        try:
            values[str(option.name)] = _checked_value(path.parent, str(name), option, value, context)
        except ValueError as error:
            raise DefaultsError(f"{place(f'{invoked}.{name}')}: {error}") from None
    return {invoked: values}


def _longest_spelling(param: click.Option) -> str:
    """The option's key in the config file: its longest spelling, without the dashes."""
    return max((text.lstrip("-") for text in param.opts), key=len)


def _checked_value(folder: Path, name: str, option: click.Option, value: Any, context: click.Context) -> Any:
    """The value for click, with paths relative to `folder`. Raises ValueError for one that the option does not take."""
    if option.name in _PATHS:
        value = (
            [_from_config_folder(folder, item) for item in value]
            if isinstance(value, list)
            else _from_config_folder(folder, value)
        )
    if option.multiple and not isinstance(value, list):
        value = [value]
    try:
        option.type_cast_value(context, value)
    except (click.BadParameter, TypeError) as error:
        text = error.message if isinstance(error, click.BadParameter) else f"{value!r} is not a value of --{name}"
        raise ValueError(text) from None
    return value


def _from_config_folder(folder: Path, value: Any) -> Any:
    """Resolve a path from the config file against the file's folder, not against the working directory."""
    return str(folder / os.path.expanduser(value)) if isinstance(value, str) else value


def unknown_variables(group: click.Group, context: click.Context, invoked: str) -> list[str]:
    """A line for each variable TRAINYARD_<COMMAND>_* that names no option of the command `invoked`."""
    prefix = f"{PREFIX}_{invoked.upper()}_"
    set_variables = sorted(name for name in os.environ if name.startswith(prefix) and name not in _OTHER_VARIABLES)
    command = group.get_command(context, invoked) if set_variables else None
    if command is None:
        return []
    known = [f"{prefix}{param.name.upper()}" for param in command.params if param.name]
    return [
        f"{name}: `trainyard {invoked}` has no such option{did_you_mean(name, known)}; the variable has no effect"
        for name in set_variables
        if name not in known
    ]


def did_you_mean(name: str, names: list[str]) -> str:
    """The text " (did you mean NAME?)" with the most similar of the names, "" when none is similar."""
    from difflib import get_close_matches  # not at the top: every command imports this module

    match = get_close_matches(name, names, 1)
    return f" (did you mean {match[0]}?)" if match else ""


def _read_config_file(path: Path, required: bool) -> tuple[dict[str, Any], Lines | None]:
    """The sections of the commands, and their lines."""
    from trainyard.objects.yaml_reader import ManifestError, load

    try:
        text = path.read_bytes()
    except FileNotFoundError:
        if required:
            raise DefaultsError(f"{VARIABLE}: there is no file {path}; make it, or unset the variable") from None
        return {}, None
    except OSError as error:
        raise DefaultsError(
            f"{path}:1: file: cannot be read ({error.strerror}); change its permissions, or remove it"
        ) from None
    try:
        documents = load(text, str(path))
    except ManifestError as error:
        raise DefaultsError("\n".join(map(str, error.problems))) from None
    if not documents:
        return {}, None
    if len(documents) > 1 or not isinstance(documents[0].value, dict):
        raise DefaultsError(
            f"{path}:{documents[-1].line}: document: is not one mapping; write commands with their options below them"
        )
    return documents[0].value, documents[0].lines


def with_variable_name(error: click.BadParameter) -> click.BadParameter:
    """The same error; if the value came from an environment variable, the message names the variable."""
    param, context = error.param, error.ctx
    if param is None or not param.name or context is None or not context.auto_envvar_prefix:
        return error
    if context.get_parameter_source(param.name) is not ParameterSource.ENVIRONMENT:
        return error
    variable = f"{context.auto_envvar_prefix}_{param.name.upper()}"
    return click.BadParameter(f"{error.message} (from the variable {variable})", context, param)
