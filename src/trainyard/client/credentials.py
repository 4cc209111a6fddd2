"""Credentials: the bearer token and the TLS context of each request. Both change, so each request asks for them.

    StaticCredentials  a constant token and TLS context
    FileCredentials    loaded from files (a ServiceAccount's volume, a kubeconfig), again when one of them changes
    ExecPlugin         from an exec plugin (client.authentication.k8s.io), run again when its ExecCredential expires

Rules for this file:
- After a 401 the client calls `renew` with the rejected identity. It returns another identity, or the same if there is
  no other.
- Files that cannot be read, and a plugin that fails before its ExecCredential has expired, are logged as a warning and
  tried again by a later request; until then the last valid identity is used.
- A token or a key is never logged, and is in no `repr`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from trainyard.client.errors import Unavailable
from trainyard.objects import Json, parse_time

log = logging.getLogger(__name__)

EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
CHECK_INTERVAL = 1.0  # seconds between two checks of files; a rotated token is valid for minutes after its successor
PLUGIN_TIMEOUT = 60.0  # timeout of a plugin
RENEW_BEFORE_EXPIRY = 10.0  # an ExecCredential is renewed this many seconds before it expires


class Identity(msgspec.Struct, frozen=True, eq=False):
    """The credentials of one request: a bearer token ("" for none) and a TLS context (None: the system's CAs, no client
    certificate)."""

    token: str = ""
    secure: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Identity(secure={self.secure!r})"


class Credentials(Protocol):
    """A source of identities."""

    async def identity(self) -> Identity:
        """The current identity."""

    async def renew(self, refused: Identity) -> Identity:
        """A new identity after the server answered 401 to `refused`; the same object if there is no other."""


class StaticCredentials:
    """A constant identity."""

    def __init__(self, token: str = "", secure: ssl.SSLContext | None = None) -> None:
        self._identity = Identity(token, secure)

    async def identity(self) -> Identity:
        """The only identity; it does not expire."""
        return self._identity

    async def renew(self, refused: Identity) -> Identity:
        """The same identity again: the caller then does not retry."""
        return self._identity


class FileCredentials:
    """An identity that `load` reads from files. A request more than CHECK_INTERVAL after the last check looks whether
    they have changed: a volume may change at any moment. `clock` returns monotonic seconds."""

    def __init__(
        self, files: Sequence[Path], load: Callable[[], Identity], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Load the first identity. Raises what `load` raises."""
        self._files = files
        self._load = load
        self._clock, self._next_check = clock, 0.0
        self._stamps = self._get_stamps()
        self._identity = load()

    async def identity(self) -> Identity:
        """The identity of the files, which are read again when their modification times have changed."""
        if (now := self._clock()) >= self._next_check:
            self._next_check = now + CHECK_INTERVAL
            if (stamps := self._get_stamps()) != self._stamps:
                self._reload(stamps)
        return self._identity

    async def renew(self, refused: Identity) -> Identity:
        """Read the files again after a 401. Returns `refused` itself when neither they nor their token have changed:
        the caller does not retry then. A new client certificate changes no token."""
        if refused is self._identity:
            old_identity, old_stamps = self._identity, self._stamps
            self._reload(self._get_stamps())
            if self._identity.token == old_identity.token and self._stamps == old_stamps:
                self._identity = old_identity
        return self._identity

    def _reload(self, stamps: tuple[object, ...]) -> None:
        try:
            self._identity = self._load()
        except Exception as error:  # a file is incomplete, or missing for a moment
            log.warning("credentials could not be reloaded, the old ones stay in use error=%s", error)
        else:
            self._stamps = stamps

    def _get_stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in self._files)


