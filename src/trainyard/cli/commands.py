"""`trainyard`: the table of commands. A command's module is imported when the command is invoked."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from importlib import import_module
from typing import Any, NamedTuple

import click

from trainyard import __version__
from trainyard.cli.command import defaults
from trainyard.cli.command.codes import READER_GONE, UNAVAILABLE
from trainyard.cli.output.layout import printable_streams, prose, terminal_width, write_error_text

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LazyCommand(NamedTuple):
    """A command: its module in this package, and its line in the list of commands."""

    module: str
    help: str


COMMANDS = {
    "run": LazyCommand("run", "Run jobs or a script on this machine, from start to end, and show their logs."),
    "init": LazyCommand("init", "Write a manifest for a script, with a comment for each field."),
    "up": LazyCommand("up", "Start a cluster on this machine that stays, in the background."),
    "down": LazyCommand("down", "Stop it, with all it runs. It keeps what it has."),
    "status": LazyCommand("status", "Say whether it is up, since when, and what it runs."),
    "submit": LazyCommand("submit", "Submit jobs to the cluster."),
    "ui": LazyCommand("ui", "Print a link to the page that shows what trains, and why a job fails."),
    "get": LazyCommand("get", "Show jobs and their states."),
    "describe": LazyCommand("describe", "Show one job: roles, replicas, conditions, children, events."),
    "logs": LazyCommand("logs", "Show the output of a job's replicas."),
    "history": LazyCommand("history", "Show the jobs that ran on this machine, also when they are gone."),
    "top": LazyCommand("top", "Show CPU, memory and steps of a job's replicas, live."),
    "why": LazyCommand("why", "Say in plain words why a job does not run, or why it failed."),
    "events": LazyCommand("events", "Show the events of a job and of all that belongs to it."),
    "scale": LazyCommand("scale", "Change how many replicas a running job has."),
    "suspend": LazyCommand("suspend", "Stop what jobs run, and keep the jobs."),
    "resume": LazyCommand("resume", "Let suspended jobs run again."),
    "delete": LazyCommand("delete", "Delete jobs, with all that belongs to them."),
    "operator": LazyCommand("operator", "Serve the jobs of a cluster: the controller process."),
    "node": LazyCommand("node", "Join a cluster as a node: its pods run as processes of this machine."),
    "plan": LazyCommand("plan", "Show, offline, what the operator would do with a job."),
    "doctor": LazyCommand("doctor", "Say what this machine can run, and what to install for the rest."),
    "manifests": LazyCommand("install_manifests", "Print what a cluster needs to run the operator."),
    "images": LazyCommand("images", "Show what images are on this machine; try, size, prune them."),
    "lint": LazyCommand("lint", "Check manifests, offline: every problem with its place and the fix."),
    "convert": LazyCommand("convert", "Convert manifests to kubeflow.org/v1 or TrainJob, offline; report the rest."),
    "completion": LazyCommand("completion", "Print what makes a shell complete commands and the names of jobs."),
}


class Commands(click.Group):
    """A click group that imports a command's module when the command is invoked, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of the command, None for an unknown name."""
        if name not in COMMANDS:
            return None
        command = getattr(import_module(f"trainyard.cli.{COMMANDS[name].module}"), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"trainyard.cli.{COMMANDS[name].module}.{name} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Fail for an unknown command with a message that suggests the most similar command name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"there is no command {args[0]!r}{defaults.did_you_mean(args[0], list(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """For every command: EPIPE or a full disk on stdout ends with at most one line on stderr and an exit code."""
        try:
            with printable_streams():
                try:
                    result = super().main(*args, **extra)
                finally:
                    reader_gone = "PacifyFlush" in type(sys.stdout).__name__  # click's wrapper after EPIPE
                    if sys.stdout is not None:
                        sys.stdout.flush()
        except OSError as error:
            if not (isinstance(error, BrokenPipeError) or error.errno in DISK_FULL_ERRNOS):
                raise
            sys.exit(_stop_writing(error))
        except SystemExit:
            if reader_gone:
                sys.exit(_stop_writing(BrokenPipeError()))
            raise
        return result

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C before or after a command's own signal handling exits with 130, as shells expect, without a
        message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(130)
        except click.ClickException as error:
            click_error = defaults.with_variable_name(error) if isinstance(error, click.BadParameter) else error
            raise _wrapped(click_error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def _wrapped(error: click.ClickException) -> click.ClickException:
    """The same error, with its message wrapped at the terminal's width."""
    text = prose(f"Error: {error.format_message()}", terminal_width()).removeprefix("Error: ")
    error.format_message = lambda: text  # type: ignore[method-assign]
    return error


def _stop_writing(error: OSError) -> int:
    """Redirect stdout to /dev/null, or the interpreter prints a second error when it flushes. Returns the exit
    code."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return READER_GONE
    with contextlib.suppress(OSError):
        click.echo(prose(write_error_text(error), terminal_width()), err=True)
    return UNAVAILABLE


EPILOG = """\b
Defaults of options: ~/.config/trainyard/config.yaml, a section per command,
or variables such as TRAINYARD_RUN_NETWORK=shared. See docs/commands.md."""


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": defaults.PREFIX},
)
@click.version_option(__version__, prog_name="trainyard", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Distributed training jobs: the same YAML as processes on this machine and as pods on a cluster."""
    if context.invoked_subcommand in COMMANDS and isinstance(context.command, click.Group):
        context.default_map = defaults.default_map(context.command, context, context.invoked_subcommand)
        if not context.resilient_parsing:
            for text in defaults.unknown_variables(context.command, context, context.invoked_subcommand):
                click.echo(prose(f"warning: {text}", terminal_width()), err=True)
