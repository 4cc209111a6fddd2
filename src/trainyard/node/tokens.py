"""The service account tokens of one pod: asked for when its volumes are made, renewed while it lives.

Rules:
- Asked for by TokenRequest, bound to the pod: the API server lets it die with the pod.
- Renewed after four fifths of its life, or a day. The file is replaced as a whole: nobody reads half a token.
- A token that is refused is waited for as the kubelet does, longer each time."""

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
from trainyard.node.cluster import Cluster
from trainyard.node.pods import Missing, TokenAsked
from trainyard.objects import Json, name_of, namespace_of

log = logging.getLogger(__name__)

_PART_OF_LIFE, _LONGEST_LIFE = 0.8, 24 * 3600.0
_CLOCKS_DIFFER = 60.0  # when the server's clock is far behind ours, each token seems to have expired
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 122.0
_LOOK_EVERY = 60.0  # the clock may be moved


class Token(msgspec.Struct, frozen=True):
    text: str
    due: float  # when to ask for the next one


def asked_by(pod: Json) -> Iterator[tuple[str, str, TokenAsked]]:
    """Every token that the pod's volumes want: volume, path in it, and what to ask for."""
    for volume in (pod.get("spec") or {}).get("volumes") or []:
        for source in (volume.get("projected") or {}).get("sources") or []:
            if isinstance(wanted := source.get("serviceAccountToken"), dict):
                yield str(volume.get("name")), str(wanted.get("path") or "token"), TokenAsked.of(wanted)


class Tokens:
    def __init__(self, cluster: Cluster, pod: Json, now: Callable[[], float]) -> None:
        self._cluster, self._pod, self._now = cluster, pod, now
        self._have: dict[TokenAsked, Token] = {}
        self._failures = 0
        self.tasks = TaskSupervisor(f"node: pod {namespace_of(pod)}/{name_of(pod)}", cluster.say)

    async def all(self) -> dict[TokenAsked, str | Missing]:
        """What the pod's volumes want; in place of a token the reason why there is none yet."""
        found: dict[TokenAsked, str | Missing] = {}
        for _, _, asked in asked_by(self._pod):
            try:
                found[asked] = (await self._fresh(asked)).text
            except (ApiError, ValueError) as error:
                self._failures += 1
                reason = error.message if isinstance(error, ApiError) else str(error)
                found[asked] = Missing(f"failed to fetch token: {reason}", None, again=self._pause())
        return found

    def _pause(self) -> float:
        return min(_FIRST_RETRY * 2.0 ** min(max(self._failures - 1, 0), 10), _LONGEST_RETRY)

    async def _fresh(self, asked: TokenAsked) -> Token:
        token = self._have.get(asked)
        if token is None or token.due <= self._now():
            began = self._now()
            text, end = await self._cluster.token(self._pod, asked)
            left = end - began
            token = Token(text, began + (min(_PART_OF_LIFE * left, _LONGEST_LIFE) if left > 0 else _CLOCKS_DIFFER))
            self._have[asked], self._failures = token, 0
        return token

    def keep_fresh(self, volumes: Path) -> None:
        """Renew the files below that folder from now on."""
        self.stop()
        files = [(volumes / volume / path, asked) for volume, path, asked in asked_by(self._pod)]
        if files:
            self.tasks.start("renew tokens", lambda: self._renew(files))

    def stop(self) -> None:
        self.tasks.cancel_all()

    async def _renew(self, files: list[tuple[Path, TokenAsked]]) -> None:
        while True:
            wait = min(self._have[asked].due for _, asked in files) - self._now()
            await asyncio.sleep(max(min(wait, _LOOK_EVERY), self._pause()))
            for file, asked in files:
                before = self._have[asked]
                try:
                    token = await self._fresh(asked)
                    if token != before:
                        replace_file(file, token.text.encode())
                except (ApiError, ValueError, OSError) as error:
                    self._failures += 1
                    log.warning("a token is not renewed file=%s error=%s", file, error)


def replace_file(file: Path, content: bytes) -> None:
    """Another content under the same name and mode, at once."""
    new = file.with_name(f".{file.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as opened:
        opened.write(content)
        os.fchmod(opened.fileno(), stat.S_IMODE(file.stat().st_mode))
    new.replace(file)
