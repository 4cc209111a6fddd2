"""Environments: pinned requirements as a folder, built once and kept.

Flow: look -> lock -> look again -> build beside -> check -> rename into place.

Guarantees:
- The folder's name is its content (pins, interpreter, platform): what is there is right, and complete.
- A builder holds a file lock that the kernel lets go when it dies; what a dead one left is swept by the next.
- An environment says what it was built from, in a file of its own (store.py).
- The programs of a build die with us: own process group for a cancel, a death signal for a SIGKILL.
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
from dataclasses import dataclass
from pathlib import Path

from trainyard.node.images import problems, store
from trainyard.node.images.catalogue import Way, size
from trainyard.node.images.interpreters import Python
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.progress import Meter, Report
from trainyard.node.images.requirements import is_pinned

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_TAIL = 4000  # bytes of a build's output that are kept for the message
_FORMAT = 1  # part of every folder's name: change it when the way we build changes
_ELSEWHERE = "or name another folder with --cache"

# What a build prints (a part, lower case) -> what it means. The first match counts.
_MEANINGS = (
    (("no space left", "os error 28", "errno 28", "disk quota"), "no space left in {cache}; free some, " + _ELSEWHERE),
    (("ensurepip is not",), "{python} cannot make virtual environments; install its venv package (on Debian: "
     "apt-get install python3-venv), or uv (pip install uv)"),
    (("failed to initialize cache",), "uv cannot write its own cache; set UV_CACHE_DIR to a folder you may write"),
    (("requires-python", "requires a different python", "requires python", "not compatible with the current python"),
     "a pin does not serve this Python; run trainyard with another one, or change the pins"),
    (("libgomp.so", "libquadmath.so"),
     "a library of the system is missing; " + problems.installation(["libgomp1", "libquadmath0"])),
    (("dns error", "name resolution", "name or service", "failed to fetch", "newconnectionerror", "connection refused",
      "connecttimeout", "network is unreachable", "timed out", "client error (connect)", "proxyerror", "max retries",
      "error sending request", "failed to establish", "tunnel"),
     "the package index cannot be reached; check the network and the proxy, or set PIP_INDEX_URL and UV_INDEX_URL"),
    (("from versions: none",),
     "the package index does not know a pin, or cannot be reached; check the name, the network and the proxy"),
    (("no matching distribution", "no solution found", "was not found in the package registry"),
     "the package index does not have a pin for this Python and platform; change the pins"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Use:
    """For which image an environment is built, and which catalogue says so."""

    image: str = ""
    catalogue: str = ""


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds environments into one cache folder. `uv` is a path, or "" for venv and pip. `report` hears of progress;
    without it, `say` does."""

    cache: Path
    uv: str
    say: Callable[[str], object]
    report: Report | None = None

    def folder(self, way: Way, python: Python) -> Path:
        """Where this environment is or will be."""
        content = [_FORMAT, way.requirements, python.identity, sys.platform, platform.machine(), platform.libc_ver()]
        content += [way.build] if way.build else []
        content += [sorted(way.system.modules)] if way.system else []
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        name = re.sub(r"[^a-z0-9.]+", "-", way.name.lower()).strip("-")[:40] or "environment"
        return self.cache / "environments" / f"{name}-{digest}"

    def has(self, way: Way, python: Python) -> bool:
        """True when it has been built already."""
        return usable(self.folder(way, python))

    async def bring(self, way: Way, python: Python, use: Use = Use()) -> Path:
        """The folder of a finished environment. Builds it when it is not there. Raises ImageProblem."""
        folder = self.folder(way, python)
        try:
            if not usable(folder):
                folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                async with self._alone(folder, way):
                    if not usable(folder):
                        await self._build(way, python, folder, use)
        except OSError as error:
            raise self._cannot_write(error, folder) from None
        return folder

    @contextlib.asynccontextmanager
    async def _alone(self, folder: Path, way: Way) -> AsyncIterator[None]:
        path = f"{folder}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            told = False
            while not (store.try_lock(lock) and store.is_at(lock, path)):
                if not store.is_at(lock, path):  # the environment was removed, and its lock with it
                    os.close(lock)
                    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    continue
                if not told:
                    self.say(f"images: another build of {called(way)} is under way; waiting for it")
                    told = True
                await asyncio.sleep(0.2)
            yield
        finally:
            os.close(lock)

    async def _build(self, way: Way, python: Python, folder: Path, use: Use) -> None:
        """Under the lock. What is in `beside` is nobody's until the rename."""
        for left in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        self._room(way)
        beside = folder.with_name(f".{folder.name}.{os.getpid()}")
        beside.mkdir(mode=0o700)
        tool = "uv" if self.uv else "venv and pip"
        sizes = [f"about {way.download} to download"] if way.download else []
        sizes += [f"{way.disk} on disk"] if way.disk else []
        about = f" ({', '.join(sizes)})" if sizes else ""
        if not way.system:
            self.say(f"images: installing {called(way)} with {tool}{about}, once, into {folder}")
        meter = Meter(use.image or called(way), called(way), size(way.download), self.report, self.say)
        try:
            await self._install(way, python, beside, meter)
            _write_record(beside / "env", way, python, use)
            _settle(beside / "env", folder)
            (beside / "env").rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        if not way.system:
            self.say(f"images: {called(way)} is ready after {meter.seconds:.0f} s")

    async def _install(self, way: Way, python: Python, beside: Path, meter: Meter) -> None:
        pins, env = beside / "requirements.txt", beside / "env"
        pins.write_text("\n".join(way.requirements or ()) + "\n")
        inside = str(env / "bin" / "python")
        if way.system:  # nothing to install: it sees what the operating system has
            steps = [[python.path, "-m", "venv", "--system-site-packages", "--without-pip", str(env)]]
        elif self.uv:
            pip = [self.uv, "pip", "install", "--python", inside]
            steps = [[self.uv, "venv", "-q", "--no-project", "--python", python.path, str(env)]]
        else:
            # Compiling all of a large package takes longer than installing it; the check compiles what is used.
            pip = [inside, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check", "--no-input"]
            pip += ["--progress-bar", "off"]
            steps = [[python.path, "-m", "venv", str(env)]]
        if way.build:
            steps.append([*pip, *way.build])
        if not way.system:
            steps.append([*pip, *(["--no-build-isolation"] if way.build else []), "-r", str(pins)])
        if way.check:
            steps.append([inside, "-c", f"import {way.check}"])
        measuring = asyncio.create_task(meter.run())
        try:
            for step in steps:
                if step[:2] == [inside, "-c"]:
                    meter.step("checking")
                code, tail = await _run(step, beside, meter)
                if code != 0:
                    raise self._failed(code, tail, way, python)
        finally:
            measuring.cancel()
            await asyncio.gather(measuring, return_exceptions=True)

    def _room(self, way: Way) -> None:
        free = shutil.disk_usage(self.cache).free
        if free < size(way.disk):
            raise ImageProblem(
                problems.FAILED,
                f"{called(way)} needs {way.disk} in {self.cache}, {free / 1e9:.1f} GB are free; "
                f"free some, {_ELSEWHERE}",
            )

    def _failed(self, code: int, tail: str, way: Way, python: Python) -> ImageProblem:
        low = tail.lower()
        meant = next((text for parts, text in _MEANINGS if any(part in low for part in parts)), "")
        meaning = (
            meant.format(cache=self.cache, python=python.path) if meant else f"its installer ended with code {code}"
        )
        said = " / ".join(line.strip() for line in tail.splitlines()[-4:] if line.strip())[-500:]
        return ImageProblem(
            problems.FAILED, f"{called(way)} cannot be installed: {meaning}. It said: {said or 'nothing'}"
        )

    def _cannot_write(self, error: OSError, folder: Path) -> ImageProblem:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = f"no space left in {self.cache}; free some"
        else:
            why = f"the cache {error.filename or folder.parent} cannot be written ({error.strerror}); make it writable"
        return ImageProblem(problems.FAILED, f"{why}, {_ELSEWHERE}")


def called(way: Way) -> str:
    pins = [line for line in way.requirements or () if is_pinned(line)]
    return way.name or ", ".join([*pins, *(way.system.modules if way.system else ())][:3])


def _write_record(env: Path, way: Way, python: Python, use: Use) -> None:
    record = {
        "name": called(way),
        "image": use.image,
        "catalogue": os.path.abspath(use.catalogue) if use.catalogue else "",
        "python": python.path,
        "version": python.full_version,
    }
    (env / store.RECORD).write_text(json.dumps(record, indent=1) + "\n")


def usable(folder: Path) -> bool:
    """There, and its interpreter has not been removed from under it."""
    return (folder / "bin" / "python").exists()


def _settle(env: Path, folder: Path) -> None:
    """The scripts of an environment name its folder: let them name the one it will have.

    A script may be a hard link into a package cache, so it is replaced, never written.
    """
    old, new = os.fsencode(env), os.fsencode(folder)
    for script in (env / "bin").iterdir():
        if script.is_symlink() or not script.is_file() or script.stat().st_size > 1_000_000:
            continue
        text = script.read_bytes()
        if old in text:
            fresh = script.with_name(f".{script.name}")
            fresh.write_bytes(text.replace(old, new))
            fresh.chmod(script.stat().st_mode)
            fresh.replace(script)
    if folder.exists():  # an environment whose interpreter is gone
        shutil.rmtree(folder)


async def _run(argv: list[str], cwd: Path, meter: Meter) -> tuple[int, str]:
    """Runs a program that dies with us. Its exit code and the end of what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), *argv,
        cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    meter.began(process.pid)
    tail = b""
    try:
        assert process.stdout is not None  # noqa: S101 - asked for above
        while chunk := await process.stdout.read(65536):
            tail = (tail + chunk)[-_TAIL:]
            meter.printed(chunk.decode(errors="replace"))
        return await process.wait(), tail.decode(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
