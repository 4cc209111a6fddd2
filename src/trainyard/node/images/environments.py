"""Environments: pinned requirements installed into a folder that is built once and kept.

Flow: check for the folder -> lock -> check again -> build in a staging folder -> import check -> rename into place.

Guarantees:
- The folder's name contains a hash of its content (pins, interpreter, platform), so an existing folder is complete and
  matches its name.
- A builder holds a file lock that the kernel releases when the process dies. The next builder removes the staging
  folders of dead builders.
- An environment has a record file that lists what it was built from (store.py).
- The processes of a build die with this process: they have their own process group, which a cancel kills, and a
  parent-death signal for the case that this process gets SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from trainyard.node.images import problems, store
from trainyard.node.images.catalogue import Provider, parse_size
from trainyard.node.images.interpreters import Python
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.progress import Meter, Report
from trainyard.node.images.requirements import is_pinned
from trainyard.objects.patterns import lazy_pattern

_REPEATED_REQUEST = re.compile(r"""['"]\)['"]: /\S*$""")  # the end of pip's line about one, which may begin cut
_REQUEST_ERROR = lazy_pattern(r"\[Errno -?\d+\] [\w ]+|[\w. ]+ timed out")
_LAUNCH_SCRIPT = str(Path(__file__).with_name("launch.py"))
_TAIL_BYTES = 4000  # number of bytes at the end of a build's output that are kept for the message
_LAYOUT_VERSION = 1  # part of every folder's hash: increment it when the build steps change
_OTHER_CACHE = "or name another folder with --cache"

# Lower-case substrings of a build's output -> the text for the message. The first match counts.
_KNOWN_ERRORS = (
    (("no space left", "os error 28", "errno 28", "disk quota"),
     "no space left in {cache}; free some, " + _OTHER_CACHE),
    (("ensurepip is not",), "{python} cannot make virtual environments; install its venv package (on Debian: "
     "apt-get install python3-venv), or uv (pip install uv)"),
    (("failed to initialize cache",), "uv cannot write its own cache; set UV_CACHE_DIR to a folder that you can write"),
    (("requires-python", "requires a different python", "requires python", "not compatible with the current python"),
     "a pin does not support this Python; run trainyard with another one, or change the pins"),
    (("libgomp.so", "libquadmath.so"),
     "a library of the system is missing; " + problems.install_command(["libgomp1", "libquadmath0"])),
    (("dns error", "name resolution", "name or service", "failed to fetch", "newconnectionerror", "connection refused",
      "connecttimeout", "network is unreachable", "timed out", "client error (connect)", "proxyerror", "max retries",
      "error sending request", "failed to establish", "tunnel"),
     "the package index cannot be reached; check the network and the proxy, or set PIP_INDEX_URL and UV_INDEX_URL"),
    (("from versions: none",),
     "the package index does not have a pin, or cannot be reached; check the name, the network and the proxy"),
    (("no matching distribution", "no solution found", "was not found in the package registry"),
     "the package index does not have a pin for this Python and platform; change the pins"),
)  # fmt: skip


class BuildReason(msgspec.Struct, frozen=True):
    """The image for which an environment is built, and the catalogue with its entry."""

    image: str = ""
    catalogue: str = ""


