"""The interface of this package: finds the entry of an image and prepares its environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from trainyard.node.images import catalogue, interpreters, problems
from trainyard.node.images.catalogue import Image, Provider
from trainyard.node.images.environments import Builder, BuildReason
from trainyard.node.images.interpreters import Interpreters
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.progress import Report
from trainyard.node.images.providers import Candidate, Providers, Ready
from trainyard.node.images.selection import Selector
from trainyard.node.sandbox.inherited_environment import inherited

_CURRENT_INTERPRETER = (Provider(current={}),)  # the providers of an image without an entry


class PreparedImage(msgspec.Struct, frozen=True):
    """The settings of an image for a container. `path` goes in front of PATH; the pod's own variables override `env`.

    `files`: path in the container -> source file; `folders` and `scratch_folders`: empty folders of the container.
    `layout` creates them; the removal of files in `scratch_folders` with the pod is not reported.
    """

    path: list[str]
    env: dict[str, str] = msgspec.field(default_factory=dict)
    entrypoint: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)
    workdir: str = ""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    folders: tuple[str, ...] = ()
    scratch_folders: tuple[str, ...] = ()


class Images:
    """The images of one node. The constructor reads the user's catalogues: ManifestError for an invalid file."""

    def __init__(
        self,
        files: Iterable[Path],
        cache: Path,
        log: Callable[[str], object],
        uv: str | None = None,
        python: str = "",
        environ: Mapping[str, str] | None = None,
        progress: Report | None = None,
    ) -> None:
        """`files`: the user's catalogues in order of precedence. `uv`: its path, "" for none, None to look it up.
        `python`: the interpreter or environment of images without one of their own; for "" selection.py selects it
        with the variables `environ` (default: os.environ). `progress`: called with the progress of installations;
        without it, progress lines go to `log`.

        The variable TRAINYARD_YES is the consent to providers with `ask`, also in later calls.
        """
        self._own_entries = [entry for file in files for entry in catalogue.read(file)]
        self.builder = Builder(cache, interpreters.find_uv() if uv is None else uv, log, progress)
        self._say = log
        environ = os.environ if environ is None else environ
        self.base = inherited(environ, proxies=True)
        python_interpreters = Interpreters()
        self._selector = Selector(python_interpreters, python, environ, self.base)
        self._providers = Providers(cache, self.builder, self._selector, python_interpreters, self.base)
        self._ahead: asyncio.Task[None] | None = None
        self._logged: set[str] = set()

    @cached_property
    def entries(self) -> list[Image]:
        """All entries in order of precedence. The shipped catalogue is read when it is first needed: a twentieth of the
        start of a cluster."""
        return [*self._own_entries, *catalogue.read(catalogue.SHIPPED)]

    def find(self, image: str) -> Image | None:
        """The catalogue's entry for an image reference, None when there is none."""
        return catalogue.find_entry(self.entries, image)

    async def prepare(self, image: str, need_command: bool, has_args: bool = False, folder: str = "") -> PreparedImage:
        """Prepare the image. `need_command`: the container has no command; `folder`: its working directory, which may
        contain a virtual environment. Raises ImageProblem.

        May take minutes the first time. Concurrent calls for one image share one build; each can be cancelled alone.
        """
        entry = self.find(image)
        if entry is None:
            if need_command:
                raise _unknown_image(image)
            ready = await self._bring_first(image, _CURRENT_INTERPRETER, {}, folder, "")
            self._log_once(image, f"{_runtime_text(ready)}; it is not in the catalogue")
            return PreparedImage(ready.path, ready.variables, workdir=catalogue.WORKING_DIRECTORY)
        if need_command and not (entry.entrypoint or entry.args or has_args):
            raise ImageProblem(
                problems.NO_COMMAND,
                f"the image {image} has no program; write 'command' in the container, or an "
                + (
                    "entry of yours with an 'entrypoint' in a file for --images"
                    if entry.source == str(catalogue.SHIPPED)
                    else f"'entrypoint' in its entry in {entry.source}"
                ),
            )
        ready = await self._bring_first(image, entry.providers, entry.env, folder, entry.source)
        self._log_once(image, _runtime_text(ready))
        files = {target: _file_path(image, target, path) for target, path in entry.files.items()}
        env, entrypoint, args = {**ready.variables, **entry.env}, list(entry.entrypoint), list(entry.args)
        path, folders, scratch = [*entry.path, *ready.path], entry.folders, entry.scratch
        return PreparedImage(
            path, env, entrypoint, args, entry.workdir or catalogue.WORKING_DIRECTORY, files, folders, scratch
        )

    def prepare_ahead(self, folder: str) -> None:
        """Before the first pod needs them, select the interpreter of images without an entry, in a thread, and read the
        catalogue."""
        self._ahead = asyncio.create_task(self._prepare_ahead(folder))

    async def _prepare_ahead(self, folder: str) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._select, folder)
        _ = self.entries

    def _select(self, folder: str) -> None:
        with contextlib.suppress(ImageProblem):  # `prepare` raises it for the pod that needs the interpreter
            self._selector.select(folder)

    async def candidates(self, image: str, folder: str = "") -> list[Candidate]:
        """The state of each provider of an image on this machine. Installs nothing."""
        entry = self.find(image)
        providers, env = (entry.providers, entry.env) if entry else (_CURRENT_INTERPRETER, {})
        return [await self._providers.examine(provider, env, folder) for provider in providers]

    async def candidates_of(self, entry: Image) -> list[Candidate]:
        """The state of the providers of an entry, up to the first that is available. Installs nothing."""
        candidates = []
        for provider in entry.providers:
            candidates.append(await self._providers.examine(provider, entry.env, ""))
            if candidates[-1].state != "missing":
                break
        return candidates

    async def close(self) -> None:
        """Cancel the running builds and remove their staging folders."""
        if self._ahead is not None:
            self._ahead.cancel()
        await self._providers.close()

    def _log_once(self, image: str, message: str) -> None:
        """Write a message once per image and interpreter, however many pods use them."""
        text = f"images: {image} {message}"
        if message and text not in self._logged:
            self._logged.add(text)
            self._say(text)

    async def _bring_first(
        self, image: str, providers: Sequence[Provider], env: Mapping[str, str], folder: str, source: str
    ) -> Ready:
        """Prepare the first provider that works. Raises ImageProblem with the messages of all if none works."""
        reasons = []
        for provider in providers:
            try:
                return await self._providers.ensure(
                    await self._providers.examine(provider, env, folder), BuildReason(image, source)
                )
            except ImageProblem as problem:
                entry_text = f" ('python' of its entry in {source})" if provider.interpreter is not None else ""
                reasons.append(ImageProblem(problem.reason, f"{problem.message}{entry_text}"))
        if len(reasons) == 1:
            raise ImageProblem(reasons[0].reason, f"{image}: {reasons[0].message}")
        all_reasons = "; ".join(f"({index}) {problem.message}" for index, problem in enumerate(reasons, 1))
        raise ImageProblem(
            reasons[-1].reason, f"{image} cannot be provided by any of its {len(reasons)} providers: {all_reasons}"
        )


def _runtime_text(ready: Ready) -> str:
    """Text about the interpreter of an image; "" if it only needs programs of the machine."""
    provider, python = ready.candidate.provider, ready.candidate.python
    if python is None or (provider.current is not None and provider.needs and not provider.current):
        return ""
    if ready.candidate.environment is None:
        return f"runs with {python} ({ready.candidate.reason})"
    return f"runs as {provider.name or 'the pins of its entry'}, Python {python.full_version}"


def _unknown_image(image: str) -> ImageProblem:
    return ImageProblem(
        problems.UNKNOWN,
        f"no catalogue has an entry for the image {image}, and the container has no command. Write a "
        f"command, or name a file with --images that has:\n"
        f'images:\n- match: "{image}"\n  providers: [{{current: {{}}}}]\n  entrypoint: [python, /path/to/train.py]',
    )


def _file_path(image: str, target: str, place: str) -> str:
    """The source of a file of the image. A bare name is a program on PATH. Raises ImageProblem."""
    path = place if "/" in place else shutil.which(place) or ""
    if not os.path.exists(path):
        raise ImageProblem(problems.FAILED, f"{image}: {target} should be {place}, which does not exist; see its entry")
    return path
