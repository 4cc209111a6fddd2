"""`trainyard run FILE...`: a cluster in this process, the jobs from start to end, their logs, their result.

Exit codes: 0 every job succeeded, 1 one failed, 2 a manifest (or the command line) is wrong and nothing was started,
3 it cannot run here, 124 the time of --timeout is over, 130 interrupted. With several jobs the worst counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.app.background import in_words
from trainyard.app.config import ConfigError
from trainyard.app.config import read as read_config
from trainyard.cli import options, submission
from trainyard.cli.codes import BAD, CANNOT, INTERRUPTED
from trainyard.cli.screen import Places, Screen, wants_colour
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.cli.interrupts import Interrupts

EPILOG = """\b
Exit codes:
  0    every job succeeded
  1    a job failed
  2    a manifest or the command line is wrong; nothing was started
  3    it cannot run here (an image, disk space, the package index)
  124  the time of --timeout is over
  130  interrupted: Ctrl-C once ends all pods within their grace period, twice at once

\b
-o json and -o yaml print an array with the final job objects on stdout; logs and the table go to stderr."""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-n", "--namespace", default="", help="Where the objects go that name no namespace.  [default: default]")
@options.machine
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Give up after that.")
@click.option("--keep", is_flag=True, help="Leave the cluster up after the end, until Ctrl-C.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print the final job objects on stdout.")
def run(files: tuple[str, ...], namespace: str, **words: Any) -> None:
    """Run the jobs in FILE... on this machine, as processes, and show the logs of all their replicas.

    A file may also hold what the jobs need: ConfigMaps, Secrets, PersistentVolumeClaims, Services. Logs and the final
    table go to stdout, progress to stderr.
    """
    try:
        submitted = submission.read(files, namespace)
        code = asyncio.run(_run(submitted, words))
    except (ManifestError, ConfigError) as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        code = BAD
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


async def _run(submitted: submission.Submission, words: dict[str, Any]) -> int:
    """Everything heavy is loaded here: the manifest has been found good."""
    from trainyard.app.local import Options
    from trainyard.cli import session
    from trainyard.cli.interrupts import Interrupts

    stop = Interrupts()
    screen = _screen(words["output"] or "", stop)
    logging.basicConfig(handlers=[_Notes(screen)], level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    try:
        made = Options(
            network=words["network"],
            images=tuple(map(Path, words["images"])),
            cache=options.path(words["cache"]),
            mounts=dict(map(options.claim, words["mounts"])),
            config=read_config(options.path(words["config"]), screen.note),
            say=screen.note,
        )
        settings = session.Settings(words["timeout"], words["keep"], words["output"] or "")
        return await session.run(submitted, made, settings, screen, stop)
    except session.CANNOT_RUN as error:
        screen.note(f"cannot run here: {in_words(error)}")
        return CANNOT
    finally:
        await stop.unless(stop.twice, screen.close())
        stop.close()


def _screen(output: str, stop: Interrupts) -> Screen:
    out, err = 1, 2
    places = Places(logs=err if output else out, result=out, notes=err)
    colour = wants_colour(os.isatty(places.logs), dict(os.environ))
    return Screen(places, colour, os.isatty(err) and os.environ.get("TERM") != "dumb", stop.lose_reader)


class _Notes(logging.Handler):
    """What the rooms log goes where notes go, so that it does not tear the progress line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.note(self.format(record))