class Builder(msgspec.Struct, frozen=True):
    """Builds environments in one cache folder. `uv` is a path, or "" for venv and pip. `report` is called with the
    progress; without it, progress lines go to `log`."""

    cache: Path
    uv: str
    log: Callable[[str], object]
    report: Report | None = None

    def folder(self, provider: Provider, python: Python) -> Path:
        """The folder of this environment, whether it exists or not."""
        content = [
            _LAYOUT_VERSION,
            provider.requirements,
            python.identity,
            sys.platform,
            platform.machine(),
            platform.libc_ver(),
        ]
        content += [provider.build] if provider.build else []
        content += [sorted(provider.system.modules)] if provider.system else []
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        name = re.sub(r"[^a-z0-9.]+", "-", provider.name.lower()).strip("-")[:40] or "environment"
        return self.cache / "environments" / f"{name}-{digest}"

    def is_built(self, provider: Provider, python: Python) -> bool:
        """True if the environment exists and is usable."""
        return is_usable(self.folder(provider, python))

    async def ensure(
        self,
        provider: Provider,
        python: Python,
        use: BuildReason = BuildReason(),  # noqa: B008  (a value)
    ) -> Path:
        """The folder of a finished environment. Builds it if it does not exist. Raises ImageProblem."""
        folder = self.folder(provider, python)
        try:
            if not is_usable(folder):
                folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                async with self._build_lock(folder, provider):
                    if not is_usable(folder):
                        await self._build(provider, python, folder, use)
        except OSError as error:
            raise self._write_problem(error, folder) from None
        return folder

    @contextlib.asynccontextmanager
    async def _build_lock(self, folder: Path, provider: Provider) -> AsyncIterator[None]:
        path = f"{folder}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            reported = False
            while not (store.try_lock(lock) and store.is_same_file(lock, path)):
                if not store.is_same_file(lock, path):  # the environment and its lock file were removed
                    os.close(lock)
                    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    continue
                if not reported:
                    self.log(f"images: another process is installing {display_name(provider)}; waiting for it")
                    reported = True
                await asyncio.sleep(0.2)
            yield
        finally:
            os.close(lock)

    async def _build(self, provider: Provider, python: Python, folder: Path, use: BuildReason) -> None:
        """Build the environment in a staging folder and rename it. The caller holds the build lock."""
        for leftover in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._check_free_space(provider)
        staging = folder.with_name(f".{folder.name}.{os.getpid()}")
        staging.mkdir(mode=0o700)
        tool = "uv" if self.uv else "venv and pip"
        sizes = [f"about {provider.download} to download"] if provider.download else []
        sizes += [f"{provider.disk} on disk"] if provider.disk else []
        estimate = f" ({', '.join(sizes)})" if sizes else ""
        if not provider.system:
            self.log(f"images: installing {display_name(provider)} with {tool}{estimate}, once, into {folder}")
        meter = Meter(
            use.image or display_name(provider),
            display_name(provider),
            parse_size(provider.download),
            self.report,
            self.log,
        )
        try:
            await self._install(provider, python, staging, meter)
            _write_record(staging / "env", provider, python, use)
            _relocate_scripts(staging / "env", folder)
            (staging / "env").rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        if not provider.system:
            self.log(f"images: {display_name(provider)} is ready after {meter.seconds:.0f} s")

    async def _install(self, provider: Provider, python: Python, staging: Path, meter: Meter) -> None:
        pins, env = staging / "requirements.txt", staging / "env"
        pins.write_text("\n".join(provider.requirements or ()) + "\n")
        env_python = str(env / "bin" / "python")
        if provider.system:  # nothing to install: the venv uses the site-packages of the system
            steps = [[python.path, "-m", "venv", "--system-site-packages", "--without-pip", str(env)]]
        elif self.uv:
            pip = [self.uv, "pip", "install", "--python", env_python]
            steps = [[self.uv, "venv", "-q", "--no-project", "--python", python.path, str(env)]]
        else:
            # Compiling all modules of a large package takes longer than installing it; imports compile the used ones.
            pip = [env_python, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check", "--no-input"]
            pip += ["--progress-bar", "off"]
            steps = [[python.path, "-m", "venv", str(env)]]
        if provider.build:
            steps.append([*pip, *provider.build])
        if not provider.system:
            steps.append([*pip, *(["--no-build-isolation"] if provider.build else []), "-r", str(pins)])
        if provider.check:
            steps.append([env_python, "-c", f"import {provider.check}"])
        meter_task = asyncio.create_task(meter.run())
        try:
            for step in steps:
                if step[:2] == [env_python, "-c"]:
                    meter.step("checking")
                code, tail = await _run_step(step, staging, meter)
                if code != 0:
                    raise self._install_problem(code, tail, provider, python)
        finally:
            meter_task.cancel()
            await asyncio.gather(meter_task, return_exceptions=True)

    def _check_free_space(self, provider: Provider) -> None:
        free = shutil.disk_usage(self.cache).free
        if free < parse_size(provider.disk):
            raise ImageProblem(
                problems.FAILED,
                f"{display_name(provider)} needs {provider.disk} in {self.cache}, {free / 1e9:.1f} GB are free; "
                f"free some, {_OTHER_CACHE}",
            )

    def _install_problem(self, code: int, tail: str, provider: Provider, python: Python) -> ImageProblem:
        output = tail.lower()
        template = next((text for parts, text in _KNOWN_ERRORS if any(part in output for part in parts)), "")
        meaning = (
            template.format(cache=self.cache, python=python.path)
            if template
            else f"its installer ended with code {code}"
        )
        last_lines = " / ".join(_telling_lines(tail)[-4:])[-500:]
        return ImageProblem(
            problems.FAILED,
            f"{display_name(provider)} cannot be installed: {meaning}. Its last output: {last_lines or 'none'}",
        )

    def _write_problem(self, error: OSError, folder: Path) -> ImageProblem:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = f"no space left in {self.cache}; free some"
        else:
            text = f"the cache {error.filename or folder.parent} cannot be written ({error.strerror}); make it writable"
        return ImageProblem(problems.FAILED, f"{text}, {_OTHER_CACHE}")


def _telling_lines(output: str) -> list[str]:
    """The lines of an installer's output. The errors of requests that pip has repeated are in place of the lines
    about the repetitions."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    repeated = [line for line in lines if _REPEATED_REQUEST.search(line)]
    errors = dict.fromkeys(error.strip() for line in repeated for error in _REQUEST_ERROR.findall(line))
    return [*errors, *(line for line in lines if line not in repeated)]


def display_name(provider: Provider) -> str:
    """The catalogue's name of the provider, else its first three packages or modules."""
    pins = [line for line in provider.requirements or () if is_pinned(line)]
    return provider.name or ", ".join([*pins, *(provider.system.modules if provider.system else ())][:3])


def _write_record(env: Path, provider: Provider, python: Python, use: BuildReason) -> None:
    record = {
        "name": display_name(provider),
        "image": use.image,
        "catalogue": os.path.abspath(use.catalogue) if use.catalogue else "",
        "python": python.path,
        "version": python.full_version,
    }
    (env / store.RECORD).write_text(json.dumps(record, indent=1) + "\n")


def is_usable(folder: Path) -> bool:
    """True if the folder has an interpreter; False if the target of its link was removed."""
    return (folder / "bin" / "python").exists()


def _relocate_scripts(env: Path, folder: Path) -> None:
    """Replace the staging path by the final path in the scripts of an environment.

    A script may be a hard link into a package cache, so it is replaced by a new file, never modified in place.
    """
    old, new = os.fsencode(env), os.fsencode(folder)
    for script in (env / "bin").iterdir():
        if script.is_symlink() or not script.is_file() or script.stat().st_size > 1_000_000:
            continue
        text = script.read_bytes()
        if old in text:
            replacement = script.with_name(f".{script.name}")
            replacement.write_bytes(text.replace(old, new))
            replacement.chmod(script.stat().st_mode)
            replacement.replace(script)
    if folder.exists():  # an environment whose interpreter was removed
        shutil.rmtree(folder)


async def _run_step(argv: list[str], cwd: Path, meter: Meter) -> tuple[int, str]:
    """Run a program that dies with this process. Returns its exit code and the end of its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", _LAUNCH_SCRIPT, str(os.getpid()), *argv,
        cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    meter.watch_process(process.pid)
    tail = b""
    try:
        assert process.stdout is not None  # noqa: S101 - PIPE above
        while chunk := await process.stdout.read(65536):
            tail = (tail + chunk)[-_TAIL_BYTES:]
            meter.read_output(chunk.decode(errors="replace"))
        return await process.wait(), tail.decode(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
