"""`trainyard ui`: a link to the page of a cluster, or a page of its own for a real cluster or for the history."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import click

from trainyard.app.background.clusters import Background, background_of
from trainyard.app.history.records import history_folder
from trainyard.app.kubeconfig import KubeconfigError, find_cluster
from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import (
    ClusterContext,
    CommandError,
    print_output,
    run_and_exit,
    run_with_cluster,
)
from trainyard.cli.command.codes import INVALID, UNAVAILABLE
from trainyard.cli.command.signals import StopSignals
from trainyard.cli.output.layout import note
from trainyard.client import ApiClient, Forbidden
from trainyard.objects.resources import POD
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions
from trainyard.page.running_servers import RunningServer, running_servers
from trainyard.page.sessions import Right

OPEN_SECONDS = 10.0  # the file with the link is kept so long for the browser


@click.command()
@click.argument("name", required=False)
@click.option("--open", "opens", is_flag=True, help="Open the link in the browser.")
@click.option("--history", is_flag=True, help="Serve the jobs of the history, until Ctrl-C.")
@click.option("--write", is_flag=True, help="Allow the page to suspend, resume, scale and delete jobs.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=0,
    help="Port of a page that this command serves.  [default: a free one]",
)
@options.cluster
def ui(name: str | None, opens: bool, history: bool, write: bool, port: int, **params: Any) -> None:
    """Print a link to the web page with jobs, replicas, logs, and why a job fails.

    NAME is a cluster of `trainyard up`, or run-PID for a `trainyard run`; the default is the one that is up. For
    another cluster (--kubeconfig, --context, $KUBECONFIG) this command serves the page itself, until Ctrl-C, with the
    permissions of the kubeconfig.

    A link works once, within a minute, and only on this machine. Without --write the page is read-only.

    Example: trainyard ui
    """

    cluster = _background_cluster(params)
    right: Right = "write" if write else "read"
    if history and write:
        run_and_exit(_refuse_history)
    elif history:
        history_options = PageOptions("history", "history", history=history_folder())
        run_and_exit(lambda: asyncio.run(_serve(None, history_options, right, port, opens)))
    elif name is None and cluster is None and _is_chosen(params):
        run_with_cluster(params, lambda context: _serve_cluster(context, params["namespace"] or "", right, port, opens))
    else:
        chosen = cluster.name if cluster and name is None else name
        run_and_exit(lambda: _show(_link(_choose(running_servers(), chosen), right), opens=opens))


def _refuse_history() -> None:
    text = "--write: no job of the history can be changed; leave out --write, or --history for the cluster that is up"
    raise CommandError(text, INVALID)


def _is_chosen(params: dict[str, Any]) -> bool:
    """Whether the options or $KUBECONFIG name a cluster."""
    return bool(params["kubeconfig"] or params["context"] or os.environ.get("KUBECONFIG"))


def _background_cluster(params: dict[str, Any]) -> Background | None:
    """The cluster of `trainyard up` that the options or $KUBECONFIG name; None if they name none, or another one."""
    if not _is_chosen(params):
        return None
    with contextlib.suppress(KubeconfigError):  # run_with_cluster reports it
        return background_of(find_cluster(params["kubeconfig"] or "", params["context"] or "").source)
    return None


def _choose(servers: list[RunningServer], name: str | None) -> RunningServer:
    """The page server of that name; without a name the default cluster's, else the newest."""
    if name is None and servers:
        return next((page_server for page_server in servers if page_server.name == "default"), servers[0])
    for page_server in servers:
        if page_server.name == name:
            return page_server
    names = ", ".join(page_server.name for page_server in servers)
    if name is not None and names:
        raise CommandError(f"there is no page of {name}; there are pages of: {names}", UNAVAILABLE)
    fix = "`trainyard up` starts a cluster, and `trainyard ui --history` shows what ran before"
    raise CommandError(f"no cluster is up on this machine: {fix}", UNAVAILABLE)


def _link(page_server: RunningServer, right: Right) -> str:
    """A new link to the page server, for a page with that right. Raises CommandError."""
    body = json.dumps({"write": right == "write"}).encode()
    headers = {"Authorization": f"Bearer {page_server.key}", "Content-Type": "application/json"}
    request = Request(f"{page_server.url}v1/invitations", body, headers)  # noqa: S310  (the URL is from a file of this user)
    try:
        with urlopen(request, timeout=10.0) as response:  # noqa: S310
            return str(json.load(response)["link"])
    except (URLError, OSError, ValueError, KeyError) as error:
        raise CommandError(
            f"the page of {page_server.name} does not answer: {error}; is it still up? See: trainyard status",
            UNAVAILABLE,
        ) from None


def _show(link: str, *, opens: bool) -> None:
    print_output(link)
    if opens:
        _open_browser(link)


def _open_browser(link: str) -> None:
    """The browser gets a file that only this user can read: other users can read the arguments of its process."""
    import webbrowser

    with tempfile.TemporaryDirectory(prefix="trainyard-ui-") as folder:
        file = Path(folder) / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><title>Trainyard</title>')
        file.chmod(0o600)
        if not webbrowser.open(file.as_uri()):
            note("no browser was found: open the link yourself")
            return
        time.sleep(OPEN_SECONDS)


async def _serve_cluster(context: ClusterContext, namespace: str, right: Right, port: int, opens: bool) -> None:
    """Serve the page of a cluster with the rights of its kubeconfig. `namespace`: the one that was named, or ""."""
    namespace = namespace or await _namespace(context)
    await _serve(context.api, PageOptions(context.access.server, "cluster", namespace), right, port, opens)


async def _serve(api: ApiClient | None, page_options: PageOptions, right: Right, port: int, opens: bool) -> None:
    """Serve a page until Ctrl-C; Enter on a terminal prints another link. Raises CommandError."""
    page_server = PageServer(api, page_options)
    try:
        await page_server.start(port)
    except OSError as error:
        raise CommandError(
            f"--port {port}: {error.strerror or error}; choose another port, or leave it out",
            UNAVAILABLE,
        ) from None
    stop = StopSignals()
    try:
        _show(page_server.link(right), opens=False)
        note("The page is served until Ctrl-C.")
        if sys.stdin is not None and sys.stdin.isatty():
            note("Enter prints another link.")
            asyncio.get_running_loop().add_reader(sys.stdin, _show_another, page_server, right)
        if opens:
            await asyncio.to_thread(_open_browser, page_server.link(right))
        await stop.first.wait()
    finally:
        stop.close()
        await page_server.stop("`trainyard ui` has ended")


def _show_another(page_server: PageServer, right: Right) -> None:
    if sys.stdin.readline():
        _show(page_server.link(right), opens=False)


async def _namespace(context: ClusterContext) -> str:
    """All namespaces ("") for who may list the pods of all; else that of the kubeconfig."""
    try:
        await context.api.list(POD, limit=1)
    except Forbidden:
        note(f"you may not list the pods of all namespaces: the page shows namespace {context.namespace}")
        return context.namespace
    return ""