def _stamp(path: Path) -> object:
    """A value that changes when the file changes; None when there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


class ExecConfig(msgspec.Struct, frozen=True):
    """The `exec` section of a user in a kubeconfig. `api_version` is its apiVersion, `install_hint` its installHint.

    `cluster` is the cluster information for the plugin, set with `provideClusterInfo`.
    """

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cluster: Json | None = None
    install_hint: str = ""

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"ExecConfig(command={self.command!r}, args={self.args!r})"


class PluginError(Unavailable):
    """The exec plugin did not give credentials. The message names the plugin; the reason is NoCredentials."""

    def __init__(self, program: ExecConfig, why: str) -> None:
        text = f"the credential plugin {program.command} {why}"
        super().__init__(0, "NoCredentials", f"{text}; {program.install_hint}" if program.install_hint else text)


class ExecPlugin:
    """The identity from an exec plugin, until it expires. The plugin runs once for all requests that wait for it."""

    def __init__(
        self,
        program: ExecConfig,
        secure: Callable[[bytes], ssl.SSLContext | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`secure` makes the TLS context from a client certificate with its key in PEM (b"" for none)."""
        self._program = program
        self._secure = secure
        self._now = now
        self._identity: Identity | None = None
        self._expires = float("inf")  # seconds since the epoch
        self._lock = asyncio.Lock()
        self._failures = 0  # number of failed runs: the requests that wait for a run share its failure
        self._last_error: PluginError | None = None

    async def identity(self) -> Identity:
        """The current identity. Raises PluginError when the plugin fails and no valid identity is left."""
        if self._identity is not None and self._now() < self._expires - RENEW_BEFORE_EXPIRY:
            return self._identity
        failures = self._failures
        async with self._lock:
            if self._identity is None or self._now() >= self._expires - RENEW_BEFORE_EXPIRY:
                try:
                    await self._renew(failures)
                except PluginError as error:
                    if self._identity is None or self._now() >= self._expires:
                        raise
                    log.warning("credentials are not renewed yet, the old ones are still valid error=%s", error)
            return self._current()

    async def renew(self, refused: Identity) -> Identity:
        """Run the plugin again after a 401, once for all requests that `refused` was sent with."""
        failures = self._failures
        async with self._lock:
            if self._identity is refused:
                await self._renew(failures)
            return self._current()

    def _current(self) -> Identity:
        if self._identity is None:
            raise PluginError(self._program, "has not answered")
        return self._identity

    async def _renew(self, failures: int) -> None:
        """Run the plugin. Raises PluginError.

        `failures` is the number of failures when the caller began to wait for the lock: if a run has failed since then,
        its error is raised again and the plugin is not run.
        """
        if self._last_error is not None and self._failures > failures:
            raise self._last_error
        try:
            answer = parse_exec_credential(self._program, await _run(self._program))
            self._identity, self._expires = Identity(answer.token, self._tls(answer.certificate)), answer.expiration
        except PluginError as error:
            self._failures, self._last_error = self._failures + 1, error
            raise

    def _tls(self, certificate: bytes) -> ssl.SSLContext | None:
        try:
            return self._secure(certificate)
        except ssl.SSLError as error:
            raise PluginError(self._program, f"returned an unusable certificate ({error.reason})") from None


class ExecCredentialStatus(msgspec.Struct, frozen=True):
    """The `status` of an ExecCredential: a token, a client certificate with its key (PEM), or both.

    `expiration` is the expirationTimestamp in seconds since the epoch, infinity without one.
    """

    token: str = ""
    certificate: bytes = b""
    expiration: float = float("inf")

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"ExecCredentialStatus(expiration={self.expiration!r})"


def parse_exec_credential(program: ExecConfig, text: bytes) -> ExecCredentialStatus:
    """Parse the output of a plugin, an ExecCredential. Raises PluginError, whose message has nothing of the output."""
    try:
        credential: Any = json.loads(text)
    except ValueError:
        raise PluginError(program, "printed something that is not JSON; it must print an ExecCredential") from None
    if (
        not isinstance(credential, dict)
        or credential.get("kind") != "ExecCredential"
        or credential.get("apiVersion") not in EXEC_API_VERSIONS
    ):
        raise PluginError(program, f"printed no ExecCredential of {' or '.join(EXEC_API_VERSIONS)}")
    status = credential.get("status")
    if not isinstance(status, dict):
        raise PluginError(program, "printed an ExecCredential without a status")
    certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
    if bool(certificate) != bool(key):
        raise PluginError(program, "printed only one of clientCertificateData and clientKeyData; it must print both")
    token = status.get("token") or ""
    if not token and not certificate:
        raise PluginError(program, "printed neither a token nor a client certificate")
    expiration = status.get("expirationTimestamp")
    until = parse_time(expiration)
    if expiration and until is None:
        raise PluginError(program, "printed an expirationTimestamp that is not a time of RFC 3339")
    pem = f"{certificate}\n{key}".encode() if certificate else b""
    return ExecCredentialStatus(str(token), pem, float("inf") if until is None else until)


async def _run(program: ExecConfig) -> bytes:
    """Run the plugin and return its stdout. Raises PluginError when it cannot be started, fails or times out."""
    spec: Json = {"interactive": False, **({"cluster": program.cluster} if program.cluster else {})}
    exec_info = json.dumps({"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec})
    env = {**os.environ, **program.env, "KUBERNETES_EXEC_INFO": exec_info}
    try:
        process = await asyncio.create_subprocess_exec(
            *(program.command, *program.args),
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr,  # the plugin writes its error messages for the user there
        )
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", "") or str(error)).lower()
        raise PluginError(program, f"cannot be started ({reason})") from None
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT):
            stdout, _ = await process.communicate()
    except TimeoutError:
        raise PluginError(program, f"has not responded within {PLUGIN_TIMEOUT:.0f} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise PluginError(program, f"ended with exit code {process.returncode}")
    return stdout
