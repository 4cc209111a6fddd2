"""The ways of an entry on this machine: what is there, what would be installed, what is missing and how to get it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from trainyard.node.images import interpreters, problems, store
from trainyard.node.images.catalogue import Way
from trainyard.node.images.environments import Builder, Use, called
from trainyard.node.images.interpreters import BrokenInterpreter, Interpreters, Python
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.selection import Selector


class Candidate(msgspec.Struct, frozen=True):
    """One way as it is now. `python` runs the programs, or builds `environment`, which then runs them."""

    way: Way
    state: Literal["ready", "install", "missing"]
    python: Python | None = None
    reason: str = ""
    environment: Path | None = None
    problem: ImageProblem | None = None

    @property
    def name(self) -> str:
        """What the way is, in a word or two."""
        if self.way.current is not None:
            return "your Python" if not self.way.needs else "programs of this machine"
        return self.way.interpreter or called(self.way)


class Ready(msgspec.Struct, frozen=True):
    """What the programs of an image run with. `path` goes in front of PATH."""

    candidate: Candidate
    path: list[str]
    python: Python | None

    @property
    def variables(self) -> dict[str, str]:
        return self.python.variables if self.python else {}


class Ways:
    """Examines ways, and makes them ready. `base`: the variables that programs get from this machine."""

    def __init__(
        self, cache: Path, builder: Builder, selector: Selector, asking: Interpreters, base: Mapping[str, str]
    ) -> None:
        self._cache, self._builder, self._selector, self._asking, self._base = cache, builder, selector, asking, base
        self._builds: dict[Path, asyncio.Task[Path]] = {}
        self._held: dict[Path, int] = {}

    async def examine(self, way: Way, env: Mapping[str, str], folder: str) -> Candidate:
        """How a way stands. Installs nothing. `env`: the image's own variables; `folder`: the working directory."""
        try:
            return await asyncio.to_thread(self._examined, way, {**self._base, **env}, folder)
        except ImageProblem as problem:
            return Candidate(way, "missing", problem=problem)

    def _examined(self, way: Way, env: Mapping[str, str], folder: str) -> Candidate:
        """Blocks. Raises ImageProblem."""
        if way.current is not None:
            selection = self._selector.select(folder)
            python = selection.python
            self._require(way, self._lacking(python, env, way.current))
            return Candidate(way, "ready", python, selection.reason)
        if way.interpreter is not None:
            self._require(way)
            try:
                python = self._asking.describe(interpreters.locate(way.interpreter), env).python
            except BrokenInterpreter as error:
                raise ImageProblem(problems.FAILED, str(error)) from None
            self._require(way, self._lacking(python, env, {way.check: ""} if way.check else {}))
            return Candidate(way, "ready", python, "its entry")
        if way.system is not None:
            return self._of_system(way, env)
        self._require(way)
        return self._built(way)

    def _lacking(self, python: Python, env: Mapping[str, str], modules: Mapping[str, str]) -> list[str]:
        """What an interpreter lacks of {module: version range}, asked in the variables that its programs get."""
        if not modules:
            return []
        try:
            described = self._asking.describe(python.path, {**env, **python.variables}, sorted(modules))
        except BrokenInterpreter as error:
            raise ImageProblem(problems.FAILED, str(error)) from None
        missing = ", ".join(described.lacks(modules))
        return [f"{python.path} has {missing}; install it there with pip"] if missing else []

    def _require(self, way: Way, wrong: Sequence[str] = (), packages: Sequence[str] = ()) -> None:
        """What the way needs of the operating system is there. Says all that is missing, and one command for it."""
        absent = [name for name in way.needs if shutil.which(name, path=self._base.get("PATH")) is None]
        what = [*wrong, *(f"there is no {name} on PATH" for name in absent)]
        if not what:
            return
        needed = [*packages, *(way.needs[name] for name in absent)]
        fix = f"; {problems.installation(needed)}" if needed else ""
        raise ImageProblem(problems.FAILED, f"{' and '.join(what)}{fix}")

    def _of_system(self, way: Way, env: Mapping[str, str]) -> Candidate:
        assert way.system is not None  # noqa: S101 - the caller has looked
        path, modules = way.system.python, way.system.modules
        try:
            described = self._asking.describe(path, env, sorted(modules))
            absent = [module for module in modules if module not in described.modules]
        except BrokenInterpreter as error:
            absent = [*modules]
            if not modules:
                raise ImageProblem(problems.FAILED, str(error)) from None
        wrong = [f"{path} has no module {module}" for module in absent]
        self._require(way, wrong, [modules[module] for module in absent])
        return Candidate(way, "ready", described.python, "", self._builder.folder(way, described.python))

    def _built(self, way: Way) -> Candidate:
        python = interpreters.serving(way)
        if python is None:
            least, _, most = way.python.partition("-")
            wanted = f"{least.strip()} to {most.strip()}" if most else least
            ours = interpreters.current()
            this = f"this is {ours.version[0]}.{ours.version[1]}, and no other was found"
            fix = f"install Python {(most or least).strip()} (a python{(most or least).strip()} on PATH is enough)"
            raise ImageProblem(problems.FAILED, f"{way.name or 'it'} needs Python {wanted}; {this}; {fix}")
        has = self._builder.has(way, python)
        if way.ask and not os.environ.get("TRAINYARD_YES") and not has:
            fix = "write --yes to agree (or set TRAINYARD_YES=1)"
            large = way.disk or way.download or "an unknown size"
            what = f"{way.name or 'it'} takes {large}, and nobody has agreed to that"
            raise ImageProblem(problems.FAILED, f"{what}; {fix}")
        return Candidate(way, "ready" if has else "install", python, "", self._builder.folder(way, python))

    async def bring(self, candidate: Candidate, use: Use) -> Ready:
        """Makes a way ready that is not missing. Raises ImageProblem."""
        python = candidate.python
        if candidate.problem or python is None:
            raise candidate.problem or ImageProblem(problems.FAILED, "no interpreter")
        if candidate.environment is None:
            return Ready(candidate, await asyncio.to_thread(self._on_path, python), python)
        folder = await self._environment(candidate.way, python, candidate.environment, use)
        inside = Python(str(folder / "bin" / "python"), python.version, python.identity, venv=str(folder))
        return Ready(candidate, [str(folder / "bin")], inside)

    async def _environment(self, way: Way, python: Python, folder: Path, use: Use) -> Path:
        """The environment, there and held until `close`."""
        while True:
            await self._build(way, python, folder, use)
            if folder in self._held:
                return folder
            lock = store.hold(folder)
            if self._builder.has(way, python):
                if lock >= 0:
                    self._held[folder] = lock
                return folder
            if lock >= 0:
                os.close(lock)  # it was removed between the look and the lock

    async def _build(self, way: Way, python: Python, folder: Path, use: Use) -> Path:
        """Those who wait for one environment share one build, and each may be cancelled by itself."""
        build = self._builds.get(folder)
        if build is None:
            build = self._builds[folder] = asyncio.create_task(self._builder.bring(way, python, use))
            build.add_done_callback(lambda done: self._forget(folder, done))
        return await asyncio.shield(build)

    def _forget(self, folder: Path, build: asyncio.Task[Path]) -> None:
        """A build that failed may be asked for again. Its error has been told to those who still wait."""
        self._builds.pop(folder, None)
        if not build.cancelled():
            build.exception()

    def _on_path(self, python: Python) -> list[str]:
        """Its folder, so that its own programs are found, and before it one where `python` means this interpreter."""
        try:
            named = interpreters.on_path(python.path, self._cache)
        except OSError as error:
            raise ImageProblem(
                problems.FAILED,
                f"the cache {self._cache} cannot be written ({error.strerror}); make it writable, "
                "or name another folder with --cache",
            ) from None
        programs = os.path.dirname(python.path)
        if named == programs or programs in self._base.get("PATH", "").split(os.pathsep):
            return [named]
        return [named, programs]

    async def close(self) -> None:
        """Ends the builds that still run, and lets the environments go. What is half built is removed."""
        builds = list(self._builds.values())
        for build in builds:
            build.cancel()
        await asyncio.gather(*builds, return_exceptions=True)
        self._builds.clear()
        for lock in self._held.values():
            os.close(lock)
        self._held.clear()
