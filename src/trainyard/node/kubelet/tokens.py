"""The service account tokens of one pod: requested when its volumes are created, renewed until the pod ends.

Rules:
- A token is requested with TokenRequest and bound to the pod: it becomes invalid when the pod is deleted.
- It is renewed after four fifths of its lifetime, or a day. The file is replaced atomically: no program reads a part of
  a token.
- A refused request is retried with exponential back-off, as in the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from trainyard.client import ApiError
from trainyard.controller_runtime import TaskSupervisor
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.node.kubelet.spec.pod_spec import Missing, TokenRequest, mounted_volumes
from trainyard.objects import Json, exponential_delay, name_of, namespace_of

log = logging.getLogger(__name__)

_RENEW_FRACTION, _MAX_AGE = 0.8, 24 * 3600.0
_CLOCK_SKEW_AGE = 60.0  # seconds until the renewal of a token that seems to have expired already:
# the server's clock is behind this machine's
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 122.0
_MAX_SLEEP = 60.0  # seconds; limited because the clock may be set


class Token(msgspec.Struct, frozen=True):
    """A ServiceAccount token and the time of its renewal."""

    text: str
    due: float  # Unix time at which it is renewed


def token_requests(pod: Json) -> Iterator[tuple[str, str, TokenRequest]]:
    """Every token of the pod's mounted projected volumes: name of the volume, path in it, and the request."""
    for volume in mounted_volumes(pod):
        for source in (volume.get("projected") or {}).get("sources") or []:
            if isinstance(projection := source.get("serviceAccountToken"), dict):
                yield str(volume.get("name")), str(projection.get("path") or "token"), TokenRequest.of(projection)


class Tokens:
    """The ServiceAccount tokens of one pod: requests them and renews them."""

    def __init__(self, cluster: NodeApiClient, pod: Json, now: Callable[[], float]) -> None:
        self._cluster, self._pod, self._now = cluster, pod, now
        self._tokens: dict[TokenRequest, Token] = {}
        self._failures = 0
        self.tasks = TaskSupervisor(f"node: pod {namespace_of(pod)}/{name_of(pod)}", cluster.say)

    async def all(self) -> dict[TokenRequest, str | Missing]:
        """The tokens of the pod's volumes; for a request that failed, the `Missing` to raise."""
        tokens: dict[TokenRequest, str | Missing] = {}
        for _, _, token_request in token_requests(self._pod):
            try:
                tokens[token_request] = (await self._fresh_token(token_request)).text
            except (ApiError, ValueError) as error:
                self._failures += 1
                reason = error.message if isinstance(error, ApiError) else str(error)
                tokens[token_request] = Missing(
                    f"failed to fetch token: {reason}", None, retry_after=self._retry_delay()
                )
        return tokens

    def _retry_delay(self) -> float:
        return exponential_delay(self._failures, _FIRST_RETRY, _LONGEST_RETRY)

    async def _fresh_token(self, token_request: TokenRequest) -> Token:
        token = self._tokens.get(token_request)
        if token is None or token.due <= self._now():
            requested_at = self._now()
            text, expiry = await self._cluster.token(self._pod, token_request)
            lifetime = expiry - requested_at
            token = Token(
                text, requested_at + (min(_RENEW_FRACTION * lifetime, _MAX_AGE) if lifetime > 0 else _CLOCK_SKEW_AGE)
            )
            self._tokens[token_request], self._failures = token, 0
        return token

    def start_renewal(self, volumes: Path) -> None:
        """Start to renew the token files in the folder `volumes`."""
        self.stop()
        files = [(volumes / volume / path, token_request) for volume, path, token_request in token_requests(self._pod)]
        if files:
            self.tasks.start("renew tokens", lambda: self._renew(files))

    def stop(self) -> None:
        """Stop the renewals."""
        self.tasks.cancel_all()

    async def _renew(self, files: list[tuple[Path, TokenRequest]]) -> None:
        while True:
            wait = min(self._tokens[token_request].due for _, token_request in files) - self._now()
            await asyncio.sleep(max(min(wait, _MAX_SLEEP), self._retry_delay()))
            for file, token_request in files:
                previous = self._tokens[token_request]
                try:
                    token = await self._fresh_token(token_request)
                    if token != previous:
                        replace_file(file, token.text.encode())
                except (ApiError, ValueError, OSError) as error:
                    self._failures += 1
                    log.warning("a token could not be renewed, retrying file=%s error=%s", file, error)


def replace_file(file: Path, content: bytes) -> None:
    """Replace the file's content atomically; its mode stays. Raises OSError."""
    new = file.with_name(f".{file.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as opened:
        opened.write(content)
        os.fchmod(opened.fileno(), stat.S_IMODE(file.stat().st_mode))
    new.replace(file)
