"""`trainyard images`: what each image is on this machine, and the disk usage of the environments built for images.

Exit codes: 0 done, 1 the tried image does not work, 2 a catalogue or the command line is invalid, 3 an image is not
available on this machine, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.app.background.clusters import error_text
from trainyard.app.catalogues import cache_folder, catalogues
from trainyard.cli.command import options
from trainyard.cli.command.codes import FAILED, INTERRUPTED, INVALID, READER_GONE, SUCCEEDED, UNAVAILABLE
from trainyard.cli.output.layout import clear_line, note, note_problems, terminal_prose, terminal_table
from trainyard.cli.output.printing import FORMS, as_json, as_yaml
from trainyard.objects.manifest import ManifestError
from trainyard.objects.numbers import count_text

if TYPE_CHECKING:
    from trainyard.node.images import Images
    from trainyard.node.images.store import Environment

_DAY = 86400.0
OUTPUT = click.option("-o", "--output", type=click.Choice(FORMS), help="Output format.")


@click.group(invoke_without_command=True)
@options.catalogues
@OUTPUT
@click.pass_context
def images(ctx: click.Context, /, output: str | None, **params: Any) -> None:
    """List the images of the catalogues, and the Python environment that replaces each on this machine.

    \b
    Examples:
      trainyard images
      trainyard images try pytorch/pytorch
      trainyard images prune
    """
    ctx.obj = params
    if ctx.invoked_subcommand is None:
        _run(lambda: _list(params, output or ""))


@images.command(short_help="Show how an image is replaced on this machine.")
@click.argument("image")
@options.catalogues
@OUTPUT
@click.pass_obj
def explain(group_params: dict[str, Any], /, image: str, output: str | None, **params: Any) -> None:
    """Show how IMAGE is replaced on this machine: catalogue entry, Python environment, variables, program.

    Nothing is installed.

    Example: trainyard images explain tensorflow/tensorflow
    """
    from trainyard.cli.images_explain import explain_image

    async def run() -> int:
        async with _opened(group_params, params) as opened:
            return await explain_image(opened, image, output or "")

    _run(run)


@images.command(name="try", short_help="Install the environment of an image and test it.")
@click.argument("image")
@options.catalogues
@click.pass_obj
def try_(group_params: dict[str, Any], /, image: str, **params: Any) -> None:
    """Install the environment of IMAGE as for a pod, run its Python, and import its required modules.

    Example: trainyard images try my/image --images images.yaml
    """
    from trainyard.cli.images_explain import try_image

    async def run() -> int:
        async with _opened(group_params, params) as opened:
            return await try_image(opened, image)

    _run(run)


@images.command(short_help="Show the disk usage of the environments.")
@options.catalogues
@OUTPUT
@click.pass_obj
def size(group_params: dict[str, Any], /, output: str | None, **params: Any) -> None:
    """Show the installed environments: disk usage, last use, and the catalogue entry that needs each.

    Example: trainyard images size
    """
    _run(lambda: _size(_merged(group_params, params), output or ""))


@images.command(short_help="Delete the environments that no entry needs.")
@click.option(
    "--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Also delete environments without use for DAYS."
)
@options.catalogues
@click.pass_obj
def prune(group_params: dict[str, Any], /, older_than: float | None, **params: Any) -> None:
    """Delete the environments that no catalogue entry needs, and the rest of interrupted installations.

    Environments in use by a pod are kept.

    Example: trainyard images prune
    """
    _run(lambda: _prune(_merged(group_params, params), older_than))


@images.command(short_help="Delete all environments.")
@click.option("--cache", metavar="DIR", help=options.CACHE)
@click.option("--yes", is_flag=True, help="Delete; without it the command prints what would be deleted.")
@click.pass_obj
def clean(group_params: dict[str, Any], /, yes: bool, cache: str | None) -> None:
    """Delete all environments that are not in use. They are installed again when they are needed.

    Example: trainyard images clean --yes
    """
    _run(lambda: _clean(_cache({"cache": cache or group_params["cache"]}), yes))


# --- Running a command ----------------------------------------------------------------------------------------------


def _run(work: Callable[[], Awaitable[int]]) -> None:
    """Run the coroutine and exit with its code. An exception becomes a message on stderr and an exit code."""
    from trainyard.node.images import ImageProblem

    async def run_work() -> int:
        return await work()

    try:
        code = asyncio.run(run_work())
        sys.stdout.flush()
    except ManifestError as error:
        note_problems(error.problems)
        code = INVALID
    except ImageProblem as problem:
        note(problem.message)
        code = UNAVAILABLE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter prints a second error when it flushes
        code = READER_GONE
    except OSError as error:
        note(error_text(error))
        code = UNAVAILABLE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _merged(group_params: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """The catalogue options before (`images`) and after the name of the subcommand."""
    return {
        "images": (*group_params["images"], *params["images"]),
        "python": params["python"] or group_params["python"],
        "cache": params["cache"] or group_params["cache"],
    }


def _cache(params: dict[str, Any]) -> Path:
    return options.path(params["cache"]) or cache_folder()


@contextlib.asynccontextmanager
async def _opened(group_params: dict[str, Any], params: dict[str, Any]) -> AsyncIterator[Images]:
    """The images, configured as `run` does it. Installations show their progress on stderr."""
    from trainyard.node.images import Images

    merged_params = _merged(group_params, params)
    python = options.interpreter(merged_params["python"])
    progress_line = _ProgressLine()
    files = catalogues(tuple(map(Path, merged_params["images"])))
    opened_images = Images(
        files,
        _cache(merged_params),
        progress_line.say,
        python=python,
        progress=progress_line.report if progress_line.live else None,
    )
    try:
        yield opened_images
    finally:
        await opened_images.close()


class _ProgressLine:
    """Prints lines to stderr and, on a terminal, a progress line below them that is overwritten."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def say(self, text: str) -> None:
        self._clear()
        note(text)

    def report(self, image: str, text: str | None) -> None:
        self._clear()
        if text is not None:
            click.echo(terminal_prose(text, 2).splitlines()[0], err=True, nl=False)
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            clear_line()
            self._shown = False


