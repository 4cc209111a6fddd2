"""`trainyard node`: join a cluster with this machine as a node; the pods bound to it run as processes.

Exit codes: 0 stopped by a signal, 1 another node has taken the name's Lease, 2 the command line or the kubeconfig is
invalid, 3 it cannot join: no cluster answers, the name's Lease is held, no network works.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.app.kubeconfig import KubeconfigError, find_cluster
from trainyard.cli.command import options
from trainyard.cli.command.codes import FAILED, INVALID, SUCCEEDED, UNAVAILABLE
from trainyard.cli.output.layout import note, note_problems
from trainyard.objects import Json, Problem
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.app.node_agent import JoinedNode, JoinOptions

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
EFFECTS = "NoSchedule|PreferNoSchedule|NoExecute"
TAINT = re.compile(rf"(?P<key>[A-Za-z0-9][-\w./]*)(=(?P<value>[-\w.]*))?:(?P<effect>{EFFECTS})")
RESOURCE = re.compile(r"([A-Za-z0-9][-\w./]*)=([0-9.]+[A-Za-z]{0,2})")


@click.command()
@click.option("--kubeconfig", metavar="FILE", default="", help="Which cluster.  [default: $KUBECONFIG]")
@click.option("--context", metavar="NAME", default="", help="Which context of it.  [default: the current one]")
@click.option("--name", metavar="NAME", default="", help="What the node is called.  [default: this machine's name]")
@options.runner
@click.option(
    "--capacity", multiple=True, metavar="RESOURCE=N", help="Say that the node has it, too: nvidia.com/gpu=1."
)
@click.option("--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Keep other pods away from it.")
@click.option(
    "--client-ca-file", metavar="FILE", help="Signer of the API server's client certificate.  [the cluster's]"
)
@click.option("--client-name", "callers", multiple=True, metavar="NAME", help="A common name of that certificate.")
@click.option("--tls-cert-file", "certificate", metavar="FILE", help="What the API server is shown, with:")
@click.option("--tls-private-key-file", "key", metavar="FILE", help="its key.  [default: a certificate made now]")
def node(**params: Any) -> None:
    """Join a cluster as a node: pods that its scheduler places here run as processes of this machine, as you.

    For tests and laptops. It is no kubelet, and no isolation is claimed: whoever may make pods in that cluster may run
    programs as you. Ctrl-C ends it and its pods; a second one at once. See docs/node.md.
    """
    logging.basicConfig(level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    try:
        code = asyncio.run(_serve(params))
    except ManifestError as error:
        note_problems(error.problems)
        code = INVALID
    except KubeconfigError as error:
        note(str(error))
        code = INVALID
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        note(f"cannot join: {error}")
        code = UNAVAILABLE
    sys.exit(code)


def _parse_options(params: dict[str, Any], folder: Path) -> JoinOptions:
    """The options of a node with this private folder. Raises ManifestError for invalid ones."""
    from trainyard.app.node_agent import API_SERVERS, JoinOptions, host_name

    if not params["kubeconfig"] and not os.environ.get("KUBECONFIG"):
        raise ManifestError([Problem("--kubeconfig", "name the kubeconfig of the cluster to join, or set $KUBECONFIG")])
    name = params["name"] or host_name()
    if not NAME.fullmatch(name):
        fix = "write lower-case letters, digits, '-', '.'"
        raise ManifestError([Problem("--name", f"{name!r} is no node's name; {fix}")])
    if bool(params["certificate"]) != bool(params["key"]):
        raise ManifestError([Problem("--tls-cert-file", "and --tls-private-key-file are given together")])
    client_ca = options.path(params["client_ca_file"])
    return JoinOptions(
        name=name,
        state=folder,
        network=params["network"],
        images=tuple(map(Path, params["images"])),
        cache=options.path(params["cache"]),
        python=options.interpreter(params["python"]),
        mounts=dict(map(options.parse_claim, params["mounts"])),
        extra_resources=dict(map(_resource, params["capacity"])),
        taints=tuple(map(_taint, params["taints"])),
        client_ca=client_ca.read_bytes() if client_ca else b"",
        client_names=params["callers"] or API_SERVERS,
        serving_certificate=(Path(params["certificate"]), Path(params["key"])) if params["certificate"] else None,
        say=note,
        access=find_cluster(params["kubeconfig"], params["context"]),  # read last: the options are checked first
    )


def _resource(text: str) -> tuple[str, str]:
    if not (match := RESOURCE.fullmatch(text)):
        raise ManifestError([Problem("--capacity", f"{text!r} is not RESOURCE=N; write for example nvidia.com/gpu=1")])
    return match[1], match[2]


def _taint(text: str) -> Json:
    if not (match := TAINT.fullmatch(text)):
        fix = "write for example trainyard.dev/laptop=true:NoSchedule"
        raise ManifestError([Problem("--taint", f"{text!r} is not KEY=VALUE:EFFECT; {fix}")])
    return {name: value for name, value in match.groupdict().items() if value is not None}


async def _serve(params: dict[str, Any]) -> int:
    from trainyard.app.background.folder import PrivateFolder
    from trainyard.app.node_agent import JoinedNode

    folder = PrivateFolder()
    try:
        join_options = _parse_options(params, folder.path)
        return await _run_node(JoinedNode(join_options), join_options)
    finally:
        folder.close()


async def _run_node(joined_node: JoinedNode, join_options: JoinOptions) -> int:
    """Run the node until the first signal or until another node takes its Lease. Returns the exit code."""
    from trainyard.cli.command.signals import StopSignals
    from trainyard.client import ApiError
    from trainyard.node.kubelet.node import NodeError

    stop_signals = StopSignals()
    try:
        if await stop_signals.run_unless(stop_signals.first, joined_node.start()):
            note(f"node {join_options.name} is ready; Ctrl-C ends it and its pods")
            await stop_signals.run_unless(stop_signals.first, joined_node.lease_taken.wait())
    except (ApiError, NodeError) as error:
        note(f"cannot join: {error}")
        return UNAVAILABLE
    finally:
        if not await stop_signals.run_unless(stop_signals.second, joined_node.stop()):
            await joined_node.stop(kill=True)
        stop_signals.close()
    return FAILED if joined_node.lease_taken.is_set() else SUCCEEDED
