"""`trainyard images`: what stands behind the images on this machine, and what the environments built for them take.

Exit codes: 0 done, 1 what was tried does not work, 2 a catalogue or the command line is wrong, 3 an image cannot be had
here, 130 interrupted.
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

from trainyard.app.background import error_text
from trainyard.app.catalogues import cache_folder, catalogues
from trainyard.cli import options
from trainyard.cli.codes import BAD, CANNOT, FAILED, INTERRUPTED, READER_GONE, SUCCEEDED
from trainyard.cli.layout import clear_line, terminal_prose, terminal_table
from trainyard.cli.printing import FORMS, as_json, as_yaml
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.node.images import Images
    from trainyard.node.images.store import Environment

_DAY = 86400.0
OUTPUT = click.option("-o", "--output", type=click.Choice(FORMS), help="For more, or for programs.")


@click.group(invoke_without_command=True)
@options.catalogues
@OUTPUT
@click.pass_context
def images(ctx: click.Context, /, output: str | None, **words: Any) -> None:
    """List the images that this machine knows, where each comes from and whether it is ready.

    Examples: trainyard images; trainyard images try pytorch/pytorch; trainyard images prune
    """
    ctx.obj = words
    if ctx.invoked_subcommand is None:
        _run(lambda: _list(words, output or ""))


@images.command()
@click.argument("image")
@options.catalogues
@OUTPUT
@click.pass_obj
def explain(above: dict[str, Any], /, image: str, output: str | None, **words: Any) -> None:
    """Say which entry IMAGE is, which of its ways is taken and why, and what its programs get.

    Nothing is installed. Example: trainyard images explain tensorflow/tensorflow
    """
    from trainyard.cli.images_explain import explained

    async def work() -> int:
        async with _opened(above, words) as found:
            return await explained(found, image, output or "")

    _run(work)


@images.command(name="try")
@click.argument("image")
@options.catalogues
@click.pass_obj
def try_(above: dict[str, Any], /, image: str, **words: Any) -> None:
    """Make IMAGE ready, run its interpreter, import what it must have, and say what is wrong.

    What is missing is installed, as for a pod. Example: trainyard images try my/image --images images.yaml
    """
    from trainyard.cli.images_explain import tried

    async def work() -> int:
        async with _opened(above, words) as found:
            return await tried(found, image)

    _run(work)


@images.command()
@options.catalogues
@OUTPUT
@click.pass_obj
def size(above: dict[str, Any], /, output: str | None, **words: Any) -> None:
    """Show the environments that were built, what they take on disk, and which entry names them.

    Example: trainyard images size
    """
    _run(lambda: _size(_merged(above, words), output or ""))


@images.command()
@click.option("--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Also what was not used for so long.")
@options.catalogues
@click.pass_obj
def prune(above: dict[str, Any], /, older_than: float | None, **words: Any) -> None:
    """Remove the environments that no entry names, and what interrupted installations have left.

    What a pod uses stays, and so does what the catalogue names that it was built for. Example: trainyard images prune
    """
    _run(lambda: _prune(_merged(above, words), older_than))


@images.command()
@click.option("--cache", metavar="DIR", help="Which cache.")
@click.option("--yes", is_flag=True, help="Do it.")
@click.pass_obj
def clean(above: dict[str, Any], /, yes: bool, cache: str | None) -> None:
    """Empty the cache: remove every environment that is not in use. They are built again when they are needed.

    Example: trainyard images clean --yes
    """
    _run(lambda: _clean(_cache({"cache": cache or above["cache"]}), yes))


# --- Doing it -------------------------------------------------------------------------------------------------------


def _run(work: Callable[[], Awaitable[int]]) -> None:
    """Do it, turn what went wrong into words and a code, and exit."""
    from trainyard.node.images import ImageProblem

    async def whole() -> int:
        return await work()

    try:
        code = asyncio.run(whole())
        sys.stdout.flush()
    except ManifestError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        code = BAD
    except ImageProblem as problem:
        click.echo(terminal_prose(problem.message), err=True)
        code = CANNOT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains once more when it flushes
        code = READER_GONE
    except OSError as error:
        click.echo(error_text(error), err=True)
        code = CANNOT
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _merged(above: dict[str, Any], words: dict[str, Any]) -> dict[str, Any]:
    """What was said before and after the name of the command."""
    return {
        "images": (*above["images"], *words["images"]),
        "python": words["python"] or above["python"],
        "cache": words["cache"] or above["cache"],
    }


def _cache(words: dict[str, Any]) -> Path:
    return options.path(words["cache"]) or cache_folder()


@contextlib.asynccontextmanager
async def _opened(above: dict[str, Any], words: dict[str, Any]) -> AsyncIterator[Images]:
    """The images as `run` has them. Installations show how far they are on stderr."""
    from trainyard.node.images import Images

    merged = _merged(above, words)
    python = options.interpreter(merged["python"])
    line = _ProgressLine()
    files = catalogues(tuple(map(Path, merged["images"])))
    opened = Images(files, _cache(merged), line.say, python=python, progress=line.report if line.live else None)
    try:
        yield opened
    finally:
        await opened.close()


class _ProgressLine:
    """Lines on stderr, and below them, on a terminal, one that is written over."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def say(self, text: str) -> None:
        self._clear()
        click.echo(terminal_prose(text), err=True)

    def report(self, image: str, text: str | None) -> None:
        self._clear()
        if text is not None:
            click.echo(terminal_prose(text).splitlines()[0], err=True, nl=False)
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            clear_line()
            self._shown = False


