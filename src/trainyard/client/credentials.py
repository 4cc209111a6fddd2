"""Who we are to the API server, and whom we trust to be it: asked before each request, because both change.

    Fixed      a token and a TLS context that stay as they are
    Files      made from files (a service account's folder, a kubeconfig): made anew when one of them changes
    Plugin     what a program says (client.authentication.k8s.io): asked again when its answer expires

Rules for this file:
- After a 401 `anew` is asked, with the identity that was refused. It gives another one, or the same if there is none.
- What cannot be read now is said and tried again at the next request; the last identity that was good is used so long.
- A token or a key is never logged, and is in no `repr`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainyard.client.errors import Unavailable
from trainyard.objects import Json, parse_time

log = logging.getLogger(__name__)

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PLUGIN_SECONDS = 60.0
EARLY = 10.0  # an answer of a plugin is renewed so many seconds before it expires


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """What one request needs: a bearer token ("" for none) and a TLS context (None for the system's own)."""

    token: str = field(default="", repr=False)
    secure: ssl.SSLContext | None = None


class Credentials(Protocol):
    async def identity(self) -> Identity:
        """Who we are now."""

    async def anew(self, refused: Identity) -> Identity:
        """The server does not know that identity. Another one, or the same."""


class Fixed:
    """The same for ever."""

    def __init__(self, token: str = "", secure: ssl.SSLContext | None = None) -> None:
        self._identity = Identity(token, secure)

    async def identity(self) -> Identity:
        return self._identity

    async def anew(self, refused: Identity) -> Identity:
        return self._identity


class Files:
    """An identity that `load` makes of files. They are looked at each time: a volume may swap them at any moment."""

    def __init__(self, files: Sequence[Path], load: Callable[[], Identity]) -> None:
        """Raises what `load` raises: the first identity must be there."""
        self._files = files
        self._load = load
        self._stamps = self._look()
        self._identity = load()

    async def identity(self) -> Identity:
        if (stamps := self._look()) != self._stamps:
            self._read(stamps)
        return self._identity

    async def anew(self, refused: Identity) -> Identity:
        if refused is self._identity:
            before = self._identity
            self._read(self._look())
            if self._identity.token == before.token:  # nothing has changed: to try again would be of no use
                self._identity = before
        return self._identity

    def _read(self, stamps: tuple[object, ...]) -> None:
        try:
            self._identity = self._load()
        except Exception as error:  # half written, or away for a moment
            log.warning("credentials could not be read again, the old ones are used why=%s", error)
        else:
            self._stamps = stamps

    def _look(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in self._files)


def _stamp(path: Path) -> object:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ino, seen.st_size


@dataclass(frozen=True, slots=True)
class Program:
    """A kubeconfig's `exec`: the program and what it is told."""

    version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cluster: Json | None = None  # told to it when it asks for that
    hint: str = ""


class PluginError(Unavailable):
    """The program that gives credentials gave none. The text names it."""

    def __init__(self, program: Program, why: str) -> None:
        text = f"the credential plugin {program.command} {why}"
        super().__init__(0, "NoCredentials", f"{text}; {program.hint}" if program.hint else text)


class Plugin:
    """What a program says, until that expires. It is asked once, however many requests wait for its answer."""

    def __init__(
        self,
        program: Program,
        secure: Callable[[bytes], ssl.SSLContext | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`secure` makes the TLS context, given a client certificate with its key (or b"")."""
        self._program = program
        self._secure = secure
        self._now = now
        self._known: Identity | None = None
        self._until = float("inf")
        self._asking = asyncio.Lock()
        self._failures = 0  # those who wait for an answer share its failure
        self._failed: PluginError | None = None

    async def identity(self) -> Identity:
        if self._known is not None and self._now() < self._until - EARLY:
            return self._known
        failures = self._failures
        async with self._asking:
            if self._known is None or self._now() >= self._until - EARLY:
                try:
                    await self._ask(failures)
                except PluginError as error:
                    if self._known is None or self._now() >= self._until:
                        raise
                    log.warning("credentials are not renewed yet, the old ones still hold why=%s", error)
            return self._current()

    async def anew(self, refused: Identity) -> Identity:
        failures = self._failures
        async with self._asking:
            if self._known is refused:
                await self._ask(failures)
            return self._current()

    def _current(self) -> Identity:
        if self._known is None:
            raise PluginError(self._program, "has not answered")
        return self._known

    async def _ask(self, failures: int) -> None:
        """Ask it, unless it has failed since the caller began to wait, when there were so many failures."""
        if self._failed is not None and self._failures > failures:
            raise self._failed
        try:
            answer = parse_answer(self._program, await _run(self._program))
            self._known, self._until = Identity(answer.token, self._trusting(answer.certificate)), answer.until
        except PluginError as error:
            self._failures, self._failed = self._failures + 1, error
            raise

    def _trusting(self, certificate: bytes) -> ssl.SSLContext | None:
        try:
            return self._secure(certificate)
        except ssl.SSLError as error:
            raise PluginError(self._program, f"gave a certificate that is of no use ({error.reason})") from None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a plugin said."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    until: float = float("inf")


def parse_answer(program: Program, text: bytes) -> Answer:
    """Understand a plugin's output. Raises PluginError, which holds nothing of it."""
    try:
        said: Any = json.loads(text)
    except ValueError:
        raise PluginError(program, "printed something that is not JSON; it must print an ExecCredential") from None
    if not isinstance(said, dict) or said.get("kind") != "ExecCredential" or said.get("apiVersion") not in VERSIONS:
        raise PluginError(program, f"printed no ExecCredential of {' or '.join(VERSIONS)}")
    status = said.get("status")
    if not isinstance(status, dict):
        raise PluginError(program, "printed an ExecCredential without a status")
    certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
    if bool(certificate) != bool(key):
        raise PluginError(program, "printed only one of clientCertificateData and clientKeyData; it must print both")
    token = status.get("token") or ""
    if not token and not certificate:
        raise PluginError(program, "printed neither a token nor a client certificate")
    expires = status.get("expirationTimestamp")
    until = parse_time(expires)
    if expires and until is None:
        raise PluginError(program, "printed an expirationTimestamp that is not a time of RFC 3339")
    pem = f"{certificate}\n{key}".encode() if certificate else b""
    return Answer(str(token), pem, float("inf") if until is None else until)


async def _run(program: Program) -> bytes:
    spec: Json = {"interactive": False, **({"cluster": program.cluster} if program.cluster else {})}
    asked = json.dumps({"apiVersion": program.version, "kind": "ExecCredential", "spec": spec})
    env = {**os.environ, **program.env, "KUBERNETES_EXEC_INFO": asked}
    try:
        running = await asyncio.create_subprocess_exec(
            *(program.command, *program.args),
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr,  # it tells a person what is wrong
        )
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", "") or str(error)).lower()
        raise PluginError(program, f"cannot be started ({why})") from None
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            said, _ = await running.communicate()
    except TimeoutError:
        raise PluginError(program, f"has not answered within {PLUGIN_SECONDS:.0f} seconds") from None
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    if running.returncode:
        raise PluginError(program, f"ended with exit code {running.returncode}")
    return said


def tls(ca: bytes = b"", certificate: bytes = b"", insecure: bool = False) -> ssl.SSLContext | None:
    """The TLS context for PEM texts; None where the system's own will do. Raises ssl.SSLError."""
    if not (ca or certificate or insecure):
        return None
    context = ssl.create_default_context(cadata=ca.decode("ascii", "replace") if ca else None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        with tempfile.NamedTemporaryFile() as file:  # 0600; Python's ssl takes a client certificate from a file only
            file.write(certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return context
