"""The common part of all commands about jobs: find the cluster, run the command, turn exceptions into a message on
stderr and an exit code.

    def get(..., **params): run_with_cluster(params, lambda context: _get(context, ...))

Rules:
- The HTTP library is imported only here, after the command line has been parsed.
- The requested output goes to stdout, error messages to stderr. EPIPE is not handled here, but in commands.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from trainyard.app.background.cluster_folders import BackgroundError
from trainyard.app.background.clusters import background_of
from trainyard.app.kubeconfig import ClusterAccess, KubeconfigError, find_cluster, on_loopback
from trainyard.cli.command.codes import FAILED, INTERRUPTED, INVALID, UNAVAILABLE
from trainyard.cli.output.layout import note, note_problems, terminal_table
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.client import ApiClient


TOO_MANY_REQUESTS_TIMEOUT = 15.0  # seconds in which a request is retried after 429 (Too Many Requests)


class ClusterContext(msgspec.Struct, frozen=True):
    """The API client, the namespace of the command, and the cluster's address and credentials."""

    api: ApiClient
    namespace: str
    access: ClusterAccess


class CommandError(Exception):
    """A command failed. The text is printed to stderr, `code` is the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class JobNotFound(CommandError):
    """The cluster has no job with that name, or not the requested data of the job."""


class ClusterUnreachable(CommandError):
    """No API server answers at the cluster's address."""


def run_with_cluster(
    params: dict[str, Any],
    work: Callable[[ClusterContext], Awaitable[int | None]],
    fallback: Callable[[], bool] = lambda: False,
    *,
    reads: bool = False,
) -> None:
    """Run `work` with the cluster that the options `params` select, and exit.

    reads: `work` changes nothing. Where neither an option nor $KUBECONFIG names a cluster, a job that the background
    cluster does not have, or all if it is not up, are those of a `trainyard run` that goes on.
    fallback: called when the job or the cluster does not exist; returns False when it cannot replace `work`."""
    is_chosen = bool(params.get("kubeconfig") or params.get("context") or os.environ.get("KUBECONFIG"))

    def with_cluster() -> int | None:
        try:
            return asyncio.run(_run_with_api(params, work))
        except (JobNotFound, ClusterUnreachable, KubeconfigError, BackgroundError) as error:
            if reads and not is_chosen and (code := _run_with_runs(params, work)) is not None:
                return code
            if not fallback():
                raise
            if not isinstance(error, JobNotFound) and "go on with" in str(error):
                note(str(error))  # the cluster is down, but its state is kept on disk
            return 0

    run_and_exit(with_cluster)


def _run_with_runs(params: dict[str, Any], work: Callable[[ClusterContext], Awaitable[int | None]]) -> int | None:
    """Run `work` with the cluster of the first `trainyard run` that has its job. None if there is none."""
    from trainyard.page.running_servers import run_kubeconfigs

    for path in run_kubeconfigs():
        with contextlib.suppress(JobNotFound, ClusterUnreachable, KubeconfigError):
            return asyncio.run(_run_with_api({**params, "kubeconfig": str(path)}, work)) or 0
    return None


def run_and_exit(work: Callable[[], int | None]) -> None:
    """Run `work` and exit with its code. A known exception becomes a message on stderr and an exit code."""
    code: int | None
    try:
        code = work()
        sys.stdout.flush()
    except CommandError as error:
        if str(error):
            note(str(error))
        code = error.code
    except (KubeconfigError, BackgroundError) as error:
        note(str(error))
        code = UNAVAILABLE
    except ManifestError as error:
        note_problems(error.problems)
        code = INVALID
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code or 0)


async def _run_with_api(params: dict[str, Any], work: Callable[[ClusterContext], Awaitable[int | None]]) -> int | None:
    access = find_cluster(params.get("kubeconfig") or "", params.get("context") or "")
    # Log records are printed only on request ($TRAINYARD_LOG); the command itself prints what its user must know.
    logging.basicConfig(level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    from trainyard.client import ApiError, Unavailable

    try:
        api = access.command_api()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CommandError(
            f"{access.source}: the certificates cannot be loaded ({error}); correct those of the context",
            UNAVAILABLE,
        ) from None
    try:
        api.too_many_requests_timeout = TOO_MANY_REQUESTS_TIMEOUT
        async with api:
            return await work(ClusterContext(api, params.get("namespace") or access.namespace, access))
    except Unavailable as error:
        if error.code:
            raise CommandError(
                f"the cluster at {_scheme_and_host(access.server)} cannot answer now: {error.message}; try again later",
                UNAVAILABLE,
            ) from None
        if (cluster := background_of(access.source)) is not None and not cluster.daemon_alive:
            raise ClusterUnreachable(f"{cluster.down_reason()} (kubeconfig: {access.source})", UNAVAILABLE) from None
        text = f"the cluster at {_scheme_and_host(access.server)} does not answer: {_error_cause(error.message)}"
        raise ClusterUnreachable(f"{text}; is it up? (kubeconfig: {access.source})", UNAVAILABLE) from None
    except ApiError as error:
        if error.code == 401:
            server = _scheme_and_host(access.server)
            text = f"the cluster at {server} rejects the credentials: renew the token in {access.source}"
            raise CommandError(text, UNAVAILABLE) from None
        raise CommandError(error.message, FAILED) from None


async def is_local(context: ClusterContext) -> bool:
    """True for a Trainyard cluster on this machine: gitVersion of the embedded API server ends with "+trainyard"."""
    from trainyard.client import ApiError
    from trainyard.objects import decode

    if not on_loopback(context.access.server):
        return False
    try:
        version = decode(await context.api.request("GET", "/version"))
    except (ApiError, ValueError):
        return False
    return isinstance(version, dict) and str(version.get("gitVersion")).endswith("+trainyard")


def _scheme_and_host(server: str) -> str:
    """Scheme and host of a URL. The path is left out: it may contain a token."""
    return "/".join(server.split("/")[:3])


def _error_cause(message: str) -> str:
    return message.split(": ", 1)[-1]


def print_output(text: str) -> None:
    """Print requested output to stdout and flush it: the command may go on for hours, and stdout may be a pipe."""
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")
    sys.stdout.flush()


def print_table(rows: list[list[str]], wide: bool) -> None:
    """Print a table, cut at the width of a terminal unless `wide` (`-o wide`). States are coloured on a terminal."""
    print_output("\n".join(terminal_table(rows, wide)))


__all__ = ["ClusterContext", "CommandError", "note", "print_output", "print_table", "run_with_cluster"]
