"""The common part of all commands about jobs: find the cluster, run the command, turn exceptions into a message on
stderr and an exit code.

    def get(..., **params): speak(params, lambda here: _get(here, ...))

Rules:
- The HTTP library is imported only here, after the command line has been parsed.
- The requested output goes to stdout, error messages to stderr. EPIPE is not handled here, but in commands.py.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from trainyard.app.background import BackgroundError, background_of
from trainyard.app.kubeconfig import ClusterAccess, KubeconfigError, find_cluster
from trainyard.cli.codes import BAD, CANNOT, FAILED, INTERRUPTED
from trainyard.cli.layout import colour_on, fitted, note, terminal_width
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.client import Api


PATIENCE = 15.0  # seconds in which a request is retried after 429 (Too Many Requests)


class Here(msgspec.Struct, frozen=True):
    """The API client, the namespace of the command, and the cluster's address and credentials."""

    api: Api
    namespace: str
    access: ClusterAccess


class Said(Exception):
    """A command failed. The text is printed to stderr, `code` is the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class NoJob(Said):
    """The cluster has no job with that name, or not the requested data of the job."""


class NoCluster(Said):
    """No API server answers at the cluster's address."""


def speak(
    words: dict[str, Any],
    work: Callable[[Here], Awaitable[int | None]],
    instead: Callable[[], bool] = lambda: False,
) -> None:
    """Runs `work` with the cluster that the options `words` select, and exits.

    instead: called when the job or the cluster does not exist; returns False when it cannot replace `work`."""

    def with_cluster() -> int | None:
        try:
            return asyncio.run(_run_with_api(words, work))
        except (NoJob, NoCluster, KubeconfigError, BackgroundError) as error:
            if not instead():
                raise
            if not isinstance(error, NoJob) and "go on with" in str(error):
                note(str(error))  # the cluster is down, but its state is kept on disk
            return 0

    answer(with_cluster)


def answer(work: Callable[[], int | None]) -> None:
    """Runs `work` and exits with its code. A known exception becomes a message on stderr and an exit code."""
    code: int | None
    try:
        code = work()
        sys.stdout.flush()
    except Said as error:
        if str(error):
            note(str(error))
        code = error.code
    except (KubeconfigError, BackgroundError) as error:
        note(str(error))
        code = CANNOT
    except ManifestError as error:
        for problem in error.problems:
            note(str(problem))
        code = BAD
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code or 0)


async def _run_with_api(params: dict[str, Any], work: Callable[[Here], Awaitable[int | None]]) -> int | None:
    access = find_cluster(params.get("kubeconfig") or "", params.get("context") or "")
    # Log records are printed only on request ($TRAINYARD_LOG); the command itself prints what its user must know.
    logging.basicConfig(level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    from trainyard.client import ApiError, Unavailable

    try:
        api = access.api()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Said(f"{access.source}: its certificates cannot be used ({error}); write them anew", CANNOT) from None
    try:
        api.too_many_requests_timeout = PATIENCE
        async with api:
            return await work(Here(api, params.get("namespace") or access.namespace, access))
    except Unavailable as error:
        if error.code:
            raise Said(f"the cluster cannot answer now: {error.message}", CANNOT) from None
        if (cluster := background_of(access.source)) is not None and not cluster.daemon_alive:
            raise NoCluster(f"{cluster.down_reason()} (kubeconfig: {access.source})", CANNOT) from None
        text = f"the cluster at {_place(access.server)} does not answer: {_error_cause(error.message)}"
        raise NoCluster(f"{text}; is it up? (kubeconfig: {access.source})", CANNOT) from None
    except ApiError as error:
        if error.code == 401:
            text = f"the cluster at {_place(access.server)} does not know us: renew the token in {access.source}"
            raise Said(text, CANNOT) from None
        raise Said(error.message, FAILED) from None


async def is_local(here: Here) -> bool:
    """True for a Trainyard cluster on this machine: gitVersion of the embedded API server ends with "+trainyard"."""
    from trainyard.client import ApiError
    from trainyard.objects import decode

    if not on_loopback(here.access.server):
        return False
    try:
        version = decode(await here.api.request("GET", "/version"))
    except (ApiError, ValueError):
        return False
    return isinstance(version, dict) and str(version.get("gitVersion")).endswith("+trainyard")


def on_loopback(server: str) -> bool:
    """True for the URL of an API server on a loopback address."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _place(server: str) -> str:
    """Scheme and host of a URL. The path is left out: it may contain a token."""
    return "/".join(server.split("/")[:3])


def _error_cause(message: str) -> str:
    return message.split(": ", 1)[-1]


def out(text: str) -> None:
    """Prints requested output to stdout and flushes it: the command may go on for hours, and stdout may be a pipe."""
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")
    sys.stdout.flush()


def print_table(rows: list[list[str]], whole: bool) -> None:
    """Prints a table, cut at the terminal's width unless `whole` (`-o wide`). States are coloured on a terminal."""
    width = sys.maxsize if whole else terminal_width()
    out("\n".join(fitted(rows, width, colour_on(1))))


__all__ = ["Here", "Said", "note", "out", "print_table", "speak"]
