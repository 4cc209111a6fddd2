"""The door of this room: what image is that, and is it ready to run?"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.node.images import catalogue, interpreters, problems
from trainyard.node.images.catalogue import Image, Way
from trainyard.node.images.environments import Builder
from trainyard.node.images.interpreters import Python
from trainyard.node.images.problems import ImageProblem


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a container of this image gets. `path` goes in front of PATH; the pod's own variables win over `env`.

    `files`: path in the container -> where that file is; `folders`: empty ones of its own. `layout` makes them.
    """

    path: list[str]
    env: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    workdir: str = ""
    files: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


class Images:
    """The images of one node. Reads the catalogues when it is made: ManifestError for a file that cannot be used."""

    def __init__(self, files: Iterable[Path], cache: Path, say: Callable[[str], object], uv: str | None = None) -> None:
        """`files`: a person's own catalogues, first to last. `uv`: its path, "" for none, None to look for it.

        The variable TRAINYARD_YES is the consent to ways that ask for it, now and for later.
        """
        self._images = [one for file in (*files, catalogue.SHIPPED) for one in catalogue.read(file)]
        self._cache = cache
        self._say = say
        self._builder = Builder(cache, interpreters.uv() if uv is None else uv, say)
        self._builds: dict[str, asyncio.Task[str]] = {}
        self._told: set[str] = set()

    def find(self, image: str) -> Image | None:
        return catalogue.find(self._images, image)

    async def prepare(self, image: str, need_command: bool, has_args: bool = False) -> Prepared:
        """Makes the image ready. `need_command`: the container has no command of its own. Raises ImageProblem.

        May take minutes the first time; callers of one image share one build, and each may be cancelled by itself.
        """
        entry = self.find(image)
        if entry is None:
            return await self._unknown(image, need_command)
        if need_command and not (entry.entrypoint or entry.args or has_args):
            raise ImageProblem(
                problems.NO_COMMAND,
                f"the image {image} has no program of its own; write 'command' in the container, "
                f"or an 'entrypoint' in its entry in {entry.source}",
            )
        path = await self._satisfied(image, entry)
        files = {target: _found(image, target, place) for target, place in entry.files.items()}
        env, words, args = dict(entry.env), list(entry.entrypoint), list(entry.args)
        return Prepared([*entry.path, path], env, words, args, entry.workdir, files, entry.folders)

    async def close(self) -> None:
        """Ends the builds that still run. What they have built so far is removed."""
        for build in self._builds.values():
            build.cancel()
        await asyncio.gather(*self._builds.values(), return_exceptions=True)
        self._builds.clear()

    async def _unknown(self, image: str, need_command: bool) -> Prepared:
        if need_command:
            raise ImageProblem(
                problems.UNKNOWN,
                f"nothing says what the image {image} is on this machine, and the container has no command. Write a "
                f"command, or name a file with --images that holds:\n"
                f'images:\n- match: "{image}"\n  ways: [{{current: {{}}}}]\n  entrypoint: [python, /path/to/train.py]',
            )
        self._tell(image, f"is not in the catalogue; its command runs with {interpreters.current().path}")
        return Prepared([self._current()])

    def _tell(self, image: str, what: str) -> None:
        """Once per image: a pod of many must not fill the screen."""
        if what and image not in self._told:
            self._told.add(image)
            self._say(f"images: {image} {what}")

    def _current(self) -> str:
        return self._on_path(interpreters.current().path)

    def _on_path(self, python: str) -> str:
        try:
            return interpreters.on_path(python, self._cache)
        except OSError as error:
            raise ImageProblem(
                problems.FAILED,
                f"the cache {self._cache} cannot be written ({error.strerror}); make it writable, "
                "or name another folder with --cache",
            ) from None

    async def _satisfied(self, image: str, entry: Image) -> str:
        """The folder for PATH of the first way that works. When none does, every way's reason is in the message."""
        if not entry.ways:
            return self._current()
        reasons = []
        for way in entry.ways:
            try:
                path = await self._by(way)
                self._tell(image, f"runs as {way.name or 'the pins of its entry'}" if way.requirements else "")
                return path
            except ImageProblem as problem:
                reasons.append(problem)
        if len(reasons) == 1:
            raise ImageProblem(reasons[0].reason, f"{image}: {reasons[0].message}")
        every = "; ".join(f"({at}) {one.message}" for at, one in enumerate(reasons, 1))
        raise ImageProblem(reasons[-1].reason, f"{image} cannot be had in any of its {len(reasons)} ways: {every}")

    async def _by(self, way: Way) -> str:
        if way.current is not None:
            lacking = await asyncio.to_thread(interpreters.lacks, way.current)
            if lacking:
                python = interpreters.current().path
                raise ImageProblem(problems.FAILED, f"{python} has {lacking}; install it there with pip")
        await self._installed(way)
        if way.current is not None:
            return self._current()
        if way.system is not None:
            system = await asyncio.to_thread(interpreters.asked, way.system.python)
            return await self._brought(way, system) if system else self._on_path(way.system.python)
        return await self._built(way)

    async def _installed(self, way: Way) -> None:
        """What the way needs of the operating system is there. Says everything that is not, and one command for it."""
        modules = way.system.modules if way.system else {}
        lacking = await asyncio.to_thread(interpreters.without, way.system) if way.system else []
        programs = [name for name in way.needs if shutil.which(name) is None]
        if not (lacking or programs):
            return
        what = [f"{way.system.python} has no module {one}" for one in lacking if way.system]
        what += [f"there is no {name} on PATH" for name in programs]
        packages = dict.fromkeys([*(modules[one] for one in lacking), *(way.needs[name] for name in programs)])
        root = "" if os.geteuid() == 0 else "sudo "
        fix = f"on Debian: {root}apt-get install -y {' '.join(packages)}"
        raise ImageProblem(problems.FAILED, f"{' and '.join(what)}; {fix}")

    async def _built(self, way: Way) -> str:
        python = await asyncio.to_thread(interpreters.serving, way)
        if python is None:
            least, _, most = way.python.partition("-")
            wanted = f"{least.strip()} to {most.strip()}" if most else least
            ours = interpreters.current()
            this = f"this is {ours.version[0]}.{ours.version[1]}, and no other was found"
            fix = f"install Python {(most or least).strip()} (a python{(most or least).strip()} on PATH is enough)"
            raise ImageProblem(problems.FAILED, f"{way.name or 'it'} needs Python {wanted}; {this}; {fix}")
        if way.ask and not os.environ.get("TRAINYARD_YES") and not self._builder.has(way, python):
            fix = "write --yes to agree (or set TRAINYARD_YES=1)"
            large = way.disk or way.download or "an unknown size"
            what = f"{way.name or 'it'} takes {large}, and nobody has agreed to that"
            raise ImageProblem(problems.FAILED, f"{what}; {fix}")
        return await self._brought(way, python)

    async def _brought(self, way: Way, python: Python) -> str:
        key = os.fspath(self._builder.folder(way, python))
        build = self._builds.get(key)
        if build is None:
            build = self._builds[key] = asyncio.create_task(self._builder.bring(way, python))
            build.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(build)

    def _forget(self, key: str, build: asyncio.Task[str]) -> None:
        """A build that failed may be asked for again. Its error has been told to those who still wait."""
        self._builds.pop(key, None)
        if not build.cancelled():
            build.exception()


def _found(image: str, target: str, place: str) -> str:
    """Where a file of the image is. A bare name is a program on PATH."""
    real = place if "/" in place else shutil.which(place) or ""
    if not os.path.exists(real):
        raise ImageProblem(problems.FAILED, f"{image}: {target} should be {place}, which is not there; see its entry")
    return real
