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
from trainyard.cli.output.layout import (
    UNLIMITED,
    note,
    printable_streams,
    terminal_prose,
    terminal_width,
    write_error_text,
)

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LazyCommand(NamedTuple):
    """A command: its module in this package, and its line in the list of commands."""

    module: str
    help: str


COMMANDS = {
    "run": LazyCommand("run", "Run manifests or a script on this machine, and print the logs."),
    "init": LazyCommand("init", "Write a manifest for a script, with a comment for each field."),
    "up": LazyCommand("up", "Start a local cluster in the background."),
    "down": LazyCommand("down", "Stop the local cluster; its jobs and data are kept."),
    "status": LazyCommand("status", "Show whether the local cluster is up, and its jobs."),
    "submit": LazyCommand("submit", "Create jobs in a cluster from manifests."),
    "ui": LazyCommand("ui", "Print a link to the web page with jobs, logs and diagnoses."),
    "get": LazyCommand("get", "List jobs and their states."),
    "describe": LazyCommand("describe", "Show the details of a job: roles, replicas, pods, events."),
    "logs": LazyCommand("logs", "Print the logs of a job's replicas."),
    "history": LazyCommand("history", "List the jobs that ran on this machine, also deleted ones."),
    "top": LazyCommand("top", "Show CPU, memory and training steps of a job's replicas."),
    "why": LazyCommand("why", "Explain why a job does not run or has failed."),
    "events": LazyCommand("events", "List the events of a job and its pods."),
    "scale": LazyCommand("scale", "Set the number of replicas of a running job."),
    "suspend": LazyCommand("suspend", "Suspend jobs: delete their pods, keep the jobs."),
    "resume": LazyCommand("resume", "Resume suspended jobs."),
    "delete": LazyCommand("delete", "Delete jobs with their pods and Services."),
    "operator": LazyCommand("operator", "Run the operator (the controller) of a cluster."),
    "node": LazyCommand("node", "Join a cluster as a node that runs pods as local processes."),
    "plan": LazyCommand("plan", "Print what the operator would do with a job, offline."),
    "doctor": LazyCommand("doctor", "Check what this machine can run, and how to fix the rest."),
    "manifests": LazyCommand("install_manifests", "Print the manifests that install the operator."),
    "images": LazyCommand("images", "List and manage the Python environments that replace images."),
    "lint": LazyCommand("lint", "Check manifests for errors, offline."),
    "convert": LazyCommand("convert", "Convert manifests to kubeflow.org/v1 or TrainJob, offline."),
    "completion": LazyCommand("completion", "Print the completion script for bash, zsh or fish."),
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

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """For every command: help in a file or a pipe is not wrapped, as no output of ours is."""
        if terminal_width(1) == UNLIMITED:
            extra.setdefault("terminal_width", UNLIMITED)
        return super().make_context(info_name, args, parent, **extra)

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
    """The same error, with its message and its usage wrapped at the width of a terminal on stderr."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        error.ctx.terminal_width = terminal_width(2)
    text = terminal_prose(f"Error: {error.format_message()}", 2).removeprefix("Error: ")
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
        note(write_error_text(error))
    return UNAVAILABLE


EPILOG = """\b
Defaults of options can be set in ~/.config/trainyard/config.yaml, or in
variables such as TRAINYARD_RUN_NETWORK=shared: see docs/commands.md."""


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": defaults.PREFIX},
)
@click.version_option(__version__, prog_name="trainyard", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Run distributed training jobs: as processes on this machine, and as pods on Kubernetes."""
    if context.invoked_subcommand in COMMANDS and isinstance(context.command, click.Group):
        context.default_map = defaults.default_map(context.command, context, context.invoked_subcommand)
        if not context.resilient_parsing:
            for text in defaults.unknown_variables(context.command, context, context.invoked_subcommand):
                note(f"warning: {text}")