async def _list(words: dict[str, Any], form: str) -> int:
    from trainyard.cli.images_explain import listed
    from trainyard.node.images.inventory import entry_states

    async with _opened(words, words | {"images": ()}) as found:
        click.echo(listed(await entry_states(found), form))
    return SUCCEEDED


# --- The cache ------------------------------------------------------------------------------------------------------


async def _size(words: dict[str, Any], form: str) -> int:
    from trainyard.cli.view import age
    from trainyard.node.images import store
    from trainyard.node.images.inventory import named_by
    from trainyard.node.images.progress import amount

    cache, rows = _cache(words), []
    async with _opened(words, words | {"images": ()}) as found:
        for environment in store.environments(cache):
            rows.append((environment, store.usage(environment.folder), named_by(environment, found)))
    if form in ("json", "yaml"):
        values = [
            {
                "name": environment.folder.name, "folder": str(environment.folder), "bytes": taken.on_disk,
                "bytesFreedByRemoval": taken.own, "secondsSinceLastUse": round(time.time() - environment.used),
                "inUse": environment.held, "entry": name,
            }
            for environment, taken, name in rows
        ]  # fmt: skip
        click.echo(as_json(values) if form == "json" else as_yaml(values))
        return SUCCEEDED
    if form == "name":
        click.echo("".join(f"{environment.folder.name}\n" for environment, _, _ in rows), nl=False)
        return SUCCEEDED
    table = [["ENVIRONMENT", "SIZE", "USED", "STATE", "ENTRY"]]
    for environment, taken, name in rows:
        last = age(time.time() - environment.used)
        state = "in use" if environment.held else "idle"
        called = environment.folder.name if form == "wide" else environment.name
        table.append([called, amount(taken.on_disk), f"{last} ago", state, name or "none: prune removes it"])
    if rows:
        click.echo("\n".join(terminal_table(table, wide=form == "wide")))
    total, own = sum(taken.on_disk for _, taken, _ in rows), sum(taken.own for _, taken, _ in rows)
    shared = f"; {amount(total - own)} of it are shared with uv's cache" if total > own else ""
    click.echo(terminal_prose(f"{_counted(len(rows))}, {amount(total)} in {cache}{shared}"))
    return SUCCEEDED


async def _prune(words: dict[str, Any], older_than: float | None) -> int:
    from trainyard.node.images import store
    from trainyard.node.images.inventory import named_by

    cache = _cache(words)
    removal = _Removal(cache)
    async with _opened(words, words | {"images": ()}) as found:
        for environment in store.environments(cache):
            days = (time.time() - environment.used) / _DAY
            if not named_by(environment, found):
                removal.of(environment, "no entry names it")
            elif older_than is not None and days >= older_than:
                removal.of(environment, f"not used for {days:.0f} days")
            else:
                removal.kept += 1
    return removal.end()


async def _clean(cache: Path, yes: bool) -> int:
    from trainyard.node.images import store
    from trainyard.node.images.progress import amount

    environments = store.environments(cache)
    if not yes:
        total = sum(store.usage(environment.folder).own for environment in environments)
        what = f"would remove {_counted(len(environments))} from {cache} and free {amount(total)}"
        click.echo(terminal_prose(f"{what}; they are built again when they are needed. To do it: --yes"), err=True)
        return BAD if environments else SUCCEEDED
    removal = _Removal(cache)
    for environment in environments:
        removal.of(environment, "")
    return removal.end()


def _counted(number: int) -> str:
    return f"{number} environment{'' if number == 1 else 's'}"


class _Removal:
    """Removes environments, and says what and how much."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._freed = 0
        self._failed = False
        self.kept = 0

    def of(self, environment: Environment, why: str) -> None:
        from trainyard.node.images import store
        from trainyard.node.images.progress import amount

        try:
            freed = store.remove(environment.folder)
        except OSError as error:
            self._failed = True
            click.echo(terminal_prose(f"cannot remove {environment.folder}: {error_text(error)}"), err=True)
            return
        if freed is None:
            self.kept += 1
            click.echo(terminal_prose(f"kept {environment.name}: it is in use"))
            return
        self._freed += freed
        click.echo(terminal_prose(f"removed {environment.folder.name}, {amount(freed)}{f': {why}' if why else ''}"))

    def end(self) -> int:
        """After the environments, what interrupted installations have left; and the sum."""
        from trainyard.node.images import store
        from trainyard.node.images.progress import amount

        left = 0
        for path in store.leftovers(self._cache):
            freed = store.remove_leftover(path)
            left += freed
        if left:
            click.echo(f"removed what interrupted installations had left, {amount(left)}")
        kept = f"; kept {_counted(self.kept)}" if self.kept else ""
        click.echo(terminal_prose(f"freed {amount(self._freed + left)} in {self._cache}{kept}"))
        return FAILED if self._failed else SUCCEEDED
