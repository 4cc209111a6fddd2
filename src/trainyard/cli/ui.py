"""`trainyard ui`: a link to the page of a cluster, or a page of its own for a real cluster or for the history."""

from __future__ import annotations

import asyncio
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

from trainyard.app.background import background_of
from trainyard.app.history import history_folder
from trainyard.app.kubeconfig import ClusterAccess, find_cluster
from trainyard.cli import options
from trainyard.cli.cluster_command import CommandError, print_output, run_and_exit
from trainyard.cli.codes import UNAVAILABLE
from trainyard.cli.layout import note
from trainyard.cli.signals import StopSignals
from trainyard.client import ApiClient, Forbidden
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace
from trainyard.window import Window, WindowOptions
from trainyard.window.registry import OpenWindow, open_windows

OPEN_SECONDS = 10.0  # the file with the link is kept so long for the browser


@click.command()
@click.argument("name", required=False)
@click.option("--open", "opens", is_flag=True, help="Open the link in the browser, too.")
@click.option("--history", is_flag=True, help="Show the jobs of the history, without a cluster, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --history or a real cluster: its port.")
@options.cluster
def ui(name: str | None, opens: bool, history: bool, port: int, **params: Any) -> None:
    """Print a link to the page that shows what trains: jobs, replicas, logs, and why a job fails.

    NAME is a cluster of `trainyard up`, or run-PID for a `trainyard run`; without it the one that is up. For a real
    cluster (--kubeconfig, --context, $KUBECONFIG) this command serves the page itself until Ctrl-C, with your rights.

    A link works once, within a minute, and only on this machine.

    Example: trainyard ui
    """

    def work() -> None:
        access = None if history or name else _access(params)
        cluster = background_of(access.source) if access else None
        if history:
            asyncio.run(_serve(None, WindowOptions("history", "history", history=history_folder()), port, opens))
        elif access is not None and cluster is None:
            asyncio.run(_serve(access, WindowOptions(access.server, "cluster", params["namespace"] or ""), port, opens))
        else:
            _show(_link(_choose(open_windows(), cluster.name if cluster else name)), opens=opens)

    run_and_exit(work)


def _access(params: dict[str, Any]) -> ClusterAccess | None:
    """The cluster that the options or $KUBECONFIG name; None if they name none."""
    if not (params["kubeconfig"] or params["context"] or os.environ.get("KUBECONFIG")):
        return None
    return find_cluster(params["kubeconfig"] or "", params["context"] or "")


def _choose(windows: list[OpenWindow], name: str | None) -> OpenWindow:
    """The window of that name; without a name the default cluster's, else the newest."""
    if name is None and windows:
        return next((window for window in windows if window.name == "default"), windows[0])
    for window in windows:
        if window.name == name:
            return window
    names = ", ".join(window.name for window in windows)
    if name is not None and names:
        raise CommandError(f"no page of that name: {name}; there is: {names}", UNAVAILABLE)
    fix = "`trainyard up` starts a cluster, and `trainyard ui --history` shows what ran before"
    raise CommandError(f"no cluster is up on this machine: {fix}", UNAVAILABLE)


def _link(window: OpenWindow) -> str:
    """A new link to the window. Raises CommandError."""
    request = Request(  # noqa: S310  (the URL is from a file of this user)
        f"{window.url}v1/invitations", b"", {"Authorization": f"Bearer {window.key}"}, method="POST"
    )
    try:
        with urlopen(request, timeout=10.0) as response:  # noqa: S310
            return str(json.load(response)["link"])
    except (URLError, OSError, ValueError, KeyError) as error:
        raise CommandError(f"the page of {window.name} does not answer: {error}", UNAVAILABLE) from None


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


async def _serve(access: ClusterAccess | None, window_options: WindowOptions, port: int, opens: bool) -> None:
    """Serve a page until Ctrl-C; Enter on a terminal prints another link."""
    stop, api = StopSignals(), access.api() if access else None
    if access is not None and api is not None and not window_options.namespace:
        window_options = replace(window_options, namespace=await _namespace(api, access))
    window = Window(api, window_options)
    try:
        await window.start(port)
        _show(window.link(), opens=False)
        note("The page is served until Ctrl-C.")
        if sys.stdin is not None and sys.stdin.isatty():
            note("Enter prints another link.")
            asyncio.get_running_loop().add_reader(sys.stdin, _show_another, window)
        if opens:
            await asyncio.to_thread(_open_browser, window.link())
        await stop.first.wait()
    finally:
        stop.close()
        await window.stop("`trainyard ui` has ended")
        if api is not None:
            await api.close()


def _show_another(window: Window) -> None:
    if sys.stdin.readline():
        _show(window.link(), opens=False)


async def _namespace(api: ApiClient, access: ClusterAccess) -> str:
    """ "", all namespaces, for who may list the pods of all; else that of the kubeconfig."""
    try:
        await api.list(POD, limit=1)
    except Forbidden:
        note(f"you may not list the pods of all namespaces: the page shows namespace {access.namespace}")
        return access.namespace
    return ""
