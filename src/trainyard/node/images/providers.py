"""The providers of an entry on this machine: whether each is ready, must be installed or is missing, and the fix."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from trainyard.node.images import interpreters, problems, store
from trainyard.node.images.catalogue import Provider
from trainyard.node.images.environments import Builder, BuildReason, display_name
from trainyard.node.images.interpreters import BrokenInterpreter, Interpreters, Python
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.selection import Selector


class Candidate(msgspec.Struct, frozen=True):
    """The current state of one provider. `python` runs the programs, or builds `environment`, whose interpreter runs
    them."""

    provider: Provider
    state: Literal["ready", "install", "missing"]
    python: Python | None = None
    reason: str = ""
    environment: Path | None = None
    problem: ImageProblem | None = None

    @property
    def name(self) -> str:
        """A short name of the provider."""
        if self.provider.current is not None:
            return "your Python" if not self.provider.needs else "programs of this machine"
        return self.provider.interpreter or display_name(self.provider)


class Ready(msgspec.Struct, frozen=True):
    """The environment that runs the programs of an image. `path` goes in front of PATH."""

    candidate: Candidate
    path: list[str]
    python: Python | None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the interpreter needs, {} without an interpreter."""
        return self.python.variables if self.python else {}


class Providers:
    """Examines and prepares providers. `base`: the variables that programs get from this machine."""

    def __init__(
        self,
        cache: Path,
        builder: Builder,
        selector: Selector,
        interpreters_cache: Interpreters,
        base: Mapping[str, str],
    ) -> None:
        self._cache, self._builder, self._selector = cache, builder, selector
        self._interpreters, self._base = interpreters_cache, base
        self._builds: dict[Path, asyncio.Task[Path]] = {}
        self._locks: dict[Path, int] = {}

    async def examine(self, provider: Provider, env: Mapping[str, str], folder: str) -> Candidate:
        """The state of a provider. Installs nothing. `env`: variables of the entry; `folder`: the working directory."""
        try:
            return await asyncio.to_thread(self._examine, provider, {**self._base, **env}, folder)
        except ImageProblem as problem:
            return Candidate(provider, "missing", problem=problem)

    def _examine(self, provider: Provider, env: Mapping[str, str], folder: str) -> Candidate:
        """Blocks. Raises ImageProblem."""
        if provider.current is not None:
            selection = self._selector.select(folder)
            python = selection.python
            self._check_requirements(provider, self._missing_modules(python, env, provider.current))
            return Candidate(provider, "ready", python, selection.reason)
        if provider.interpreter is not None:
            self._check_requirements(provider)
            try:
                python = self._interpreters.describe(interpreters.locate(provider.interpreter), env).python
            except BrokenInterpreter as error:
                raise ImageProblem(problems.FAILED, str(error)) from None
            self._check_requirements(
                provider, self._missing_modules(python, env, {provider.check: ""} if provider.check else {})
            )
            return Candidate(provider, "ready", python, "its entry")
        if provider.system is not None:
            return self._system_candidate(provider, env)
        self._check_requirements(provider)
        return self._environment_candidate(provider)

    def _missing_modules(self, python: Python, env: Mapping[str, str], modules: Mapping[str, str]) -> list[str]:
        """Text about the missing modules of {module: version range}, [] if there are none. The interpreter is queried
        with the variables that its programs get. Raises ImageProblem."""
        if not modules:
            return []
        try:
            description = self._interpreters.describe(python.path, {**env, **python.variables}, sorted(modules))
        except BrokenInterpreter as error:
            raise ImageProblem(problems.FAILED, str(error)) from None
        missing = ", ".join(description.missing(modules))
        return [f"{python.path} has {missing}; install it there with pip"] if missing else []

    def _check_requirements(
        self, provider: Provider, module_texts: Sequence[str] = (), packages: Sequence[str] = ()
    ) -> None:
        """Raises ImageProblem if `module_texts` is not empty or a program of `needs` is not on PATH. The message lists
        everything that is missing, and one command that installs it."""
        missing_programs = [name for name in provider.needs if shutil.which(name, path=self._base.get("PATH")) is None]
        missing = [*module_texts, *(f"there is no {name} on PATH" for name in missing_programs)]
        if not missing:
            return
        packages_to_install = [*packages, *(provider.needs[name] for name in missing_programs)]
        fix = f"; {problems.install_command(packages_to_install)}" if packages_to_install else ""
        raise ImageProblem(problems.FAILED, f"{' and '.join(missing)}{fix}")

    def _system_candidate(self, provider: Provider, env: Mapping[str, str]) -> Candidate:
        assert provider.system is not None  # noqa: S101 - the caller has checked
        path, modules = provider.system.python, provider.system.modules
        try:
            description = self._interpreters.describe(path, env, sorted(modules))
            missing_modules = [module for module in modules if module not in description.modules]
        except BrokenInterpreter as error:
            missing_modules = [*modules]
            if not modules:
                raise ImageProblem(problems.FAILED, str(error)) from None
        module_texts = [f"{path} has no module {module}" for module in missing_modules]
        self._check_requirements(provider, module_texts, [modules[module] for module in missing_modules])
        return Candidate(provider, "ready", description.python, "", self._builder.folder(provider, description.python))

    def _environment_candidate(self, provider: Provider) -> Candidate:
        python = interpreters.interpreter_for(provider)
        if python is None:
            lowest, _, highest = provider.python.partition("-")
            wanted = f"{lowest.strip()} to {highest.strip()}" if highest else lowest
            running = interpreters.current()
            found_text = f"this is {running.version[0]}.{running.version[1]}, and no other was found"
            fix = (
                f"install Python {(highest or lowest).strip()} "
                f"(a python{(highest or lowest).strip()} on PATH is enough)"
            )
            raise ImageProblem(problems.FAILED, f"{provider.name or 'it'} needs Python {wanted}; {found_text}; {fix}")
        is_built = self._builder.is_built(provider, python)
        if provider.ask and not os.environ.get("TRAINYARD_YES") and not is_built:
            fix = "write --yes to consent (or set TRAINYARD_YES=1)"
            disk_size = provider.disk or provider.download or "an unknown size"
            text = f"{provider.name or 'it'} takes {disk_size}, which needs your consent"
            raise ImageProblem(problems.FAILED, f"{text}; {fix}")
        return Candidate(
            provider, "ready" if is_built else "install", python, "", self._builder.folder(provider, python)
        )

    async def ensure(self, candidate: Candidate, use: BuildReason) -> Ready:
        """Prepare a provider: builds its environment if necessary. Raises ImageProblem, also if it is missing."""
        python = candidate.python
        if candidate.problem or python is None:
            raise candidate.problem or ImageProblem(problems.FAILED, "no interpreter")
        if candidate.environment is None:
            return Ready(candidate, await asyncio.to_thread(self._path_folders, python), python)
        folder = await self._held_environment(candidate.provider, python, candidate.environment, use)
        environment_python = Python(str(folder / "bin" / "python"), python.version, python.identity, venv=str(folder))
        return Ready(candidate, [str(folder / "bin")], environment_python)

    async def _held_environment(self, provider: Provider, python: Python, folder: Path, use: BuildReason) -> Path:
        """Build the environment if necessary and hold its lock until `close`. Returns its folder."""
        while True:
            await self._build(provider, python, folder, use)
            if folder in self._locks:
                return folder
            lock = store.lock_environment(folder)
            if self._builder.is_built(provider, python):
                if lock >= 0:
                    self._locks[folder] = lock
                return folder
            if lock >= 0:
                os.close(lock)  # it was removed between the build and the lock

    async def _build(self, provider: Provider, python: Python, folder: Path, use: BuildReason) -> Path:
        """Build an environment. Concurrent callers share one build task; each can be cancelled alone."""
        build = self._builds.get(folder)
        if build is None:
            build = self._builds[folder] = asyncio.create_task(self._builder.ensure(provider, python, use))
            build.add_done_callback(lambda done: self._build_done(folder, done))
        return await asyncio.shield(build)

    def _build_done(self, folder: Path, build: asyncio.Task[Path]) -> None:
        """Forget a finished build, so that a failed one can be retried. Retrieves its exception, which the waiting
        callers got, so that asyncio does not log it."""
        self._builds.pop(folder, None)
        if not build.cancelled():
            build.exception()

    def _path_folders(self, python: Python) -> list[str]:
        """Folders for PATH: one in which `python` is this interpreter, then the interpreter's own folder. Raises
        ImageProblem."""
        try:
            python_folder = interpreters.shim_folder(python.path, self._cache)
        except OSError as error:
            raise ImageProblem(
                problems.FAILED,
                f"the cache {self._cache} cannot be written ({error.strerror}); make it writable, "
                "or name another folder with --cache",
            ) from None
        programs = os.path.dirname(python.path)
        if python_folder == programs or programs in self._base.get("PATH", "").split(os.pathsep):
            return [python_folder]
        return [python_folder, programs]

    async def close(self) -> None:
        """Cancel the running builds, which removes their staging folders, and release the locks."""
        builds = list(self._builds.values())
        for build in builds:
            build.cancel()
        await asyncio.gather(*builds, return_exceptions=True)
        self._builds.clear()
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()