async def _list(params: dict[str, Any], form: str) -> int:
    from trainyard.cli.images_explain import entry_lines
    from trainyard.node.images.inventory import entry_states

    async with _opened(params, params | {"images": ()}) as opened:
        click.echo(entry_lines(await entry_states(opened), form))
    return SUCCEEDED


# --- The cache ------------------------------------------------------------------------------------------------------


async def _size(params: dict[str, Any], form: str) -> int:
    from trainyard.node.images import store
    from trainyard.node.images.inventory import used_by_entry
    from trainyard.node.images.progress import format_bytes
    from trainyard.views.durations import format_age

    cache, rows = _cache(params), []
    async with _opened(params, params | {"images": ()}) as opened:
        for environment in store.list_environments(cache):
            rows.append((environment, store.disk_usage(environment.folder), used_by_entry(environment, opened)))
    if form in ("json", "yaml"):
        values = [
            {
                "name": environment.folder.name, "folder": str(environment.folder), "bytes": usage.on_disk,
                "bytesFreedByRemoval": usage.own, "secondsSinceLastUse": round(time.time() - environment.last_used),
                "inUse": environment.locked, "entry": name,
            }
            for environment, usage, name in rows
        ]  # fmt: skip
        click.echo(as_json(values) if form == "json" else as_yaml(values))
        return SUCCEEDED
    if form == "name":
        click.echo("".join(f"{environment.folder.name}\n" for environment, _, _ in rows), nl=False)
        return SUCCEEDED
    table = [["ENVIRONMENT", "SIZE", "USED", "STATE", "ENTRY"]]
    for environment, usage, name in rows:
        last_use = format_age(time.time() - environment.last_used)
        state = "in use" if environment.locked else "idle"
        shown_name = environment.folder.name if form == "wide" else environment.name
        table.append(
            [shown_name, format_bytes(usage.on_disk), f"{last_use} ago", state, name or "none: prune removes it"]
        )
    if rows:
        click.echo("\n".join(terminal_table(table, wide=form == "wide")))
    total, own_total = sum(usage.on_disk for _, usage, _ in rows), sum(usage.own for _, usage, _ in rows)
    shared = f"; {format_bytes(total - own_total)} of it are shared with uv's cache" if total > own_total else ""
    click.echo(terminal_prose(f"{count_text(len(rows), 'environment')}, {format_bytes(total)} in {cache}{shared}"))
    return SUCCEEDED


async def _prune(params: dict[str, Any], older_than: float | None) -> int:
    from trainyard.node.images import store
    from trainyard.node.images.inventory import used_by_entry

    cache = _cache(params)
    removal = _Removal(cache)
    async with _opened(params, params | {"images": ()}) as opened:
        for environment in store.list_environments(cache):
            days = (time.time() - environment.last_used) / _DAY
            if not used_by_entry(environment, opened):
                removal.remove(environment, "no entry names it")
            elif older_than is not None and days >= older_than:
                removal.remove(environment, f"not used for {count_text(round(days), 'day')}")
            else:
                removal.kept += 1
    return removal.finish()


async def _clean(cache: Path, yes: bool) -> int:
    from trainyard.node.images import store
    from trainyard.node.images.progress import format_bytes

    environments = store.list_environments(cache)
    if not yes:
        total = sum(store.disk_usage(environment.folder).own for environment in environments)
        summary = (
            f"would remove {count_text(len(environments), 'environment')} from {cache} and free {format_bytes(total)}"
        )
        note(f"{summary}; they are built again when they are needed. To do it: --yes")
        return INVALID if environments else SUCCEEDED
    removal = _Removal(cache)
    for environment in environments:
        removal.remove(environment, "")
    return removal.finish()


class _Removal:
    """Removes environments, prints each with its size, and sums the sizes."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._freed = 0
        self._failed = False
        self.kept = 0

    def remove(self, environment: Environment, reason: str) -> None:
        from trainyard.node.images import store
        from trainyard.node.images.progress import format_bytes

        try:
            freed = store.remove(environment.folder)
        except OSError as error:
            self._failed = True
            note(f"cannot remove {environment.folder}: {error_text(error)}")
            return
        if freed is None:
            self.kept += 1
            click.echo(terminal_prose(f"kept {environment.name}: it is in use"))
            return
        self._freed += freed
        click.echo(
            terminal_prose(f"removed {environment.folder.name}, {format_bytes(freed)}{f': {reason}' if reason else ''}")
        )

    def finish(self) -> int:
        """Remove the leftovers of interrupted installations and print the sum. Returns the exit code."""
        from trainyard.node.images import store
        from trainyard.node.images.progress import format_bytes

        left = 0
        for path in store.list_leftovers(self._cache):
            freed = store.remove_leftover(path)
            left += freed
        if left:
            click.echo(f"removed what interrupted installations had left, {format_bytes(left)}")
        kept = f"; kept {count_text(self.kept, 'environment')}" if self.kept else ""
        click.echo(terminal_prose(f"freed {format_bytes(self._freed + left)} in {self._cache}{kept}"))
        return FAILED if self._failed else SUCCEEDED
