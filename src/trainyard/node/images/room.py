"""The door of this room: what image is that, and is it ready to run?"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from trainyard.node.images import catalogue, interpreters, problems
from trainyard.node.images.catalogue import Image, Way
from trainyard.node.images.environments import Builder, Use
from trainyard.node.images.interpreters import Interpreters
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.progress import Report
from trainyard.node.images.selection import Selector
from trainyard.node.images.ways import Candidate, Ready, Ways
from trainyard.node.pods import inherited

_YOUR_PYTHON = (Way(current={}),)  # what an image without an entry runs with


class Prepared(msgspec.Struct, frozen=True):
    """What a container of this image gets. `path` goes in front of PATH; the pod's own variables win over `env`.

    `files`: path in the container -> where that file is; `folders` and `scratch`: empty ones of its own. `layout` makes
    them; files in `scratch` are not reported when they go with the pod.
    """

    path: list[str]
    env: dict[str, str] = msgspec.field(default_factory=dict)
    entrypoint: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)
    workdir: str = ""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    folders: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()


class Images:
    """The images of one node. Reads the catalogues when it is made: ManifestError for a file that cannot be used."""

    def __init__(
        self,
        files: Iterable[Path],
        cache: Path,
        say: Callable[[str], object],
        uv: str | None = None,
        python: str = "",
        environ: Mapping[str, str] | None = None,
        progress: Report | None = None,
    ) -> None:
        """`files`: a person's own catalogues, first to last. `uv`: its path, "" for none, None to look for it.
        `python`: the interpreter or environment for images without one of their own; "" is found by selection.py, in
        `environ` (ours by default). `progress`: who shows how far an installation is; without one `say` hears it.

        The variable TRAINYARD_YES is the consent to ways that ask for it, now and for later.
        """
        self.entries = [entry for file in (*files, catalogue.SHIPPED) for entry in catalogue.read(file)]
        self.builder = Builder(cache, interpreters.uv() if uv is None else uv, say, progress)
        self._say = say
        environ = os.environ if environ is None else environ
        self.base = inherited(environ, proxies=True)
        asking = Interpreters()
        self._selector = Selector(asking, python, environ, self.base)
        self._ways = Ways(cache, self.builder, self._selector, asking, self.base)
        self._asking_ahead: asyncio.Future[None] | None = None
        self._told: set[str] = set()

    def find(self, image: str) -> Image | None:
        return catalogue.find(self.entries, image)

    async def prepare(self, image: str, need_command: bool, has_args: bool = False, folder: str = "") -> Prepared:
        """Makes the image ready. `need_command`: the container has no command of its own; `folder`: its working
        directory, where an environment of the project may be. Raises ImageProblem.

        May take minutes the first time; callers of one image share one build, and each may be cancelled by itself.
        """
        entry = self.find(image)
        if entry is None:
            if need_command:
                raise _unknown(image)
            ready = await self._ready(image, _YOUR_PYTHON, {}, folder, "")
            self._tell(image, f"{_runs(ready)}; it is not in the catalogue")
            return Prepared(ready.path, ready.variables, workdir=catalogue.WORKING_DIRECTORY)
        if need_command and not (entry.entrypoint or entry.args or has_args):
            raise ImageProblem(
                problems.NO_COMMAND,
                f"the image {image} has no program of its own; write 'command' in the container, or an "
                + (
                    "entry of yours with an 'entrypoint' in a file for --images"
                    if entry.source == str(catalogue.SHIPPED)
                    else f"'entrypoint' in its entry in {entry.source}"
                ),
            )
        ready = await self._ready(image, entry.ways, entry.env, folder, entry.source)
        self._tell(image, _runs(ready))
        files = {target: _found(image, target, place) for target, place in entry.files.items()}
        env, words, args = {**ready.variables, **entry.env}, list(entry.entrypoint), list(entry.args)
        path, folders, scratch = [*entry.path, *ready.path], entry.folders, entry.scratch
        return Prepared(path, env, words, args, entry.workdir or catalogue.WORKING_DIRECTORY, files, folders, scratch)

    def look_ahead(self, folder: str) -> None:
        """Ask the interpreter of images without an entry what it is, so that the first pod does not wait for it."""
        self._asking_ahead = asyncio.get_running_loop().run_in_executor(None, self._selected, folder)

    def _selected(self, folder: str) -> None:
        with contextlib.suppress(ImageProblem):  # the pod that needs it is told
            self._selector.select(folder)

    async def candidates(self, image: str, folder: str = "") -> list[Candidate]:
        """How each way of an image stands on this machine. Installs nothing."""
        entry = self.find(image)
        ways, env = (entry.ways, entry.env) if entry else (_YOUR_PYTHON, {})
        return [await self._ways.examine(way, env, folder) for way in ways]

    async def candidates_of(self, entry: Image) -> list[Candidate]:
        """The same for an entry, up to the first way that can be had."""
        found = []
        for way in entry.ways:
            found.append(await self._ways.examine(way, entry.env, ""))
            if found[-1].state != "missing":
                break
        return found

    async def close(self) -> None:
        """Ends the builds that still run. What they have built so far is removed."""
        if self._asking_ahead is not None:
            self._asking_ahead.cancel()
        await self._ways.close()

    def _tell(self, image: str, what: str) -> None:
        """Once per image and interpreter: a pod of many must not fill the screen."""
        text = f"images: {image} {what}"
        if what and text not in self._told:
            self._told.add(text)
            self._say(text)

    async def _ready(self, image: str, ways: Sequence[Way], env: Mapping[str, str], folder: str, source: str) -> Ready:
        """The first way that works. When none does, every way's reason is in the message."""
        reasons = []
        for way in ways:
            try:
                return await self._ways.bring(await self._ways.examine(way, env, folder), Use(image, source))
            except ImageProblem as problem:
                named = f" ('python' of its entry in {source})" if way.interpreter is not None else ""
                reasons.append(ImageProblem(problem.reason, f"{problem.message}{named}"))
        if len(reasons) == 1:
            raise ImageProblem(reasons[0].reason, f"{image}: {reasons[0].message}")
        every = "; ".join(f"({at}) {problem.message}" for at, problem in enumerate(reasons, 1))
        raise ImageProblem(reasons[-1].reason, f"{image} cannot be had in any of its {len(reasons)} ways: {every}")


def _runs(ready: Ready) -> str:
    """What an image runs with, in words; "" where its programs are none of Python's."""
    way, python = ready.candidate.way, ready.candidate.python
    if python is None or (way.current is not None and way.needs and not way.current):
        return ""
    if ready.candidate.environment is None:
        return f"runs with {python} ({ready.candidate.reason})"
    return f"runs as {way.name or 'the pins of its entry'}, Python {python.full_version}"


def _unknown(image: str) -> ImageProblem:
    return ImageProblem(
        problems.UNKNOWN,
        f"nothing says what the image {image} is on this machine, and the container has no command. Write a "
        f"command, or name a file with --images that holds:\n"
        f'images:\n- match: "{image}"\n  ways: [{{current: {{}}}}]\n  entrypoint: [python, /path/to/train.py]',
    )


def _found(image: str, target: str, place: str) -> str:
    """Where a file of the image is. A bare name is a program on PATH."""
    real = place if "/" in place else shutil.which(place) or ""
    if not os.path.exists(real):
        raise ImageProblem(problems.FAILED, f"{image}: {target} should be {place}, which is not there; see its entry")
    return real
