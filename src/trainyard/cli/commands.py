"""`trainyard`: the commands by name. Loading one is left to the moment it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple

import click

from trainyard import __version__


class Entry(NamedTuple):
    """A command: its file in this room, and one line for the list of commands."""

    module: str
    words: str


COMMANDS = {
    "run": Entry("run", "Run jobs on this machine, from start to end, and show their logs."),
    "up": Entry("up", "Start a cluster on this machine that stays, in the background."),
    "down": Entry("down", "Stop it, with all it runs. It keeps what it has."),
    "status": Entry("status", "Say whether it is up, since when, and what it runs."),
    "submit": Entry("submit", "Submit jobs to the cluster."),
    "get": Entry("get", "Show jobs and how they stand."),
    "describe": Entry("describe", "Show one job: roles, replicas, conditions, children, events."),
    "logs": Entry("logs", "Show what a job's replicas put out."),
    "why": Entry("why", "Say in plain words why a job does not run, or why it failed."),
    "events": Entry("events", "Show what was said about a job and all that belongs to it."),
    "scale": Entry("scale", "Change how many replicas a running job has."),
    "suspend": Entry("suspend", "Stop what jobs run, and keep the jobs."),
    "resume": Entry("resume", "Let suspended jobs run again."),
    "delete": Entry("delete", "Delete jobs, with all that belongs to them."),
    "operator": Entry("operator", "Serve the jobs of a cluster: the controller process."),
    "node": Entry("node", "Join a cluster as a node: its pods run as processes of this machine."),
    "plan": Entry("plan", "Show, offline, what the operator would do with a job."),
    "manifests": Entry("installing", "Print what a cluster needs to run the operator."),
    "lint": Entry("lint", "Check manifests, offline: every problem with its place and the fix."),
}


class Commands(click.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(import_module(f"trainyard.cli.{COMMANDS[name].module}"), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"trainyard.cli.{COMMANDS[name].module}.{name} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C before (or after) a command deals with it itself: the exit code that shells expect, and no words."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(130)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.words) for name, entry in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trainyard", message="%(prog)s %(version)s")
def main() -> None:
    """Distributed training jobs: the same YAML as processes on this machine and as pods on a cluster."""
